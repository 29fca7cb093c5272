//! Every entry of the catalogue of mistakes, on the files that the compile-fail tests use. Here without rustc, so that
//! the whole catalogue is checked in a moment; there as a user sees them.

use std::collections::BTreeMap;
use std::path::Path;

use oplus_front::{Diagnostics, Mistake, SourceError, scan_source_file};

/// Mistakes that no input can show unless the front end has a fault.
const INTERNAL: [&str; 1] = ["invalid"];

/// The files by name, `code.rs` or `code--variant.rs`.
fn files() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/ui");
    let entries = std::fs::read_dir(&folder).expect("the folder of compile-fail tests");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let sources = paths.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    let read = |path: &Path| std::fs::read_to_string(path).expect("a readable file");
    sources.map(|path| (path.file_stem().expect("a name").to_string_lossy().into_owned(), read(&path))).collect()
}

fn mistakes(text: &str) -> Diagnostics {
    match scan_source_file(text) {
        Err(SourceError::Mistakes(mistakes)) => mistakes,
        Err(error) => panic!("{error}"),
        Ok(_) => Diagnostics::default(),
    }
}

#[test]
fn each_file_shows_the_one_mistake_that_it_is_named_after() {
    let others = files().into_iter().filter_map(|(name, text)| {
        let found = mistakes(&text);
        let codes: Vec<&str> = found.iter().map(|diagnostic| diagnostic.mistake.code()).collect();
        (codes != [name.split("--").next().expect("a code")]).then(|| format!("{name}:\n{found}"))
    });
    let others: Vec<String> = others.collect();
    assert!(others.is_empty(), "{}", others.join("\n"));
}

#[test]
fn each_entry_of_the_catalogue_has_a_file() {
    let files = files();
    for code in Mistake::CODES.iter().filter(|code| !INTERNAL.contains(code)) {
        let has = files.keys().any(|name| name == code || name.starts_with(&format!("{code}--")));
        assert!(has, "no file for `{code}`");
    }
}

#[test]
fn messages() {
    let all: Vec<String> = files().iter().map(|(name, text)| format!("{name}: {}", mistakes(text))).collect();
    insta::assert_snapshot!(all.join("\n"));
}

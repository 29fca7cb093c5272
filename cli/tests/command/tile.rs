//! `oplus tile`, and `oplus explain --tile`.

use std::path::{Path, PathBuf};

use super::{fail, succeed, text};

/// The example of the book.
fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/book/src/tile/prefix_sum.tile")
}

/// A file with the example in which a piece of text is another.
fn changed(folder: &Path, from: &str, to: &str) -> PathBuf {
    let original = std::fs::read_to_string(example()).unwrap();
    assert!(original.contains(from), "{from}");
    let path = folder.join("changed.tile");
    std::fs::write(&path, original.replacen(from, to, 1)).unwrap();
    path
}

const ARGS: [&str; 6] = ["--grid", "2", "--arg", "x=iota:128", "--arg", "y=empty:128"];

/// Simulates a file with the arguments of the example.
fn simulated(path: &Path) -> Vec<&str> {
    ["tile", text(path), "--simulate"].into_iter().chain(ARGS).collect()
}

#[test]
fn the_example_of_the_book_does_what_the_book_says() {
    let path = example();
    let said = succeed(&["tile", text(&path)]);
    assert!(said.starts_with("prefix_sum: sound for sm_90a; 17 statements, 12 registers"), "{said}");
    let mut arguments = simulated(&path);
    arguments.extend(["--show", "128"]);
    let said = succeed(&arguments);
    let sums = (0..4).flat_map(|row: u64| (0..32).map(move |i| (row * 32..=row * 32 + i).sum::<u64>()));
    let sums: Vec<String> = sums.map(|sum| sum.to_string()).collect();
    assert_eq!(said.lines().next().unwrap(), format!("y: f32[128] = {}", sums.join(", ")));
    let book = std::fs::read_to_string(example().with_file_name("../tile.md")).unwrap();
    assert!(book.contains(said.lines().nth(1).unwrap()), "{said}");
    assert!(succeed(&["tile", text(&path), "--ptx", "--isa", "sm_80"]).contains(".entry prefix_sum("));
}

#[test]
fn faults_have_their_lines() {
    let folder = tempfile::tempdir().unwrap();
    let of = |from: &str, to: &str| fail(&simulated(&changed(folder.path(), from, to)));
    let cases = [
        ("loop {", "loop", "changed.tile:15:7: expected `{`, found the end of the line"),
        ("shuffle_up(f6, i7)", "shuffle_up(f6, l4)", "changed.tile:18: `f9 = shuffle_up(f6, l4)` "),
        ("load f6 = x[l4]\n", "\n", "changed.tile:18: `f9 = shuffle_up(f6, i7)` register 6 may be read before"),
        ("x[l4]", "x[l4] if p8 else", "changed.tile:11:29: expected a register or a constant"),
        ("i1 * 64", "i1 * 65", "x[128] is outside the 128 elements"),
        ("y[l4]", "y[0]", "races with line 24 `store y[0] = f6`"),
        ("x[l4]", "y[l4]", "changed.tile:11: `load f6 = y[l4]`: block (0, 0), warp "),
        ("x[l4]", "y[l4]", "] was never written"),
    ];
    for (from, to, expected) in cases {
        let message = of(from, to);
        assert!(message.contains(expected), "{to}: {message}");
    }
    assert!(fail(&["tile", "no.tile"]).contains("cannot read no.tile"));
}

#[test]
fn the_book_quotes_a_fault_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = changed(folder.path(), "shuffle_up(f6, i7)", "shuffle_up(f6, l4)");
    let message = fail(&["tile", text(&path)]).replace(text(&path), "prefix_sum.tile");
    let book = std::fs::read_to_string(example().with_file_name("../tile.md")).unwrap();
    assert!(book.contains(message.trim_end()), "{message}");
}

#[test]
fn arguments_that_do_not_suit_are_refused_in_words() {
    let path = example();
    let of = |more: &[&str]| {
        let mut arguments = vec!["tile", text(&path), "--simulate"];
        arguments.extend(more);
        fail(&arguments)
    };
    let cases = [
        (&["--arg", "x=iota:64"][..], "`y`: it is `write f32`: say which elements, such as --arg y=empty:1024"),
        (&["--arg", "z=1"], "the kernel has no parameter `z`; its parameters are x, y"),
        (&["--arg", "x=5"], "`x`: it is a pointer to f32: give elements, such as iota:1024"),
        (&["--arg", "x=values:1,b"], "`x`: `b` is not a number of type f32"),
        (&["--grid", "0"], "`0` is not a number of blocks"),
        (&["--arg", "x=steps:4"], "`steps` is no kind of elements"),
    ];
    for (arguments, expected) in cases {
        let message = of(arguments);
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn kernels_of_plans_can_be_simulated_from_their_files() {
    let folder = tempfile::tempdir().unwrap();
    for (name, shape) in
        [("affine", "B=3,T=100"), ("cumsum", "B=1,T=20000"), ("selective_scan", "B=1,G=1,D=2,N=4,T=40")]
    {
        let out = folder.path().join(name);
        let said = succeed(&["explain", name, "--shape", shape, "--tile", text(&out)]);
        let files: Vec<PathBuf> = std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!files.is_empty() && files.iter().all(|file| said.contains(text(file))), "{said}");
        for file in files {
            simulate_as_the_file_says(&file);
        }
    }
}

/// Runs the command in a file's comment.
fn simulate_as_the_file_says(file: &Path) {
    let kernel = std::fs::read_to_string(file).unwrap();
    let lines = kernel.lines().skip(1).take_while(|line| line.starts_with("//"));
    let words: String = lines.map(|line| line.trim_start_matches('/').trim_end_matches('\\')).collect();
    let words: Vec<String> = words.split_whitespace().map(|word| word.trim_matches('\'').to_owned()).collect();
    assert_eq!(words[..2], ["oplus", "tile"]);
    let mut arguments = vec!["tile", text(file), "--orders", "1"];
    arguments.extend(words[3..].iter().map(String::as_str));
    let said = succeed(&arguments);
    assert!(said.contains("no fault, and the same bits in 3 orders"), "{said}");
}

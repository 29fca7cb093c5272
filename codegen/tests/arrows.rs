//! Which files of the compiler know which: arrows between rooms run down only, and no files know one another in a circle.
//!
//! The files that a file knows are read from its `use` lines and its paths from `crate::` and `super::` on. A module and its child
//! modules are one unit: that a child names its parent is no arrow.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The rooms from the bottom up, each the top-level modules that belong to it. A file may know its own room and those below.
const ROOMS: [&[&str]; 11] = [
    &["words"],
    &["target"],
    &["tile", "build", "operands"],
    &["math", "verify"],
    &["simulate"],
    &["passes"],
    &["stage"],
    &["abi", "block"],
    &["schedules", "key"],
    &["plan"],
    &["explain"],
];

/// The names of the schedules' parameters, which nothing outside of their folders may know.
const PARAMETERS: [&str; 11] = [
    "Map",
    "Rows",
    "LookBack",
    "Columns",
    "StateSpace",
    "Flash",
    "StateSpaceBackward",
    "Chunkwise",
    "ChunkwiseBackward",
    "ChunkDelta",
    "ChunkDeltaBackward",
];

/// A module by its path, as `["stage", "cut"]`.
type Module = Vec<String>;

/// The text of every module, without comments and tests.
struct Sources(BTreeMap<Module, String>);

impl Sources {
    fn read() -> Sources {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut files = vec![];
        rust_files(&root, &mut files);
        let read = |path: &PathBuf| {
            let text = fs::read_to_string(path).expect("a file of the compiler");
            (module(path.strip_prefix(&root).expect("below the root")), code(&text))
        };
        Sources(files.iter().map(read).filter(|(module, _)| !module.contains(&"tests".to_owned())).collect())
    }

    /// The module that a path of names leads to: its longest beginning that is one.
    fn find(&self, path: &[String]) -> Option<Module> {
        (1..=path.len()).rev().map(|n| path[..n].to_vec()).find(|module| self.0.contains_key(module))
    }

    /// The modules that a module knows, but itself.
    fn known(&self, module: &Module) -> BTreeSet<Module> {
        let text = &self.0[module];
        let mut paths: Vec<String> = text
            .split("use ")
            .skip(1)
            .filter_map(|rest| rest.split_once(';'))
            .flat_map(|(tree, _)| expand(tree))
            .collect();
        for start in ["crate::", "super::"] {
            let spans = text.match_indices(start).map(|(at, _)| &text[at..]);
            paths.extend(
                spans.map(|rest| rest.chars().take_while(|c| c.is_alphanumeric() || "_:".contains(*c)).collect()),
            );
        }
        let resolved = paths.iter().filter_map(|path| self.find(&self.absolute(module, path)?));
        resolved.filter(|other| other != module).collect()
    }

    /// A path from the root of the crate on; `None` for one of another crate.
    fn absolute(&self, module: &Module, path: &str) -> Option<Vec<String>> {
        let mut names = path.split("::").map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).peekable();
        let mut from = match names.peek()?.as_str() {
            "crate" => vec![],
            "super" | "self" => module.clone(),
            first => {
                let child = [&module[..], &[first.to_owned()]].concat();
                return self.0.contains_key(&child).then(|| [&module[..], &names.collect::<Vec<_>>()].concat());
            }
        };
        while let Some(name) = names.next_if(|name| ["crate", "super", "self"].contains(&name.as_str())) {
            if name == "super" {
                from.pop();
            }
        }
        from.extend(names);
        Some(from)
    }
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

fn module(path: &Path) -> Module {
    let mut names: Module = path.with_extension("").iter().map(|name| name.to_string_lossy().into_owned()).collect();
    names.pop_if(|last| ["mod", "lib"].contains(&last.as_str()));
    names
}

/// A text without comments, and without the tests at its end.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The paths of a tree of a `use` line.
fn expand(tree: &str) -> Vec<String> {
    let Some((before, rest)) = tree.split_once('{') else {
        return vec![tree.split(" as ").next().unwrap_or_default().split_whitespace().collect()];
    };
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for c in inner.chars() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        match c {
            ',' if depth == 0 => parts.push(String::new()),
            _ => parts.last_mut().expect("a part").push(c),
        }
    }
    parts
        .iter()
        .filter(|part| !part.trim().is_empty())
        .flat_map(|part| expand(&format!("{}{}", before.trim(), part.trim())))
        .collect()
}

fn room(module: &Module) -> Option<usize> {
    let top = module.first()?;
    ROOMS.iter().position(|room| room.contains(&top.as_str()))
}

#[test]
fn every_module_has_a_room() {
    let sources = Sources::read();
    assert!(sources.0.len() > 200, "{}", sources.0.len());
    let stray: Vec<&Module> = sources.0.keys().filter(|module| !module.is_empty() && room(module).is_none()).collect();
    assert!(stray.is_empty(), "{stray:?}");
}

#[test]
fn arrows_run_down() {
    let sources = Sources::read();
    let up = |module: &Module| {
        let above = sources.known(module).into_iter().filter(|other| room(other) > room(module));
        above.map(|other| format!("{} knows {}", module.join("::"), other.join("::"))).collect::<Vec<_>>()
    };
    let up: Vec<String> = sources.0.keys().filter(|module| !module.is_empty()).flat_map(up).collect();
    assert!(up.is_empty(), "{}", up.join("\n"));
}

#[test]
fn no_files_know_one_another_in_a_circle() {
    let sources = Sources::read();
    let others = |module: &Module| {
        let known = sources.known(module).into_iter();
        known.filter(|other| !module.starts_with(other)).collect::<BTreeSet<Module>>()
    };
    let mut known: BTreeMap<&Module, BTreeSet<Module>> =
        sources.0.keys().filter(|module| !module.is_empty()).map(|module| (module, others(module))).collect();
    // A module is in no circle if it knows none of those that are left, or if none of them knows it.
    loop {
        let named: BTreeSet<Module> = known.values().flatten().cloned().collect();
        let is_free = |(module, others): (&&Module, &BTreeSet<Module>)| others.is_empty() || !named.contains(*module);
        let free: BTreeSet<Module> =
            known.iter().filter(|own| is_free(*own)).map(|(module, _)| (*module).clone()).collect();
        if free.is_empty() {
            break;
        }
        known.retain(|module, _| !free.contains(*module));
        known.values_mut().for_each(|others| others.retain(|other| !free.contains(other)));
    }
    assert!(known.is_empty(), "in a circle: {known:?}");
}

#[test]
fn only_its_folder_names_a_schedule() {
    let sources = Sources::read();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    for (module, text) in &sources.0 {
        let within = module.first().is_some_and(|top| top == "schedules");
        let words: BTreeSet<&str> = text.split(|c| !is_word(c)).collect();
        if within && module.len() > 2 {
            assert!(!words.contains("Schedule"), "{} knows the list of schedules", module.join("::"));
        }
        // `Map` is also a kind of stage, and `Columns` and `Rows` are plain words.
        let named = PARAMETERS[4..].iter().find(|name| !within && words.contains(**name));
        assert_eq!(named, None, "{} names a schedule", module.join("::"));
    }
}

#[test]
fn trees_of_use_lines_are_read() {
    let paths = expand("crate::a::{b::{C, D}, e, self as f}");
    assert_eq!(paths, ["crate::a::b::C", "crate::a::b::D", "crate::a::e", "crate::a::self"]);
    assert_eq!(expand("super::super::x"), ["super::super::x"]);
    assert_eq!(module(Path::new("stage/mod.rs")), ["stage"]);
    assert_eq!(code("a // b\nc\n#[cfg(test)]\nmod tests {\n}"), "a \nc");
}

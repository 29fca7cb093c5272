//! A check divided among processes: the driver compiles the kernels of a process one after another, those of several
//! processes at once.
//!
//! Part k of n takes every n-th case from the k-th on and writes its lines to its standard output; the process that
//! started the parts puts them into its own report.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::report::{Line, Report};
use super::source::Recorder;

/// Part `index` of `count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// From 0.
    pub index: usize,
    /// At least 1.
    pub count: usize,
}

/// The lines of a result that one part of a run writes.
#[derive(Serialize, Deserialize)]
pub struct Told {
    #[serde(flatten)]
    line: Line,
    /// The hashes of the texts of the line's kernels, where they are known.
    hashes: Vec<Option<String>>,
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Part, String> {
        let numbers = text.split_once('/').and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)));
        match numbers {
            Some((index, count)) if index < count => Ok(Part { index, count }),
            _ => Err(format!("`{text}` is not a part; write e.g. 0/4, the first of four")),
        }
    }
}

impl Part {
    /// The items of this part.
    pub fn of<T>(self, items: Vec<T>) -> Vec<T> {
        items.into_iter().skip(self.index).step_by(self.count).collect()
    }
}

impl Told {
    /// A line with what is known of its kernels' texts.
    pub fn new(line: &Line, recorder: &Recorder) -> Told {
        Told { line: line.clone(), hashes: line.keys.iter().map(|key| recorder.hash(key)).collect() }
    }
}

/// Runs all parts of `total` cases, each in a process that runs this program with `arguments` and its part.
///
/// # Errors
/// When a process cannot be started. One that ends badly is a failure in the report.
pub fn run(
    count: usize,
    total: usize,
    arguments: &[String],
    report: &Report,
    recorder: &Recorder,
) -> std::io::Result<()> {
    let program = std::env::current_exe()?;
    let start = |index: usize| {
        let part = format!("{index}/{count}");
        Command::new(&program).args(arguments).args(["--part", &part]).stdout(Stdio::piped()).spawn()
    };
    let children = (0..count).map(start).collect::<std::io::Result<Vec<Child>>>()?;
    let seen = Mutex::new(HashSet::new());
    std::thread::scope(|scope| {
        for (index, child) in children.into_iter().enumerate() {
            let seen = &seen;
            scope.spawn(move || {
                if let Err(error) = follow(child, (seen, total), report, recorder) {
                    let check = format!("part {index}/{count}");
                    report.add(&Line { check, error: Some(error), ..Line::default() });
                }
            });
        }
    });
    Ok(())
}

/// Reports what a part tells until it ends.
fn follow(
    mut child: Child,
    (seen, total): (&Mutex<HashSet<String>>, usize),
    report: &Report,
    recorder: &Recorder,
) -> Result<(), String> {
    let told = child.stdout.take().ok_or("its output is closed")?;
    for text in BufReader::new(told).lines() {
        let text = text.map_err(|e| e.to_string())?;
        let Told { line, hashes } = serde_json::from_str(&text).map_err(|e| format!("`{text}`: {e}"))?;
        for (key, hash) in line.keys.iter().zip(hashes) {
            hash.into_iter().for_each(|hash| recorder.note_hash(key, hash));
        }
        report.add(&line);
        if seen.lock().unwrap_or_else(PoisonError::into_inner).insert(line.check) {
            report.progress("cases", total);
        }
    }
    let status = child.wait().map_err(|e| e.to_string())?;
    if status.success() { Ok(()) } else { Err(format!("the process has ended with {status}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_disjoint_and_complete() {
        let mut all: Vec<u32> = (0..3).flat_map(|index| Part { index, count: 3 }.of((0..10).collect())).collect();
        all.sort_unstable();
        assert_eq!(all, (0..10).collect::<Vec<_>>());
        assert_eq!("1/4".parse(), Ok(Part { index: 1, count: 4 }));
        assert!(["4/4", "1", "a/2", "1/0"].iter().all(|text| text.parse::<Part>().is_err()));
    }

    #[test]
    fn what_a_part_tells_is_understood() {
        let recorder = Recorder::default();
        recorder.note("known", "text");
        let line = Line { check: "c".into(), keys: vec!["known".into(), "other".into()], ..Line::default() };
        let text = serde_json::to_string(&Told::new(&line, &recorder)).unwrap();
        let back: Told = serde_json::from_str(&text).unwrap();
        assert_eq!((back.line.keys, back.hashes), (line.keys, vec![recorder.hash("known"), None]));
    }
}

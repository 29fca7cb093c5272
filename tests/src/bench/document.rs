//! The tables of the book's chapter on benchmarks and the picture beside them, both made from one file of results.

use std::path::{Path, PathBuf};

use super::BenchError;
use super::plot::milliseconds;
use super::results::{Results, Time};
use super::sections::{Section, sections};

/// The results, the text that has tables of them, and the picture, from the repository's root on.
const RESULTS: &str = "docs/benchmarks.jsonl";
const TEXT: &str = "docs/book/src/benchmarks.md";
const PICTURE: &str = "docs/book/src/pictures/bench.svg";

/// A file of the repository, and what it should hold.
#[derive(Debug)]
pub struct Made {
    /// Where it is.
    pub path: PathBuf,
    /// Its present content; empty if there is no such file.
    pub found: String,
    /// Its content with the results.
    pub expected: String,
}

/// The chapter and the picture of a repository, as they are and as its results make them.
///
/// # Errors
/// [`BenchError::Document`] when a file cannot be read, or the chapter lacks a place for a table.
pub fn made(root: &Path) -> Result<Vec<Made>, BenchError> {
    let read = |name: &str| {
        let path = root.join(name);
        std::fs::read_to_string(&path).map_err(|e| BenchError::Document(format!("{}: {e}", path.display())))
    };
    let results = Results::read(&read(RESULTS)?);
    let text = read(TEXT)?;
    let mut with_tables = text.clone();
    for section in sections() {
        with_tables = replaced(&with_tables, &section, &table(&section, &results))?;
    }
    let picture =
        Made { path: root.join(PICTURE), found: read(PICTURE).unwrap_or_default(), expected: results.glance()? };
    Ok(vec![Made { path: root.join(TEXT), found: text, expected: with_tables }, picture])
}

/// Writes the chapter's tables and the picture; gives the files that have changed.
///
/// # Errors
/// [`BenchError::Document`] as [`made`] gives it, and when a file cannot be written.
pub fn write(root: &Path) -> Result<Vec<PathBuf>, BenchError> {
    let mut changed = vec![];
    for Made { path, found, expected } in made(root)? {
        if found != expected {
            std::fs::write(&path, expected).map_err(|e| BenchError::Document(format!("{}: {e}", path.display())))?;
            changed.push(path);
        }
    }
    Ok(changed)
}

/// The text with a table between the marks of its section.
fn replaced(text: &str, section: &Section, table: &str) -> Result<String, BenchError> {
    let (start, end) = (format!("<!-- benchmarks: {} -->\n", section.name), "<!-- end -->");
    let lacks = || BenchError::Document(format!("{TEXT} lacks `{}` … `{end}`", start.trim_end()));
    let from = text.find(&start).ok_or_else(lacks)? + start.len();
    let to = from + text[from..].find(end).ok_or_else(lacks)?;
    Ok(format!("{}{table}{}", &text[..from], &text[to..]))
}

/// A column: its heading, and what it says of a row's times.
type Column = (&'static str, fn(&Time) -> Option<String>);

/// A section as a table of Markdown: of the columns those that say something.
fn table(section: &Section, results: &Results) -> String {
    let all: [Column; 3] = [
        ("oplus ms", |time| Some(milliseconds(time.ms))),
        ("of copy", |time| time.share.map(|share| format!("{share:.2}"))),
        ("fastest peer ms", |time| time.peer.as_ref().map(|(name, ms)| format!("{} ({name})", milliseconds(*ms)))),
    ];
    let rows = section.rows.iter().map(|row| (&row.label, row.times(results)));
    let rows: Vec<(&String, [Option<Time>; 2])> = rows.filter(|(_, times)| times[0].is_some()).collect();
    let says = |(_, cell): &Column| rows.iter().any(|(_, times)| times.iter().flatten().any(|t| cell(t).is_some()));
    let columns: Vec<Column> = all.into_iter().filter(says).collect();
    let both = rows.iter().any(|(_, times)| times[1].is_some());
    let first = if both { "case, forward / backward" } else { "case" };
    let headings: Vec<&str> = [first].into_iter().chain(columns.iter().map(|(heading, _)| *heading)).collect();
    let mut text = format!("| {} |\n|{}\n", headings.join(" | "), "---|".repeat(headings.len()));
    for (label, times) in rows {
        let cells = columns.iter().map(|(_, cell)| {
            let said: Vec<Option<String>> = times.iter().flatten().map(cell).collect();
            let is_silent = said.iter().all(Option::is_none);
            if is_silent {
                "–".to_owned()
            } else {
                joined(said.into_iter().map(|words| words.unwrap_or("–".into())))
            }
        });
        text += &format!("| {label} | {} |\n", cells.collect::<Vec<_>>().join(" | "));
    }
    text
}

/// The text of a column for both passes; the name of a peer once.
fn joined(said: impl Iterator<Item = String>) -> String {
    let said: Vec<String> = said.collect();
    match &said[..] {
        [forward, backward] => match (forward.split_once(" ("), backward.split_once(" (")) {
            (Some((ms, name)), Some((_, other))) if name == other => format!("{ms} / {backward}"),
            _ => said.join(" / "),
        },
        _ => said.join(" / "),
    }
}

#[cfg(test)]
mod tests {
    use super::super::timer::CLEAN;
    use super::*;

    const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

    #[test]
    fn the_chapter_and_the_picture_are_those_of_the_results() {
        for Made { path, found, expected } in made(Path::new(ROOT)).unwrap() {
            let at = found.lines().zip(expected.lines()).find(|(found, expected)| found != expected);
            let path = path.display();
            assert!(found == expected, "{path} is not what `oplus-bench --document` writes: {at:?}");
        }
    }

    #[test]
    fn every_result_stands_in_a_table_and_says_where_and_when() {
        let text = std::fs::read_to_string(Path::new(ROOT).join(RESULTS)).unwrap();
        let results = Results::read(&text);
        assert_eq!(results.records().len(), text.lines().count(), "a line that is no record");
        let rows = || sections().into_iter().flat_map(|section| section.rows);
        for record in results.records() {
            assert!(record.device.is_some() && record.date.is_some(), "{record:?}");
            let is_known = |case: &str| rows().any(|row| row.forward == case || row.backward.as_deref() == Some(case));
            assert!(record.case.starts_with("copy-") || is_known(&record.case), "{}", record.case);
        }
        let cases: Vec<String> = super::super::cases::all().into_iter().map(|case| case.name).collect();
        for case in rows().flat_map(|row| [Some(row.forward), row.backward]).flatten() {
            let timed = case.strip_suffix(CLEAN).unwrap_or(&case);
            let is_timed = cases.iter().any(|case| case == timed) || !results.records().iter().any(|r| r.case == case);
            assert!(is_timed, "the bench program has no case `{case}`");
        }
    }

    #[test]
    fn a_table_has_the_columns_that_say_something() {
        let lines = r#"{"case": "retention-bf16-b8h32t2048k64v64-fwd", "impl": "oplus", "ms": 0.079}
{"case": "retention-bf16-b8h32t2048k64v64-bwd", "impl": "oplus", "ms": 0.543}
{"case": "gla-f16-b8h16t2048k64v64-fwd", "impl": "oplus", "ms": 0.325}"#;
        let section = sections().into_iter().find(|section| section.name == "linear").unwrap();
        let expected = "| case, forward / backward | oplus ms |\n|---|---|\n\
                        | retention bf16, 8 × 32 heads, 2048 steps, 64 × 64 | 0.0790 / 0.543 |\n\
                        | gated linear attention f16, 8 × 16 heads, 2048 steps, 64 × 64 | 0.325 |\n";
        let table = table(&section, &Results::read(lines));
        assert_eq!(table, expected);
        let text = "before\n<!-- benchmarks: linear -->\nold\n<!-- end -->\nafter";
        let expected = format!("before\n<!-- benchmarks: linear -->\n{table}<!-- end -->\nafter");
        assert_eq!(replaced(text, &section, &table).unwrap(), expected);
        assert!(matches!(replaced("no marks", &section, &table), Err(BenchError::Document(_))));
    }
}

//! The text: what this repository says about itself.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

/// The Markdown files and the doc comments of the Rust files under a folder, in the order of their paths; or one file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Box<dyn Error>> {
    if path.is_file() {
        return Ok(fs::read(path)?);
    }
    let mut text = String::new();
    for file in files(path)? {
        let content = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        match file.extension().and_then(|e| e.to_str()) {
            Some("md") => text.push_str(&content),
            _ => content.lines().filter_map(doc_comment).for_each(|line| text.extend([line, "\n"])),
        }
    }
    Ok(text.into_bytes())
}

/// The text of a line that is a doc comment.
fn doc_comment(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
    Some(text.strip_prefix(' ').unwrap_or(text))
}

/// The Markdown and Rust files of a folder; build output and hidden folders are left out.
fn files(folder: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let listed = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut entries = listed.map(|entry| entry.map(|e| e.path())).collect::<Result<Vec<_>, _>>()?;
    entries.sort();
    let mut found = vec![];
    for entry in entries {
        let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if entry.is_dir() && name != "target" && !name.starts_with('.') {
            found.extend(files(&entry)?);
        } else if name.ends_with(".md") || name.ends_with(".rs") {
            found.push(entry);
        }
    }
    Ok(found)
}

/// Random pieces of a text: `batch` sequences of `times` bytes, and the bytes that follow each of them.
pub(crate) fn pieces(text: &[u8], batch: usize, times: usize, random: &mut fastrand::Rng) -> (Vec<u8>, Vec<u8>) {
    let starts: Vec<usize> = (0..batch).map(|_| random.usize(..text.len() - times)).collect();
    let from = |offset: usize| starts.iter().flat_map(|at| &text[at + offset..][..times]).copied().collect();
    (from(0), from(1))
}

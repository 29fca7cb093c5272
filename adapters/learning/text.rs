//! The text: the Markdown files of this repository.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

/// The Markdown files under a folder, in the order of their paths; or one file.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, Box<dyn Error>> {
    if path.is_file() {
        return Ok(fs::read(path)?);
    }
    let mut text = vec![];
    for file in files(path)? {
        text.extend(fs::read(&file).map_err(|e| format!("{}: {e}", file.display()))?);
    }
    Ok(text)
}

/// The Markdown files of a folder; build output and hidden folders are left out.
fn files(folder: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    let listed = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut entries = listed.map(|entry| entry.map(|e| e.path())).collect::<Result<Vec<_>, _>>()?;
    entries.sort();
    let mut found = vec![];
    for entry in entries {
        let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if entry.is_dir() && name != "target" && !name.starts_with('.') {
            found.extend(files(&entry)?);
        } else if name.ends_with(".md") {
            found.push(entry);
        }
    }
    Ok(found)
}

/// Random pieces of a text: `batch` sequences of `times` bytes, and the bytes that follow each of them.
pub(super) fn pieces(text: &[u8], batch: usize, times: usize, random: &mut fastrand::Rng) -> (Vec<u8>, Vec<u8>) {
    let starts: Vec<usize> = (0..batch).map(|_| random.usize(..text.len() - times)).collect();
    let from = |offset: usize| starts.iter().flat_map(|at| &text[at + offset..][..times]).copied().collect();
    (from(0), from(1))
}

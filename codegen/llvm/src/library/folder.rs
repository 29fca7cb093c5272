//! The files of a folder of kernels: writing them, and telling what differs.

use super::{Entry, LibraryError, Manifest, table};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// Everything that a folder of kernels should contain.
#[derive(Clone, Debug, PartialEq)]
pub struct Contents {
    /// The manifest.
    pub manifest: Manifest,
    /// The table's path and how its text leads back to the folder.
    table: (&'static str, &'static str),
    /// PTX texts by file name.
    ptx: BTreeMap<String, String>,
}

/// A file that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// It is not there.
    Missing(String),
    /// It should not be there.
    Unexpected(String),
    /// It has other contents.
    Changed(String),
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::Missing(file) => write!(f, "{file} is missing"),
            Difference::Unexpected(file) => write!(f, "{file} does not belong here"),
            Difference::Changed(file) => write!(f, "{file} differs"),
        }
    }
}

impl Contents {
    /// A folder that programs embed with `include!("…/table.rs")` or open at run time.
    pub fn new(kernels: Vec<(Entry, String)>) -> Contents {
        Contents::with_table(kernels, ("table.rs", ""))
    }

    /// The crate of committed kernels: the table is one of its modules.
    pub fn of_crate(kernels: Vec<(Entry, String)>) -> Contents {
        Contents::with_table(kernels, ("src/table.rs", "../"))
    }

    fn with_table(kernels: Vec<(Entry, String)>, table: (&'static str, &'static str)) -> Contents {
        let ptx = kernels.iter().map(|(entry, text)| (entry.file.clone(), text.clone())).collect();
        let manifest = Manifest::new(kernels.into_iter().map(|(entry, _)| entry).collect());
        Contents { manifest, table, ptx }
    }

    /// Takes over the receipts of what is in the folder now.
    ///
    /// # Errors
    ///
    /// When the folder has a manifest that cannot be read.
    pub fn inherit(&mut self, folder: &Path) -> Result<(), LibraryError> {
        if let Some(older) = Manifest::read(folder)? {
            self.manifest.inherit(&older);
        }
        Ok(())
    }

    /// Bytes of all PTX files.
    pub fn bytes(&self) -> usize {
        self.ptx.values().map(String::len).sum()
    }

    /// Path and text of every file.
    fn files(&self) -> BTreeMap<String, String> {
        let mut files = self.ptx.clone();
        files.insert("manifest.toml".into(), self.manifest.text());
        files.insert(self.table.0.into(), table::text(&self.manifest, self.table.1));
        files
    }

    /// How a folder differs from these contents, by file.
    ///
    /// # Errors
    ///
    /// When a file is there and cannot be read.
    pub fn differences(&self, folder: &Path) -> Result<Vec<Difference>, LibraryError> {
        let mut found = vec![];
        for (file, text) in self.files() {
            let path = folder.join(&file);
            match std::fs::read(&path) {
                Ok(bytes) if bytes == text.as_bytes() => {}
                Ok(_) => found.push(Difference::Changed(file)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => found.push(Difference::Missing(file)),
                Err(error) => return Err(LibraryError::File { path, error }),
            }
        }
        found.extend(self.strangers(folder)?.into_iter().map(Difference::Unexpected));
        Ok(found)
    }

    /// Makes a folder have these contents; gives what was different.
    ///
    /// # Errors
    ///
    /// When a file cannot be read or written.
    pub fn write(&self, folder: &Path) -> Result<Vec<Difference>, LibraryError> {
        let (files, found) = (self.files(), self.differences(folder)?);
        for difference in &found {
            match difference {
                Difference::Unexpected(file) => at(folder.join(file), |path| std::fs::remove_file(path))?,
                Difference::Missing(file) | Difference::Changed(file) => {
                    at(folder.join(file), |path| {
                        path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
                        std::fs::write(path, &files[file])
                    })?;
                }
            }
        }
        Ok(found)
    }

    /// PTX files of the folder that are not of these contents.
    fn strangers(&self, folder: &Path) -> Result<Vec<String>, LibraryError> {
        let listed = match std::fs::read_dir(folder.join("ptx")) {
            Ok(listed) => listed,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(vec![]),
            Err(error) => return Err(LibraryError::File { path: folder.join("ptx"), error }),
        };
        let names = listed.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut strangers: Vec<String> =
            names.map(|name| format!("ptx/{name}")).filter(|file| !self.ptx.contains_key(file)).collect();
        strangers.sort_unstable();
        Ok(strangers)
    }
}

/// Does something with a file; the error names it.
fn at<T>(path: PathBuf, action: impl FnOnce(&PathBuf) -> std::io::Result<T>) -> Result<T, LibraryError> {
    action(&path).map_err(|error| LibraryError::File { path, error })
}

#[cfg(test)]
mod tests {
    use super::super::manifest::tests::{entry, receipt};
    use super::*;

    fn contents(kernels: &[(&str, &str)]) -> Contents {
        Contents::new(kernels.iter().map(|(key, text)| (entry(key, text), (*text).to_owned())).collect())
    }

    #[test]
    fn a_written_folder_does_not_differ() {
        let folder = tempfile::tempdir().unwrap();
        let contents = contents(&[("a", "one"), ("b", "two")]);
        assert_eq!(contents.write(folder.path()).unwrap().len(), 4);
        assert_eq!(contents.differences(folder.path()).unwrap(), []);
        assert_eq!((contents.write(folder.path()).unwrap(), contents.bytes()), (vec![], 6));
    }

    #[test]
    fn every_kind_of_difference_is_found_and_mended() {
        let folder = tempfile::tempdir().unwrap();
        contents(&[("a", "one"), ("b", "two"), ("c", "three")]).write(folder.path()).unwrap();
        let newer = contents(&[("a", "one"), ("b", "zwei"), ("d", "four")]);
        let found = newer.write(folder.path()).unwrap();
        let text = found.iter().map(Difference::to_string).collect::<Vec<_>>().join("; ");
        assert_eq!(
            text,
            "manifest.toml differs; ptx/b.sm_80.ptx differs; ptx/d.sm_80.ptx is missing; table.rs differs; \
             ptx/c.sm_80.ptx does not belong here"
        );
        assert_eq!(newer.differences(folder.path()).unwrap(), []);
    }

    #[test]
    fn receipts_survive_a_rewrite() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = contents(&[("a", "one")]);
        first.manifest.kernel[0].receipt = Some(receipt("one"));
        first.write(folder.path()).unwrap();
        let mut again = contents(&[("a", "one")]);
        again.inherit(folder.path()).unwrap();
        assert_eq!(again.differences(folder.path()).unwrap(), []);
    }
}

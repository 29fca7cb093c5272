//! Kernels in a folder that `oplus bake` has written.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{Code, Isa, KernelSource, Launch};
use crate::Error;

/// A folder with PTX files and a `manifest.toml` that lists their keys and hashes.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
    files: HashMap<String, Entry>,
}

/// What is read of a manifest; it says more, for people.
#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    kernel: Vec<Entry>,
}

/// A kernel of a manifest.
#[derive(Clone, Debug, Deserialize)]
struct Entry {
    key: String,
    file: String,
    blake3: String,
}

impl Folder {
    /// Reads the folder's manifest.
    ///
    /// # Errors
    /// [`Error::Source`] when there is no manifest, or not one.
    pub fn open(path: &Path) -> Result<Folder, Error> {
        let manifest = path.join("manifest.toml");
        let text = std::fs::read_to_string(&manifest).map_err(|e| damaged(&manifest, e.to_string()))?;
        let parsed: Manifest = toml::from_str(&text).map_err(|e| damaged(&manifest, e.to_string()))?;
        let files = parsed.kernel.into_iter().map(|entry| (entry.key.clone(), entry)).collect();
        Ok(Folder { path: path.to_owned(), files })
    }

    fn text(&self, key: &str) -> Result<Option<String>, Error> {
        let Some(entry) = self.files.get(key) else { return Ok(None) };
        let path = self.path.join(&entry.file);
        let text = std::fs::read_to_string(&path).map_err(|e| damaged(&path, e.to_string()))?;
        let hash = blake3::hash(text.as_bytes()).to_hex();
        if hash.as_str() != entry.blake3 {
            return Err(damaged(
                &path,
                format!("its hash is {hash}, the manifest says {}; bake it again", entry.blake3),
            ));
        }
        Ok(Some(text))
    }
}

fn damaged(path: &Path, reason: String) -> Error {
    Error::Source { path: path.display().to_string(), reason }
}

impl KernelSource for Folder {
    fn find(&self, launch: &Launch, _: Isa) -> Result<Option<Code>, Error> {
        Ok(self.text(&launch.key.to_string())?.map(Code::from))
    }

    fn has(&self, launch: &Launch, _: Isa) -> bool {
        self.files.contains_key(&launch.key.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(ptx: &str, hash_of: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let hash = blake3::hash(hash_of.as_bytes()).to_hex();
        let manifest =
            format!("version = 1\n[[kernel]]\nkey = \"ab\"\nfile = \"k.ptx\"\nblake3 = \"{hash}\"\nnote = 1\n");
        std::fs::write(folder.path().join("manifest.toml"), manifest).unwrap();
        std::fs::write(folder.path().join("k.ptx"), ptx).unwrap();
        folder
    }

    #[test]
    fn a_kernel_is_found_by_its_key() {
        let folder = folder(".version 7.8", ".version 7.8");
        let source = Folder::open(folder.path()).unwrap();
        assert_eq!(source.text("ab").unwrap().as_deref(), Some(".version 7.8"));
        assert_eq!(source.text("cd").unwrap(), None);
    }

    #[test]
    fn a_changed_file_is_refused_by_name() {
        let folder = folder(".version 7.9", ".version 7.8");
        let error = Folder::open(folder.path()).unwrap().text("ab").unwrap_err().to_string();
        assert!(error.contains("k.ptx") && error.contains("bake it again"), "{error}");
    }

    #[test]
    fn a_missing_file_or_manifest_is_refused_by_name() {
        let folder = folder("", "");
        let source = Folder::open(folder.path()).unwrap();
        std::fs::remove_file(folder.path().join("k.ptx")).unwrap();
        assert!(source.text("ab").unwrap_err().to_string().contains("k.ptx"));
        std::fs::write(folder.path().join("manifest.toml"), "kernel = 3").unwrap();
        assert!(Folder::open(folder.path()).unwrap_err().to_string().contains("manifest.toml"));
        std::fs::remove_file(folder.path().join("manifest.toml")).unwrap();
        assert!(matches!(Folder::open(folder.path()), Err(Error::Source { .. })));
    }
}

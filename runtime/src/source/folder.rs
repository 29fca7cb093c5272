//! Kernels in a folder that `oplus bake` has written.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use oplus_codegen::key::COMPILER_VERSION;
use serde::Deserialize;

use super::files::{Links, open, read};
use super::{Code, Isa, KernelSource, Launch, add, tile_hash};
use crate::Error;

/// A folder with PTX files and a `manifest.toml` that lists their keys and hashes, as `oplus bake` writes it.
///
/// ```no_run
/// use oplus::source::Folder;
///
/// Folder::open("kernels")?.register();
/// # Ok::<(), oplus::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
    files: HashMap<String, Entry>,
}

/// The part of a manifest that is read; it says more, for people.
#[derive(Deserialize)]
struct Manifest {
    version: u32,
    compiler: u32,
    #[serde(default)]
    kernel: Vec<Entry>,
}

/// A kernel of a manifest.
#[derive(Clone, Debug, Deserialize)]
struct Entry {
    key: String,
    file: String,
    blake3: String,
    /// The hash of the tile IR that it was compiled from.
    #[serde(default)]
    tile: String,
}

/// The version of manifests that is read.
const VERSION: u32 = 1;
/// Bytes of the largest file that is read.
const MOST_BYTES: u64 = 256 << 20;

impl Folder {
    /// Reads the folder's manifest.
    ///
    /// # Errors
    /// [`Error::Source`] when there is no manifest, or not one, when it is of another version of oplus, and when it names a
    /// file outside of the folder.
    pub fn open(path: impl AsRef<Path>) -> Result<Folder, Error> {
        let manifest = path.as_ref().join("manifest.toml");
        let text = text_of(&manifest)?;
        let parsed: Manifest = toml::from_str(&text).map_err(|e| damaged(&manifest, e.to_string()))?;
        let Manifest { version, compiler, kernel } = parsed;
        if version != VERSION {
            let reason = format!("it has version {version}, this version of oplus reads {VERSION}; bake it again");
            return Err(damaged(&manifest, reason));
        }
        if compiler != COMPILER_VERSION {
            let own = COMPILER_VERSION;
            let reason = format!("its kernels are of version {compiler} of the compiler, not {own}; bake them again");
            return Err(damaged(&manifest, reason));
        }
        if let Some(entry) = kernel.iter().find(|entry| !is_inside(&entry.file)) {
            return Err(damaged(&manifest, format!("its file `{}` is not in the folder", entry.file)));
        }
        let files = kernel.into_iter().map(|entry| (entry.key.clone(), entry)).collect();
        Ok(Folder { path: path.as_ref().to_owned(), files })
    }

    /// Adds the folder for all calls of the process. It is asked after the sources registered before, and before the embedded
    /// kernels.
    pub fn register(self) {
        add(Arc::new(self));
    }

    /// The text of a key, if it is what was baked.
    fn text(&self, key: &str, tile: impl FnOnce() -> Result<String, Error>) -> Result<Option<String>, Error> {
        let Some(entry) = self.files.get(key) else { return Ok(None) };
        let path = self.path.join(&entry.file);
        let text = text_of(&path)?;
        let hash = blake3::hash(text.as_bytes()).to_hex();
        if hash.as_str() != entry.blake3 {
            return Err(damaged(
                &path,
                format!("its hash is {hash}, the manifest says {}; bake it again", entry.blake3),
            ));
        }
        if tile()? != entry.tile {
            let reason = "it was compiled from other tile IR than this version of oplus makes; bake it again";
            return Err(damaged(&path, reason.into()));
        }
        Ok(Some(text))
    }
}

/// Whether a path leads from a folder to a file in it.
fn is_inside(file: &str) -> bool {
    let mut parts = Path::new(file).components().peekable();
    parts.peek().is_some() && parts.all(|part| matches!(part, Component::Normal(_)))
}

/// The text of a file of the folder.
fn text_of(path: &Path) -> Result<String, Error> {
    open(path, Links::Follow).and_then(|file| read(file, MOST_BYTES)).map_err(|e| damaged(path, e.to_string()))
}

fn damaged(path: &Path, reason: String) -> Error {
    Error::Source { path: path.display().to_string(), reason }
}

impl KernelSource for Folder {
    fn find(&self, launch: &Launch, isa: Isa) -> Result<Option<Code>, Error> {
        Ok(self.text(&launch.key.to_string(), || tile_hash(launch, isa))?.map(Code::from))
    }

    fn has(&self, launch: &Launch, _: Isa) -> bool {
        self.files.contains_key(&launch.key.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with one kernel.
    fn folder(ptx: &str, hash_of: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        manifest(&folder, &format!("version = 1\ncompiler = {COMPILER_VERSION}"), "k.ptx", hash_of);
        std::fs::write(folder.path().join("k.ptx"), ptx).unwrap();
        folder
    }

    fn manifest(folder: &tempfile::TempDir, head: &str, file: &str, hash_of: &str) {
        let hash = blake3::hash(hash_of.as_bytes()).to_hex();
        let kernel = format!("key = \"ab\"\nfile = \"{file}\"\nblake3 = \"{hash}\"\ntile = \"cd\"\nnote = 1\n");
        std::fs::write(folder.path().join("manifest.toml"), format!("{head}\n[[kernel]]\n{kernel}")).unwrap();
    }

    fn same_tile() -> Result<String, Error> {
        Ok("cd".into())
    }

    /// The error of a folder that cannot be opened.
    fn refused(folder: &tempfile::TempDir) -> String {
        Folder::open(folder.path()).unwrap_err().to_string()
    }

    #[test]
    fn a_kernel_is_found_by_its_key() {
        let folder = folder(".version 7.8", ".version 7.8");
        let source = Folder::open(folder.path().to_str().unwrap()).unwrap();
        assert_eq!(source.text("ab", same_tile).unwrap().as_deref(), Some(".version 7.8"));
        assert_eq!(source.text("cd", same_tile).unwrap(), None);
    }

    #[test]
    fn a_changed_file_is_refused_by_name() {
        let folder = folder(".version 7.9", ".version 7.8");
        let error = Folder::open(folder.path()).unwrap().text("ab", same_tile).unwrap_err().to_string();
        assert!(error.contains("k.ptx") && error.contains("bake it again"), "{error}");
    }

    #[test]
    fn a_kernel_of_other_tile_ir_is_refused_by_name() {
        let folder = folder(".version 7.8", ".version 7.8");
        let source = Folder::open(folder.path()).unwrap();
        let error = source.text("ab", || Ok("ef".into())).unwrap_err().to_string();
        assert!(error.contains("k.ptx") && error.contains("tile IR"), "{error}");
    }

    #[test]
    fn a_missing_file_or_manifest_is_refused_by_name() {
        let folder = folder("", "");
        let source = Folder::open(folder.path()).unwrap();
        std::fs::remove_file(folder.path().join("k.ptx")).unwrap();
        assert!(source.text("ab", same_tile).unwrap_err().to_string().contains("k.ptx"));
        std::fs::write(folder.path().join("manifest.toml"), "kernel = 3").unwrap();
        assert!(refused(&folder).contains("manifest.toml"));
        std::fs::remove_file(folder.path().join("manifest.toml")).unwrap();
        assert!(matches!(Folder::open(folder.path()), Err(Error::Source { .. })));
    }

    #[test]
    fn a_manifest_of_another_version_is_refused_with_both_versions() {
        let folder = folder("", "");
        manifest(&folder, &format!("version = 2\ncompiler = {COMPILER_VERSION}"), "k.ptx", "");
        assert!(refused(&folder).contains("version 2, this version of oplus reads 1"), "{}", refused(&folder));
        manifest(&folder, "version = 1\ncompiler = 4", "k.ptx", "");
        let said = refused(&folder);
        assert!(said.contains("version 4 of the compiler") && said.contains("bake them again"), "{said}");
        manifest(&folder, "version = 1", "k.ptx", "");
        assert!(refused(&folder).contains("compiler"));
    }

    #[test]
    fn a_manifest_does_not_lead_out_of_its_folder() {
        let folder = folder("", "");
        for file in ["../k.ptx", "ptx/../../k.ptx", "/etc/passwd", "./../k.ptx", ".", ""] {
            manifest(&folder, &format!("version = 1\ncompiler = {COMPILER_VERSION}"), file, "");
            let said = refused(&folder);
            assert!(said.contains(&format!("`{file}` is not in the folder")), "{said}");
        }
    }

    /// Nothing waits for whoever would write into the pipe.
    #[cfg(unix)]
    #[test]
    fn a_pipe_in_the_place_of_a_file_is_refused() {
        let folder = folder("", "");
        let source = Folder::open(folder.path()).unwrap();
        for name in ["k.ptx", "manifest.toml"] {
            let path = folder.path().join(name);
            std::fs::remove_file(&path).unwrap();
            assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        }
        assert!(source.text("ab", same_tile).unwrap_err().to_string().contains("not a regular file"));
        assert!(refused(&folder).contains("not a regular file"));
    }
}

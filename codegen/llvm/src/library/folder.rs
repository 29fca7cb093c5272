//! The files of a folder of kernels: writing them, and telling what differs.

use super::{Built, LibraryError, Manifest, table};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Everything that a folder of kernels should contain.
#[derive(Clone, Debug, PartialEq)]
pub struct Contents {
    /// The manifest.
    pub manifest: Manifest,
    form: Form,
    /// PTX and machine code by the names of the files.
    code: BTreeMap<String, Vec<u8>>,
}

/// What a folder is for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    /// Programs embed it with `include!("…/table.rs")` or open it at run time. Every key has the hash of its text and of the
    /// tile IR that this was compiled from.
    Plain { seals: BTreeMap<String, String> },
    /// The crate of committed kernels.
    Crate,
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
    /// A folder that programs embed with `include!("…/table.rs")` or open at run time: without machine code.
    pub fn new(mut kernels: Vec<Built>) -> Contents {
        kernels.iter_mut().for_each(|kernel| kernel.entry.cubin = None);
        let code = kernels.iter().map(|k| (k.entry.file.clone(), k.text.clone().into_bytes())).collect();
        let seal = |kernel: &Built| {
            let tile = kernel.entry.tile.as_deref().unwrap_or_default();
            (kernel.entry.key.clone(), oplus_codegen::key::seal(tile, &kernel.text))
        };
        let seals = kernels.iter().map(seal).collect();
        let mut manifest = Manifest::new(kernels.into_iter().map(|kernel| kernel.entry).collect());
        manifest.llvm = Some(crate::llvm_version());
        Contents { manifest, form: Form::Plain { seals }, code }
    }

    /// The crate of committed kernels: the table is one of its modules, files are compressed.
    pub fn of_crate(mut kernels: Vec<Built>) -> Contents {
        let pack = |Built { entry, text, cubin }: &mut Built| {
            entry.file.push_str(".gz");
            entry.tile = None;
            let named = entry.cubin.as_ref().zip(cubin.as_ref()).map(|(named, code)| (named.file.clone(), pack(code)));
            [Some((entry.file.clone(), pack(text.as_bytes()))), named]
        };
        let code = kernels.par_iter_mut().flat_map_iter(pack).flatten_iter().collect();
        let manifest = Manifest::new(kernels.into_iter().map(|kernel| kernel.entry).collect());
        Contents { manifest, form: Form::Crate, code }
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

    /// Bytes of all files of PTX and machine code.
    pub fn bytes(&self) -> usize {
        self.code.values().map(Vec::len).sum()
    }

    /// Path and contents of every file.
    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut files = self.code.clone();
        files.insert("manifest.toml".into(), self.manifest.text().into_bytes());
        let (path, text) = match &self.form {
            Form::Plain { seals } => ("table.rs", table::of_texts(&self.manifest, seals)),
            Form::Crate => ("src/table.rs", table::of_packed(&self.manifest)),
        };
        files.insert(path.into(), text.into_bytes());
        files
    }

    /// How a folder differs from these contents, by file.
    ///
    /// # Errors
    ///
    /// When a file is there and cannot be read.
    pub fn differences(&self, folder: &Path) -> Result<Vec<Difference>, LibraryError> {
        let mut found = vec![];
        for (file, contents) in self.files() {
            let path = folder.join(&file);
            match std::fs::read(&path) {
                Ok(bytes) if bytes == contents => {}
                Ok(_) => found.push(Difference::Changed(file)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => found.push(Difference::Missing(file)),
                Err(error) => return Err(LibraryError::File { path, error }),
            }
        }
        found.extend(self.strangers(folder)?.into_iter().map(Difference::Unexpected));
        Ok(found)
    }

    /// Checks that committed kernels have the texts that the folder's manifest has under their keys. Caches find kernels by their
    /// keys: another text is to have another key, which is what the compiler's version is for.
    ///
    /// # Errors
    ///
    /// [`LibraryError::EqualKeys`] when a text has changed, and when there is a manifest that cannot be read.
    pub fn check_keys(&self, folder: &Path) -> Result<(), LibraryError> {
        let older = if self.form == Form::Crate { Manifest::read(folder)? } else { None };
        let files = older.map(|older| self.manifest.changed_under_equal_keys(&older)).unwrap_or_default();
        if files.is_empty() { Ok(()) } else { Err(LibraryError::EqualKeys { files }) }
    }

    /// Makes a folder have these contents; gives what was different.
    ///
    /// # Errors
    ///
    /// When a file cannot be read or written, and those of [`check_keys`](Contents::check_keys).
    pub fn write(&self, folder: &Path) -> Result<Vec<Difference>, LibraryError> {
        self.check_keys(folder)?;
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

    /// Files of PTX and machine code in the folder that are not of these contents.
    fn strangers(&self, folder: &Path) -> Result<Vec<String>, LibraryError> {
        let mut strangers = vec![];
        for part in ["ptx", "cubin"] {
            let listed = match std::fs::read_dir(folder.join(part)) {
                Ok(listed) => listed,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(LibraryError::File { path: folder.join(part), error }),
            };
            let names = listed.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
            strangers.extend(names.map(|name| format!("{part}/{name}")).filter(|file| !self.code.contains_key(file)));
        }
        strangers.sort_unstable();
        Ok(strangers)
    }
}

/// A gzip file without name and date.
fn pack(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(vec![], Compression::best());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("a vector takes all bytes")
}

/// The contents of a gzip file, if it is one.
pub(super) fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = vec![];
    GzDecoder::new(packed).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Does something with a file; the error names it.
fn at<T>(path: PathBuf, action: impl FnOnce(&PathBuf) -> std::io::Result<T>) -> Result<T, LibraryError> {
    action(&path).map_err(|error| LibraryError::File { path, error })
}

#[cfg(test)]
mod tests {
    use super::super::manifest::tests::{cubin, entry, receipt};
    use super::*;

    fn built(key: &str, text: &str, code: Option<&[u8]>) -> Built {
        let mut entry = entry(key, text);
        entry.cubin = code.map(|code| cubin(key, code));
        Built { entry, text: text.into(), cubin: code.map(Vec::from) }
    }

    fn contents(kernels: &[(&str, &str)]) -> Contents {
        Contents::new(kernels.iter().map(|(key, text)| built(key, text, None)).collect())
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
    fn the_crate_has_compressed_files() {
        let folder = tempfile::tempdir().unwrap();
        let contents = Contents::of_crate(vec![built("a", "one", Some(b"code")), built("b", "two", None)]);
        contents.write(folder.path()).unwrap();
        for (file, text) in [("ptx/a.sm_80.ptx.gz", "one"), ("cubin/a.sm_90a.cubin.gz", "code")] {
            let packed = std::fs::read(folder.path().join(file)).unwrap();
            assert_eq!(unpack(&packed).as_deref(), Some(text.as_bytes()));
        }
        let table = std::fs::read_to_string(folder.path().join("src/table.rs")).unwrap();
        let ptx = |key: &str| format!("(\"{key}\", include_bytes!(\"../ptx/{key}.sm_80.ptx.gz\"), ");
        assert!(table.contains(&(ptx("a") + "include_bytes!(\"../cubin/a.sm_90a.cubin.gz\"))")), "{table}");
        assert!(table.contains(&(ptx("b") + "&[])")), "{table}");
        assert_eq!(contents.manifest.kernel[0].blake3, blake3::hash(b"one").to_hex().as_str());
        let [other, nothing] = [vec![built("b", "two", None)], vec![]].map(Contents::of_crate);
        let strange = |contents: &Contents| contents.strangers(folder.path()).unwrap();
        assert_eq!(strange(&other), ["cubin/a.sm_90a.cubin.gz", "ptx/a.sm_80.ptx.gz"]);
        assert_eq!(strange(&nothing).len(), 3);
    }

    /// Whoever changes the compiler and not its version is told so, whether he checks the folder or writes it.
    #[test]
    fn another_text_under_an_equal_key_is_refused_and_leaves_the_folder_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let of = |kernels: &[(&str, &str)]| {
            Contents::of_crate(kernels.iter().map(|(key, text)| built(key, text, None)).collect())
        };
        let first = of(&[("a", "one"), ("b", "two")]);
        first.write(folder.path()).unwrap();
        let changed = of(&[("a", "one"), ("b", "zwei"), ("c", "three")]);
        for refused in [changed.check_keys(folder.path()), changed.write(folder.path()).map(|_| ())] {
            let said = refused.unwrap_err().to_string();
            assert!(said.contains("raise COMPILER_VERSION") && said.contains("ptx/b.sm_80.ptx.gz"), "{said}");
            assert!(!said.contains("ptx/a.sm_80"), "{said}");
        }
        assert_eq!(first.differences(folder.path()).unwrap(), []);
        // Other keys, as another version gives them, may have any text; and programs' own folders are rewritten.
        let raised = of(&[("a2", "one"), ("b2", "zwei")]);
        assert_eq!(raised.write(folder.path()).unwrap().len(), 6);
        contents(&[("a2", "other")]).check_keys(folder.path()).unwrap();
    }

    #[test]
    fn folders_for_programs_say_what_their_texts_were_compiled_from() {
        let mut kernel = built("a", "one", None);
        kernel.entry.tile = Some("cd".into());
        let plain = Contents::new(vec![kernel.clone()]);
        let text = plain.manifest.text();
        assert!(text.contains("tile = \"cd\"") && text.contains("llvm = \"22."), "{text}");
        let table = String::from_utf8(plain.files().remove("table.rs").unwrap()).unwrap();
        let seal = oplus_codegen::key::seal("cd", "one");
        assert!(table.contains(&format!("(\"a\", \"{seal}\", include_str!(\"ptx/a.sm_80.ptx\"))")), "{table}");
        let text = Contents::of_crate(vec![kernel]).manifest.text();
        assert!(!text.contains("tile =") && !text.contains("llvm ="), "{text}");
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

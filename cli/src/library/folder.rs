//! The files of a folder of kernels: writing them, and telling what differs.

use super::shards::{Package, Shard, pack, unpack};
use super::{Built, Entry, LibraryError, Manifest, shards, table};
use rayon::prelude::*;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};

/// Everything that a folder of kernels should contain.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Contents {
    /// The manifest.
    pub(crate) manifest: Manifest,
    /// The tables of kernels, by the names of the files.
    tables: BTreeMap<&'static str, String>,
    /// PTX and machine code by the names of the files, before they are compressed.
    code: BTreeMap<String, Vec<u8>>,
    /// The use of the folder.
    form: Form,
}

/// The uses of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Programs embed it with `include!("…/table.rs")` or open it at run time.
    Plain,
    /// The crates of committed kernels.
    Crates,
}

impl Form {
    /// Folders in which there is nothing but code.
    fn folders(self) -> &'static [&'static str] {
        match self {
            Form::Plain => &["ptx"],
            Form::Crates => &["shards", "sm90/shards"],
        }
    }
}

/// How the names of compressed files end.
const COMPRESSED: &str = ".zst";

/// A file that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Difference {
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
    pub(crate) fn new(mut kernels: Vec<Built>) -> Contents {
        kernels.iter_mut().for_each(|kernel| kernel.entry.cubin = None);
        let code = kernels.iter().map(|k| (k.entry.file.clone(), k.text.clone().into_bytes())).collect();
        let seal = |kernel: &Built| {
            let tile = kernel.entry.tile.as_deref().unwrap_or_default();
            (kernel.entry.key.clone(), oplus_codegen::key::seal(tile, &kernel.text))
        };
        let seals = kernels.iter().map(seal).collect();
        let mut manifest = Manifest::new(kernels.into_iter().map(|kernel| kernel.entry).collect());
        manifest.llvm = Some(oplus_llvm::llvm_version());
        let tables = [("table.rs", table::table(&manifest, &seals))].into();
        Contents { manifest, tables, code, form: Form::Plain }
    }

    /// The crates of committed kernels: one of PTX, one of machine code, with a manifest of both.
    pub(crate) fn of_crates(kernels: Vec<Built>) -> Contents {
        let committed = |kernel: &Built| Entry { tile: None, ..kernel.entry.clone() };
        let mut manifest = Manifest::new(kernels.iter().map(committed).collect());
        let built: HashMap<&str, &Built> = kernels.iter().map(|k| (k.entry.key.as_str(), k)).collect();
        let code = |package: Package, key: &str| match package {
            Package::Ptx => built.get(key).map(|kernel| kernel.text.as_bytes()),
            Package::MachineCode => built.get(key).and_then(|kernel| kernel.cubin.as_deref()),
        };
        let [texts, machine] = Package::ALL.map(|p| (p, shards::divide(p, &manifest, |key| code(p, key))));
        let tables = [("src/table.rs", &texts), ("sm90/src/table.rs", &machine)];
        let tables = tables.map(|(file, (package, shards))| (file, shards::table(*package, shards))).into();
        let mut contents = BTreeMap::new();
        for (package, shards) in [texts, machine] {
            shards.into_iter().for_each(|shard| place(&mut manifest, &mut contents, package, shard));
        }
        Contents { manifest, tables, code: contents, form: Form::Crates }
    }

    /// Takes over the receipts of what is in the folder now.
    ///
    /// # Errors
    ///
    /// When the folder has a manifest that cannot be read.
    pub(crate) fn inherit(&mut self, folder: &Path) -> Result<(), LibraryError> {
        if let Some(older) = Manifest::read(folder)? {
            self.manifest.inherit(&older);
        }
        Ok(())
    }

    /// Bytes of PTX and machine code in each folder of code, before they are compressed.
    pub(crate) fn bytes(&self) -> BTreeMap<&'static str, usize> {
        let inside =
            |folder: &str| self.code.iter().filter(|(file, _)| parent(file) == folder).map(|(_, c)| c.len()).sum();
        self.form.folders().iter().map(|folder| (*folder, inside(folder))).collect()
    }

    /// Path of every file, with its contents before they are compressed.
    fn files(&self) -> BTreeMap<&str, &[u8]> {
        let code = self.code.iter().map(|(file, contents)| (file.as_str(), contents.as_slice()));
        code.chain(self.tables.iter().map(|(file, text)| (*file, text.as_bytes()))).collect()
    }

    /// How a folder differs from these contents, by file. A compressed file is compared by what it holds.
    ///
    /// # Errors
    ///
    /// When a file is there and cannot be read.
    pub(crate) fn differences(&self, folder: &Path) -> Result<Vec<Difference>, LibraryError> {
        let manifest = self.manifest.text();
        let mut files = self.files();
        files.insert(MANIFEST, manifest.as_bytes());
        let mut found = vec![];
        for (file, contents) in files {
            let path = folder.join(file);
            match std::fs::read(&path) {
                Ok(bytes) if holds(file, &bytes, contents) => {}
                Ok(_) => found.push(Difference::Changed(file.into())),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    found.push(Difference::Missing(file.into()));
                }
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
    pub(crate) fn check_keys(&self, folder: &Path) -> Result<(), LibraryError> {
        let older = if self.form == Form::Crates { Manifest::read(folder)? } else { None };
        let symbols = older.map(|older| self.manifest.changed_under_equal_keys(&older)).unwrap_or_default();
        if symbols.is_empty() { Ok(()) } else { Err(LibraryError::EqualKeys { symbols }) }
    }

    /// Makes a folder have these contents; gives what was different.
    ///
    /// # Errors
    ///
    /// When a file cannot be read or written, and those of [`check_keys`](Contents::check_keys).
    pub(crate) fn write(&self, folder: &Path) -> Result<Vec<Difference>, LibraryError> {
        self.check_keys(folder)?;
        let manifest = self.manifest.text();
        let mut files = self.files();
        files.insert(MANIFEST, manifest.as_bytes());
        let found = self.differences(folder)?;
        found.par_iter().try_for_each(|difference| match difference {
            Difference::Unexpected(file) => at(folder.join(file), |path| std::fs::remove_file(path)),
            Difference::Missing(file) | Difference::Changed(file) => at(folder.join(file), |path| {
                path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
                let contents = files[file.as_str()];
                if file.ends_with(COMPRESSED) {
                    std::fs::write(path, pack(contents)?)
                } else {
                    std::fs::write(path, contents)
                }
            }),
        })?;
        Ok(found)
    }

    /// Files of PTX and machine code in the folder that are not of these contents.
    fn strangers(&self, folder: &Path) -> Result<Vec<String>, LibraryError> {
        let mut strangers = vec![];
        for part in self.form.folders() {
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

const MANIFEST: &str = "manifest.toml";

/// Enters a shard into a manifest and into the files of code.
fn place(manifest: &mut Manifest, code: &mut BTreeMap<String, Vec<u8>>, package: Package, shard: Shard) {
    let name = format!("{}{}", package.folder(), shard.file);
    for (key, range) in &shard.kernels {
        let Some(entry) = manifest.kernel.iter_mut().find(|e| e.key == *key) else { continue };
        let (file, place) = match (package, &mut entry.cubin) {
            (Package::MachineCode, Some(cubin)) => (&mut cubin.file, &mut cubin.range),
            _ => (&mut entry.file, &mut entry.range),
        };
        (*file, *place) = (name.clone(), Some([range.start, range.len()]));
    }
    code.insert(name, shard.contents);
}

/// The folder of a file.
fn parent(file: &str) -> &str {
    file.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Whether a file of these bytes holds these contents.
fn holds(file: &str, bytes: &[u8], contents: &[u8]) -> bool {
    if file.ends_with(COMPRESSED) { unpack(bytes).is_ok_and(|held| held == contents) } else { bytes == contents }
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
        entry.cubin = code.map(cubin);
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
        assert_eq!((contents.write(folder.path()).unwrap(), contents.bytes()), (vec![], [("ptx", 6)].into()));
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
    fn the_crates_have_shards() {
        let folder = tempfile::tempdir().unwrap();
        let contents = Contents::of_crates(vec![built("a", "one", Some(b"code")), built("b", "four", None)]);
        assert_eq!(contents.write(folder.path()).unwrap().len(), 5);
        let held = |file: &str| unpack(&std::fs::read(folder.path().join(file)).unwrap()).unwrap();
        let (texts, machine) = ("shards/cumsum.0.ptx.zst", "sm90/shards/cumsum.0.cubin.zst");
        assert_eq!((held(texts).as_slice(), held(machine).as_slice()), (&b"onefour"[..], &b"code"[..]));
        let [a, b] = &contents.manifest.kernel[..] else { panic!("two kernels") };
        assert_eq!((a.file.as_str(), a.range, b.range), (texts, Some([0, 3]), Some([3, 4])));
        let cubin = a.cubin.as_ref().unwrap();
        assert_eq!((cubin.file.as_str(), cubin.range, &b.cubin), (machine, Some([0, 4]), &None));
        let table = |file: &str| std::fs::read_to_string(folder.path().join(file)).unwrap();
        assert!(table("src/table.rs").contains("(\"b\", 0, 3, 4)"), "{}", table("src/table.rs"));
        assert!(table("sm90/src/table.rs").contains("use oplus_kernels::Row;"), "{}", table("sm90/src/table.rs"));
        assert_eq!(a.blake3, blake3::hash(b"one").to_hex().as_str());
    }

    #[test]
    fn a_shard_that_was_packed_otherwise_does_not_differ() {
        let folder = tempfile::tempdir().unwrap();
        let contents = Contents::of_crates(vec![built("a", "one", None)]);
        contents.write(folder.path()).unwrap();
        let path = folder.path().join("shards/cumsum.0.ptx.zst");
        std::fs::write(&path, zstd::encode_all(&b"one"[..], 1).unwrap()).unwrap();
        assert_eq!(contents.differences(folder.path()).unwrap(), []);
        std::fs::write(&path, b"one").unwrap();
        assert_eq!(
            contents.differences(folder.path()).unwrap(),
            [Difference::Changed("shards/cumsum.0.ptx.zst".into())]
        );
    }

    #[test]
    fn shards_of_kernels_that_are_gone_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        Contents::of_crates(vec![built("a", "one", Some(b"code"))]).write(folder.path()).unwrap();
        let nothing = Contents::of_crates(vec![]);
        assert_eq!(
            nothing.strangers(folder.path()).unwrap(),
            ["shards/cumsum.0.ptx.zst", "sm90/shards/cumsum.0.cubin.zst"]
        );
        nothing.write(folder.path()).unwrap();
        assert_eq!(nothing.differences(folder.path()).unwrap(), []);
    }

    /// Whoever changes the compiler and not its version is told so, whether the folder is checked or written.
    #[test]
    fn another_text_under_an_equal_key_is_refused_and_leaves_the_folder_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let of = |kernels: &[(&str, &str)]| {
            Contents::of_crates(kernels.iter().map(|(key, text)| built(key, text, None)).collect())
        };
        let first = of(&[("a", "one"), ("b", "two")]);
        first.write(folder.path()).unwrap();
        let changed = of(&[("a", "one"), ("b", "zwei"), ("c", "three")]);
        for refused in [changed.check_keys(folder.path()), changed.write(folder.path()).map(|_| ())] {
            let said = refused.unwrap_err().to_string();
            assert!(said.contains("raise COMPILER_VERSION") && said.ends_with("\n  b"), "{said}");
        }
        assert_eq!(first.differences(folder.path()).unwrap(), []);
        // Other keys, as another version gives them, may have any text; and programs' own folders are rewritten.
        let raised = of(&[("a2", "one"), ("b2", "zwei")]);
        assert_eq!(raised.write(folder.path()).unwrap().len(), 3);
        contents(&[("a2", "other")]).check_keys(folder.path()).unwrap();
    }

    #[test]
    fn folders_for_programs_say_what_their_texts_were_compiled_from() {
        let mut kernel = built("a", "one", None);
        kernel.entry.tile = Some("cd".into());
        let plain = Contents::new(vec![kernel.clone()]);
        let text = plain.manifest.text();
        assert!(text.contains("tile = \"cd\"") && text.contains("llvm = \"22."), "{text}");
        let table = &plain.tables["table.rs"];
        let seal = oplus_codegen::key::seal("cd", "one");
        assert!(table.contains(&format!("(\"a\", \"{seal}\", include_str!(\"ptx/a.sm_80.ptx\"))")), "{table}");
        let text = Contents::of_crates(vec![kernel]).manifest.text();
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

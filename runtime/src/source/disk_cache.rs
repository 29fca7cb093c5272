//! Compiled kernels kept on disk, so that a program compiles a kernel once per machine.
//!
//! An entry is the PTX under a header that repeats everything the kernel was made from and the hash of all that follows
//! the hash. An entry is used only if it is, byte for byte, what would be written for the same kernel; anything else
//! (another key's text, a truncated or overwritten file) is compiled anew and replaced. Entries are written to a
//! temporary file and renamed, so readers and writers of many processes never see half of one.

use std::io::Write;
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;
use oplus_codegen::key::COMPILER_VERSION;

use super::{Code, Isa, KernelSource, Launch};
use crate::Error;

/// A compiler of kernels.
pub trait Compile: Send + Sync {
    /// The PTX of a launch's kernel.
    ///
    /// # Errors
    /// [`Error::Compile`].
    fn compile(&self, launch: &Launch, isa: Isa) -> Result<Code, Error>;

    /// A kernel that may run until that one is compiled ([`KernelSource::stand_in`]).
    ///
    /// # Errors
    /// [`Error::Compile`].
    fn stand_in(&self, _launch: &Launch, _isa: Isa) -> Result<Option<Code>, Error> {
        Ok(None)
    }
}

/// A compiler behind a folder of what it has compiled.
#[derive(Clone, Debug)]
pub struct DiskCache<C> {
    folder: Option<PathBuf>,
    compiler: C,
}

/// The folder for compiled kernels: `$OPLUS_CACHE`, else `oplus` in the user's cache directory; `None` for a user without
/// a home.
pub fn cache_folder() -> Option<PathBuf> {
    let chosen = std::env::var_os("OPLUS_CACHE").filter(|path| !path.is_empty()).map(PathBuf::from);
    chosen.or_else(|| etcetera::choose_base_strategy().ok().map(|base| base.cache_dir().join("oplus")))
}

impl<C: Compile> DiskCache<C> {
    /// The compiler with a cache in a folder, which is made when it is first needed; without a folder, nothing is kept.
    pub fn new(folder: Option<PathBuf>, compiler: C) -> DiskCache<C> {
        DiskCache { folder, compiler }
    }

    fn path(&self, entry: &Entry) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.join(&entry.file))
    }

    /// The PTX text that is kept.
    fn kept(&self, entry: &Entry) -> Option<String> {
        let kept = std::fs::read_to_string(self.path(entry)?).ok()?;
        entry.open(&kept).map(str::to_owned)
    }

    /// What stands in for a kernel that is not kept. It is not kept itself.
    fn unless_kept(
        &self,
        entry: &Entry,
        stand_in: impl FnOnce() -> Result<Option<Code>, Error>,
    ) -> Result<Option<Code>, Error> {
        if self.kept(entry).is_some() { Ok(None) } else { stand_in() }
    }

    fn get(&self, entry: &Entry, compile: impl FnOnce() -> Result<Code, Error>) -> Result<Code, Error> {
        if let Some(text) = self.kept(entry) {
            return Ok(text.into());
        }
        let code = compile()?;
        if let Some(path) = self.path(entry) {
            // A cache that cannot be written costs time, not the result.
            let _ = write(&path, &entry.seal(&code.ptx));
        }
        Ok(code)
    }
}

impl<C: Compile> KernelSource for DiskCache<C> {
    fn find(&self, launch: &Launch, isa: Isa) -> Result<Option<Code>, Error> {
        self.get(&Entry::of(launch, isa), || self.compiler.compile(launch, isa)).map(Some)
    }

    fn stand_in(&self, launch: &Launch, isa: Isa) -> Result<Option<Code>, Error> {
        self.unless_kept(&Entry::of(launch, isa), || self.compiler.stand_in(launch, isa))
    }
}

/// Which kernel an entry is for.
struct Entry {
    file: String,
    header: String,
}

/// First line of every entry; to be changed with the format.
const FORMAT: &str = "// oplus kernel, format 1, blake3 of what follows:";

impl Entry {
    fn of(launch: &Launch, isa: Isa) -> Entry {
        let key = launch.key.to_string();
        let made_from = format!(
            "key {key}\nsymbol {}\nisa {}\ncompiler {COMPILER_VERSION}\nschedule {}\n{}",
            launch.symbol,
            isa.name(),
            launch.schedule,
            launch.stage.program
        );
        Entry::new(&key, &made_from)
    }

    fn new(key: &str, made_from: &str) -> Entry {
        let header = made_from.lines().map(|line| format!("// {line}\n")).collect();
        Entry { file: format!("{key}.ptx"), header }
    }

    /// The contents of the file for a PTX text.
    fn seal(&self, ptx: &str) -> String {
        let body = format!("{}{ptx}", self.header);
        format!("{FORMAT} {}\n{body}", blake3::hash(body.as_bytes()).to_hex())
    }

    /// The PTX text of a file's contents, if they are sound and for this kernel.
    fn open<'a>(&self, contents: &'a str) -> Option<&'a str> {
        let (hash, body) = contents.strip_prefix(FORMAT)?.strip_prefix(' ')?.split_once('\n')?;
        let sound = blake3::hash(body.as_bytes()).to_hex().as_str() == hash;
        body.strip_prefix(&self.header).filter(|_| sound)
    }
}

/// Replaces a file in one step.
fn write(path: &Path, contents: &str) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(contents.as_bytes())?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    struct Nothing;

    impl Compile for Nothing {
        fn compile(&self, launch: &Launch, _: Isa) -> Result<Code, Error> {
            Err(Error::Compile { key: launch.key.to_string(), reason: "no compiler".into() })
        }
    }

    const PTX: &str = ".version 7.8\n.target sm_80\n.visible .entry k() { ret; }\n";

    fn cache() -> (tempfile::TempDir, DiskCache<Nothing>) {
        let folder = tempfile::tempdir().unwrap();
        let cache = DiskCache::new(Some(folder.path().join("made/later")), Nothing);
        (folder, cache)
    }

    /// Looks an entry up; counts compilations.
    fn look_up(cache: &DiskCache<Nothing>, entry: &Entry, compiled: &AtomicUsize) -> String {
        let compile = || {
            compiled.fetch_add(1, Ordering::Relaxed);
            Ok(PTX.to_owned().into())
        };
        cache.get(entry, compile).unwrap().ptx
    }

    #[test]
    fn a_kernel_is_compiled_once() {
        let ((_folder, cache), compiled) = (cache(), AtomicUsize::new(0));
        let entry = Entry::new("ab", "program p {\n}\n");
        assert_eq!(look_up(&cache, &entry, &compiled), PTX);
        assert_eq!(look_up(&cache, &entry, &compiled), PTX);
        assert_eq!(compiled.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn what_stands_in_is_not_kept_and_not_asked_for_where_the_kernel_is() {
        let ((_folder, cache), compiled) = (cache(), AtomicUsize::new(0));
        let entry = Entry::new("ab", "program p {\n}\n");
        let stand_in = || cache.unless_kept(&entry, || Ok(Some(Code::from("short".to_owned())))).unwrap();
        assert_eq!(stand_in().map(|code| code.ptx).as_deref(), Some("short"));
        assert_eq!(look_up(&cache, &entry, &compiled), PTX);
        assert_eq!(compiled.load(Ordering::Relaxed), 1);
        assert_eq!(stand_in(), None);
    }

    #[test]
    fn damaged_entries_are_compiled_anew_and_replaced() {
        let (_folder, cache) = cache();
        let entry = Entry::new("ab", "program p {\n}\n");
        let path = cache.folder.clone().unwrap().join("ab.ptx");
        let sound = entry.seal(PTX);
        let mut damages: Vec<Vec<u8>> = (0..sound.len()).map(|n| sound.as_bytes()[..n].to_vec()).collect();
        damages.extend((0..sound.len()).map(|n| {
            let mut flipped = sound.clone().into_bytes();
            flipped[n] ^= 1;
            flipped
        }));
        damages.push([sound.as_bytes(), b"\n"].concat());
        damages.push(vec![0xff; 100]);
        damages.push(Entry::new("ab", "program q {\n}\n").seal(PTX).into_bytes());
        for damage in damages {
            let compiled = AtomicUsize::new(0);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &damage).unwrap();
            assert_eq!(look_up(&cache, &entry, &compiled), PTX);
            assert_eq!(compiled.load(Ordering::Relaxed), 1, "{:?} was trusted", String::from_utf8_lossy(&damage));
            assert_eq!(std::fs::read_to_string(&path).unwrap(), sound);
        }
    }

    #[test]
    fn many_writers_and_readers_see_whole_entries() {
        let ((_folder, cache), compiled) = (cache(), AtomicUsize::new(0));
        let path = cache.folder.clone().unwrap().join("ab.ptx");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let entry = Entry::new("ab", "program p {\n}\n");
                        assert_eq!(look_up(&cache, &entry, &compiled), PTX);
                        let _ = std::fs::remove_file(&path);
                    }
                });
            }
        });
        let left: Vec<_> = std::fs::read_dir(path.parent().unwrap()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| name == "ab.ptx"), "{left:?}");
    }

    #[test]
    fn a_cache_that_cannot_be_written_still_compiles() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let compiled = AtomicUsize::new(0);
        for folder in [Some(file.path().join("not/a/folder")), None] {
            let cache = DiskCache::new(folder, Nothing);
            assert_eq!(look_up(&cache, &Entry::new("ab", ""), &compiled), PTX);
        }
        assert_eq!(compiled.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn errors_of_the_compiler_are_passed_on() {
        let (_folder, cache) = cache();
        let failing = || Err(Error::Compile { key: "ab".into(), reason: "broken".into() });
        assert!(matches!(cache.get(&Entry::new("ab", ""), failing), Err(Error::Compile { .. })));
        assert!(cache.folder.as_ref().is_some_and(|folder| !folder.exists()));
    }
}

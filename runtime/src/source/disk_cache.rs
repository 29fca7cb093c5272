//! Compiled kernels kept on disk, so that a program compiles a kernel once per machine.
//!
//! An entry is the PTX under a header that repeats everything the kernel was made from and the hash of all that follows
//! the hash: the key, the program, the schedule, the compiler's version and what it says of itself
//! ([`Compile::identity`]), and the hash of the tile IR that was compiled, which has the launch's arguments. An entry is
//! used only if it is, byte for byte, what would be written for the same kernel; anything else (another key's text, code of
//! another version of LLVM or of this library, a truncated or overwritten file) is compiled and replaced. Entries are
//! written to a temporary file and renamed, so readers and writers of many processes never see half of one.
//!
//! Code in the folder runs on the GPU, so it is used only where nobody but the user may write into it, and only regular
//! files of the user's are read. Entries that were not used for the longest time are removed where all are too large.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use etcetera::BaseStrategy;
use oplus_codegen::key::{COMPILER_VERSION, Key};

use super::cache_folder::CacheFolder;
use super::{Code, Isa, KernelSource, Launch, tile_hash};
use crate::Error;

/// A compiler of kernels.
pub trait Compile: Send + Sync {
    /// The PTX of a launch's kernel.
    ///
    /// # Errors
    /// [`Error::Compile`].
    fn compile(&self, launch: &Launch, isa: Isa) -> Result<Code, Error>;

    /// The compiler and its version: with another identity kernels are compiled again.
    fn identity(&self) -> String;

    /// A kernel that may run until that one is compiled ([`KernelSource::fast_tier`]).
    ///
    /// # Errors
    /// [`Error::Compile`].
    fn fast_tier(&self, _launch: &Launch, _isa: Isa) -> Result<Option<Code>, Error> {
        Ok(None)
    }
}

/// A compiler behind a folder of what it has compiled.
#[derive(Debug)]
pub struct DiskCache<C> {
    folder: Option<CacheFolder>,
    compiler: C,
    /// Hashes of the tile IR of kernels that were asked for.
    tiles: Mutex<HashMap<Key, String>>,
}

/// The folder for compiled kernels: `$OPLUS_CACHE`, else `oplus` in the user's cache directory; `None` for a user without
/// a home.
pub fn cache_folder() -> Option<PathBuf> {
    let chosen = std::env::var_os("OPLUS_CACHE").filter(|path| !path.is_empty()).map(PathBuf::from);
    chosen.or_else(|| etcetera::choose_base_strategy().ok().map(|base| base.cache_dir().join("oplus")))
}

/// Bytes that compiled kernels may take: `$OPLUS_CACHE_SIZE`, else 1 GB. The variable is a number of bytes, or of thousands,
/// millions or thousand millions with `K`, `M` or `G` behind it; with 0 nothing is kept.
///
/// # Errors
/// [`Error::Source`] when the variable is not such a number.
pub fn cache_size() -> Result<u64, Error> {
    match std::env::var_os("OPLUS_CACHE_SIZE").filter(|size| !size.is_empty()) {
        None => Ok(DEFAULT_SIZE),
        Some(size) => parse_size(&size.to_string_lossy()),
    }
}

/// Bytes of all entries where nobody has said otherwise.
const DEFAULT_SIZE: u64 = 1_000_000_000;

fn parse_size(text: &str) -> Result<u64, Error> {
    let (digits, unit) = match text.trim().strip_suffix(['K', 'M', 'G']) {
        None => (text.trim(), 1),
        Some(digits) if text.trim().ends_with('K') => (digits, 1_000),
        Some(digits) if text.trim().ends_with('M') => (digits, 1_000_000),
        Some(digits) => (digits, 1_000_000_000),
    };
    let bytes = digits.trim_end().parse::<u64>().ok().and_then(|n| n.checked_mul(unit));
    let reason = || format!("`{text}` is no size; write bytes such as 500000000, or 500M, 2G");
    bytes.ok_or_else(|| Error::Source { path: "$OPLUS_CACHE_SIZE".into(), reason: reason() })
}

impl<C: Compile> DiskCache<C> {
    /// The compiler with a cache in a folder, which is made when it is first needed; without a folder, nothing is kept.
    /// The cache takes at most 1 GB.
    pub fn new(folder: Option<PathBuf>, compiler: C) -> DiskCache<C> {
        let folder = folder.map(|path| CacheFolder { path, most_bytes: DEFAULT_SIZE });
        DiskCache { folder, compiler, tiles: Mutex::default() }
    }

    /// The cache with room for so many bytes.
    #[must_use]
    pub fn with_size(mut self, bytes: u64) -> DiskCache<C> {
        if let Some(folder) = &mut self.folder {
            folder.most_bytes = bytes;
        }
        self
    }

    /// Why nothing is kept in the folder, though it is there: others may write into it. Kernels are compiled then in every
    /// process.
    pub fn refusal(&self) -> Option<Error> {
        self.folder.as_ref()?.refusal()
    }

    /// The PTX text that is kept.
    fn kept(&self, entry: &Entry) -> Option<String> {
        let kept = self.folder.as_ref()?.read(&entry.file)?;
        entry.open(&kept).map(str::to_owned)
    }

    /// A kernel of the fast-compile tier, if the kernel itself is not kept. It is not kept itself.
    fn unless_kept(
        &self,
        entry: &Entry,
        fast_tier: impl FnOnce() -> Result<Option<Code>, Error>,
    ) -> Result<Option<Code>, Error> {
        if self.kept(entry).is_some() { Ok(None) } else { fast_tier() }
    }

    fn get(&self, entry: &Entry, compile: impl FnOnce() -> Result<Code, Error>) -> Result<Code, Error> {
        if let Some(text) = self.kept(entry) {
            return Ok(text.into());
        }
        let code = compile()?;
        if let Some(folder) = &self.folder {
            // A cache that cannot be written costs time, not the result.
            let _ = folder.write(&entry.file, &entry.seal(code.ptx()));
        }
        Ok(code)
    }

    fn entry(&self, launch: &Launch, isa: Isa) -> Result<Entry, Error> {
        let known = self.tiles.lock().unwrap_or_else(PoisonError::into_inner).get(&launch.key).cloned();
        let tile = known.map_or_else(|| tile_hash(launch, isa), Ok)?;
        self.tiles.lock().unwrap_or_else(PoisonError::into_inner).insert(launch.key, tile.clone());
        Ok(Entry::of(launch, isa, &tile, &self.compiler.identity()))
    }
}

impl<C: Compile> KernelSource for DiskCache<C> {
    fn find(&self, launch: &Launch, isa: Isa) -> Result<Option<Code>, Error> {
        self.get(&self.entry(launch, isa)?, || self.compiler.compile(launch, isa)).map(Some)
    }

    fn fast_tier(&self, launch: &Launch, isa: Isa) -> Result<Option<Code>, Error> {
        self.unless_kept(&self.entry(launch, isa)?, || self.compiler.fast_tier(launch, isa))
    }
}

/// Which kernel an entry is for.
struct Entry {
    file: String,
    header: String,
}

/// First line of every entry; to be changed with the format.
const FORMAT: &str = "// oplus kernel, format 2, blake3 of what follows:";

impl Entry {
    fn of(launch: &Launch, isa: Isa, tile: &str, compiler: &str) -> Entry {
        let key = launch.key.to_string();
        let (symbol, schedule, program) = (&launch.symbol, launch.schedule, &launch.stage.program);
        let (isa, device) = (isa.name(), launch.device.name());
        let compiler = format!("compiler {COMPILER_VERSION}, {compiler}");
        let made_from = format!(
            "key {key}\nsymbol {symbol}\nisa {isa} for {device}\n{compiler}\ntile {tile}\nschedule {schedule}\n{program}"
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

#[cfg(test)]
mod tests;

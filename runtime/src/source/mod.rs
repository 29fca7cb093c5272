//! Where compiled kernels come from.
//!
//! A kernel is found by its key, which is a hash of everything its code depends on, so every source gives the same
//! kernel for the same key. Sources are asked in this order:
//!
//! 1. those that the program has registered: folders written by `oplus bake` ([`Folder::register`]), their tables inside
//!    the program ([`Embedded::register`]), or sources of its own ([`register`], which is unsafe: their code is run as it is);
//! 2. the kernels that this crate brings ([`Embedded::standard`]);
//! 3. with the feature `jit`, the compiler, behind a cache on disk. It takes long for a kernel by look-back: one of the fast-compile tier
//!    runs meanwhile, which gives the same bits and is compiled sooner ([`use_fast_tier`]).
//!
//! When none has a kernel of the fastest plan, the call takes the fastest plan whose kernels are all there. When there is
//! none, it fails with [`Error::NoKernel`]; it runs on the CPU instead only where the program has said so
//! ([`fall_back_to_cpu`]).
//!
//! # Whom to trust
//!
//! A compiled kernel can do with the memory of the process whatever it was written to do, as a linked library can. What
//! `oplus bake` has written carries the hash of every text and of the tile IR that it was compiled from; a text that has
//! changed, or that this version of oplus would not make, is an error that says so. The hashes find accidents, not forgery:
//! let nobody write into such a folder who may not write into the program itself. The cache on disk is used only where its
//! folder and files are the user's and nobody else may write into them.
//!
//! # Variables of the environment
//!
//! | variable | read by | what it sets | otherwise |
//! |---|---|---|---|
//! | `OPLUS_CACHE` | the feature `jit`, once | the folder that keeps compiled kernels ([`cache_folder`]) | `oplus` in the user's cache directory (`$XDG_CACHE_HOME`, `~/.cache`) |
//! | `OPLUS_CACHE_SIZE` | the feature `jit`, once | how many bytes it may take, such as `500M`, `2G`; 0 keeps nothing ([`cache_size`]) | `1G` |
//! | `OPLUS_NCCL` | the first group of GPUs ([`dist`](crate::dist)) | the path of NCCL's library | `libnccl.so.2`, where the system finds it |
//! | `RAYON_NUM_THREADS` | the first call on a CPU | threads of calls on a CPU | as many as there are processors |
//! | `OPLUS_PTXAS` | the command `oplus` | the path of NVIDIA's assembler `ptxas` | that on the `PATH`, of `/usr/local/cuda`, of the Python package `nvidia-cuda-nvcc` |
//! | `LLVM_SYS_221_PREFIX` | building with `jit`, or the command `oplus` | where LLVM 22 is installed | `/usr/lib/llvm-22` |

mod cache_folder;
mod code;
mod disk_cache;
mod embedded;
mod files;
mod folder;
#[cfg(feature = "jit")]
mod jit;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

pub use oplus_codegen::plan::Launch;
pub use oplus_codegen::target::Isa;

pub use code::Code;
pub use disk_cache::{Compile, DiskCache, cache_folder, cache_size};
pub use embedded::Embedded;
pub use folder::Folder;

use crate::Error;

/// A place that may have compiled kernels.
pub trait KernelSource: Send + Sync {
    /// The kernel of a launch, compiled for an instruction set that the device has; `None` when it is not here.
    ///
    /// # Errors
    /// [`Error::Source`] when the source is damaged, [`Error::Compile`] when it is a compiler that fails.
    fn find(&self, launch: &Launch, isa: Isa) -> Result<Option<Code>, Error>;

    /// A kernel that runs until the one that [`find`](KernelSource::find) gives is there, when that takes long: it has
    /// the same arguments and launches and computes the same bits, but may be slower. `None` when there is no need of
    /// it.
    ///
    /// # Errors
    /// As `find`.
    fn fast_tier(&self, _launch: &Launch, _isa: Isa) -> Result<Option<Code>, Error> {
        Ok(None)
    }

    /// Whether [`find`](KernelSource::find) would give a kernel, asked of many while a plan is sought whose kernels are all
    /// there.
    fn has(&self, launch: &Launch, isa: Isa) -> bool {
        matches!(self.find(launch, isa), Ok(Some(_)))
    }
}

impl<S: KernelSource + ?Sized> KernelSource for Arc<S> {
    fn find(&self, launch: &Launch, isa: Isa) -> Result<Option<Code>, Error> {
        (**self).find(launch, isa)
    }

    fn fast_tier(&self, launch: &Launch, isa: Isa) -> Result<Option<Code>, Error> {
        (**self).fast_tier(launch, isa)
    }

    fn has(&self, launch: &Launch, isa: Isa) -> bool {
        (**self).has(launch, isa)
    }
}

static REGISTERED: RwLock<Vec<Arc<dyn KernelSource>>> = RwLock::new(Vec::new());
static GENERATION: AtomicU64 = AtomicU64::new(0);
static FALL_BACK_TO_CPU: AtomicBool = AtomicBool::new(false);
static FAST_TIER: AtomicBool = AtomicBool::new(true);

/// Adds a source for all kernels of the process. It is asked after those registered before, and before the embedded
/// kernels.
///
/// Kernels that `oplus bake` has written need no unsafe code: [`Folder::register`] and [`Embedded::register`].
///
/// # Safety
/// The code that the source gives is run on the GPU as it is. For every launch its entry `launch.symbol` must take the
/// arguments `launch.args`, in their order and types, and with any sizes and strides read and write nothing but the elements
/// of the launch's tensors, its buffers, and its message words and control word, as the kernel does that oplus compiles for that
/// key. Machine code must be of the same kernel as the PTX.
///
/// ```no_run
/// use oplus::Error;
/// use oplus::source::{Code, Embedded, Isa, KernelSource, Launch, register};
///
/// /// The kernels of oplus itself, with a line for each that is used.
/// struct Logged(Embedded);
///
/// impl KernelSource for Logged {
///     fn find(&self, launch: &Launch, isa: Isa) -> Result<Option<Code>, Error> {
///         println!("{}", launch.symbol);
///         self.0.find(launch, isa)
///     }
/// }
///
/// // SAFETY: it gives nothing but kernels of oplus, for the launches that they were made for.
/// unsafe { register(Logged(Embedded::standard())) };
/// ```
#[allow(unsafe_code)]
pub unsafe fn register(source: impl KernelSource + 'static) {
    add(Arc::new(source));
}

/// Adds a source whose code has been verified, or whose caller vouches for it.
fn add(source: Arc<dyn KernelSource>) {
    REGISTERED.write().unwrap_or_else(PoisonError::into_inner).push(source);
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// The hash of the tile IR that this version of the library makes of a launch.
fn tile_hash(launch: &Launch, isa: Isa) -> Result<String, Error> {
    match oplus_codegen::schedules::lower(&launch.stage, &launch.schedule, isa) {
        Ok(kernel) => Ok(oplus_codegen::key::tile_hash(&kernel)),
        Err(e) => Err(Error::Compile { key: launch.key.to_string(), reason: e.to_string() }),
    }
}

/// How often sources have been added: what was missing may be there now.
pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Relaxed)
}

/// Whether a call on a GPU whose kernel no source has is computed on the CPU, with copies there and back. At first it is
/// not: the call fails.
pub fn fall_back_to_cpu(yes: bool) {
    FALL_BACK_TO_CPU.store(yes, Ordering::Relaxed);
}

pub(crate) fn falls_back_to_cpu() -> bool {
    FALL_BACK_TO_CPU.load(Ordering::Relaxed)
}

/// Chooses what a call does whose kernels take long to compile. With `true`, the default, it runs kernels of a fast-compile tier
/// until its own are there. These compute the same bits but are slower. The call's own kernels are compiled meanwhile on a thread of
/// the library, and the process does not end before they are. With `false` the call waits for its kernels, as every call does
/// that is captured into a graph.
pub fn use_fast_tier(yes: bool) {
    FAST_TIER.store(yes, Ordering::Relaxed);
}

/// A kernel that a call can have now.
pub(crate) struct Found {
    pub(crate) code: Code,
    /// The function that gives the kernel itself, if `code` is of the fast-compile tier.
    pub(crate) itself: Option<Later>,
}

/// A function that gives a kernel after a while.
pub(crate) type Later = Box<dyn FnOnce() -> Result<Code, Error> + Send>;

impl From<Code> for Found {
    fn from(code: Code) -> Found {
        Found { code, itself: None }
    }
}

/// Makes the kernels of a call's launches ready to be found, as far as that can be done for all at the same time.
///
/// # Errors
/// [`Error::NoKernel`] when one is nowhere, as far as that is known without compiling anything: before others are loaded.
pub(crate) fn make_ready(name: &str, launches: &[&Launch], isa: Isa) -> Result<(), Error> {
    let is_known = cfg!(not(feature = "jit")) && REGISTERED.read().unwrap_or_else(PoisonError::into_inner).is_empty();
    refuse_missing(name, launches, isa, is_known)?;
    embedded::unpack_standard(launches, isa);
    Ok(())
}

/// Refuses launches of which one has no kernel, if it `is_known` without asking sources for code which they have.
fn refuse_missing(name: &str, launches: &[&Launch], isa: Isa, is_known: bool) -> Result<(), Error> {
    match launches.iter().find(|launch| is_known && !has(launch, isa)) {
        Some(launch) => Err(missing(name, launch)),
        None => Ok(()),
    }
}

/// The kernel of a launch of the kernel `name` on devices of `isa`, or one of the fast-compile tier for it, from the first
/// source that has it.
pub(crate) fn find_soon(name: &str, launch: &Launch, isa: Isa) -> Result<Found, Error> {
    let isa = launch.schedule.isa(isa);
    let fast_tier = FAST_TIER.load(Ordering::Relaxed);
    for source in sources() {
        if let Some(code) = fast_tier.then(|| source.fast_tier(launch, isa)).transpose()?.flatten() {
            let (name, launch) = (name.to_owned(), launch.clone());
            let code = code.checked(&launch)?;
            let itself = move || source.find(&launch, isa)?.ok_or_else(|| missing(&name, &launch))?.checked(&launch);
            return Ok(Found { code, itself: Some(Box::new(itself)) });
        }
        if let Some(code) = source.find(launch, isa)? {
            return Ok(code.checked(launch)?.into());
        }
    }
    Err(missing(name, launch))
}

/// The kernel of a launch of the kernel `name` on devices of `isa`, from the first source that has it.
pub(crate) fn find(name: &str, launch: &Launch, isa: Isa) -> Result<Code, Error> {
    let isa = launch.schedule.isa(isa);
    for source in sources() {
        if let Some(code) = source.find(launch, isa)? {
            return code.checked(launch);
        }
    }
    Err(missing(name, launch))
}

/// Whether a source has the kernel of a launch.
pub(crate) fn has(launch: &Launch, isa: Isa) -> bool {
    let isa = launch.schedule.isa(isa);
    sources().iter().any(|source| source.has(launch, isa))
}

/// All sources, in the order in which they are asked.
fn sources() -> Vec<Arc<dyn KernelSource>> {
    let mut sources = REGISTERED.read().unwrap_or_else(PoisonError::into_inner).clone();
    sources.push(Arc::new(Embedded::standard()));
    #[cfg(feature = "jit")]
    sources.push(jit::compiler());
    sources
}

/// The error that no source has the kernel of a launch of the kernel `name`.
pub(crate) fn missing(name: &str, launch: &Launch) -> Error {
    let key = format!("{} of `{name}`, {}", launch.key, launch.schedule);
    Error::NoKernel { key, command: format!("oplus bake --kernel {name}") }
}

#[cfg(test)]
mod tests;

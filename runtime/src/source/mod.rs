//! Where compiled kernels come from.
//!
//! A kernel is found by its key, which is a hash of everything its code depends on, so every source gives the same
//! kernel for the same key. Sources are asked in this order:
//!
//! 1. those that the program has registered ([`register`]): folders written by `oplus bake`, or tables of its own;
//! 2. the kernels that this crate brings ([`Embedded::standard`]);
//! 3. with the feature `jit`, the compiler, behind a cache on disk. A kernel by look-back takes it up to 300 ms; one of
//!    the same bits that takes a third of that runs until then ([`use_stand_ins`]).
//!
//! When none has a kernel of the fastest plan, the call takes the fastest plan whose kernels are all there. When there is
//! none, it fails with [`Error::NoKernel`]; it runs on the CPU instead only where the program has said so
//! ([`fall_back_to_cpu`]).

mod disk_cache;
mod embedded;
mod folder;
#[cfg(feature = "jit")]
mod jit;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

pub use oplus_codegen::plan::Launch;
pub use oplus_codegen::target::Isa;

pub use disk_cache::{Compile, DiskCache, cache_folder};
pub use embedded::Embedded;
pub use folder::Folder;

use crate::Error;

/// A compiled kernel. Its entry is the launch's symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// The PTX text, which the driver compiles when it loads it.
    pub ptx: String,
    /// Machine code of the same kernel for devices of compute capability 9.0 (a *cubin*), which the driver loads as it
    /// is. Where it does not take it, because it is older than what made it, it is given the PTX.
    pub cubin: Option<Vec<u8>>,
}

impl From<String> for Code {
    fn from(ptx: String) -> Code {
        Code { ptx, cubin: None }
    }
}

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
    fn stand_in(&self, _launch: &Launch, _isa: Isa) -> Result<Option<Code>, Error> {
        Ok(None)
    }

    /// Whether [`find`](KernelSource::find) would give a kernel, asked of many while a plan is sought whose kernels are all
    /// there.
    fn has(&self, launch: &Launch, isa: Isa) -> bool {
        matches!(self.find(launch, isa), Ok(Some(_)))
    }
}

static REGISTERED: RwLock<Vec<Arc<dyn KernelSource>>> = RwLock::new(Vec::new());
static GENERATION: AtomicU64 = AtomicU64::new(0);
static FALL_BACK_TO_CPU: AtomicBool = AtomicBool::new(false);
static STAND_INS: AtomicBool = AtomicBool::new(true);

/// Adds a source for all kernels of the process. It is asked after those registered before, and before the embedded
/// kernels.
///
/// ```no_run
/// use std::sync::Arc;
/// use oplus::source::{Folder, register};
///
/// register(Arc::new(Folder::open("kernels".as_ref())?));
/// # Ok::<(), oplus::Error>(())
/// ```
pub fn register(source: Arc<dyn KernelSource>) {
    REGISTERED.write().unwrap_or_else(PoisonError::into_inner).push(source);
    GENERATION.fetch_add(1, Ordering::Relaxed);
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

/// Whether a call whose kernels take long to compile runs others in their place until they are there, which compute the
/// same bits but are slower; they are compiled on a thread of the library's own, and the process does not end before
/// they are. At first it does. Otherwise such a call waits for its kernels, as one does that is captured into a graph.
pub fn use_stand_ins(yes: bool) {
    STAND_INS.store(yes, Ordering::Relaxed);
}

/// A kernel that a call can have now.
pub(crate) struct Found {
    pub(crate) code: Code,
    /// If it only stands in, what gives the kernel itself.
    pub(crate) itself: Option<Later>,
}

/// What gives a kernel after a while.
pub(crate) type Later = Box<dyn FnOnce() -> Result<Code, Error> + Send>;

impl From<Code> for Found {
    fn from(code: Code) -> Found {
        Found { code, itself: None }
    }
}

/// The kernel of a launch of the kernel `name` on devices of `isa`, or one that stands in for it, from the first source
/// that has it.
pub(crate) fn find_soon(name: &str, launch: &Launch, isa: Isa) -> Result<Found, Error> {
    let isa = launch.schedule.isa(isa);
    let stand_ins = STAND_INS.load(Ordering::Relaxed);
    for source in sources() {
        if let Some(code) = stand_ins.then(|| source.stand_in(launch, isa)).transpose()?.flatten() {
            let (name, launch) = (name.to_owned(), launch.clone());
            let itself = move || source.find(&launch, isa)?.ok_or_else(|| missing(&name, &launch));
            return Ok(Found { code, itself: Some(Box::new(itself)) });
        }
        if let Some(code) = source.find(launch, isa)? {
            return Ok(code.into());
        }
    }
    Err(missing(name, launch))
}

/// The kernel of a launch of the kernel `name` on devices of `isa`, from the first source that has it.
pub(crate) fn find(name: &str, launch: &Launch, isa: Isa) -> Result<Code, Error> {
    let isa = launch.schedule.isa(isa);
    for source in sources() {
        if let Some(code) = source.find(launch, isa)? {
            return Ok(code);
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

/// That no source has the kernel of a launch of the kernel `name`.
pub(crate) fn missing(name: &str, launch: &Launch) -> Error {
    let key = format!("{} of `{name}`, {}", launch.key, launch.schedule);
    Error::NoKernel { key, command: format!("oplus bake --kernel {name}") }
}

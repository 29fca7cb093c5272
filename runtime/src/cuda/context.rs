//! The state of a CUDA context: facts of the device, a memory pool, loaded kernels and prepared plans.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use cudarc::driver::{CudaContext, DriverError, sys};
use oplus_codegen::target::{Isa, Target};
use rustc_hash::FxHashMap;

use super::module::Function;
use super::pool::Pool;
use super::stream::Stream;
use super::{Prepared, is_sticky, name};
use crate::Error;

/// The outcome of a call that has been seen: its prepared plan, or that its kernels are missing.
type Seen = Option<Arc<Prepared>>;

/// A CUDA context and everything cached for it.
pub(crate) struct Context {
    /// `NVIDIA H200 (cuda:0)`.
    pub(crate) label: String,
    pub(crate) target: Target,
    pub(super) pool: Pool,
    pub(super) functions: Mutex<HashMap<String, Arc<Function>>>,
    prepared: RwLock<FxHashMap<Box<[u64]>, Seen>>,
    pub(super) streams: Mutex<Vec<Weak<Stream>>>,
    poisoned: AtomicBool,
    /// Last, so that it outlives the pool.
    pub(super) raw: Arc<CudaContext>,
}

/// Plans kept per context. Programs that see ever new sizes must not grow without bound: when it is reached, the cache
/// starts empty again (planning takes microseconds; the kernels stay loaded).
const MAX_PREPARED: usize = 4096;

/// A context that is known. A primary context is kept, so that a program that drops its last tensor does not pay for a
/// new context at the next; a context of the user's own lives as long as its tensors and devices.
struct Known {
    context: Weak<Context>,
    _kept: Option<Arc<Context>>,
}

static CONTEXTS: Mutex<Vec<Known>> = Mutex::new(Vec::new());

impl Context {
    /// The cache of a context.
    pub(super) fn of(raw: &Arc<CudaContext>) -> Result<Arc<Context>, Error> {
        let mut known = CONTEXTS.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|k| k.context.upgrade().is_some_and(|c| !c.is_poisoned()));
        let found = known.iter().filter_map(|k| k.context.upgrade()).find(|c| c.raw.cu_ctx() == raw.cu_ctx());
        if let Some(context) = found {
            return Ok(context);
        }
        let context = Arc::new(Context::new(raw)?);
        let _kept = raw.is_primary().then(|| context.clone());
        known.push(Known { context: Arc::downgrade(&context), _kept });
        Ok(context)
    }

    fn new(raw: &Arc<CudaContext>) -> Result<Context, Error> {
        use sys::CUdevice_attribute_enum as A;
        let attribute = |a| raw.attribute(a).map_err(|e| failure("cuDeviceGetAttribute", e));
        raw.bind_to_thread().map_err(|e| failure("cuCtxSetCurrent", e))?;
        let device = raw.name().unwrap_or_else(|_| "CUDA device".into());
        let major = attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let Some(isa) = Isa::for_capability(major, minor) else {
            return Err(Error::DeviceTooOld { device, major, minor });
        };
        let target = Target {
            isa,
            multiprocessors: attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as u32,
            shared_bytes: attribute(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)? as u32,
        };
        Ok(Context {
            raw: raw.clone(),
            label: format!("{device} (cuda:{})", raw.ordinal()),
            target,
            pool: Pool::new(raw)?,
            functions: Mutex::default(),
            prepared: RwLock::default(),
            streams: Mutex::default(),
            poisoned: AtomicBool::new(false),
        })
    }

    /// The outcome of an equal call, if there was one.
    pub(crate) fn prepared(&self, call: &[u64]) -> Option<Seen> {
        self.prepared.read().unwrap_or_else(PoisonError::into_inner).get(call).cloned()
    }

    /// Keeps what a call has shown.
    pub(crate) fn keep(&self, call: Box<[u64]>, prepared: Seen) {
        let mut cache = self.prepared.write().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= MAX_PREPARED {
            cache.clear();
        }
        cache.insert(call, prepared);
    }

    /// Makes the context current on this thread.
    pub(super) fn bind(&self) -> Result<(), Error> {
        self.raw.bind_to_thread().map_err(|e| self.failure("cuCtxSetCurrent", e))
    }

    /// An error of the driver as ours; remembers when it has made the context unusable.
    pub(super) fn failure(&self, call: &'static str, error: DriverError) -> Error {
        if is_sticky(error) {
            self.poisoned.store(true, Ordering::Relaxed);
        }
        failure(call, error)
    }

    /// The result of a driver call.
    pub(super) fn check(&self, call: &'static str, result: sys::CUresult) -> Result<(), Error> {
        result.result().map_err(|e| self.failure(call, e))
    }

    /// Whether a fault has made the context unusable.
    pub(super) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Relaxed)
    }
}

/// An error of the driver as ours.
pub(super) fn failure(call: &'static str, error: DriverError) -> Error {
    let reason = name(error);
    let source = Some(error);
    if is_sticky(error) { Error::Poisoned { reason, source } } else { Error::Driver { call, reason, source } }
}

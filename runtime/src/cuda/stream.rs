//! A GPU and the stream on which work for it is queued.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use cudarc::driver::{CudaContext, CudaStream, result};
use oplus_codegen::target::{Isa, Target};

use super::Context;
use super::allocate::Allocate;
use super::constants::Constants;
use super::context::failure;
use super::driver::driver;
use super::linked::{Linked, linked};
use super::nccl::Failure;
use super::scratch::Scratch;
use crate::Error;

/// A GPU and one of its streams. Work on one stream runs in the order of the calls, work on different streams does not
/// wait for each other. Cheap to clone; equal when the stream is the same.
#[derive(Clone)]
pub struct CudaDevice(pub(crate) Arc<Stream>, pub(super) Linked);

/// `CU_STREAM_PER_THREAD`, which names another stream in every thread.
const PER_THREAD_STREAM: usize = 2;

/// The state of a stream.
pub(crate) struct Stream {
    pub(super) scratch: Mutex<Scratch>,
    pub(super) constants: Mutex<Constants>,
    pub(crate) context: Arc<Context>,
    /// The stream on which work is queued.
    pub(super) raw: Arc<CudaStream>,
    /// `CU_STREAM_PER_THREAD`, where it is the caller's: then `raw` is a stream of ours, and both wait for each other.
    pub(super) caller: Option<Arc<CudaStream>>,
    schedule_rank: AtomicUsize,
    portable: AtomicBool,
    only: RwLock<Option<Arc<Only>>>,
    allocator: RwLock<Option<Arc<dyn Allocate>>>,
    /// Failures, past or to come, of the exchanges with other ranks that its work has waited for.
    exchanges: Mutex<Vec<Weak<Failure>>>,
}

/// Keys of kernels that calls of a stream may take.
pub(crate) struct Only {
    /// Distinguishes them from others in the caches of a device.
    pub(crate) id: u64,
    pub(crate) keys: BTreeSet<String>,
}

impl CudaDevice {
    /// The GPU of that ordinal, on a stream that all callers of this function share.
    pub(crate) fn new(ordinal: usize) -> Result<CudaDevice, Error> {
        static SHARED: Mutex<Option<HashMap<usize, CudaDevice>>> = Mutex::new(None);
        linked()?;
        driver()?;
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = shared.get_or_insert_default();
        shared.retain(|_, device| !device.0.context.is_poisoned());
        if let Some(device) = shared.get(&ordinal) {
            return Ok(device.clone());
        }
        let count = result::device::get_count().map_err(|e| failure("cuDeviceGetCount", e))?;
        if ordinal >= count as usize {
            let reason = format!("there is no device {ordinal}; this machine has {count}");
            return Err(Error::NoCuda { reason, source: None });
        }
        let context = CudaContext::new(ordinal).map_err(|e| failure("cuDevicePrimaryCtxRetain", e))?;
        let stream = context.new_stream().map_err(|e| failure("cuStreamCreate", e))?;
        let device = CudaDevice::from_stream(stream)?;
        shared.insert(ordinal, device.clone());
        Ok(device)
    }

    /// The caller's stream and context.
    pub(crate) fn from_stream(stream: Arc<CudaStream>) -> Result<CudaDevice, Error> {
        let linked = linked()?;
        driver()?;
        let context = Context::of(stream.context())?;
        let mut known = context.streams.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|weak| weak.strong_count() > 0);
        let is = |own: &Arc<CudaStream>| own.cu_stream() == stream.cu_stream();
        let mut streams = known.iter().filter_map(Weak::upgrade);
        if let Some(found) = streams.find(|s| is(&s.raw) || s.caller.as_ref().is_some_and(is)) {
            return Ok(CudaDevice(found, linked));
        }
        let (raw, caller) = match stream.cu_stream() as usize {
            PER_THREAD_STREAM => {
                let own = stream.context().new_stream().map_err(|e| context.failure("cuStreamCreate", e))?;
                (own, Some(stream))
            }
            _ => (stream, None),
        };
        let state = Arc::new(Stream {
            scratch: Mutex::default(),
            constants: Mutex::default(),
            context: context.clone(),
            raw,
            caller,
            schedule_rank: AtomicUsize::new(0),
            portable: AtomicBool::new(false),
            only: RwLock::default(),
            allocator: RwLock::default(),
            exchanges: Mutex::default(),
        });
        known.push(Arc::downgrade(&state));
        Ok(CudaDevice(state, linked))
    }

    /// The stream on which work is queued: that of [`Device::from_stream`](crate::Device::from_stream), or, in place of
    /// `CU_STREAM_PER_THREAD`, one that every call makes wait for the stream of its thread, which then waits for it.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.0.raw
    }

    /// The context of the stream.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.0.context.raw
    }

    /// The facts of the GPU that plans are made for.
    pub fn target(&self) -> Target {
        let target = self.0.context.target;
        if self.0.is_portable() { Target { isa: Isa::Sm80, ..target } } else { target }
    }

    /// Who gives memory to calls on this stream and to new tensors on it from now on; of `None` a memory pool of the
    /// library's own. All handles of the stream share it.
    pub fn set_allocator(&self, allocator: Option<Arc<dyn Allocate>>) {
        let before = {
            let mut current = self.0.allocator.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *current, allocator)
        };
        // It may do anything when it goes, so that no lock is held then.
        drop(before);
    }

    /// Waits until all work queued on the stream has been done, and reports its faults.
    ///
    /// # Errors
    /// [`Error::Poisoned`] when a kernel has failed, [`Error::Captured`] while the stream is being captured, and the error of an
    /// exchange with other ranks that has failed, as long as its [group](crate::dist::Group) is there.
    pub fn synchronize(&self) -> Result<(), Error> {
        let reason = "its work is done when the graph is launched, so that there is nothing to wait for yet";
        self.in_order(|| self.refuse_in_capture(reason))?;
        self.0.raw.synchronize().map_err(|e| self.0.context.failure("cuStreamSynchronize", e))?;
        self.0.check_exchanges()
    }

    /// For tests and measurements: calls on this stream run under the schedules that are estimated to be the `rank`-th
    /// after the fastest, 0 again for the fastest. Where a stage has fewer, it takes the slowest.
    /// [`explain`](crate::Kernel::explain) for this device says which they are.
    pub fn set_schedule_rank(&self, rank: usize) {
        self.0.schedule_rank.store(rank, Ordering::Relaxed);
    }

    /// For tests and measurements: calls on this stream take the kernels that every GPU since Ampere runs, also where the
    /// GPU has better ones.
    pub fn set_portable(&self, portable: bool) {
        self.0.portable.store(portable, Ordering::Relaxed);
    }

    /// For tests and measurements: calls on this stream take the fastest plan among kernels of these keys, of `None` among
    /// all.
    pub fn set_kernels(&self, keys: Option<BTreeSet<String>>) {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let only = keys.map(|keys| Arc::new(Only { id: NEXT.fetch_add(1, Ordering::Relaxed), keys }));
        *self.0.only.write().unwrap_or_else(PoisonError::into_inner) = only;
    }

    /// Whether both are streams of one context, so that they share memory.
    pub(crate) fn shares_memory(&self, other: &CudaDevice) -> bool {
        Arc::ptr_eq(&self.0.context, &other.0.context)
    }
}

impl Stream {
    /// The rank of the schedules that calls take.
    pub(crate) fn schedule_rank(&self) -> usize {
        self.schedule_rank.load(Ordering::Relaxed)
    }

    /// Whether calls take the kernels for all GPUs.
    pub(crate) fn is_portable(&self) -> bool {
        self.portable.load(Ordering::Relaxed)
    }

    /// Notes that the stream's work waits for exchanges.
    pub(super) fn depend_on(&self, failure: &Arc<Failure>) {
        let mut exchanges = self.exchanges.lock().unwrap_or_else(PoisonError::into_inner);
        exchanges.retain(|known| known.strong_count() > 0);
        if !exchanges.iter().any(|known| known.as_ptr() == Arc::as_ptr(failure)) {
            exchanges.push(Arc::downgrade(failure));
        }
    }

    /// The error of an exchange that the stream's work has waited for.
    fn check_exchanges(&self) -> Result<(), Error> {
        let exchanges = self.exchanges.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = exchanges.iter().filter_map(Weak::upgrade).find_map(|failure| failure.get().cloned());
        failed.map_or(Ok(()), Err)
    }

    /// Who gives memory, if not the library.
    pub(super) fn allocator(&self) -> Option<Arc<dyn Allocate>> {
        self.allocator.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The kernels that calls may take, if not all.
    pub(crate) fn only(&self) -> Option<Arc<Only>> {
        self.only.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(not(feature = "gpu"))]
impl Drop for CudaDevice {
    fn drop(&mut self) {
        self.1.exists();
    }
}

impl PartialEq for CudaDevice {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for CudaDevice {}

impl fmt::Debug for CudaDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for CudaDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, stream {:p}", self.0.context.label, self.0.raw.cu_stream())
    }
}

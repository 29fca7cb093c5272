//! Device memory: allocated and freed in the order of a stream.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::{CudaContext, CudaStream, DriverError, result, sys};

use super::stream::{CudaDevice, Stream};
use crate::Error;

/// A memory pool of ours, so that the caller's default pool keeps its settings. Memory that is freed stays in the pool;
/// an allocation from it takes about as long as a launch.
pub(super) struct Pool(Option<sys::CUmemoryPool>);

// SAFETY: the driver's handle may be used from any thread.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    /// A pool on the context's device; nothing where the device has no pools.
    pub(super) fn new(context: &Arc<CudaContext>) -> Result<Pool, Error> {
        if !context.has_async_alloc() {
            return Ok(Pool(None));
        }
        let location = sys::CUmemLocation {
            type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
            id: context.ordinal() as i32,
        };
        // SAFETY: the structure is plain data for which zero means "default"; it is filled in before use.
        let mut properties: sys::CUmemPoolProps = unsafe { std::mem::zeroed() };
        properties.allocType = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location = location;
        let mut pool = std::ptr::null_mut();
        // SAFETY: both pointers are valid for the call.
        let created = unsafe { sys::cuMemPoolCreate(&mut pool, &properties) }.result();
        created.map_err(|e| super::context::failure("cuMemPoolCreate", e))?;
        let mut threshold = u64::MAX;
        let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        // SAFETY: the attribute is a 64-bit number.
        let set = unsafe { sys::cuMemPoolSetAttribute(pool, attribute, (&raw mut threshold).cast()) }.result();
        let pool = Pool(Some(pool));
        set.map_err(|e| super::context::failure("cuMemPoolSetAttribute", e))?;
        Ok(pool)
    }

    /// Gives memory that nobody uses back to the device.
    fn trim(&self) {
        if let Some(pool) = self.0 {
            // SAFETY: the pool is alive. A failure leaves things as they were.
            let _ = unsafe { sys::cuMemPoolTrimTo(pool, 0) };
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Some(pool) = self.0 {
            // SAFETY: the driver releases the pool when its last allocation has been freed.
            let _ = unsafe { sys::cuMemPoolDestroy(pool) };
        }
    }
}

/// An allocation, freed when dropped.
pub(super) struct Allocation {
    pub(super) address: u64,
    stream: Arc<CudaStream>,
    kind: Kind,
}

/// How an allocation was made, and so how it is freed.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// In the order of the stream.
    Ordered,
    /// By a graph that was being captured.
    Captured,
    /// At once, by the device.
    Plain,
}

/// Things whose destructors call the driver, dropped at a place where that is not allowed: in a stream that is being
/// captured, or in a callback. They wait here for the next allocation.
static DEFERRED: Mutex<Vec<Box<dyn Send>>> = Mutex::new(Vec::new());

/// Lets a value be dropped later.
pub(super) fn defer(value: Box<dyn Send>) {
    DEFERRED.lock().unwrap_or_else(PoisonError::into_inner).push(value);
}

fn drop_deferred() {
    let deferred = std::mem::take(&mut *DEFERRED.lock().unwrap_or_else(PoisonError::into_inner));
    drop(deferred);
}

impl Stream {
    /// Memory in the order of the stream: it may be used by work that is queued from now on.
    pub(super) fn allocate(&self, bytes: usize) -> Result<Allocation, Error> {
        let capturing = self.is_capturing()?;
        let kind = match (self.context.pool.0, capturing) {
            (None, _) => return self.allocate_plain(bytes),
            (Some(_), true) => Kind::Captured,
            (Some(_), false) => Kind::Ordered,
        };
        if !capturing {
            drop_deferred();
        }
        let mut address = self.try_allocate(bytes);
        if matches!(address, Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY))) && !capturing {
            // What has been freed may wait for queued work, or lie in the pool in pieces of other sizes.
            let _ = self.raw.synchronize();
            self.context.pool.trim();
            address = self.try_allocate(bytes);
        }
        let address = address.map_err(|e| self.allocation_failure(bytes, e))?;
        Ok(Allocation { address, stream: self.raw.clone(), kind })
    }

    fn try_allocate(&self, bytes: usize) -> Result<u64, DriverError> {
        let mut address = 0;
        let Some(pool) = self.context.pool.0 else { return Ok(address) };
        // SAFETY: pool and stream are alive and of one context.
        unsafe { sys::cuMemAllocFromPoolAsync(&mut address, bytes, pool, self.raw.cu_stream()) }.result()?;
        Ok(address)
    }

    /// Memory outside the order of any stream, also while a graph is being captured.
    pub(super) fn allocate_plain(&self, bytes: usize) -> Result<Allocation, Error> {
        // SAFETY: the context is current.
        let address = relaxed(|| unsafe { result::malloc_sync(bytes) });
        let address = address.map_err(|e| self.allocation_failure(bytes, e))?;
        Ok(Allocation { address, stream: self.raw.clone(), kind: Kind::Plain })
    }

    fn allocation_failure(&self, bytes: usize, error: DriverError) -> Error {
        match error.0 {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => Error::OutOfMemory { bytes, device: self.context.label.clone() },
            _ => self.context.failure("cuMemAllocFromPoolAsync", error),
        }
    }
}

/// Runs calls that a capture elsewhere in the process would otherwise forbid, though they do not touch it.
pub(super) fn relaxed<T>(f: impl FnOnce() -> T) -> T {
    let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: swaps this thread's mode with the variable, here and back.
    let _ = unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) };
    let value = f();
    // SAFETY: as above.
    let _ = unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) };
    value
}

impl Drop for Allocation {
    /// Frees in the order of the stream: work that is queued still finds the memory. Failures mean that the context is
    /// gone, and the memory with it.
    fn drop(&mut self) {
        if self.address == 0 {
            return;
        }
        let (address, stream) = (self.address, self.stream.cu_stream());
        // SAFETY: context and stream are alive, the address came from the matching allocator and is freed once.
        unsafe {
            let _ = result::ctx::set_current(self.stream.context().cu_ctx());
            if self.kind == Kind::Plain {
                let _ = relaxed(|| result::stream::synchronize(stream).and_then(|()| result::free_sync(address)));
                return;
            }
            let idle = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
            let capturing = result::stream::is_capturing(stream).is_ok_and(|status| status != idle);
            if capturing && self.kind == Kind::Ordered {
                let stream = self.stream.clone();
                self.address = 0;
                return defer(Box::new(Allocation { address, stream, kind: Kind::Ordered }));
            }
            let _ = result::free_async(address, stream);
        }
    }
}

/// The memory of a tensor on a GPU.
pub(crate) struct DeviceMemory {
    pub(crate) address: u64,
    pub(crate) bytes: usize,
    /// The device whose stream frees the memory.
    device: CudaDevice,
    /// Other streams that have been given the memory.
    guests: Mutex<Vec<CudaDevice>>,
    /// What frees the memory when it is dropped.
    _owner: Box<dyn Any + Send + Sync>,
}

impl DeviceMemory {
    /// Memory with undefined contents.
    pub(crate) fn new(device: &CudaDevice, bytes: usize) -> Result<DeviceMemory, Error> {
        device.0.context.bind()?;
        if bytes == 0 {
            return Ok(DeviceMemory::owned_by(device, 0, 0, Box::new(())));
        }
        let allocation = device.0.allocate(bytes)?;
        Ok(DeviceMemory::owned_by(device, allocation.address, bytes, Box::new(allocation)))
    }

    /// Memory that `owner` keeps alive, and frees in the order of the device's stream when dropped.
    pub(crate) fn owned_by(
        device: &CudaDevice,
        address: u64,
        bytes: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> DeviceMemory {
        DeviceMemory { address, bytes, device: device.clone(), guests: Mutex::default(), _owner: owner }
    }

    /// Lets the stream of `guest` use the memory: it waits for what has been queued so far on the streams that have it.
    pub(crate) fn share(&self, guest: &CudaDevice) -> Result<(), Error> {
        guest.0.context.bind()?;
        let mut guests = self.guests.lock().unwrap_or_else(PoisonError::into_inner);
        guest.join(&self.device)?;
        guests.iter().try_for_each(|other| guest.join(other))?;
        if *guest != self.device && !guests.contains(guest) {
            guests.push(guest.clone());
        }
        Ok(())
    }

    /// Sets all bytes to zero.
    pub(crate) fn clear(&self) -> Result<(), Error> {
        if self.bytes == 0 {
            return Ok(());
        }
        let stream = &self.device.0;
        // SAFETY: the memory holds `bytes` bytes and belongs to the stream.
        let result = unsafe { result::memset_d8_async(self.address, 0, self.bytes, stream.raw.cu_stream()) };
        result.map_err(|e| stream.context.failure("cuMemsetD8Async", e))
    }

    /// Copies from the host, on the stream of `device`, to the byte `at` on. Returns when `source` may be changed.
    pub(crate) fn upload(&self, device: &CudaDevice, at: usize, source: &[u8]) -> Result<(), Error> {
        assert!(at + source.len() <= self.bytes, "the copy would leave the memory");
        device.0.context.bind()?;
        if source.is_empty() {
            return Ok(());
        }
        // SAFETY: the range lies in the memory; the driver has read pageable memory when the call returns.
        let result = unsafe { result::memcpy_htod_async(self.address + at as u64, source, device.0.raw.cu_stream()) };
        result.map_err(|e| device.0.context.failure("cuMemcpyHtoDAsync", e))
    }

    /// Copies to the host, on the stream of `device`, from the byte `at` on, and waits for it.
    pub(crate) fn download(&self, device: &CudaDevice, at: usize, target: &mut [u8]) -> Result<(), Error> {
        assert!(at + target.len() <= self.bytes, "the copy would leave the memory");
        device.0.context.bind()?;
        if !target.is_empty() {
            // SAFETY: the range lies in the memory, and `target` is not touched before the copy has ended.
            let result =
                unsafe { result::memcpy_dtoh_async(target, self.address + at as u64, device.0.raw.cu_stream()) };
            result.map_err(|e| device.0.context.failure("cuMemcpyDtoHAsync", e))?;
        }
        device.synchronize()
    }
}

impl Drop for DeviceMemory {
    /// The owner frees the memory in the order of its own stream, which first waits for the other streams.
    fn drop(&mut self) {
        let guests = self.guests.get_mut().unwrap_or_else(PoisonError::into_inner);
        for guest in guests.iter() {
            let _ = self.device.join(guest);
        }
    }
}

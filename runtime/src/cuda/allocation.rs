//! Allocations: made and freed in the order of a stream.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::{CudaStream, DriverError, result, sys};

use super::allocate::Allocated;
use super::capture::{Capture, Recording, relaxed};
use super::is_sticky;
use super::stream::Stream;
use crate::Error;

/// An allocation, freed when dropped.
pub(super) struct Allocation {
    pub(super) address: u64,
    stream: Arc<CudaStream>,
    kind: Kind,
    /// Who frees it, where it is not this.
    owner: Option<Box<dyn Any + Send + Sync>>,
}

/// How an allocation was made, and so how it is freed.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// In the order of the stream.
    Ordered,
    /// By the graph of the capture of that number.
    Captured(u64),
    /// At once, by the device.
    Plain,
    /// By another one, which a graph keeps, too.
    Shared,
    /// By an [`Allocate`](super::Allocate), in the capture of that number if it was in one.
    Given(Option<u64>),
}

/// Says that something cannot be freed now.
pub(super) struct NotNow;

/// Things whose destructors call the driver, dropped where that is not allowed: in a stream that is being captured, or in
/// a callback. They wait here for the next allocation.
static DEFERRED: Mutex<Vec<Box<dyn Send>>> = Mutex::new(Vec::new());

/// Lets a value be dropped later.
pub(super) fn defer(value: Box<dyn Send>) {
    DEFERRED.lock().unwrap_or_else(PoisonError::into_inner).push(value);
}

/// Drops what waits; what still cannot be dropped waits again.
fn drop_deferred() {
    let deferred = std::mem::take(&mut *DEFERRED.lock().unwrap_or_else(PoisonError::into_inner));
    drop(deferred);
}

/// After an error of the driver: whether to try again later. When the context is gone, its memory is gone with it.
pub(super) fn retry(result: Result<(), DriverError>) -> Result<(), NotNow> {
    match result {
        Err(e) if !is_sticky(e) => Err(NotNow),
        _ => Ok(()),
    }
}

impl Stream {
    /// Memory in the order of the stream: it may be used by work that is queued from now on.
    pub(super) fn allocate(&self, bytes: usize) -> Result<Allocation, Error> {
        let Some(allocator) = self.allocator() else { return self.allocate_own(bytes) };
        let kind = Kind::Given(self.begin_allocation()?.map(|capture| capture.id));
        let Allocated { address, owner } = allocator.allocate(bytes, &self.raw)?;
        // The allocator may have left another context current.
        self.context.bind()?;
        Ok(Allocation { address, stream: self.raw.clone(), kind, owner: Some(owner) })
    }

    /// The capture that an allocation is made in. Outside of captures what waits is dropped first.
    fn begin_allocation(&self) -> Result<Option<Capture>, Error> {
        let capture = if self.is_capturing()? { Some(self.capture()?) } else { None };
        if capture.is_none() {
            drop_deferred();
        }
        Ok(capture)
    }

    /// Memory like that of [`Stream::allocate`] from a pool of ours, for what the stream keeps.
    pub(super) fn allocate_own(&self, bytes: usize) -> Result<Allocation, Error> {
        let capture = self.begin_allocation()?;
        let kind = capture.map_or(Kind::Ordered, |capture| Kind::Captured(capture.id));
        let Some(pool) = self.context.pool.raw() else { return self.allocate_without_pool(bytes, capture) };
        let mut address = self.try_allocate(bytes, pool);
        if matches!(address, Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY))) && kind == Kind::Ordered {
            // Freed memory may wait for queued work, or lie in the pool in pieces of other sizes.
            let _ = self.raw.synchronize();
            self.context.pool.trim();
            address = self.try_allocate(bytes, pool);
        }
        let address = address.map_err(|e| self.allocation_failure(bytes, e))?;
        Ok(Allocation::new(address, self, kind))
    }

    /// Plain memory; what a graph uses it keeps.
    fn allocate_without_pool(&self, bytes: usize, capture: Option<Capture>) -> Result<Allocation, Error> {
        let plain = self.allocate_plain(bytes)?;
        let Some(capture) = capture else { return Ok(plain) };
        let (address, plain) = (plain.address, Arc::new(plain));
        self.give_to_graph(plain.clone(), capture)?;
        Ok(Allocation { address, stream: self.raw.clone(), kind: Kind::Shared, owner: Some(Box::new(plain)) })
    }

    fn try_allocate(&self, bytes: usize, pool: sys::CUmemoryPool) -> Result<u64, DriverError> {
        let mut address = 0;
        // SAFETY: pool and stream are alive and of one context.
        unsafe { sys::cuMemAllocFromPoolAsync(&mut address, bytes, pool, self.raw.cu_stream()) }.result()?;
        Ok(address)
    }

    /// Memory outside the order of any stream, also while a graph is being captured.
    pub(super) fn allocate_plain(&self, bytes: usize) -> Result<Allocation, Error> {
        // SAFETY: the context is current.
        let address = relaxed(|| unsafe { result::malloc_sync(bytes) }).flatten();
        let address = address.map_err(|e| self.allocation_failure(bytes, e))?;
        Ok(Allocation::new(address, self, Kind::Plain))
    }

    fn allocation_failure(&self, bytes: usize, error: DriverError) -> Error {
        match error.0 {
            sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => Error::OutOfMemory { bytes, device: self.context.label.clone() },
            _ => self.context.failure("cuMemAllocFromPoolAsync", error),
        }
    }
}

impl Allocation {
    fn new(address: u64, stream: &Stream, kind: Kind) -> Allocation {
        Allocation { address, stream: stream.raw.clone(), kind, owner: None }
    }

    /// Whether it was made by the graph of a capture.
    pub(super) fn is_of(&self, capture: u64) -> bool {
        matches!(self.kind, Kind::Captured(id) | Kind::Given(Some(id)) if id == capture)
    }

    /// Frees in the order of the stream: work that is queued still finds the memory. What has an owner is left to it.
    fn free(&self) -> Result<(), NotNow> {
        if self.address == 0 || self.kind == Kind::Shared {
            return Ok(());
        }
        let (address, stream) = (self.address, self.stream.cu_stream());
        let (mut recording, context) = (Recording::Invalid, self.stream.context().cu_ctx());
        // SAFETY: the context is alive.
        let current = unsafe { result::ctx::set_current(context) };
        retry(current.and_then(|()| Recording::of(stream)).map(|found| recording = found))?;
        match (recording, self.kind) {
            (Recording::Queued, Kind::Plain) => {
                // SAFETY: the stream is alive.
                let wait = || unsafe { result::stream::synchronize(stream) };
                retry(relaxed(wait).flatten())?;
                // SAFETY: the address came from this allocator and is freed once, after all work of the stream.
                retry(relaxed(|| unsafe { result::free_sync(address) }).map(|_| ()))
            }
            (Recording::Captured(capture), Kind::Captured(own)) if capture.id != own => Err(NotNow),
            (Recording::Queued, Kind::Given(_)) => Ok(()),
            (Recording::Captured(capture), Kind::Given(own)) if own == Some(capture.id) => Ok(()),
            (Recording::Queued, _) | (Recording::Captured(_), Kind::Captured(_)) => {
                // SAFETY: the stream is alive, the address came from the matching allocator and is freed once. It is not
                // there if its graph has not been launched.
                let _ = unsafe { result::free_async(address, stream) };
                Ok(())
            }
            (Recording::Captured(_) | Recording::Invalid, _) => Err(NotNow),
        }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.free().is_err() {
            let (address, owner) = (std::mem::take(&mut self.address), self.owner.take());
            defer(Box::new(Allocation { address, stream: self.stream.clone(), kind: self.kind, owner }));
        }
    }
}

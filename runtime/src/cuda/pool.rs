//! Memory pools.

use std::sync::Arc;

use cudarc::driver::{CudaContext, sys};

use super::context::failure;
use crate::Error;

const _: () = assert!(size_of::<sys::CUmemLocation>() == 8);

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
        // SAFETY: the structure is plain data for which zero means "default"; it is filled in before use.
        let mut properties: sys::CUmemPoolProps = unsafe { std::mem::zeroed() };
        properties.allocType = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        // The ordinal of the device follows; bindings of newer drivers wrap it in a union.
        let ordinal = (&raw mut properties.location).cast::<i32>().wrapping_add(1);
        // SAFETY: the location is two 32-bit numbers, its type and the ordinal.
        unsafe { ordinal.write(context.ordinal() as i32) };
        let mut pool = std::ptr::null_mut();
        // SAFETY: both pointers are valid for the call.
        let created = unsafe { sys::cuMemPoolCreate(&mut pool, &properties) }.result();
        created.map_err(|e| failure("cuMemPoolCreate", e))?;
        let mut threshold = u64::MAX;
        let attribute = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        // SAFETY: the attribute is a 64-bit number.
        let set = unsafe { sys::cuMemPoolSetAttribute(pool, attribute, (&raw mut threshold).cast()) }.result();
        let pool = Pool(Some(pool));
        set.map_err(|e| failure("cuMemPoolSetAttribute", e))?;
        Ok(pool)
    }

    /// The driver's handle, where there is a pool.
    pub(super) fn raw(&self) -> Option<sys::CUmemoryPool> {
        self.0
    }

    /// Gives memory that nobody uses back to the device.
    pub(super) fn trim(&self) {
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

//! Memory that the caller gives.

use std::any::Any;
use std::sync::Arc;

use cudarc::driver::CudaStream;

use crate::Error;

/// Gives memory of a GPU to calls on a stream, in place of the library's own memory pool: for their outputs and gradients, for
/// states that they [save](crate::record), for temporary memory, and for tensors made on the stream. Where a framework's
/// allocator gives it, it stands in that framework's statistics, is subject to its limits, and belongs to the graphs that it
/// captures. See [`CudaDevice::set_allocator`](crate::CudaDevice::set_allocator).
///
/// A few kilobytes that a stream keeps for all its calls, and what a graph keeps for its launches, are still the library's.
///
/// ```
/// use std::sync::Arc;
///
/// use cudarc::driver::{CudaStream, DevicePtr};
/// use oplus::{Allocate, Allocated, Device, Elem, Error, Tensor};
///
/// /// Memory from the driver's default pool.
/// struct DefaultPool;
///
/// // SAFETY: cudarc allocates and frees in the order of the stream.
/// unsafe impl Allocate for DefaultPool {
///     fn allocate(&self, bytes: usize, stream: &Arc<CudaStream>) -> Result<Allocated, Error> {
///         let out_of_memory = |_| Error::OutOfMemory { bytes, device: "the default pool".into() };
///         // SAFETY: whoever asks writes before it reads.
///         let slice = unsafe { stream.alloc::<u8>(bytes) }.map_err(out_of_memory)?;
///         let address = slice.device_ptr(stream).0;
///         Ok(Allocated { address, owner: Box::new(slice) })
///     }
/// }
///
/// if let Device::Cuda(gpu) = Device::default() {
///     gpu.set_allocator(Some(Arc::new(DefaultPool)));
///     let x = Tensor::zeros(Elem::F32, &[1000], &Device::Cuda(gpu))?; // comes from the default pool
/// #   assert_eq!(x.len(), 1000);
/// }
/// # Ok::<(), oplus::Error>(())
/// ```
///
/// # Safety
/// The address must be a multiple of 256 and that of at least as many bytes of device memory in the stream's context as were
/// asked for. Work that is queued on the stream after [`Allocate::allocate`] may use them, until the owner has been dropped and
/// the work queued on the stream by then has been done.
pub unsafe trait Allocate: Send + Sync {
    /// Memory of at least one byte with undefined contents. The stream's context is current. While the stream is being captured
    /// into a graph, the memory must be there at the graph's launches.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], or whatever the call that asks is to say.
    fn allocate(&self, bytes: usize, stream: &Arc<CudaStream>) -> Result<Allocated, Error>;
}

/// Memory that an [`Allocate`] has given.
pub struct Allocated {
    /// Where it begins.
    pub address: u64,
    /// Frees the memory in the order of the stream when it is dropped: on any thread, and while the stream is being captured only
    /// if it was allocated in the same capture.
    pub owner: Box<dyn Any + Send + Sync>,
}

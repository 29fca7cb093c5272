//! Tensors: elements in memory, and the shape and strides under which they are seen.

use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use oplus_dsl::Elem;

use crate::cuda::{CudaDevice, DeviceMemory};
use crate::element::HostBytes;
use crate::layout::Layout;
use crate::room::{repeated, room};
use crate::{Device, Element, Error};

/// A handle to elements in the memory of the CPU or of a GPU.
///
/// A clone or a view shares the elements. Kernels read tensors of any strides; axes are in the order in which the
/// kernel's parameter names them.
///
/// ```
/// use oplus::Tensor;
///
/// let x = Tensor::from_slice(&[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3])?;
/// let columns = x.permute(&[1, 0])?;
/// assert_eq!((columns.shape(), columns.strides()), (&[3, 2][..], &[1, 3][..]));
/// assert_eq!(columns.to_vec::<f32>()?, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
/// # Ok::<(), oplus::Error>(())
/// ```
#[derive(Clone)]
pub struct Tensor {
    pub(crate) elem: Elem,
    pub(crate) layout: Arc<Layout>,
    pub(crate) storage: Storage,
}

/// The memory of a tensor.
#[derive(Clone)]
pub(crate) enum Storage {
    /// On the CPU.
    Host(Arc<HostMemory>),
    /// On a GPU, and the stream on which this handle uses it.
    Cuda(Arc<DeviceMemory>, CudaDevice),
}

/// Memory of the CPU. Kernels lock it for reading or writing while they run.
pub(crate) struct HostMemory {
    /// Where it begins.
    address: usize,
    /// How many bytes it has.
    bytes: usize,
    is_writable: bool,
    contents: RwLock<Box<dyn HostBytes>>,
}

impl HostMemory {
    /// Memory that may be written.
    pub(crate) fn new(contents: Box<dyn HostBytes>) -> HostMemory {
        HostMemory { is_writable: true, ..HostMemory::read_only(contents) }
    }

    /// Memory that may only be read.
    pub(crate) fn read_only(contents: Box<dyn HostBytes>) -> HostMemory {
        let (address, bytes) = (contents.bytes().as_ptr().expose_provenance(), contents.bytes().len());
        HostMemory { address, bytes, is_writable: false, contents: RwLock::new(contents) }
    }

    /// The bytes, to be read.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Box<dyn HostBytes>> {
        self.contents.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes, to be written.
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Box<dyn HostBytes>> {
        self.contents.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tensor {
    /// The type that it stores.
    pub fn elem(&self) -> Elem {
        self.elem
    }

    /// The size of every axis.
    pub fn shape(&self) -> &[usize] {
        &self.layout.shape
    }

    /// The distance between neighbours along every axis, in elements.
    pub fn strides(&self) -> &[i64] {
        &self.layout.strides
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.layout.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the elements lie in row-major order without gaps.
    pub fn is_contiguous(&self) -> bool {
        self.layout.is_contiguous()
    }

    /// Where the elements are.
    pub fn device(&self) -> Device {
        self.storage.device()
    }

    /// The address of the element at index 0, 0, … on a GPU; `None` on the CPU.
    pub fn device_ptr(&self) -> Option<u64> {
        match &self.storage {
            Storage::Host(_) => None,
            Storage::Cuda(memory, _) => Some(memory.address + self.byte_offset() as u64),
        }
    }

    /// The address of the element at index 0, 0, … on the CPU; `None` on a GPU. The element may be read through it while the
    /// tensor is alive and no call writes it, and written while no call uses it, unless the memory is
    /// [read-only](Tensor::from_host_ptr_read_only).
    pub fn host_ptr(&self) -> Option<usize> {
        match &self.storage {
            Storage::Host(memory) => Some(memory.address + self.byte_offset()),
            Storage::Cuda(..) => None,
        }
    }

    /// Whether calls may write the elements: not those of [`Tensor::from_host_ptr_read_only`].
    pub fn is_writable(&self) -> bool {
        match &self.storage {
            Storage::Host(memory) => memory.is_writable,
            Storage::Cuda(..) => true,
        }
    }

    /// A copy of the elements in row-major order. On a GPU this waits for all work queued on the tensor's stream.
    ///
    /// # Errors
    /// [`Error::WrongElem`] when the tensor stores another type, [`Error::OutOfMemory`]; errors of the device.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>, Error> {
        if T::ELEM != self.elem {
            let expected = T::ELEM.to_string();
            return Err(Error::WrongElem { tensor: "tensor".into(), expected, found: self.elem });
        }
        Ok(self.with_bytes(T::collect)??)
    }

    /// Gives `f` the elements' bytes in row-major order.
    pub(crate) fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> Result<R, Error> {
        let span = self.byte_span();
        match &self.storage {
            Storage::Host(memory) => {
                let memory = memory.read();
                let bytes = &memory.bytes()[span];
                Ok(if self.is_contiguous() { f(bytes) } else { f(&self.in_order(bytes)?) })
            }
            Storage::Cuda(memory, device) => {
                let mut bytes = repeated(0, span.len())?;
                memory.download(device, span.start, &mut bytes)?;
                Ok(if self.is_contiguous() { f(&bytes) } else { f(&self.in_order(&bytes)?) })
            }
        }
    }

    /// The elements in row-major order, from the bytes of the tensor's span.
    fn in_order(&self, span: &[u8]) -> Result<Vec<u8>, Error> {
        let (size, start) = (elem_bytes(self.elem), self.layout.span().start);
        let wanted = self.len() * size;
        // A view that repeats its elements has as many as it likes.
        let mut bytes = room(wanted)?;
        self.layout.for_each_run(|at, n| bytes.extend_from_slice(&span[(at - start) * size..][..n * size]));
        Ok(bytes)
    }

    /// Distance in bytes from the start of the memory to index 0, 0, ….
    pub(crate) fn byte_offset(&self) -> usize {
        self.layout.offset * elem_bytes(self.elem)
    }

    /// The range of bytes of the memory that holds every element.
    pub(crate) fn byte_span(&self) -> Range<usize> {
        let (span, size) = (self.layout.span(), elem_bytes(self.elem));
        span.start * size..span.end * size
    }

    /// Whether an element of one may lie in the memory of an element of the other: their spans meet.
    pub(crate) fn overlaps(&self, other: &Tensor) -> bool {
        let same_memory = match (&self.storage, &other.storage) {
            (Storage::Host(_), Storage::Host(_)) => true,
            (Storage::Cuda(_, a), Storage::Cuda(_, b)) => a.shares_memory(b),
            _ => false,
        };
        same_memory && meet(&self.place(), &other.place())
    }

    /// The addresses of all bytes from the lowest to the highest element.
    pub(crate) fn place(&self) -> Range<u128> {
        let base = match &self.storage {
            Storage::Host(memory) => memory.address,
            Storage::Cuda(memory, device) => {
                Arc::as_ptr(&device.0.context).addr().wrapping_add(memory.address as usize)
            }
        };
        let span = self.byte_span();
        base as u128 + span.start as u128..base as u128 + span.end as u128
    }
}

/// Whether two ranges of addresses have a byte in common.
pub(crate) fn meet(a: &Range<u128>, b: &Range<u128>) -> bool {
    !a.is_empty() && !b.is_empty() && a.start < b.end && b.start < a.end
}

impl Storage {
    /// Where the memory is.
    pub(crate) fn device(&self) -> Device {
        match self {
            Storage::Host(_) => Device::Cpu,
            Storage::Cuda(_, device) => Device::Cuda(device.clone()),
        }
    }

    /// Bytes of the whole memory.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Storage::Host(memory) => memory.bytes,
            Storage::Cuda(memory, _) => memory.bytes,
        }
    }
}

/// Bytes per element of a tensor, whose type is never the call's.
pub(crate) fn elem_bytes(elem: Elem) -> usize {
    elem.bytes().unwrap_or(1)
}

//! Making tensors.

use std::any::Any;
use std::sync::Arc;

use cudarc::driver::CudaSlice;
use oplus_dsl::Elem;
use oplus_dsl::ir::Literal;

use crate::cuda::{CudaDevice, DeviceMemory};
use crate::element::HostBytes;
use crate::layout::Layout;
use crate::pages::zeroed;
use crate::room::{repeated, room};
use crate::tensor::{HostMemory, Storage, elem_bytes};
use crate::{Device, Element, Error, Tensor};

impl Tensor {
    /// A tensor on the CPU with a copy of the elements, in row-major order.
    ///
    /// # Errors
    /// [`Error::Length`] when the shape holds another number of elements, [`Error::OutOfMemory`].
    pub fn from_slice<T: Element>(elements: &[T], shape: &[usize]) -> Result<Tensor, Error> {
        let mut own = room(elements.len())?;
        own.extend_from_slice(elements);
        Tensor::from_vec(own, shape)
    }

    /// A tensor on the CPU that owns the elements, in row-major order.
    ///
    /// # Errors
    /// [`Error::Length`] when the shape holds another number of elements.
    pub fn from_vec<T: Element>(elements: Vec<T>, shape: &[usize]) -> Result<Tensor, Error> {
        let layout = Layout::contiguous(shape)?;
        check_length(&layout, elements.len())?;
        Ok(Tensor::of(T::ELEM, layout, Storage::host(T::own(elements))))
    }

    /// A tensor of zeros (`false` for bools).
    ///
    /// # Errors
    /// [`Error::WrongElem`] for [`Elem::Call`], [`Elem::State`] and [`Elem::Wide`], [`Error::OutOfMemory`], errors of the device.
    pub fn zeros(elem: Elem, shape: &[usize], device: &Device) -> Result<Tensor, Error> {
        device.in_order(|| {
            let tensor = Tensor::uninitialised(elem, shape, device)?;
            if let Storage::Cuda(memory, _) = &tensor.storage {
                memory.clear()?;
            }
            Ok(tensor)
        })
    }

    /// A tensor with the same value everywhere.
    ///
    /// # Errors
    /// [`Error::TooLarge`], [`Error::OutOfMemory`], errors of the device.
    pub fn full<T: Element>(value: T, shape: &[usize], device: &Device) -> Result<Tensor, Error> {
        let len = Layout::contiguous(shape)?.len();
        Tensor::from_vec(repeated(value, len)?, shape)?.to_device(device)
    }

    /// A tensor on a GPU with the value of a literal everywhere: one element, seen with strides 0.
    pub(crate) fn constant(elem: Elem, value: Literal, shape: &[usize], device: &CudaDevice) -> Result<Tensor, Error> {
        let layout = Layout::strided(shape, &vec![0; shape.len()], 0, 1)?;
        let memory = device.constant(&element_bytes(elem, value))?;
        Ok(Tensor::of(elem, layout, Storage::Cuda(Arc::new(memory), device.clone())))
    }

    /// A tensor whose elements are about to be written: zeros on the CPU, undefined on a GPU.
    pub(crate) fn uninitialised(elem: Elem, shape: &[usize], device: &Device) -> Result<Tensor, Error> {
        let layout = Layout::contiguous(shape)?;
        let Some(size) = elem.bytes() else {
            let expected = "a storable type".into();
            return Err(Error::WrongElem { tensor: "tensor".into(), expected, found: elem });
        };
        let bytes = layout.len() * size;
        let storage = match device {
            Device::Cpu => Storage::host(host_zeros(bytes)?),
            Device::Cuda(device) => Storage::Cuda(Arc::new(DeviceMemory::new(device, bytes)?), device.clone()),
        };
        Ok(Tensor::of(elem, layout, storage))
    }

    /// The elements of a CUDA slice, in row-major order, without copying. The tensor's stream is the slice's; its memory
    /// is freed as the slice frees it.
    ///
    /// # Errors
    /// [`Error::Length`] when the shape holds another number of elements; [`Error::Captured`] while the stream is being
    /// captured into a graph; errors of [`Device::from_stream`].
    pub fn from_cuda_slice<T: Element>(slice: CudaSlice<T>, shape: &[usize]) -> Result<Tensor, Error> {
        let layout = Layout::contiguous(shape)?;
        check_length(&layout, slice.len())?;
        let device = CudaDevice::from_stream(slice.stream().clone())?;
        let memory = DeviceMemory::of_slice(slice, &device)?;
        Ok(Tensor::of(T::ELEM, layout, Storage::Cuda(Arc::new(memory), device)))
    }

    /// Memory of a GPU that somebody else owns, seen under any shape and strides, without copying. `owner` is dropped
    /// with the last handle; it must free the memory, if at all, in the order of the device's stream. `()` stands for a lender that
    /// keeps the memory for longer, and costs no call of the driver.
    ///
    /// # Safety
    /// `address` must be device memory of the device's context, of at least `bytes` bytes, which stays valid until
    /// `owner` is dropped and the work queued on the stream by then has been done.
    ///
    /// # Errors
    /// [`Error::View`] when an index would leave the memory.
    #[allow(unsafe_code)]
    pub unsafe fn from_device_ptr(
        address: u64,
        bytes: usize,
        elem: Elem,
        (shape, strides): (&[usize], &[i64]),
        device: &CudaDevice,
        owner: impl Any + Send + Sync,
    ) -> Result<Tensor, Error> {
        let layout = Layout::strided(shape, strides, 0, bytes / elem_bytes(elem))?;
        let memory = DeviceMemory::owned_by(device, address, bytes, Box::new(owner));
        Ok(Tensor::of(elem, layout, Storage::Cuda(Arc::new(memory), device.clone())))
    }

    pub(crate) fn of(elem: Elem, layout: Layout, storage: Storage) -> Tensor {
        Tensor { elem, layout: Arc::new(layout), storage }
    }
}

impl Storage {
    /// Memory of the CPU.
    pub(crate) fn host(bytes: Box<dyn HostBytes>) -> Storage {
        Storage::Host(Arc::new(HostMemory::new(bytes)))
    }
}

/// Zeroed memory of the CPU, at an address that suits every element type.
pub(crate) fn host_zeros(bytes: usize) -> Result<Box<dyn HostBytes>, Error> {
    Ok(zeroed(bytes)?)
}

fn check_length(layout: &Layout, found: usize) -> Result<(), Error> {
    let expected = layout.len();
    if expected == found { Ok(()) } else { Err(Error::Length { shape: layout.shape.clone(), expected, found }) }
}

#[cfg(feature = "ndarray")]
mod with_ndarray {
    use ndarray::{Array, ArrayD, Dimension, IxDyn};

    use super::*;

    impl Tensor {
        /// The array's elements without copying: its memory, shape and strides.
        ///
        /// # Errors
        /// [`Error::View`] never for an array that `ndarray` has made.
        pub fn from_ndarray<T: Element, D: Dimension>(array: Array<T, D>) -> Result<Tensor, Error> {
            let shape = array.shape().to_vec();
            let strides: Vec<i64> = array.strides().iter().map(|&s| s as i64).collect();
            let (elements, offset) = array.into_raw_vec_and_offset();
            let layout = Layout::strided(&shape, &strides, offset.unwrap_or(0), elements.len())?;
            Ok(Tensor::of(T::ELEM, layout, Storage::host(T::own(elements))))
        }

        /// An array with a copy of the elements.
        ///
        /// # Errors
        /// The errors of [`Tensor::to_vec`].
        pub fn to_ndarray<T: Element>(&self) -> Result<ArrayD<T>, Error> {
            let failed = |e: ndarray::ShapeError| Error::View { shape: self.shape().to_vec(), reason: e.to_string() };
            ArrayD::from_shape_vec(IxDyn(self.shape()), self.to_vec()?).map_err(failed)
        }
    }
}

/// The bytes of an element with the value of a literal.
fn element_bytes(elem: Elem, value: Literal) -> Vec<u8> {
    let (float, int) = (value.as_f64(), if let Literal::Int(i) = value { i } else { value.as_f64() as i64 });
    match elem {
        Elem::F64 => float.to_ne_bytes().to_vec(),
        Elem::F32 | Elem::Call | Elem::State | Elem::Wide => (float as f32).to_ne_bytes().to_vec(),
        Elem::Bf16 => half::bf16::from_f64(float).to_ne_bytes().to_vec(),
        Elem::F16 => half::f16::from_f64(float).to_ne_bytes().to_vec(),
        Elem::I32 | Elem::U32 => (int as u32).to_ne_bytes().to_vec(),
        Elem::I64 | Elem::U64 => int.to_ne_bytes().to_vec(),
        Elem::Bool => vec![u8::from(value == Literal::Bool(true))],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_have_the_value_of_their_literal() {
        let bytes = element_bytes;
        assert_eq!(bytes(Elem::F32, Literal::Float(0.1)), 0.1_f32.to_ne_bytes());
        assert_eq!(bytes(Elem::F64, Literal::Float(-0.0)), (-0.0_f64).to_ne_bytes());
        assert_eq!(bytes(Elem::I64, Literal::Int(i64::MAX)), i64::MAX.to_ne_bytes());
        assert_eq!(bytes(Elem::I32, Literal::Int(-7)), (-7_i32).to_ne_bytes());
        assert_eq!(bytes(Elem::U32, Literal::Int(-1)), u32::MAX.to_ne_bytes());
        assert_eq!(bytes(Elem::Bool, Literal::Bool(true)), [1]);
        assert_eq!(bytes(Elem::Bf16, Literal::Float(f64::INFINITY)), half::bf16::INFINITY.to_ne_bytes());
    }
}

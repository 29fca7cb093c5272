//! Memory of the CPU: burn's backend Flex.
#![allow(unsafe_code, reason = "kernels read and write burn's memory")]

use burn::backend::flex::FlexTensor;
use burn::backend::{BackendTensor, DispatchTensorKind, Element, Flex, FlexDevice};
use burn::tensor::Shape;
use bytemuck::Pod;
use half::{bf16, f16};
use oplus::Elem;

use super::{Memory, contiguous};
use crate::Error;
use crate::elements::{dtype, elem};

impl Memory for Flex {
    type Tensor = FlexTensor;
    type New = FlexTensor;

    fn of(kind: &DispatchTensorKind) -> Option<&BackendTensor<Flex>> {
        match kind {
            DispatchTensorKind::Flex(tensor) => Some(tensor),
            #[allow(unreachable_patterns, reason = "other backends are features of burn")]
            _ => None,
        }
    }

    fn kind(tensor: BackendTensor<Flex>) -> DispatchTensorKind {
        DispatchTensorKind::Flex(tensor)
    }

    fn read(tensor: &FlexTensor, name: &str, axes: usize) -> Result<oplus::Tensor, Error> {
        let elem = elem(tensor.dtype(), name)?;
        let layout = tensor.layout();
        let is_scalar = axes == 0 && layout.num_elements() == 1;
        let shape = if is_scalar { vec![] } else { layout.shape().to_vec() };
        let strides: Vec<i64> = layout.strides().iter().take(shape.len()).map(|stride| *stride as i64).collect();
        let bytes = tensor.bytes();
        if bytes.is_empty() {
            return Ok(oplus::Tensor::zeros(elem, &shape, &oplus::Device::Cpu)?);
        }
        let (address, len) = (bytes.as_ptr().expose_provenance(), bytes.len());
        let whole = [len / elem.bytes().unwrap_or(1)];
        let owner = tensor.data_arc();
        // SAFETY: the owner keeps the elements where they are, and shares them, so that nobody writes them.
        let all = unsafe { oplus::Tensor::from_host_ptr_read_only(address, len, elem, (&whole, &[1]), owner)? };
        Ok(all.as_strided(&shape, &strides, layout.start_offset())?)
    }

    fn new(
        elem: Elem,
        shape: Vec<usize>,
        seen: &[usize],
        _: &FlexDevice,
    ) -> Result<(FlexTensor, oplus::Tensor), Error> {
        match elem {
            Elem::F64 => zeros::<f64>(elem, shape, seen),
            Elem::F32 => zeros::<f32>(elem, shape, seen),
            Elem::Bf16 => zeros::<bf16>(elem, shape, seen),
            Elem::F16 => zeros::<f16>(elem, shape, seen),
            Elem::I64 => zeros::<i64>(elem, shape, seen),
            Elem::I32 => zeros::<i32>(elem, shape, seen),
            Elem::U64 => zeros::<u64>(elem, shape, seen),
            Elem::U32 => zeros::<u32>(elem, shape, seen),
            _ => zeros::<u8>(Elem::Bool, shape, seen),
        }
    }

    fn made(new: FlexTensor) -> FlexTensor {
        new
    }

    fn in_order<T>(_: &FlexDevice, work: impl FnOnce() -> Result<T, oplus::Error>) -> Result<T, Error> {
        Ok(work()?)
    }
}

fn zeros<T: Pod + Element + Send + Sync>(
    elem: Elem,
    shape: Vec<usize>,
    seen: &[usize],
) -> Result<(FlexTensor, oplus::Tensor), Error> {
    let mut tensor = FlexTensor::filled_typed(Shape::from(shape), dtype(elem), T::zeroed());
    let elements = tensor.storage_mut::<T>();
    let (address, bytes) = (elements.as_mut_ptr().expose_provenance(), size_of_val(elements));
    // SAFETY: the elements are this tensor's alone, and stay where they are; it is used again after what writes them has gone.
    let written = unsafe { oplus::Tensor::from_host_ptr(address, bytes, elem, (seen, &contiguous(seen)), ())? };
    Ok((tensor, written))
}

//! Copies in row-major order that stay on a GPU.

use std::sync::Arc;

use oplus_dsl::Elem;

use crate::cuda::{CudaDevice, DeviceMemory};
use crate::kernel::Kernel;
use crate::kernels::{copy, copy_flags};
use crate::layout::Layout;
use crate::tensor::{Storage, elem_bytes};
use crate::{Error, Tensor};

/// The axes that the kernels have.
const AXES: usize = 4;

impl Tensor {
    /// A copy of the elements in row-major order on the tensor's GPU, queued on its stream.
    pub(crate) fn copied_on(&self, device: &CudaDevice) -> Result<Tensor, Error> {
        let memory = DeviceMemory::new(device, self.len() * elem_bytes(self.elem))?;
        let storage = Storage::Cuda(Arc::new(memory), device.clone());
        let copied = Tensor::of(self.elem, Layout::contiguous(self.shape())?, storage);
        let from = self.layout.merged();
        let to = Layout::contiguous(&from.shape)?;
        let (kernel, elem) = kernel(self.elem);
        let seen = |tensor: &Tensor, layout: Layout| Tensor::of(elem, layout, tensor.storage.clone());
        copy_axes(kernel, &seen(self, from), &seen(&copied, to))?;
        Ok(copied)
    }
}

/// The kernel that copies elements of a type, and the type of as many bytes under which it sees them.
fn kernel(elem: Elem) -> (&'static Kernel, Elem) {
    match elem {
        Elem::Bool => (copy_flags::kernel(), elem),
        Elem::I32 | Elem::U32 => (copy::kernel(), Elem::F32),
        Elem::I64 => (copy::kernel(), Elem::F64),
        _ => (copy::kernel(), elem),
    }
}

/// Copies between tensors of one shape: index by index along the axes that the kernel does not have.
fn copy_axes(kernel: &Kernel, from: &Tensor, to: &Tensor) -> Result<(), Error> {
    if let Some(missing) = AXES.checked_sub(from.shape().len()) {
        let padded = |tensor: &Tensor| (0..missing).try_fold(tensor.clone(), |tensor, _| tensor.unsqueeze(0));
        return kernel.call_into(&[Some(&padded(from)?)], &[&padded(to)?]).map(drop);
    }
    (0..from.shape()[0]).try_for_each(|index| copy_axes(kernel, &from.select(0, index)?, &to.select(0, index)?))
}

impl Layout {
    /// The elements in the same order under the fewest axes: those of size 1 left out, neighbours that one stride walks made one.
    fn merged(&self) -> Layout {
        let mut axes: Vec<(usize, i64)> = vec![];
        for (&size, &stride) in self.shape.iter().zip(&self.strides).filter(|(size, _)| **size != 1) {
            match axes.last_mut() {
                Some((outer, step)) if stride.checked_mul(size as i64) == Some(*step) => {
                    (*outer, *step) = (*outer * size, stride);
                }
                _ => axes.push((size, stride)),
            }
        }
        let (shape, strides) = axes.into_iter().unzip();
        Layout { shape, strides, offset: self.offset }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(layout: &Layout) -> Vec<usize> {
        let mut all = vec![];
        layout.for_each_run(|at, n| all.extend(at..at + n));
        all
    }

    #[test]
    fn merged_axes_name_the_same_elements_in_the_same_order() {
        let all = Layout::contiguous(&[2, 3, 4, 5]).unwrap();
        for (layout, axes) in [
            (all.clone(), 1),
            (all.permute(&[0, 2, 1, 3]).unwrap(), 4),
            (all.permute(&[2, 3, 0, 1]).unwrap(), 2),
            (all.slice(3, 1..3).unwrap(), 2),
            (all.slice(1, 1..2).unwrap(), 2),
            (all.slice(0, 1..2).unwrap(), 1),
            (Layout::strided(&[3, 4], &[-4, -1], 11, 12).unwrap(), 1),
            (Layout::strided(&[3, 4], &[0, 0], 5, 12).unwrap(), 1),
            (Layout::strided(&[1, 1], &[7, 9], 5, 12).unwrap(), 0),
        ] {
            let merged = layout.merged();
            assert_eq!((merged.shape.len(), elements(&merged)), (axes, elements(&layout)), "{layout:?}");
        }
    }

    /// The copy itself runs on a GPU; its walk over axes is the same for tensors of the CPU.
    #[test]
    fn copies_have_any_number_of_axes() {
        let places: Vec<f32> = (0..64).map(|k| k as f32).collect();
        let x = Tensor::from_slice(&places, &[2; 6]).unwrap();
        for order in [[5, 4, 3, 2, 1, 0], [1, 0, 3, 2, 5, 4], [0, 2, 4, 1, 3, 5], [0, 1, 2, 3, 4, 5]] {
            let turned = x.permute(&order).unwrap();
            let copied = Tensor::zeros(Elem::F32, turned.shape(), &crate::Device::Cpu).unwrap();
            copy_axes(copy::kernel(), &turned, &copied).unwrap();
            assert_eq!(copied.to_vec::<f32>().unwrap(), turned.to_vec::<f32>().unwrap(), "{order:?}");
        }
    }
}

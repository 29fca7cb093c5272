//! Memory of the CPU.
#![allow(unsafe_code, reason = "kernels read and write candle's memory")]

use bytemuck::Zeroable;
use bytemuck::allocation::try_zeroed_vec;
use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, DType, Error, Layout, Result, Shape};
use oplus::{Elem, Tensor};

use crate::elements::stored;

/// Evaluates an expression with `$all` standing for the elements of a storage.
macro_rules! with_elements {
    ($storage:expr, $all:ident => $body:expr) => {
        match $storage {
            CpuStorage::F64($all) => $body,
            CpuStorage::F32($all) => $body,
            CpuStorage::BF16($all) => $body,
            CpuStorage::F16($all) => $body,
            CpuStorage::I64($all) => $body,
            CpuStorage::I32($all) => $body,
            CpuStorage::U32($all) => $body,
            CpuStorage::U8($all) => $body,
            _ => return Err(Error::msg("no kernel takes elements of this type")),
        }
    };
}

/// A storage as a tensor that is read. Nobody writes the storage while it is used.
pub(super) fn read(storage: &CpuStorage, layout: &Layout, elem: Elem) -> Result<Tensor> {
    let (address, bytes) = with_elements!(storage, all => (all.as_ptr().expose_provenance(), size_of_val(&all[..])));
    let skipped = layout.start_offset() * storage.dtype().size_in_bytes();
    let (address, bytes) = (address + skipped, bytes.saturating_sub(skipped));
    let strides: Vec<i64> = layout.stride().iter().map(|stride| *stride as i64).collect();
    // SAFETY: the storage is locked for reading, and is so until the tensor has gone.
    let tensor = unsafe { Tensor::from_host_ptr_read_only(address, bytes, elem, (layout.dims(), &strides), ()) };
    tensor.map_err(Error::wrap)
}

/// A new storage as a tensor that is written, with the storage's elements in row-major order.
pub(super) fn written(storage: &mut CpuStorage, shape: &Shape) -> Result<Tensor> {
    let elem = stored(storage.dtype());
    let (address, bytes) =
        with_elements!(storage, all => (all.as_mut_ptr().expose_provenance(), size_of_val(&all[..])));
    let layout = Layout::contiguous(shape);
    let strides: Vec<i64> = layout.stride().iter().map(|stride| *stride as i64).collect();
    // SAFETY: the storage is this function's caller's alone, who uses it again when the tensor has gone.
    let tensor = unsafe { Tensor::from_host_ptr(address, bytes, elem, (shape.dims(), &strides), ()) };
    tensor.map_err(Error::wrap)
}

/// New memory.
pub(super) fn zeros(dtype: DType, len: usize) -> Result<CpuStorage> {
    fn of<T: Zeroable>(len: usize) -> Result<Vec<T>> {
        let refused = || oplus::Error::OutOfMemory { bytes: len.saturating_mul(size_of::<T>()), device: "cpu".into() };
        try_zeroed_vec(len).map_err(|()| Error::wrap(refused()))
    }
    match dtype {
        DType::F64 => of(len).map(CpuStorage::F64),
        DType::F32 => of(len).map(CpuStorage::F32),
        DType::BF16 => of(len).map(CpuStorage::BF16),
        DType::F16 => of(len).map(CpuStorage::F16),
        DType::I64 => of(len).map(CpuStorage::I64),
        DType::I32 => of(len).map(CpuStorage::I32),
        DType::U32 => of(len).map(CpuStorage::U32),
        DType::U8 => of(len).map(CpuStorage::U8),
        other => Err(Error::msg(format!("no kernel gives elements of type {}", other.as_str()))),
    }
}

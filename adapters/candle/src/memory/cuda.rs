//! Memory of a GPU. Calls are queued on candle's stream.
#![allow(unsafe_code, reason = "kernels read and write candle's memory")]

use candle_core::backend::BackendStorage;
use candle_core::cuda_backend::CudaStorageSlice as Slice;
use candle_core::{CudaDevice, CudaStorage, DType, Error, Layout, Result, Shape};
use cudarc::driver::{CudaSlice, DevicePtr, DevicePtrMut, SyncOnDrop};
use oplus::{Device, Elem, Tensor};

use super::Seen;
use crate::elements::stored;

/// The use of a slice, which cudarc notes for other streams when this is dropped.
pub(super) type Guard<'s> = SyncOnDrop<'s>;

/// Evaluates an expression with `$all` standing for the elements of a storage.
macro_rules! with_elements {
    ($slice:expr, $all:ident => $body:expr) => {
        match $slice {
            Slice::F64($all) => $body,
            Slice::F32($all) => $body,
            Slice::BF16($all) => $body,
            Slice::F16($all) => $body,
            Slice::I64($all) => $body,
            Slice::I32($all) => $body,
            Slice::U32($all) => $body,
            Slice::U8($all) => $body,
            _ => return Err(Error::msg("no kernel takes elements of this type")),
        }
    };
}

/// A storage as a tensor that is read.
pub(super) fn read<'s>(storage: &'s CudaStorage, layout: &Layout, elem: Elem) -> Result<Seen<'s>> {
    fn place<T>(slice: &CudaSlice<T>) -> (u64, usize, SyncOnDrop<'_>) {
        let (address, guard) = slice.device_ptr(slice.stream());
        (address, slice.num_bytes(), guard)
    }
    let (address, bytes, guard) = with_elements!(&storage.slice, all => place(all));
    let skipped = layout.start_offset() * storage.dtype().size_in_bytes();
    let place = (address + skipped as u64, bytes.saturating_sub(skipped));
    Ok(Seen { tensor: tensor(place, elem, layout, &storage.device)?, _guard: Some(guard) })
}

/// A new storage as a tensor that is written, with the storage's elements in row-major order.
pub(super) fn written<'s>(storage: &'s mut CudaStorage, shape: &Shape) -> Result<Seen<'s>> {
    fn place<T>(slice: &mut CudaSlice<T>) -> (u64, usize, SyncOnDrop<'_>) {
        let (bytes, stream) = (slice.num_bytes(), slice.stream().clone());
        // The guard may not outlive the stream that it is given; a slice's own lives as long as the slice.
        let address = slice.device_ptr_mut(&stream).0;
        let guard = slice.device_ptr(slice.stream()).1;
        (address, bytes, guard)
    }
    let elem = stored(storage.dtype());
    let device = storage.device.clone();
    let (address, bytes, guard) = with_elements!(&mut storage.slice, all => place(all));
    let layout = Layout::contiguous(shape);
    Ok(Seen { tensor: tensor((address, bytes), elem, &layout, &device)?, _guard: Some(guard) })
}

fn tensor((address, bytes): (u64, usize), elem: Elem, layout: &Layout, device: &CudaDevice) -> Result<Tensor> {
    let Device::Cuda(device) = Device::from_stream(device.cuda_stream()).map_err(Error::wrap)? else {
        return Err(Error::msg("a stream is one of a GPU"));
    };
    let strides: Vec<i64> = layout.stride().iter().map(|stride| *stride as i64).collect();
    // SAFETY: the storage outlives the tensor. It frees its memory in the order of its stream, which is the device's or waits for it.
    let tensor = unsafe { Tensor::from_device_ptr(address, bytes, elem, (layout.dims(), &strides), &device, ()) };
    tensor.map_err(Error::wrap)
}

/// New memory with any contents.
pub(super) fn uninitialised(device: &CudaDevice, dtype: DType, len: usize) -> Result<CudaStorage> {
    // SAFETY: the call for which this is made writes every element before anybody reads one.
    let slice = unsafe {
        match dtype {
            DType::F64 => Slice::F64(device.alloc(len)?),
            DType::F32 => Slice::F32(device.alloc(len)?),
            DType::BF16 => Slice::BF16(device.alloc(len)?),
            DType::F16 => Slice::F16(device.alloc(len)?),
            DType::I64 => Slice::I64(device.alloc(len)?),
            DType::I32 => Slice::I32(device.alloc(len)?),
            DType::U32 => Slice::U32(device.alloc(len)?),
            DType::U8 => Slice::U8(device.alloc(len)?),
            other => return Err(Error::msg(format!("no kernel gives elements of type {}", other.as_str()))),
        }
    };
    Ok(CudaStorage { slice, device: device.clone() })
}

/// The one element of a token.
pub(crate) fn token(near: &CudaStorage) -> Result<(CudaStorage, Shape)> {
    let slice = Slice::F32(near.device.alloc_zeros(1)?);
    Ok((CudaStorage { slice, device: near.device.clone() }, Shape::from(1)))
}

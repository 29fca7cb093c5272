//! Memory of an NVIDIA GPU: burn's backend of CubeCL, with fusion of its operations.
//!
//! CubeCL queues work on streams that it gives nobody. A call therefore waits until burn's work has been done, runs on a stream of the
//! library's, and waits for that.
#![allow(unsafe_code, reason = "kernels read and write burn's memory")]

use std::sync::Mutex;

use burn::backend::fusion::custom::{OperationIr, OperationOutput, StreamId};
use burn::backend::fusion::{FusionTensor, NoOp, get_client};
use burn::backend::ir::InitOperationIr;
use burn::backend::{BackendTensor, Cube, CubeDevice, DispatchTensorKind, TensorMetadata};
use burn::cubecl::cuda::CudaRuntime;
use burn::cubecl::future::block_on;
use burn::cubecl::server::Handle;
use burn::tensor::{BoolStore, DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::fusion::{CubeFusionHandle, FusionCubeRuntime};
use burn_cubecl::kernel::untile;
use burn_cubecl::tensor::CubeTensor;
use cubecl_runtime::runtime::Runtime;
use oplus::{CudaDevice, Device, Elem, Tensor};

use super::{Memory, contiguous};
use crate::Error;
use crate::elements::{dtype, elem};

impl Memory for Cube {
    type Tensor = FusionTensor<FusionCubeRuntime>;
    type New = CubeTensor;

    fn of(kind: &DispatchTensorKind) -> Option<&BackendTensor<Cube>> {
        match kind {
            DispatchTensorKind::Cube(tensor) if matches!(tensor.device(), CubeDevice::Cuda(_)) => Some(tensor),
            _ => None,
        }
    }

    fn kind(tensor: BackendTensor<Cube>) -> DispatchTensorKind {
        DispatchTensorKind::Cube(tensor)
    }

    fn read(tensor: &Self::Tensor, name: &str, axes: usize) -> Result<Tensor, Error> {
        let elem = elem(tensor.dtype(), name)?;
        // Burn queues the operations here that it has put off.
        let tensor = untile(resolved(tensor));
        let is_scalar = axes == 0 && tensor.meta.num_elements() == 1;
        let shape = if is_scalar { vec![] } else { tensor.meta.shape().to_vec() };
        let strides: Vec<i64> = tensor.meta.strides().iter().take(shape.len()).map(|stride| *stride as i64).collect();
        seen(tensor, elem, (&shape, &strides))
    }

    fn new(
        elem: Elem,
        shape: Vec<usize>,
        seen_shape: &[usize],
        device: &CubeDevice,
    ) -> Result<(CubeTensor, Tensor), Error> {
        let dtype = match dtype(elem) {
            DType::Bool(_) => DType::Bool(BoolStore::U8),
            dtype => dtype,
        };
        let client = device.client();
        let bytes = shape.iter().product::<usize>() * dtype.size();
        let handle: Handle = client.empty(bytes);
        let tensor = CubeTensor::new_contiguous(client, device.clone(), Shape::from(shape), handle, dtype);
        let written = seen(tensor.clone(), elem, (seen_shape, &contiguous(seen_shape)))?;
        Ok((tensor, written))
    }

    fn made(new: CubeTensor) -> Self::Tensor {
        let (client, shape, dtype) = (get_client::<CubeBackend>(&new.device), new.shape(), new.dtype);
        let handle = CubeFusionHandle::from(new);
        let init = InitOperationIr::create(shape, dtype, || client.register_tensor_handle(handle));
        client.register(StreamId::current(), OperationIr::Init(init), NoOp::<CubeBackend>::new()).output()
    }

    fn in_order<T>(device: &CubeDevice, work: impl FnOnce() -> Result<T, oplus::Error>) -> Result<T, Error> {
        block_on(device.client().sync()).map_err(|e| Error::Burn { reason: e.to_string() })?;
        let result = work()?;
        own(device)?.synchronize()?;
        Ok(result)
    }
}

/// The tensor that stands behind one whose operations are fused.
fn resolved(tensor: &FusionTensor<FusionCubeRuntime>) -> CubeTensor {
    let client = tensor.client.clone();
    match tensor.dtype {
        DType::Bool(_) => client.resolve_tensor_bool::<CubeBackend>(tensor.clone()),
        dtype if dtype.is_float() => client.resolve_tensor_float::<CubeBackend>(tensor.clone()),
        _ => client.resolve_tensor_int::<CubeBackend>(tensor.clone()),
    }
}

/// The elements of a tensor, which they keep, under a shape and strides.
fn seen(tensor: CubeTensor, elem: Elem, layout: (&[usize], &[i64])) -> Result<Tensor, Error> {
    let device = own(&tensor.device)?;
    if layout.0.contains(&0) {
        return Ok(Tensor::zeros(elem, layout.0, &Device::Cuda(device))?);
    }
    let resource = tensor.client.get_resource::<<CudaRuntime as Runtime>::Server>(tensor.handle.clone());
    let resource = resource.map_err(|e| Error::Burn { reason: e.to_string() })?;
    let (address, bytes) = (resource.resource().ptr, resource.resource().size as usize);
    // A resource may be used by one thread at a time; nobody does.
    let owner = (tensor, Mutex::new(resource));
    // SAFETY: the tensor and the resource keep the elements where they are. `in_order` orders the uses of burn and of calls: what uses
    // these elements is done when it returns.
    Ok(unsafe { Tensor::from_device_ptr(address, bytes, elem, layout, &device, owner)? })
}

/// The stream of the library's on a GPU of burn's.
fn own(device: &CubeDevice) -> Result<CudaDevice, Error> {
    let ordinal = match device {
        CubeDevice::Cuda(device) => device.index,
        other => return Err(Error::Burn { reason: format!("{other:?} is no GPU of CUDA") }),
    };
    match Device::cuda(ordinal)? {
        Device::Cuda(device) => Ok(device),
        Device::Cpu => Err(Error::Burn { reason: format!("there is no GPU {ordinal}") }),
    }
}

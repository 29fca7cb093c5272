//! Where the numbers are: tensors of candle as tensors of oplus and back.

use std::collections::HashMap;

use candle_core::op::BackpropOp;
use candle_core::{CpuStorage, Device, Error, Result, Shape, Storage, Tensor};
use oplus::{Elem, Kernel};

use crate::elements::{dtype, elem};
use crate::graph::SharedKernel;

/// What a call has made.
pub(crate) struct Made {
    outputs: Vec<(Storage, Shape)>,
    saved: Saved,
}

impl Made {
    /// The outputs alone, outside of any graph.
    pub(crate) fn into_tensors(self) -> Vec<Tensor> {
        let tensor = |(storage, shape)| Tensor::from_storage(storage, shape, BackpropOp::none(), false);
        self.outputs.into_iter().map(tensor).collect()
    }

    /// The outputs, and what the gradient needs.
    pub(crate) fn into_parts(self) -> (Vec<(Storage, Shape)>, Saved) {
        (self.outputs, self.saved)
    }
}

/// What the gradient of a call needs.
pub(crate) struct Saved {
    call: oplus::Call,
}

/// Calls a kernel.
pub(crate) fn forward(kernel: &Kernel, inputs: &[Option<&Tensor>]) -> Result<Made> {
    let program = kernel.program().map_err(Error::wrap)?;
    let params = program.params.iter().map(|p| (p.elem, p.name.as_str()));
    let imported = params
        .zip(inputs)
        .map(|((elem, name), input)| input.map(|input| import(input, elem, name)).transpose())
        .collect::<Result<Vec<_>>>()?;
    let given: Vec<Option<&oplus::Tensor>> = imported.iter().map(Option::as_ref).collect();
    let (outputs, call) = kernel.call(&given).map_err(Error::wrap)?;
    let outputs = outputs.iter().zip(&program.outputs).map(|(tensor, output)| export(tensor, &output.name));
    Ok(Made { outputs: outputs.collect::<Result<_>>()?, saved: Saved { call } })
}

impl Saved {
    /// Remembers an output, for gradients that read it.
    pub(crate) fn keep_output(&self, _index: usize, _output: &Tensor) {}

    /// The gradients of the inputs that are wanted, by their index, from the cotangents of outputs.
    pub(crate) fn gradient(
        &self,
        kernel: &SharedKernel,
        cotangents: &HashMap<usize, Tensor>,
        wanted: &[bool],
    ) -> Result<HashMap<usize, Tensor>> {
        let program = kernel.program().map_err(Error::wrap)?;
        let floats = program.outputs.iter().enumerate().filter(|(_, output)| output.elem.is_float());
        let imported = floats
            .map(|(k, output)| cotangents.get(&k).map(|c| import(c, output.elem, &output.name)).transpose())
            .collect::<Result<Vec<_>>>()?;
        let given: Vec<Option<&oplus::Tensor>> = imported.iter().map(Option::as_ref).collect();
        let gradients = kernel.backward(&self.call, &given).map_err(Error::wrap)?;
        let params = program.params.iter().enumerate().filter(|(_, param)| param.elem.is_float());
        let exported = params.zip(gradients).filter(|((k, _), _)| wanted[*k]).filter_map(|((k, param), gradient)| {
            let made = export(&gradient?, &param.name);
            Some(made.map(|(storage, shape)| (k, Tensor::from_storage(storage, shape, BackpropOp::none(), false))))
        });
        exported.collect()
    }
}

fn import(tensor: &Tensor, declared: Elem, name: &str) -> Result<oplus::Tensor> {
    if !matches!(tensor.device(), Device::Cpu) {
        return Err(Error::msg(format!("`{name}` is on {:?}, where no kernels are", tensor.device().location())));
    }
    let flat = tensor.flatten_all()?;
    let shape = tensor.dims();
    let made = match elem(tensor.dtype(), declared, name)? {
        Elem::F64 => oplus::Tensor::from_vec(flat.to_vec1::<f64>()?, shape),
        Elem::F32 => oplus::Tensor::from_vec(flat.to_vec1::<f32>()?, shape),
        Elem::Bf16 => oplus::Tensor::from_vec(flat.to_vec1::<half::bf16>()?, shape),
        Elem::F16 => oplus::Tensor::from_vec(flat.to_vec1::<half::f16>()?, shape),
        Elem::I64 => oplus::Tensor::from_vec(flat.to_vec1::<i64>()?, shape),
        Elem::I32 => oplus::Tensor::from_vec(flat.to_vec1::<i32>()?, shape),
        Elem::U32 => oplus::Tensor::from_vec(flat.to_vec1::<u32>()?, shape),
        _ => oplus::Tensor::from_vec(flat.to_vec1::<u8>()?.into_iter().map(|b| b != 0).collect(), shape),
    };
    made.map_err(Error::wrap)
}

fn export(tensor: &oplus::Tensor, name: &str) -> Result<(Storage, Shape)> {
    dtype(tensor.elem(), name)?;
    let storage = match tensor.elem() {
        Elem::F64 => tensor.to_vec().map(CpuStorage::F64),
        Elem::F32 => tensor.to_vec().map(CpuStorage::F32),
        Elem::Bf16 => tensor.to_vec().map(CpuStorage::BF16),
        Elem::F16 => tensor.to_vec().map(CpuStorage::F16),
        Elem::I64 => tensor.to_vec().map(CpuStorage::I64),
        Elem::I32 => tensor.to_vec().map(CpuStorage::I32),
        Elem::U32 => tensor.to_vec().map(CpuStorage::U32),
        _ => tensor.to_vec().map(|all: Vec<bool>| CpuStorage::U8(all.into_iter().map(u8::from).collect())),
    };
    Ok((Storage::Cpu(storage.map_err(Error::wrap)?), Shape::from(tensor.shape())))
}

/// The one element of a token.
pub(crate) mod token {
    use candle_core::{CpuStorage, CudaStorage, Error, Result, Shape};

    pub(crate) fn on_cpu() -> (CpuStorage, Shape) {
        (CpuStorage::F32(vec![0.0]), Shape::from(1))
    }

    pub(crate) fn on_cuda(_near: &CudaStorage) -> Result<(CudaStorage, Shape)> {
        Err(Error::msg("built without the feature `cuda`"))
    }
}

//! Where the numbers are: tensors of candle as tensors of oplus, in candle's own memory.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(not(feature = "cuda"))]
#[path = "memory/no_cuda.rs"]
mod cuda;
mod locks;

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use candle_core::op::BackpropOp;
use candle_core::{Error, Layout, Result, Shape, Storage, Tensor};
use oplus::{Call, Kernel, Residual};

use crate::elements::dtype;
use crate::graph::SharedKernel;
use locks::Locks;

pub(crate) use cuda::token;

/// The results of a call.
pub(crate) struct Made {
    pub(crate) outputs: Vec<(Storage, Shape)>,
    /// States that the call has saved, on a GPU.
    residual: Option<Residual>,
}

impl Made {
    /// The outputs alone, outside of any graph.
    pub(crate) fn into_tensors(self) -> Vec<Tensor> {
        self.outputs.into_iter().map(|(storage, shape)| constant(storage, shape)).collect()
    }
}

/// A tensor that is part of no graph.
pub(crate) fn constant(storage: Storage, shape: impl Into<Shape>) -> Tensor {
    Tensor::from_storage(storage, shape, BackpropOp::none(), false)
}

/// A tensor of oplus in the memory of a storage, and what must be held while it is used.
struct Seen<'s> {
    tensor: oplus::Tensor,
    _guard: Option<cuda::Guard<'s>>,
}

/// Calls a kernel. On a GPU a call that is recorded saves states for its gradient.
pub(crate) fn forward(kernel: &Kernel, inputs: &[Option<&Tensor>], is_recorded: bool) -> Result<Made> {
    let program = kernel.program().map_err(Error::wrap)?;
    let locks = Locks::of(inputs);
    // Inputs beyond the parameters are counted by the call.
    let params = program.params.iter().map(|p| (p.elem, p.name.as_str()));
    let params = params.chain(std::iter::repeat((oplus::Elem::Call, "input")));
    let seen = locks.seen(params, inputs)?;
    let given = tensors(&seen);
    let shapes = kernel.output_shapes(&given).map_err(Error::wrap)?;
    let place = inputs.iter().flatten().next().map(|tensor| tensor.device());
    let mut outputs = vec![];
    for ((elem, shape), output) in shapes.into_iter().zip(&program.outputs) {
        outputs.push((zeros(dtype(elem, &output.name)?, &shape, place)?, Shape::from(shape)));
    }
    let written = outputs.iter_mut().map(|(storage, shape)| written(storage, shape)).collect::<Result<Vec<_>>>()?;
    let into: Vec<&oplus::Tensor> = written.iter().map(|seen| &seen.tensor).collect();
    let _recording = is_recorded.then(oplus::record);
    let call = kernel.call_into(&given, &into).map_err(Error::wrap)?;
    drop(written);
    Ok(Made { outputs, residual: call.residual().cloned() })
}

/// The tensors that the gradient of a call needs. It holds candle's tensors, and looks up where they are when the gradient runs.
pub(crate) struct Saved {
    inputs: Vec<Option<Tensor>>,
    /// The outputs that the gradient reads.
    outputs: Mutex<Vec<Option<Tensor>>>,
    reads: Vec<bool>,
    residual: Option<Residual>,
}

impl Saved {
    /// Keeps the tensors of a call, with its outputs yet to come.
    pub(crate) fn new(kernel: &Kernel, inputs: &[Option<&Tensor>], made: &Made) -> Result<Saved> {
        let outputs = &kernel.program().map_err(Error::wrap)?.outputs;
        // A kernel without gradient says so when it is asked for it.
        let params = kernel.gradient_program().map_or(&[][..], |gradient| &gradient.params);
        let reads = outputs.iter().map(|output| params.iter().any(|param| param.name == output.name)).collect();
        Ok(Saved {
            inputs: inputs.iter().map(|input| input.map(Tensor::detach)).collect(),
            outputs: Mutex::new(vec![None; outputs.len()]),
            reads,
            residual: made.residual.clone(),
        })
    }

    /// Remembers an output if the gradient reads it: without its graph, which holds this.
    pub(crate) fn keep_output(&self, index: usize, output: &Tensor) {
        if self.reads[index] {
            self.outputs.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(output.detach());
        }
    }

    /// The gradients of the inputs that are wanted, by their index, from the cotangents of outputs.
    pub(crate) fn gradient(
        &self,
        kernel: &SharedKernel,
        cotangents: &HashMap<usize, Tensor>,
        wanted: &[bool],
    ) -> Result<HashMap<usize, Tensor>> {
        let program = kernel.program().map_err(Error::wrap)?;
        let kept = self.outputs.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let inputs: Vec<Option<&Tensor>> = self.inputs.iter().map(Option::as_ref).collect();
        let outputs: Vec<Option<&Tensor>> = kept.iter().map(Option::as_ref).collect();
        let floats = || program.outputs.iter().enumerate().filter(|(_, output)| output.elem.is_float());
        let cotangents: Vec<Option<&Tensor>> = floats().map(|(k, _)| cotangents.get(&k)).collect();
        let locks = Locks::of(&[&inputs[..], &outputs, &cotangents].concat());

        let params = program.params.iter().map(|p| (p.elem, p.name.as_str()));
        let seen = locks.seen(params, &inputs)?;
        let seen_outputs = locks.seen(program.outputs.iter().map(|o| (o.elem, o.name.as_str())), &outputs)?;
        let seen_cotangents = locks.seen(floats().map(|(_, o)| (o.elem, o.name.as_str())), &cotangents)?;
        let call = Call::from_parts(kernel, &tensors(&seen), &tensors(&seen_outputs), self.residual.as_ref());
        let call = call.map_err(Error::wrap)?;

        let mut gradients = vec![];
        for (k, param) in program.params.iter().enumerate().filter(|(_, param)| param.elem.is_float()) {
            let input = inputs[k].filter(|_| wanted[k]);
            let made =
                input.map(|x| Ok::<_, Error>((k, zeros(x.dtype(), x.dims(), Some(x.device()))?, x.shape().clone())));
            gradients.push(made.transpose().map_err(|e| e.context(format!("the gradient of `{}`", param.name)))?);
        }
        let places = gradients.iter_mut().map(Option::as_mut);
        let into = places.map(|made| made.map(|(_, storage, shape)| written(storage, shape)).transpose());
        let into = into.collect::<Result<Vec<_>>>()?;
        let done = kernel.backward_into(&call, &tensors(&seen_cotangents), &tensors(&into));
        done.map_err(Error::wrap)?;
        drop(into);
        Ok(gradients.into_iter().flatten().map(|(k, storage, shape)| (k, constant(storage, shape))).collect())
    }
}

/// The tensors of oplus as calls take them.
fn tensors<'t>(seen: &'t [Option<Seen<'_>>]) -> Vec<Option<&'t oplus::Tensor>> {
    seen.iter().map(|seen| seen.as_ref().map(|seen| &seen.tensor)).collect()
}

/// A storage as a tensor that is read. Nobody writes the storage while it is used.
fn read<'s>(storage: &'s Storage, layout: &Layout, elem: oplus::Elem, name: &str) -> Result<Seen<'s>> {
    match storage {
        Storage::Cpu(storage) => cpu::read(storage, layout, elem).map(|tensor| Seen { tensor, _guard: None }),
        Storage::Cuda(storage) => cuda::read(storage, layout, elem),
        Storage::Metal(_) => Err(Error::msg(format!("`{name}` is on a Metal device, for which there are no kernels"))),
    }
}

/// A new storage as a tensor that is written.
fn written<'s>(storage: &'s mut Storage, shape: &Shape) -> Result<Seen<'s>> {
    match storage {
        Storage::Cpu(storage) => cpu::written(storage, shape).map(|tensor| Seen { tensor, _guard: None }),
        Storage::Cuda(storage) => cuda::written(storage, shape),
        Storage::Metal(_) => Err(Error::msg("there are no kernels for Metal devices")),
    }
}

/// Memory for what a call writes, where its inputs are: zeros on the CPU, anything on a GPU.
fn zeros(dtype: candle_core::DType, shape: &[usize], device: Option<&candle_core::Device>) -> Result<Storage> {
    let len = shape.iter().product();
    match device {
        None | Some(candle_core::Device::Cpu) => cpu::zeros(dtype, len).map(Storage::Cpu),
        Some(candle_core::Device::Cuda(device)) => cuda::uninitialised(device, dtype, len).map(Storage::Cuda),
        Some(candle_core::Device::Metal(_)) => Err(Error::msg("there are no kernels for Metal devices")),
    }
}

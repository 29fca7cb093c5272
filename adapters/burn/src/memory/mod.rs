//! Where the numbers are: tensors of burn as tensors of oplus, in burn's own memory.

#[cfg(feature = "cuda")]
mod cuda;
mod flex;

use std::fmt::Debug;

use burn::backend::{Backend, BackendTensor, BackendTypes, DispatchTensorKind, TensorMetadata};
use burn::tensor::{DType, FloatDType, Shape};
use oplus::{Call, Elem, Kernel, Residual};

use crate::Error;

/// A backend of burn whose memory kernels read and write.
pub(crate) trait Memory:
    Backend
    + BackendTypes<
        FloatTensorPrimitive = <Self as Memory>::Tensor,
        IntTensorPrimitive = <Self as Memory>::Tensor,
        BoolTensorPrimitive = <Self as Memory>::Tensor,
    >
{
    /// Its tensors, of any kind.
    type Tensor: TensorMetadata<Device = Self::Device> + Clone + Debug + Send + 'static;

    /// A tensor that is being made.
    type New;

    /// A tensor that burn dispatches on, if it is one of this backend on a device that has kernels.
    fn of(kind: &DispatchTensorKind) -> Option<&BackendTensor<Self>>;

    /// A tensor of this backend as burn dispatches on it.
    fn kind(tensor: BackendTensor<Self>) -> DispatchTensorKind;

    /// A tensor as a call reads it, with the name and the number of axes of what it is given for. It holds the elements, so that burn,
    /// which writes only what has one holder, does not write them.
    fn read(tensor: &Self::Tensor, name: &str, axes: usize) -> Result<oplus::Tensor, Error>;

    /// A tensor that is being made, and how a call writes it: in a shape of burn's, which the call sees in its own.
    fn new(
        elem: Elem,
        shape: Vec<usize>,
        seen: &[usize],
        device: &Self::Device,
    ) -> Result<(Self::New, oplus::Tensor), Error>;

    /// The tensor, which nobody writes any more.
    fn made(new: Self::New) -> Self::Tensor;

    /// Does the work of a call after everything that burn has queued on a device, and before everything that it will queue.
    fn in_order<T>(device: &Self::Device, work: impl FnOnce() -> Result<T, oplus::Error>) -> Result<T, Error>;
}

/// The outputs of a call, and what its gradient needs.
pub(crate) struct Made<B: Memory> {
    pub(crate) outputs: Vec<B::Tensor>,
    pub(crate) saved: Saved<B>,
}

/// The tensors that the gradient of a call needs.
pub(crate) struct Saved<B: Memory> {
    inputs: Vec<Option<B::Tensor>>,
    /// The outputs that the gradient reads.
    outputs: Vec<Option<B::Tensor>>,
    /// States that the call has saved, on a GPU.
    residual: Option<Residual>,
    pub(crate) device: B::Device,
}

/// Calls a kernel. On a GPU a call that is recorded saves states for its gradient.
pub(crate) fn forward<B: Memory>(
    kernel: &Kernel,
    inputs: Vec<Option<B::Tensor>>,
    is_recorded: bool,
) -> Result<Made<B>, Error> {
    let program = kernel.program()?;
    // Inputs beyond the parameters are counted by the call.
    let params = program.params.iter().map(|p| (p.name.as_str(), p.axes.len())).chain(std::iter::repeat(("", 1)));
    let seen = read_all::<B>(params, &inputs)?;
    let device = inputs.iter().flatten().next().map_or_else(B::Device::default, TensorMetadata::device);
    let (mut outputs, mut written) = (vec![], vec![]);
    for (elem, shape) in kernel.output_shapes(&refs(&seen))? {
        // A tensor of burn has at least one axis: a scalar has one of size 1.
        let own = if shape.is_empty() { vec![1] } else { shape.clone() };
        let (output, seen) = B::new(elem, own, &shape, &device)?;
        outputs.push(output);
        written.push(seen);
    }
    let call = B::in_order(&device, || {
        let _recording = is_recorded.then(oplus::record);
        kernel.call_into(&refs(&seen), &written.iter().collect::<Vec<_>>())
    })?;
    let residual = call.residual().cloned();
    drop((call, written));
    let outputs: Vec<B::Tensor> = outputs.into_iter().map(B::made).collect();
    // A kernel without gradient says so when it is asked for it.
    let params = kernel.gradient_program().map_or(&[][..], |gradient| &gradient.params);
    let is_read = |name: &str| params.iter().any(|param| param.name == name);
    let kept = program.outputs.iter().zip(&outputs).map(|(o, tensor)| is_read(&o.name).then(|| tensor.clone()));
    let saved = Saved { inputs, outputs: kept.collect(), residual, device };
    Ok(Made { outputs, saved })
}

impl<B: Memory> Saved<B> {
    /// How many inputs the call had.
    pub(crate) fn inputs(&self) -> usize {
        self.inputs.len()
    }

    /// The gradients of the inputs that are wanted, by their index, from the cotangents of outputs.
    pub(crate) fn gradient(
        &self,
        kernel: &Kernel,
        cotangents: &[Option<B::Tensor>],
        wanted: &[bool],
    ) -> Result<Vec<Option<B::Tensor>>, Error> {
        let program = kernel.program()?;
        let inputs = read_all::<B>(program.params.iter().map(|p| (p.name.as_str(), p.axes.len())), &self.inputs)?;
        let outputs = read_all::<B>(program.outputs.iter().map(|o| (o.name.as_str(), o.axes.len())), &self.outputs)?;
        let floats = program.outputs.iter().zip(cotangents).filter(|(output, _)| output.elem.is_float());
        let (floats, given): (Vec<_>, Vec<_>) =
            floats.map(|(o, c)| ((o.name.as_str(), o.axes.len()), c.clone())).unzip();
        let cotangents = read_all::<B>(floats.into_iter(), &given)?;
        let call = Call::from_parts(kernel, &refs(&inputs), &refs(&outputs), self.residual.as_ref())?;

        let params = || program.params.iter().enumerate().filter(|(_, param)| param.elem.is_float());
        let new = |k: usize| {
            let (input, seen) = (self.inputs[k].as_ref()?, inputs[k].as_ref()?);
            wanted[k].then(|| B::new(seen.elem(), input.shape().to_vec(), seen.shape(), &self.device))
        };
        let gradients = params().map(|(k, _)| new(k).transpose()).collect::<Result<Vec<_>, _>>()?;
        let (gradients, into): (Vec<_>, Vec<_>) = gradients.into_iter().map(Option::unzip).unzip();
        B::in_order(&self.device, || kernel.backward_into(&call, &refs(&cotangents), &refs(&into)))?;
        drop(into);
        let mut all = vec![None; program.params.len()];
        params().zip(gradients).for_each(|((k, _), gradient)| all[k] = gradient.map(B::made));
        Ok(all)
    }
}

/// One element, which carries a graph.
pub(crate) fn token<B: Memory>(device: &B::Device) -> B::Tensor {
    B::float_zeros(Shape::from([1]), device, FloatDType::F32)
}

/// Whether a tensor stores floats.
pub(crate) fn is_float(tensor: &impl TensorMetadata) -> bool {
    tensor.dtype().is_float()
}

/// A tensor as one of the kind that its elements are of.
pub(crate) fn of_kind<B: Memory>(tensor: B::Tensor) -> BackendTensor<B> {
    match tensor.dtype() {
        DType::Bool(_) => BackendTensor::Bool(tensor),
        dtype if dtype.is_float() => BackendTensor::Float(tensor),
        _ => BackendTensor::Int(tensor),
    }
}

fn refs(tensors: &[Option<oplus::Tensor>]) -> Vec<Option<&oplus::Tensor>> {
    tensors.iter().map(Option::as_ref).collect()
}

/// Tensors with the names and numbers of axes of what they are given for, as a call reads them.
fn read_all<'p, B: Memory>(
    declared: impl Iterator<Item = (&'p str, usize)>,
    tensors: &[Option<B::Tensor>],
) -> Result<Vec<Option<oplus::Tensor>>, Error> {
    let read = |((name, axes), tensor): ((&str, usize), &Option<B::Tensor>)| {
        tensor.as_ref().map(|tensor| B::read(tensor, name, axes)).transpose()
    };
    declared.zip(tensors).map(read).collect()
}

/// The strides of elements without gaps, the last axis fastest.
fn contiguous(shape: &[usize]) -> Vec<i64> {
    let mut strides = vec![1; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis] * shape[axis].max(1) as i64;
    }
    strides
}

//! Where the numbers are: tensors of burn as tensors of oplus, in burn's own memory.
#![allow(unsafe_code, reason = "kernels read and write burn's memory")]

use burn::backend::Element;
use burn::backend::flex::{FlexTensor, Layout};
use burn::tensor::{DType, Shape};
use bytemuck::Pod;
use half::{bf16, f16};
use oplus::{Call, Elem, Kernel};

use crate::Error;
use crate::elements::{dtype, elem};

/// What a call has made.
pub(crate) struct Made {
    pub(crate) outputs: Vec<FlexTensor>,
    pub(crate) saved: Saved,
}

/// What the gradient of a call needs.
#[derive(Debug)]
pub(crate) struct Saved {
    inputs: Vec<Option<FlexTensor>>,
    /// Those that the gradient reads.
    outputs: Vec<Option<FlexTensor>>,
}

/// Calls a kernel.
pub(crate) fn forward(kernel: &Kernel, inputs: Vec<Option<FlexTensor>>) -> Result<Made, Error> {
    let program = kernel.program()?;
    // Inputs beyond the parameters are counted by the call.
    let params = program.params.iter().map(|p| (p.name.as_str(), p.axes.len())).chain(std::iter::repeat(("", 1)));
    let seen = read_all(params, &inputs)?;
    let mut outputs = vec![];
    for (elem, shape) in kernel.output_shapes(&refs(&seen))? {
        // What has no axes has one of size 1.
        outputs.push(New::of(elem, if shape.is_empty() { vec![1] } else { shape.clone() }, &shape)?);
    }
    let written: Vec<&oplus::Tensor> = outputs.iter().map(|new| &new.written).collect();
    kernel.call_into(&refs(&seen), &written)?;
    let outputs: Vec<FlexTensor> = outputs.into_iter().map(New::into_tensor).collect();
    // A kernel without gradient says so when it is asked for it.
    let params = kernel.gradient_program().map_or(&[][..], |gradient| &gradient.params);
    let is_read = |name: &str| params.iter().any(|param| param.name == name);
    let kept = program.outputs.iter().zip(&outputs).map(|(o, tensor)| is_read(&o.name).then(|| tensor.clone()));
    let saved = Saved { inputs, outputs: kept.collect() };
    Ok(Made { outputs, saved })
}

impl Saved {
    /// How many inputs the call had.
    pub(crate) fn inputs(&self) -> usize {
        self.inputs.len()
    }

    /// The gradients of the inputs that are wanted, by their index, from the cotangents of outputs.
    pub(crate) fn gradient(
        &self,
        kernel: &Kernel,
        cotangents: &[Option<FlexTensor>],
        wanted: &[bool],
    ) -> Result<Vec<Option<FlexTensor>>, Error> {
        let program = kernel.program()?;
        let inputs = read_all(program.params.iter().map(|p| (p.name.as_str(), p.axes.len())), &self.inputs)?;
        let outputs = read_all(program.outputs.iter().map(|o| (o.name.as_str(), o.axes.len())), &self.outputs)?;
        let floats = program.outputs.iter().zip(cotangents).filter(|(output, _)| output.elem.is_float());
        let (floats, given): (Vec<_>, Vec<_>) =
            floats.map(|(o, c)| ((o.name.as_str(), o.axes.len()), c.clone())).unzip();
        let cotangents = read_all(floats.into_iter(), &given)?;
        let call = Call::from_parts(kernel, &refs(&inputs), &refs(&outputs), None)?;

        let params = || program.params.iter().enumerate().filter(|(_, param)| param.elem.is_float());
        let new = |k: usize| {
            let (input, seen) = (self.inputs[k].as_ref()?, inputs[k].as_ref()?);
            wanted[k].then(|| New::of(seen.elem(), input.layout().shape().to_vec(), seen.shape()))
        };
        let gradients = params().map(|(k, _)| new(k).transpose()).collect::<Result<Vec<_>, _>>()?;
        let into: Vec<Option<&oplus::Tensor>> = gradients.iter().map(|new| Some(&new.as_ref()?.written)).collect();
        kernel.backward_into(&call, &refs(&cotangents), &into)?;
        let mut all = vec![None; program.params.len()];
        params().zip(gradients).for_each(|((k, _), gradient)| all[k] = gradient.map(New::into_tensor));
        Ok(all)
    }
}

/// Whether a tensor stores floats.
pub(crate) fn is_float(tensor: &FlexTensor) -> bool {
    tensor.dtype().is_float()
}

fn refs(tensors: &[Option<oplus::Tensor>]) -> Vec<Option<&oplus::Tensor>> {
    tensors.iter().map(Option::as_ref).collect()
}

/// Tensors with the names and numbers of axes of what they are given for, as a call reads them.
fn read_all<'p>(
    declared: impl Iterator<Item = (&'p str, usize)>,
    tensors: &[Option<FlexTensor>],
) -> Result<Vec<Option<oplus::Tensor>>, Error> {
    let read = |((name, axes), tensor): ((&str, usize), &Option<FlexTensor>)| {
        tensor.as_ref().map(|tensor| read(tensor, name, axes)).transpose()
    };
    declared.zip(tensors).map(read).collect()
}

/// A tensor as a call reads it. It holds the elements, so that burn, which writes only what has one holder, does not write them.
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
    // SAFETY: the owner keeps the elements where they are, and shares them, so that nobody writes them.
    let all = unsafe { oplus::Tensor::from_host_ptr_read_only(address, len, elem, (&whole, &[1]), tensor.data_arc())? };
    Ok(all.as_strided(&shape, &strides, layout.start_offset())?)
}

/// A tensor that is being made, and how a call writes it.
struct New {
    tensor: FlexTensor,
    written: oplus::Tensor,
}

impl New {
    /// Zeros in a shape of burn's, which a call sees in its own.
    fn of(elem: Elem, shape: Vec<usize>, seen: &[usize]) -> Result<New, Error> {
        match elem {
            Elem::F64 => New::zeros::<f64>(elem, shape, seen),
            Elem::F32 => New::zeros::<f32>(elem, shape, seen),
            Elem::Bf16 => New::zeros::<bf16>(elem, shape, seen),
            Elem::F16 => New::zeros::<f16>(elem, shape, seen),
            Elem::I64 => New::zeros::<i64>(elem, shape, seen),
            Elem::I32 => New::zeros::<i32>(elem, shape, seen),
            Elem::U64 => New::zeros::<u64>(elem, shape, seen),
            Elem::U32 => New::zeros::<u32>(elem, shape, seen),
            _ => New::zeros::<u8>(Elem::Bool, shape, seen),
        }
    }

    fn zeros<T: Pod + Element + Send + Sync>(elem: Elem, shape: Vec<usize>, seen: &[usize]) -> Result<New, Error> {
        let mut tensor = FlexTensor::filled_typed(Shape::from(shape), dtype(elem), T::zeroed());
        let elements = tensor.storage_mut::<T>();
        let (address, bytes) = (elements.as_mut_ptr().expose_provenance(), size_of_val(elements));
        let contiguous: Vec<i64> =
            Layout::contiguous(Shape::from(seen.to_vec())).strides().iter().map(|s| *s as i64).collect();
        // SAFETY: the elements are this tensor's alone, and stay where they are until it is taken out, after what writes them has gone.
        let written = unsafe { oplus::Tensor::from_host_ptr(address, bytes, elem, (seen, &contiguous), ())? };
        Ok(New { tensor, written })
    }

    /// The tensor, which nobody writes any more.
    fn into_tensor(self) -> FlexTensor {
        drop(self.written);
        self.tensor
    }
}

/// One element, which carries a graph.
pub(crate) fn token() -> FlexTensor {
    FlexTensor::zeros(Shape::from([1]), DType::F32)
}

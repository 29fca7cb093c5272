//! Where the numbers are: tensors of burn as tensors of oplus and back.

use burn::backend::Element;
use burn::backend::flex::FlexTensor;
use burn::tensor::{DType, TensorData};
use oplus::{Elem, Kernel};

use crate::Error;
use crate::elements::elem;

/// What a call has made.
pub(crate) struct Made {
    pub(crate) outputs: Vec<FlexTensor>,
    pub(crate) saved: Saved,
}

/// What the gradient of a call needs.
#[derive(Debug)]
pub(crate) struct Saved {
    call: oplus::Call,
    /// The inputs' shapes, which their gradients have: one element of a parameter without axes.
    shapes: Vec<Vec<usize>>,
}

/// Calls a kernel.
pub(crate) fn forward(kernel: &Kernel, inputs: &[Option<FlexTensor>]) -> Result<Made, Error> {
    let program = kernel.program()?;
    // Inputs beyond the parameters are counted by the call.
    let params = program.params.iter().map(|p| (p.name.as_str(), p.axes.len())).chain(std::iter::repeat(("", 1)));
    let imported = params
        .zip(inputs)
        .map(|((name, axes), input)| input.as_ref().map(|input| import(input, name, axes)).transpose())
        .collect::<Result<Vec<_>, _>>()?;
    let given: Vec<Option<&oplus::Tensor>> = imported.iter().map(Option::as_ref).collect();
    let (outputs, call) = kernel.call(&given)?;
    let shape = |input: &Option<FlexTensor>| input.as_ref().map(|x| x.layout().shape().to_vec()).unwrap_or_default();
    let saved = Saved { call, shapes: inputs.iter().map(shape).collect() };
    Ok(Made { outputs: outputs.iter().map(|y| export(y, None)).collect::<Result<_, _>>()?, saved })
}

impl Saved {
    /// The gradients of the inputs, by their index, from the cotangents of outputs.
    pub(crate) fn gradient(
        &self,
        kernel: &Kernel,
        cotangents: &[Option<FlexTensor>],
    ) -> Result<Vec<Option<FlexTensor>>, Error> {
        let program = kernel.program()?;
        let floats = program.outputs.iter().zip(cotangents).filter(|(output, _)| output.elem.is_float());
        let imported = floats
            .map(|(output, cotangent)| cotangent.as_ref().map(|c| import(c, &output.name, output.axes.len())).transpose())
            .collect::<Result<Vec<_>, _>>()?;
        let given: Vec<Option<&oplus::Tensor>> = imported.iter().map(Option::as_ref).collect();
        let gradients = kernel.backward(&self.call, &given)?;
        let mut all = vec![None; program.params.len()];
        let params = program.params.iter().enumerate().filter(|(_, param)| param.elem.is_float());
        for ((k, _), gradient) in params.zip(gradients) {
            all[k] = gradient.map(|gradient| export(&gradient, Some(&self.shapes[k]))).transpose()?;
        }
        Ok(all)
    }
}

/// Whether a tensor stores floats.
pub(crate) fn is_float(tensor: &FlexTensor) -> bool {
    tensor.dtype().is_float()
}

fn import(tensor: &FlexTensor, name: &str, axes: usize) -> Result<oplus::Tensor, Error> {
    let elem = elem(tensor.dtype(), name)?;
    let whole = tensor.to_contiguous();
    let is_scalar = axes == 0 && whole.layout().num_elements() == 1;
    let shape = if is_scalar { vec![] } else { whole.layout().shape().to_vec() };
    fn of<T: oplus::Element + Element + burn::tensor::Element + bytemuck::Pod>(
        tensor: &FlexTensor,
        shape: &[usize],
    ) -> Result<oplus::Tensor, Error> {
        Ok(oplus::Tensor::from_slice(tensor.storage::<T>(), shape)?)
    }
    match elem {
        Elem::F64 => of::<f64>(&whole, &shape),
        Elem::F32 => of::<f32>(&whole, &shape),
        Elem::Bf16 => of::<half::bf16>(&whole, &shape),
        Elem::F16 => of::<half::f16>(&whole, &shape),
        Elem::I64 => of::<i64>(&whole, &shape),
        Elem::I32 => of::<i32>(&whole, &shape),
        Elem::U64 => of::<u64>(&whole, &shape),
        Elem::U32 => of::<u32>(&whole, &shape),
        _ => {
            let truths = whole.bytes().iter().map(|&byte| byte != 0).collect();
            Ok(oplus::Tensor::from_vec::<bool>(truths, &shape)?)
        }
    }
}

/// A tensor of burn with the elements of a tensor, in its shape or another one. What has no axes has one of size 1.
fn export(tensor: &oplus::Tensor, shape: Option<&[usize]>) -> Result<FlexTensor, Error> {
    let own = if tensor.shape().is_empty() { &[1] } else { tensor.shape() };
    let shape = shape.unwrap_or(own).to_vec();
    let data = match tensor.elem() {
        Elem::F64 => TensorData::new(tensor.to_vec::<f64>()?, shape),
        Elem::Bf16 => TensorData::new(tensor.to_vec::<half::bf16>()?, shape),
        Elem::F16 => TensorData::new(tensor.to_vec::<half::f16>()?, shape),
        Elem::I64 => TensorData::new(tensor.to_vec::<i64>()?, shape),
        Elem::I32 => TensorData::new(tensor.to_vec::<i32>()?, shape),
        Elem::U64 => TensorData::new(tensor.to_vec::<u64>()?, shape),
        Elem::U32 => TensorData::new(tensor.to_vec::<u32>()?, shape),
        Elem::Bool => TensorData::new(tensor.to_vec::<bool>()?, shape),
        _ => TensorData::new(tensor.to_vec::<f32>()?, shape),
    };
    Ok(FlexTensor::from_data(data))
}

/// One element, which carries a graph.
pub(crate) fn token() -> FlexTensor {
    FlexTensor::zeros([1].into(), DType::F32)
}

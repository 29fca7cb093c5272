//! A rank's tensors of a case, and its calls.

use std::ops::Range;

use oplus::dist::Group;
use oplus::{Call, Device, Elem, Error, Tensor};
use oplus_dsl::ir::{Axis, Output, Param};

use super::Case;

/// A rank's tensors.
pub(super) struct Shard<'a> {
    case: &'a Case,
    inputs: Vec<Option<Tensor>>,
    cotangents: Vec<Tensor>,
}

impl<'a> Shard<'a> {
    /// A part of the whole inputs.
    pub(super) fn of(
        case: &'a Case,
        whole: &[Option<Tensor>],
        part: &Range<usize>,
        device: &Device,
    ) -> Result<Shard<'a>, Error> {
        let params = case.program()?.params.iter().zip(whole);
        let cut = |(param, tensor): (&Param, &Option<Tensor>)| {
            tensor.as_ref().map(|tensor| cut(case, &param.axes, tensor, part, device)).transpose()
        };
        let inputs = params.map(cut).collect::<Result<_, _>>()?;
        Ok(Shard { case, inputs, cotangents: cotangents(case, part.len(), device)? })
    }

    /// Inputs of that many tokens for measurements: a block of random numbers, over and over.
    pub(super) fn filled(case: &'a Case, tokens: usize, device: &Device) -> Result<Shard<'a>, Error> {
        let (block, sizes) = (case.inputs(BLOCK.min(tokens))?, case.sizes(tokens)?);
        let fill = |(param, block): (&Param, Option<Tensor>)| {
            let Some(block) = block else { return Ok(None) };
            let shape: Vec<usize> = param.axes.iter().map(|axis| sizes[axis.0 as usize]).collect();
            let (block, len) = (block.to_vec::<f32>()?, shape.iter().product());
            let numbers = block.iter().copied().cycle().take(len).collect();
            Tensor::from_vec::<f32>(numbers, &shape)?.to_device(device).map(Some)
        };
        let inputs = case.program()?.params.iter().zip(block).map(fill).collect::<Result<_, Error>>()?;
        Ok(Shard { case, inputs, cotangents: cotangents(case, tokens, device)? })
    }

    /// A forward call, of the group if one is given.
    pub(super) fn forward(&self, group: Option<&Group>) -> Result<(Vec<Tensor>, Call), Error> {
        let inputs: Vec<_> = self.inputs.iter().map(Option::as_ref).collect();
        match group {
            Some(group) => self.case.kernel.call_sharded(group, &self.case.axis, &inputs),
            None => self.case.kernel.call(&inputs),
        }
    }

    /// Its gradient.
    pub(super) fn backward(&self, call: &Call) -> Result<Vec<Option<Tensor>>, Error> {
        self.case.kernel.backward(call, &self.cotangents.iter().map(Some).collect::<Vec<_>>())
    }

    /// Outputs and gradients on the CPU.
    pub(super) fn results(&self, group: Option<&Group>) -> Result<Vec<Tensor>, Error> {
        let (outputs, call) = self.forward(group)?;
        let is_differentiable = self.case.kernel.gradient_program().is_ok();
        let gradients = if is_differentiable { self.backward(&call)? } else { vec![] };
        outputs.iter().chain(gradients.iter().flatten()).map(Tensor::to_cpu).collect()
    }
}

/// How many tokens of a measurement are random.
const BLOCK: usize = 4096;

/// The part of results of the whole that a rank has.
pub(super) fn parts_of(case: &Case, results: &[Tensor], part: &Range<usize>) -> Result<Vec<Tensor>, Error> {
    let outputs = case.program()?.outputs.iter().map(|output| &output.axes[..]);
    let params = case.float_params()?;
    let axes = outputs.chain(params.iter().map(|param| &param.axes[..]));
    axes.zip(results).map(|(axes, tensor)| cut(case, axes, tensor, part, &Device::Cpu)).collect()
}

fn cut(case: &Case, axes: &[Axis], tensor: &Tensor, part: &Range<usize>, device: &Device) -> Result<Tensor, Error> {
    let along = case.program()?.axis(&case.axis);
    let at = axes.iter().position(|axis| Some(*axis) == along);
    let part = at.map_or(Ok(tensor.clone()), |at| tensor.slice(at, part.clone()))?;
    part.contiguous()?.to_device(device)
}

/// A cotangent of ones for every output of floats.
fn cotangents(case: &Case, tokens: usize, device: &Device) -> Result<Vec<Tensor>, Error> {
    let sizes = case.sizes(tokens)?;
    let cotangent = |output: &Output| {
        let shape: Vec<usize> = output.axes.iter().map(|axis| sizes[axis.0 as usize]).collect();
        let elem = output.elem.in_call(Elem::F32);
        match elem {
            Elem::F64 => Tensor::full(1.0_f64, &shape, device),
            _ => Tensor::full(1.0_f32, &shape, device),
        }
    };
    case.program()?.outputs.iter().filter(|output| output.elem.is_float()).map(cotangent).collect()
}

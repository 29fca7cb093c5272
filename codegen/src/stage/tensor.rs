//! The tensors of a stage: its parameters, then its outputs.

use super::Stage;
use oplus_dsl::ir::Axis;

/// A tensor of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tensor {
    /// The stage's parameter of that index.
    Param(u32),
    /// The stage's output of that index.
    Output(u32),
}

/// Every tensor of a stage: parameters, then outputs.
pub fn tensors(stage: &Stage) -> impl Iterator<Item = Tensor> + use<> {
    let (params, outputs) = (stage.program.params.len() as u32, stage.program.outputs.len() as u32);
    (0..params).map(Tensor::Param).chain((0..outputs).map(Tensor::Output))
}

/// The axes of a tensor in the order of its declaration.
pub fn axes(stage: &Stage, tensor: Tensor) -> &[Axis] {
    match tensor {
        Tensor::Param(i) => &stage.program.params[i as usize].axes,
        Tensor::Output(i) => &stage.program.outputs[i as usize].axes,
    }
}

/// The name of a tensor.
pub fn name(stage: &Stage, tensor: Tensor) -> &str {
    match tensor {
        Tensor::Param(i) => &stage.program.params[i as usize].name,
        Tensor::Output(i) => &stage.program.outputs[i as usize].name,
    }
}

/// The element type of a tensor.
pub fn elem(stage: &Stage, tensor: Tensor) -> oplus_dsl::Elem {
    match tensor {
        Tensor::Param(i) => stage.program.params[i as usize].elem,
        Tensor::Output(i) => stage.program.outputs[i as usize].elem,
    }
}

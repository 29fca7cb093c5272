//! A stage for a call: the sizes of its axes and the layouts of its tensors.

use super::Stage;
use super::tensor::{Tensor, axes, elem, tensors};
use oplus_dsl::ir::Axis;

/// The sizes of a stage's axes and the layouts of its tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// By axis of the stage.
    pub sizes: Vec<i64>,
    /// Parameters, then outputs.
    pub tensors: Vec<Placed>,
}

/// The layout of a stage's tensor in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// In elements, by axis in the tensor's declared order.
    pub strides: Vec<i64>,
    /// A power of two that divides the address.
    pub align: u32,
}

impl Bound {
    /// The size of an axis.
    pub fn size(&self, axis: Axis) -> i64 {
        self.sizes[axis.0 as usize]
    }

    /// The product of some axes' sizes.
    pub fn count(&self, axes: impl IntoIterator<Item = Axis>) -> u64 {
        axes.into_iter().map(|a| self.size(a) as u64).fold(1, u64::saturating_mul)
    }

    /// A tensor's layout.
    pub fn tensor(&self, stage: &Stage, tensor: Tensor) -> &Placed {
        let index = match tensor {
            Tensor::Param(i) => i as usize,
            Tensor::Output(i) => stage.program.params.len() + i as usize,
        };
        &self.tensors[index]
    }

    /// A tensor's stride along an axis; `None` if it lacks the axis.
    pub fn stride(&self, stage: &Stage, tensor: Tensor, axis: Axis) -> Option<i64> {
        let place = axes(stage, tensor).iter().position(|a| *a == axis)?;
        Some(self.tensor(stage, tensor).strides[place])
    }

    /// Bytes of a tensor's elements, each counted once.
    pub fn bytes(&self, stage: &Stage, tensor: Tensor) -> u64 {
        let strides = &self.tensor(stage, tensor).strides;
        let distinct = axes(stage, tensor).iter().zip(strides).filter(|(_, stride)| **stride != 0).map(|(a, _)| *a);
        self.count(distinct).saturating_mul(elem(stage, tensor).bytes().unwrap_or(8) as u64)
    }

    /// Bytes of all tensors; one that is seen through several views counts once.
    pub fn total_bytes(&self, stage: &Stage) -> u64 {
        let is_repeated = |t: &Tensor| match t {
            Tensor::Param(i) => stage.sources[..*i as usize].contains(&stage.sources[*i as usize]),
            Tensor::Output(_) => false,
        };
        tensors(stage).filter(|t| !is_repeated(t)).map(|t| self.bytes(stage, t)).fold(0, u64::saturating_add)
    }
}

//! The kernel's parameters, declared in the order of the ABI and found by what they stand for.

use crate::abi::{Role, Slot, Tensor, axes, tensors};
use crate::build::Builder;
use crate::stage::{Stage, View};
use crate::tile::{Operand, ParamId};
use oplus_dsl::ir::{Axis, AxisSet, Binary};
use std::collections::HashMap;

/// The parameters of a stage's kernel.
#[derive(Clone)]
pub struct Args {
    pointers: HashMap<Tensor, ParamId>,
    /// For every tensor, its axes and the stride along each; `None` stands for 1.
    strides: HashMap<Tensor, Vec<(Axis, Option<Operand>)>>,
    sizes: Vec<Operand>,
    outer: AxisSet,
    views: Vec<Vec<View>>,
    /// Scratch memory through which kernels of one stage pass values on.
    pub scratch: Vec<ParamId>,
    /// The tiles of a segment of time, `i64`.
    pub segment_tiles: Option<Operand>,
    /// Which pieces of the rows there are beside the launch's own, `i64`.
    pub piece: Option<Operand>,
    /// Message words between blocks.
    pub messages: Option<ParamId>,
    /// Control words of the launch.
    pub control: Option<ParamId>,
}

impl Args {
    /// Declares the parameters of a stage's kernel, in the order of its ABI, and reads the scalars.
    pub fn declare(b: &mut Builder, stage: &Stage, slots: Vec<Slot>) -> Args {
        let (mut pointers, mut scalars, mut sizes) = (HashMap::new(), HashMap::new(), vec![]);
        let (mut scratch, mut segment_tiles, mut piece, mut messages, mut control) = (vec![], None, None, None, None);
        for slot in slots {
            let id = b.param(slot.param.name, slot.param.kind);
            match slot.role {
                Role::Pointer(tensor) => drop(pointers.insert(tensor, id)),
                Role::Size(_) => sizes.push(b.scalar(id)),
                Role::Stride(tensor, axis) => drop(scalars.insert((tensor, axis), b.scalar(id))),
                Role::Scratch(_) => scratch.push(id),
                Role::SegmentTiles => segment_tiles = Some(b.scalar(id)),
                Role::Piece => piece = Some(b.scalar(id)),
                Role::Messages => messages = Some(id),
                Role::Control => control = Some(id),
            }
        }
        let stride = |t: Tensor, a: Axis| (a, scalars.get(&(t, a)).copied());
        let strides = tensors(stage).map(|t| (t, axes(stage, t).iter().map(|a| stride(t, *a)).collect())).collect();
        let (outer, views) = (stage.outer_axes(), stage.views.clone());
        Args { pointers, strides, sizes, outer, views, scratch, segment_tiles, piece, messages, control }
    }

    /// A tensor's pointer.
    pub fn pointer(&self, tensor: Tensor) -> ParamId {
        self.pointers[&tensor]
    }

    /// The size of an axis, `i64`.
    pub fn size(&self, axis: Axis) -> Operand {
        self.sizes[axis.0 as usize]
    }

    /// The product of the sizes of some axes, `i64`.
    pub fn rows(&self, b: &mut Builder, axes: AxisSet) -> Operand {
        axes.iter().fold(Operand::i64(1), |rows, axis| b.mul(rows, self.size(axis)))
    }

    /// The index along each outer axis of row number `row` (`i64`), the last axis fastest.
    pub fn row_indices(&self, b: &mut Builder, row: Operand) -> Vec<(Axis, Operand)> {
        self.indices(b, row, self.outer)
    }

    /// The index along each of some axes of point number `number` (`i64`) of their product, the last axis fastest.
    pub fn indices(&self, b: &mut Builder, number: Operand, axes: AxisSet) -> Vec<(Axis, Operand)> {
        let axes: Vec<Axis> = axes.iter().collect();
        let (mut rest, mut indices) = (number, vec![]);
        for (i, axis) in axes.iter().enumerate().rev() {
            let index = if i == 0 { rest } else { b.binary(Binary::Rem, rest, self.size(*axis)) };
            indices.push((*axis, index));
            rest = if i == 0 { rest } else { b.binary(Binary::Div, rest, self.size(*axis)) };
        }
        indices
    }

    /// A tensor's stride along one of its axes, `i64`; 0 for an axis that it lacks.
    pub fn stride(&self, tensor: Tensor, axis: Axis) -> Operand {
        let found = self.strides[&tensor].iter().find(|(a, _)| *a == axis);
        found.map_or(Operand::i64(0), |(_, stride)| stride.unwrap_or(Operand::i64(1)))
    }

    /// The offset of a tensor's element from its first, `i64`; axes without an index count as 0.
    pub fn offset(&self, b: &mut Builder, tensor: Tensor, indices: &[(Axis, Operand)]) -> Operand {
        let mut sum = Operand::i64(0);
        for (axis, stride) in &self.strides[&tensor] {
            if let Some((_, index)) = indices.iter().find(|(a, _)| a == axis) {
                let index = self.viewed(b, tensor, *axis, *index);
                let step = stride.map_or(index, |stride| b.mul(index, stride));
                sum = b.add(sum, step);
            }
        }
        sum
    }

    /// The tensor's index for an index of the stage: displaced where the parameter is a view.
    fn viewed(&self, b: &mut Builder, tensor: Tensor, axis: Axis, index: Operand) -> Operand {
        let Tensor::Param(param) = tensor else { return index };
        match self.views[param as usize].iter().find(|v| v.axis == axis) {
            None => index,
            Some(view) if view.by > 0 => {
                let moved = b.sub(index, Operand::i64(view.by));
                b.binary(Binary::Max, moved, Operand::i64(0))
            }
            Some(view) => {
                let moved = b.sub(index, Operand::i64(view.by));
                let last = b.sub(self.size(axis), Operand::i64(1));
                b.binary(Binary::Min, moved, last)
            }
        }
    }
}

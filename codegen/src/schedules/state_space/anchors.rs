//! The places of a copy thread's pieces in global memory: of each tensor the first is found once, and from it the others.

use super::StateSpaceKernel;
use super::Time;
use super::pieces::{Piece, Shape};
use super::tiles::Tile;
use crate::abi::{Tensor, tensors};
use crate::build::Builder;
use crate::tile::{Expr, Operand};
use oplus_dsl::Ty;
use oplus_dsl::ir::Op;
use std::collections::HashMap;

impl StateSpaceKernel<'_> {
    /// The anchors of tensors of which each tile, or each of these outputs, has one.
    pub(crate) fn anchors(&self, b: &mut Builder, thread: Operand, outputs: impl Iterator<Item = usize>) -> Anchors {
        let mut anchors = Anchors(HashMap::new());
        for tile in &self.values.tiles {
            let Op::Param(param) = self.stage.program.node(tile.value).op else { continue };
            anchors.add(b, self, Tensor::Param(param), tile, self.tile_shape(tile), thread);
        }
        for k in outputs {
            let rows = Tile { value: self.stage.program.outputs[k].value, rows: true, states: false };
            anchors.add(b, self, Tensor::Output(k as u32), &rows, self.output_shape(k), thread);
        }
        anchors
    }
}

/// For tensors whose pieces are equally far apart: the offset of the thread's first piece of the tile at step 0, and the
/// distance to the next piece. Computed once, they spare the copies most of their arithmetic.
pub(crate) struct Anchors(pub(crate) HashMap<Tensor, (Operand, Operand)>);

impl Anchors {
    pub(crate) fn add(
        &mut self,
        b: &mut Builder,
        kernel: &StateSpaceKernel,
        tensor: Tensor,
        tile: &Tile,
        shape: Shape,
        thread: Operand,
    ) {
        let lanes = kernel.schedule.lanes;
        let Some(rows) = kernel.row_step(shape) else { return };
        let (axis, step) = match (tile.rows, tile.states) {
            (true, false) => (kernel.values.row, rows),
            (false, true) if rows.is_multiple_of(lanes) => (Some(kernel.values.state), rows / lanes),
            _ => return,
        };
        let (Some(axis), Some(pieces)) = (axis, kernel.few_pieces(b, shape, thread)) else { return };
        let start = Time { first: Operand::i64(0), steps: Operand::i32(0), is_whole: false };
        let first = kernel.source(b, tile, &start, &pieces[0], shape.width).offset(b, tensor, 0).0;
        let stride = kernel.args.stride(tensor, axis);
        let step = b.mul(stride, step);
        self.0.insert(tensor, (first, step));
    }
}

/// The offsets of some tensors at the pieces of a tile.
pub(crate) struct Offsets<'a> {
    anchors: &'a Anchors,
    tensors: &'a [Tensor],
    /// The pass of the last piece, and the offset there.
    reached: HashMap<Tensor, (u32, Operand)>,
}

impl<'a> Offsets<'a> {
    pub(crate) fn of(anchors: &'a Anchors, tensors: &'a [Tensor]) -> Offsets<'a> {
        Offsets { anchors, tensors, reached: HashMap::new() }
    }

    /// The offsets at a piece of the tile at a time: one step further than at the piece before.
    pub(crate) fn at(
        &mut self,
        b: &mut Builder,
        kernel: &StateSpaceKernel,
        time: &Time,
        piece: &Piece,
    ) -> HashMap<Tensor, Operand> {
        let Some(pass) = piece.pass else { return HashMap::new() };
        let mut offsets = HashMap::new();
        for tensor in tensors(kernel.stage).filter(|t| self.tensors.contains(t)) {
            let Some((first, step)) = self.anchors.0.get(&tensor) else { continue };
            let further = |b: &mut Builder, offset| {
                let next = b.add(offset, *step);
                b.let_(Ty::I64, Expr::Copy(next))
            };
            let offset = match self.reached.get(&tensor) {
                Some((before, offset)) if before + 1 == pass => further(b, *offset),
                _ => {
                    let stride = kernel.args.stride(tensor, kernel.scan.axis);
                    let along = b.mul(time.first, stride);
                    let start = b.add(*first, along);
                    (0..pass).fold(start, |offset, _| further(b, offset))
                }
            };
            self.reached.insert(tensor, (pass, offset));
            offsets.insert(tensor, offset);
        }
        offsets
    }
}

//! Gates: parameters that outputs read beside the state at every time and place of the width, such as the gate of Mamba-2.
//!
//! A warpgroup has its block's elements of one such parameter copied to shared memory while products are computed; there is
//! room for those of one chunk. Others, and those of warps, are read where they are needed, two neighbours at once.

use super::{ChunkwiseKernel, origin_at};
use crate::abi::{Tensor, axes, elem};
use crate::block::copy::Source;
use crate::block::matmul::block_of;
use crate::block::pair::{Coordinates, Values};
use crate::block::ring::RingStage;
use crate::build::{Builder, zero};
use crate::schedules::{Chunkwise, Unit};
use crate::stage::Stage;
use crate::stage::kind::MatrixRecurrence;
use crate::tile::{Memory, Operand};
use oplus_dsl::ir::AxisSet;

/// The parameters over times and the width that outputs read, beside the values.
fn all(stage: &Stage, form: &MatrixRecurrence) -> Vec<u32> {
    let own = AxisSet::of(form.time).with(form.width);
    let is_gate = |param: &u32| {
        let axes: AxisSet = axes(stage, Tensor::Param(*param)).iter().copied().collect();
        let displaced = !stage.views[*param as usize].is_empty();
        *param != form.value && own.minus(axes) == AxisSet::EMPTY && !axes.contains(form.depth) && !displaced
    };
    let count = if form.readout.is_some() { stage.program.params.len() as u32 } else { 0 };
    (0..count).filter(is_gate).collect()
}

impl ChunkwiseKernel<'_> {
    /// The parameter that is copied to shared memory, if there is one.
    pub(super) fn gate_of(stage: &Stage, form: &MatrixRecurrence, schedule: &Chunkwise) -> Option<u32> {
        let is_short = |param: &u32| elem(stage, Tensor::Param(*param)).bytes() == Some(2);
        all(stage, form).into_iter().find(is_short).filter(|_| schedule.unit == Unit::Warpgroup)
    }

    /// Starts the copy of a chunk's gate, from its first time on. No address is kept for it: registers are scarce.
    pub(super) fn fetch_gate(&self, b: &mut Builder, first: Operand) {
        let Some(tile) = &self.gate else { return };
        let (outer, thread) =
            (self.rematerialiser.outer(b, &self.outer), self.rematerialiser.of(b, self.thread.number));
        let source = Source { outer: &outer, thread, ..self.source() };
        let origin = origin_at(b, tile, &source, self.slice);
        tile.fill(b, &source, origin, first, Operand::i32(0));
    }

    /// Waits for the gate of an iteration.
    pub(super) fn wait_gate(&self, b: &mut Builder, iteration: Operand) {
        let Some(tile) = &self.gate else { return };
        let filled = RingStage::only(b, iteration);
        b.wait(tile.full, filled);
    }

    /// Reads the gates at the thread's two rows, and two columns of a block: the copied one after [`Self::wait_gate`].
    pub(super) fn read_gates(&self, b: &mut Builder, values: &mut Values, row: Operand, column: Operand, block: u32) {
        for param in all(self.stage, self.form) {
            let copied = self.gate.as_ref().filter(|tile| tile.param == param);
            let four = match copied {
                Some(tile) => {
                    let (start, piece) = (Operand::i32(0), Operand::i32(block as i32));
                    block_of(b, tile, start, row, piece, column).to_vec()
                }
                None if self.is_along_width(param) => (0..2).flat_map(|h| self.two(b, values, param, h)).collect(),
                None => continue,
            };
            for (r, value) in (0..).zip(four) {
                values.set_param(param, Coordinates { row: Some(r / 2), column: Some(r % 2), inner: None }, value);
            }
        }
    }

    /// Whether neighbours along the width are neighbours in memory, and aligned.
    fn is_along_width(&self, param: u32) -> bool {
        let is_unit = |axis: &&oplus_dsl::ir::Axis| [self.form.width, self.form.depth].contains(axis);
        let unit = axes(self.stage, Tensor::Param(param)).iter().rev().find(is_unit);
        self.schedule.vector > 1 && unit == Some(&self.form.width)
    }

    /// The elements of both columns in a row: both exist, or neither.
    fn two(&self, b: &mut Builder, values: &Values, param: u32, row: u32) -> Vec<Operand> {
        let tensor = Tensor::Param(param);
        let (indices, exists) = values.indices(b, Coordinates { row: Some(row), column: Some(0), inner: None });
        let offset = self.args.offset(b, tensor, &indices);
        let nothing = zero(elem(self.stage, tensor).value());
        b.load(Memory::Global(self.args.pointer(tensor)), offset, 2, Some(exists), nothing)
    }
}

//! Copies and stores that both kernels of the third sweep have.

use super::ChunkDeltaBackward;
use crate::block::args::Args;
use crate::block::copy::Source;
use crate::block::layout::Tile;
use crate::block::pair::{Coordinates, Values};
use crate::build::Builder;
use crate::schedules::chunkwise::decay::f32;
use crate::schedules::chunkwise::outputs::StoredOutput;
use crate::stage::Stage;
use crate::stage::kind::{DeltaRuleBackward, DeltaSum, Factored};
use crate::tile::{Operand, ParamId, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, AxisSet, Unary};

/// A kernel of the third sweep.
#[derive(Clone, Copy)]
pub(super) struct Third<'a> {
    pub stage: &'a Stage,
    pub form: &'a DeltaRuleBackward,
    pub schedule: &'a ChunkDeltaBackward,
    pub args: &'a Args,
    /// The thread of the block.
    pub thread: Operand,
}

impl<'a> Third<'a> {
    /// The source of copies of tensors, at the indices of the outer axes.
    pub(super) fn source(self, outer: &'a [(Axis, Operand)]) -> Source<'a> {
        Source {
            args: self.args,
            outer,
            threads: self.schedule.threads(),
            thread: self.thread,
            vector: self.schedule.vector,
            padded: self.schedule.padded,
            fenced: false,
            rolled: false,
        }
    }

    /// The first time of the cotangents of queries' readings that a block with times from `first` on copies: behind the last one, where there are
    /// no queries, for these are copied as zeros.
    pub(super) fn first_given(self, b: &mut Builder, first: Operand) -> Operand {
        if self.form.is_queried { first } else { b.convert(Ty::I32, self.args.size(self.form.states.time)) }
    }

    /// Starts the copies of so many saved numbers from a first one on, whose layout in memory is that of shared memory.
    pub(super) fn fill_saved(self, b: &mut Builder, tile: &Tile, len: u32, saved: ParamId, first: Operand) {
        let (piece, threads) = (tile.piece(), self.schedule.threads());
        let own = b.mul(self.thread, piece);
        let wide = b.convert(Ty::I64, own);
        let from = b.add(first, wide);
        for by in (0..len).step_by((threads * piece) as usize) {
            let to_index = b.add(own, by);
            let from_index = b.add(from, i64::from(by));
            let (to, from) = (tile.array, saved);
            b.push(Stmt::CopyAsync { to, to_index, from, from_index, elements: piece, guard: None });
        }
        b.arrive_with_copies(tile.full, Operand::i32(0));
    }

    /// An output that is stored two by two along an axis.
    pub(super) fn stored(self, output: usize, unit: Axis, other: Axis) -> StoredOutput<'a> {
        let (vector, other) = (self.schedule.vector, AxisSet::of(other));
        StoredOutput { stage: self.stage, args: self.args, output, unit, other, vector }
    }

    /// Sets the value of the nodes that are a sum.
    pub(super) fn set_sum(self, b: &mut Builder, values: &mut Values, sum: DeltaSum, raw: Operand, here: Coordinates) {
        for (node, _, factors) in self.form.sums.iter().filter(|(_, own, _)| *own == sum) {
            let value = scaled(b, values, raw, factors, here);
            values.set(*node, here, value);
        }
    }
}

/// The numbers that a parameter is multiplied by.
pub(super) fn number(b: &mut Builder, values: &mut Values, of: &Factored, here: Coordinates) -> Operand {
    scaled(b, values, f32(1.0), of, here)
}

/// A number times the factors of a parameter.
pub(super) fn scaled(
    b: &mut Builder,
    values: &mut Values,
    start: Operand,
    of: &Factored,
    here: Coordinates,
) -> Operand {
    let number = values.product(b, Some(start), &of.factors, here).unwrap_or(start);
    if of.negative { b.unary(Unary::Neg, number) } else { number }
}

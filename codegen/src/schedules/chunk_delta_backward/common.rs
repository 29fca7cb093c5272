//! Copies and stores that both kernels of the third sweep have.

use super::{ChunkDeltaBackward, TIMES};
use crate::block::args::Args;
use crate::block::copy::{Source, WholeCopy};
use crate::block::layout::Tile;
use crate::block::output::StoredOutput;
use crate::block::pair::{Coordinates, Values};
use crate::block::sequence::SequenceTile;
use crate::block::thread::Thread;
use crate::build::{Builder, f32};
use crate::stage::Stage;
use crate::stage::kind::{DeltaRuleBackward, DeltaSum, Factored};
use crate::tile::{Expr, Operand, ParamId, Special};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, AxisSet, Binary, Unary, Value};

/// The least logarithm of a decay that an energy is divided by.
const LEAST: f64 = -100.0;

/// The place of a block of the third sweep.
#[derive(Clone)]
pub(super) struct Place {
    /// The indices of the outer axes.
    pub outer: Vec<(Axis, Operand)>,
    /// The number of the recurrence, `i64`.
    pub point: Operand,
    /// The number of the 64 times among the recurrence's that the block's times are some of, and how many there are, `i64`.
    pub number: Operand,
    pub count: Operand,
    /// The number of the block's part of these 64 times, `i64`; 0 where it has all of them.
    pub part_of_times: Operand,
    /// The parts of the width, `i64`.
    pub parts: Operand,
    /// The first time, `i32`.
    pub first: Operand,
}

/// A tile that saved numbers are copied to: the first ones of a stage.
#[derive(Clone, Copy)]
pub(super) struct SavedTile<'t> {
    pub tile: &'t Tile,
    pub len: u32,
    pub stage: Operand,
}

/// A kernel of the third sweep.
#[derive(Clone, Copy)]
pub(super) struct Third<'a> {
    pub stage: &'a Stage,
    pub form: &'a DeltaRuleBackward,
    pub schedule: &'a ChunkDeltaBackward,
    pub args: &'a Args,
    pub thread: Thread,
}

impl<'a> Third<'a> {
    /// The source of copies of tensors, at the indices of the outer axes.
    pub(super) fn source(self, outer: &'a [(Axis, Operand)]) -> Source<'a> {
        Source {
            args: self.args,
            outer,
            threads: self.schedule.threads(),
            thread: self.thread.number,
            vector: self.schedule.vector,
            padded: self.schedule.padded,
            fenced: false,
            rolled: (self.schedule.vector == 1).then_some(1),
        }
    }

    /// The place of a block, which has `times` times, or 64: of the one of a number (`i32`), or of this block. Where a block has one of
    /// several sequences, `tile` says which times.
    pub(super) fn place(
        self,
        b: &mut Builder,
        tile: &Option<SequenceTile>,
        times: Option<u32>,
        number: Option<Operand>,
    ) -> Place {
        let (rule, args, is_wide) = (&self.form.states, self.args, self.schedule.wide);
        let width = |b: &mut Builder| if is_wide { b.div_ceil(args.size(rule.width), TIMES) } else { Operand::i64(1) };
        if let Some(SequenceTile { outer, row, place, count, part, first, .. }) = tile.clone() {
            let parts = width(b);
            let first = b.convert(Ty::I32, first);
            return Place { outer, point: row, number: place, count, part_of_times: part, parts, first };
        }
        let count = b.div_ceil(args.size(rule.time), TIMES);
        let blocks = times.map_or(count, |times| b.div_ceil(args.size(rule.time), times));
        let parts = width(b);
        let block = number.unwrap_or_else(|| b.special(Special::Block));
        let block = b.convert(Ty::I64, block);
        let [point, own] = b.div_rem(block, blocks);
        let outer = args.indices(b, point, rule.outer);
        let times = times.unwrap_or(TIMES);
        let [number, part_of_times] = b.div_rem(own, TIMES / times);
        let first = b.mul(own, times);
        let first = b.convert(Ty::I32, first);
        Place { outer, point, number, count, part_of_times, parts, first }
    }

    /// Starts the copies of tiles over the depth, at the block's times.
    pub(super) fn fetch_deep(self, b: &mut Builder, tiles: impl Iterator<Item = &'a Tile>, place: &Place) {
        let source = self.source(&place.outer);
        for tile in tiles {
            let origin = tile.origin(b, &source);
            tile.fill(b, &source, origin, place.first, Operand::i32(0));
        }
    }

    /// The first time of the cotangents of queries' readings that a block with times from `first` on copies: behind the last one, where there are
    /// no queries, for these are copied as zeros.
    pub(super) fn first_given(self, b: &mut Builder, first: Operand) -> Operand {
        if self.form.is_queried { first } else { b.convert(Ty::I32, self.args.size(self.form.states.time)) }
    }

    /// Starts the copies of so many saved numbers from a first one on, whose layout in memory is that of shared memory.
    pub(super) fn fill_saved(self, b: &mut Builder, saved: SavedTile<'_>, from: ParamId, first: Operand) {
        let SavedTile { tile, len, stage } = saved;
        let copy = WholeCopy { thread: self.thread.number, threads: self.schedule.threads(), len };
        copy.start(b, tile, stage, from, first);
        b.arrive_with_copies(tile.full, stage);
    }

    /// An output that is stored two by two along an axis.
    pub(super) fn stored(self, output: usize, unit: Axis, other: Axis) -> StoredOutput<'a> {
        let (vector, other) = (self.schedule.vector, AxisSet::of(other));
        StoredOutput { stage: self.stage, args: self.args, output, unit, other, vector }
    }

    /// Sets the value of the nodes that are a sum.
    pub(super) fn set_sum(self, b: &mut Builder, values: &mut Values, sum: DeltaSum, raw: Operand, here: Coordinates) {
        set_sum(b, self.form, values, sum, raw, here);
    }
}

/// Sets the value of the nodes that are a sum.
pub(super) fn set_sum(
    b: &mut Builder,
    form: &DeltaRuleBackward,
    values: &mut Values,
    sum: DeltaSum,
    raw: Operand,
    here: Coordinates,
) {
    for (node, _, factors) in form.sums.iter().filter(|(_, own, _)| *own == sum) {
        let value = scaled(b, values, raw, factors, here);
        values.set(*node, here, value);
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

/// An energy without the decay of its step, of which the logarithm is given if there is one; nothing where the state is forgotten.
pub(super) fn without_decay(
    b: &mut Builder,
    values: &mut Values,
    reset: Option<Value>,
    here: Coordinates,
    energy: Operand,
    log: Option<Operand>,
) -> Operand {
    let energy = match log {
        None => energy,
        Some(log) => {
            let log = b.binary(Binary::Max, log, f32(LEAST));
            let log = b.unary(Unary::Neg, log);
            let power = b.let_(Ty::F32, Expr::Exp2Fast(log));
            b.mul(energy, power)
        }
    };
    match reset {
        None => energy,
        Some(reset) => {
            let reset = values.value(b, reset, here);
            b.select(reset, f32(0.0), energy)
        }
    }
}

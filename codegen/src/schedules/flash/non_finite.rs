//! Non-finite elements: an infinity or NaN must not reach rows that do not see it.
//!
//! A pair that does not count has weight 0, but in a matrix product 0·∞ is NaN, in the sums of rows that do not see the
//! column. So the threads look through every tile of which rows may see some columns only. Its infinities and NaNs become 0
//! before the product, and are added afterwards to the sums of the rows that see them. The latter is slow, and happens only where
//! there are non-finite elements.

use super::sums::{BlockSums, PayloadSums, Sums};
use super::visible::Range;
use super::walk::Walk;
use super::{COLUMNS, FlashKernel};
use crate::abi::Tensor;
use crate::block::copy::Source;
use crate::block::layout::Tile;
use crate::block::non_finite::Pieces;
use crate::block::pair::{Coordinates, Index, Values};
use crate::build::{Builder, zero};
use crate::stage::kind::Payload;
use crate::tile::{Memory, Operand};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Op, Value};
use oplus_dsl::walk::any;

/// The threads' shares of the columns of a tile.
#[derive(Clone, Copy)]
struct Shares {
    /// Threads that look through one column.
    each: u32,
    /// The number of shares of all columns: the flags of a parameter.
    count: u32,
}

/// A payload whose tiles may have non-finite elements in columns that some rows do not see.
struct HiddenPayload<'w> {
    payload: &'w Payload,
    /// The parameter of its leaf.
    param: u32,
    sums: &'w BlockSums,
    /// The number of the parameter among those with flags.
    number: u32,
}

/// The rows to whose sums non-finite elements are added.
pub(super) struct SeeingRows<'w, 's> {
    pub values: &'w Values<'s>,
    pub source: &'w Source<'w>,
    pub sums: &'w Sums,
    /// Gives the columns that each of the thread's rows sees.
    pub ranges: &'w dyn Fn(&mut Builder) -> Vec<Range>,
}

impl FlashKernel<'_> {
    /// The number of flags of all shares of a tile, for all weighted parameters; where some warps only copy, of all tiles in flight.
    pub(super) fn flags(&self) -> u32 {
        let of_tile = if self.inspects() { self.inspectors() } else { self.shares().count };
        self.hidden(true).len() as u32 * of_tile
    }

    /// The weighted parameters whose tiles may hold columns that some rows do not see.
    pub(super) fn hidden(&self, partial: bool) -> Vec<u32> {
        let ranged = partial && !self.form.limits.is_empty();
        let hides = |p: &&Payload| ranged || !(self.form.conditions.is_empty() && p.conditions.is_empty());
        let known = |p: &&Payload| self.conditions(p).all(|v| !self.depends_on_pairs(v));
        let payloads = self.form.payloads.iter().filter(hides).filter(known);
        let mut params: Vec<u32> = payloads.filter_map(|p| p.leaf.map(|(param, _)| param)).collect();
        params.dedup();
        params
    }

    /// The conditions of a payload for a pair to count, besides the limits.
    fn conditions<'p>(&'p self, payload: &'p Payload) -> impl Iterator<Item = Value> + 'p {
        self.form.conditions.iter().chain(&payload.conditions).copied()
    }

    /// Whether a value depends on a contraction: a condition on it hides only what has been read already.
    fn depends_on_pairs(&self, value: Value) -> bool {
        let program = &self.stage.program;
        any(program, value, |v| matches!(program.node(v).op, Op::Reduce { .. }))
    }

    fn shares(&self) -> Shares {
        let each = (self.schedule.walkers() / self.schedule.columns).max(1);
        Shares { each, count: each * self.schedule.columns }
    }

    /// Replaces the non-finite elements of some parameters' tiles by 0; gives whether there were any, parameter by parameter.
    pub(super) fn take_out(&self, b: &mut Builder, params: &[u32], stage: Operand) -> Vec<(u32, Operand)> {
        if params.is_empty() {
            return vec![];
        }
        // All warps have read the tiles as factors, and the flags of the iteration before.
        self.team_barrier(b);
        for (k, param) in params.iter().enumerate() {
            let tile = self.column_tile(*param);
            let start = b.mul(stage, tile.len());
            self.look_through(b, tile, start, k as u32);
        }
        self.fence(b);
        self.team_barrier(b);
        params.iter().enumerate().map(|(k, param)| (*param, self.any(b, k as u32))).collect()
    }

    /// Looks through the thread's shares of a tile. The loops are not unrolled, as sums fill the registers.
    fn look_through(&self, b: &mut Builder, tile: &Tile, start: Operand, number: u32) {
        let Shares { each, count } = self.shares();
        b.for_(self.thread.number, count, self.schedule.walkers(), |b, share| {
            let [column, first] = b.div_rem(share, each);
            let non_finite = self.clean(b, tile, start, column, first);
            let flag = b.select(non_finite, Operand::i32(1), Operand::i32(0));
            let at = b.add(share, number * count);
            b.store(Memory::Shared(self.flags), at, &[flag], None);
        });
    }

    /// Replaces the non-finite elements in a column's pieces from the first one on by 0; gives whether there were any.
    fn clean(&self, b: &mut Builder, tile: &Tile, start: Operand, column: Operand, first: Operand) -> Operand {
        let index = |b: &mut Builder, piece: Operand| {
            let place = tile.piece_index(b, column, piece);
            b.add(place, start)
        };
        let (count, step) = (tile.pieces(), self.shares().each);
        let pieces = Pieces { tile, first, count, step, index: &index };
        let non_finite = pieces.has_non_finite(b);
        b.if_(non_finite, |b| pieces.clear(b));
        non_finite
    }

    /// Whether a parameter has any flag.
    fn any(&self, b: &mut Builder, number: u32) -> Operand {
        let count = self.shares().count;
        let mut none = Operand::bool(true);
        for first in (0..count).step_by(32) {
            let share = b.add(self.thread.lane, first);
            let exists = b.lt(share, count);
            let at = b.add(share, number * count);
            let flag = b.load(Memory::Shared(self.flags), at, 1, Some(exists), Operand::i32(0))[0];
            let clear = b.eq(flag, 0);
            none = b.and(none, clear);
        }
        let none = b.all(none);
        b.eq(none, Operand::bool(false))
    }

    /// Adds the non-finite elements of a tile, whose first column is `first`, to the sums of the rows that see them.
    pub(super) fn put_back(&self, b: &mut Builder, walk: &Walk, first: Operand, non_finite: &[(u32, Operand)]) {
        let ranges = |_: &mut Builder| walk.tile_loop.ranges.to_vec();
        let rows = SeeingRows { values: walk.values, source: walk.source, sums: walk.sums, ranges: &ranges };
        self.put_back_to(b, &rows, first, non_finite);
    }

    /// Adds the non-finite elements of a tile, whose first column is `first`, to the sums of those of some rows that see them.
    pub(super) fn put_back_to(
        &self,
        b: &mut Builder,
        rows: &SeeingRows,
        first: Operand,
        non_finite: &[(u32, Operand)],
    ) {
        for (payload, sums) in self.form.payloads.iter().zip(&rows.sums.payloads) {
            let (Some((param, _)), PayloadSums::Blocks(sums)) = (payload.leaf, sums) else { continue };
            let Some(number) = non_finite.iter().position(|(own, _)| *own == param) else { continue };
            b.if_(non_finite[number].1, |b| {
                self.put_back_columns(b, rows, &HiddenPayload { payload, param, sums, number: number as u32 }, first)
            });
        }
    }

    /// Adds the columns with non-finite elements, by the flags of the parameter of that number.
    fn put_back_columns(&self, b: &mut Builder, rows: &SeeingRows, hidden: &HiddenPayload, first: Operand) {
        if self.inspects() {
            let size = b.convert(Ty::I32, self.args.size(self.form.column));
            let end = b.add(first, self.schedule.columns);
            let end = b.binary(Binary::Min, end, size);
            let ranges = (rows.ranges)(b);
            return b.for_(first, end, 1, |b, column| self.add_column(b, rows, hidden, column, &ranges));
        }
        let Shares { each, count } = self.shares();
        let ranges = (rows.ranges)(b);
        b.for_(Operand::i32(0), self.schedule.columns, 1, |b, column| {
            let own = b.mul(column, each);
            let own = b.add(own, hidden.number * count);
            let flags = (0..each).fold(Operand::i32(0), |all, k| {
                let at = b.add(own, k);
                let flag = b.load1(Memory::Shared(self.flags), at);
                b.add(all, flag)
            });
            let flagged = b.ne(flags, 0);
            b.if_(flagged, |b| {
                let at = b.add(first, column);
                self.add_column(b, rows, hidden, at, &ranges);
            });
        });
    }

    /// Adds the non-finite elements of a column.
    fn add_column(
        &self,
        b: &mut Builder,
        rows: &SeeingRows,
        hidden: &HiddenPayload,
        column: Operand,
        ranges: &[Range],
    ) {
        let HiddenPayload { payload, param, sums, .. } = *hidden;
        let (tile, tensor) = (self.column_tile(param), Tensor::Param(param));
        let at = b.convert(Ty::I64, column);
        let mut values = rows.values.clone();
        values.set_column(0, Index { at, exists: Operand::bool(true) });
        let counts: Vec<Operand> = (0..)
            .zip(ranges)
            .map(|(row, range)| {
                let [from, below] = [b.ge(column, range.from), b.lt(column, range.to)];
                let seen = b.and(from, below);
                let conditions: Vec<Value> = self.conditions(payload).collect();
                let holds = values.all(b, &conditions, Coordinates { row: Some(row), column: Some(0), inner: None });
                b.and(seen, holds)
            })
            .collect();
        let of_column = b.mul(at, self.args.stride(tensor, self.form.column));
        let origin = tile.origin(b, rows.source);
        let origin = b.add(origin, of_column);
        let twice = self.fragment.column(b);
        for (block, c) in (0..tile.depth / COLUMNS).flat_map(|block| [0, 1].map(|c| (block, c))) {
            let column = b.add(twice, block * COLUMNS + c);
            let addend = self.addend(b, payload, tile, origin, column);
            for (row, counts) in counts.iter().enumerate() {
                let more = b.select(*counts, addend, zero(Ty::F32));
                sums.add(b, self.sum_of_thread(param, row as u32, block, c), more);
            }
        }
    }

    /// The addend of a payload's element at an index of the inner axis: a non-finite one itself under a positive weight, else NaN;
    /// 0 for a finite number.
    fn addend(&self, b: &mut Builder, payload: &Payload, tile: &Tile, origin: Operand, column: Operand) -> Operand {
        let tensor = Tensor::Param(tile.param);
        let inner = b.convert(Ty::I64, column);
        let exists = b.lt(inner, self.args.size(tile.inner));
        let offset = b.mul(inner, self.args.stride(tensor, tile.inner));
        let offset = b.add(origin, offset);
        let x = b.load(Memory::Global(self.args.pointer(tensor)), offset, 1, Some(exists), zero(Ty::F32))[0];
        let nothing = b.sub(x, x);
        if self.form.gauge.is_none() || !payload.factors.is_empty() {
            return nothing;
        }
        let finite = b.eq(nothing, zero(Ty::F32));
        b.select(finite, zero(Ty::F32), x)
    }
}

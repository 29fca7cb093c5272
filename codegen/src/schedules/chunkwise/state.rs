//! The state of a block's recurrence: 16 places of its width in every warp, all of its depth.

use super::decay::{Decays, with_rounding_errors};
use super::scale::{Scale, elements_behind};
use super::{COLUMNS, ChunkwiseKernel, ROWS, Saved};
use crate::block::copy::WholeCopy;
use crate::block::layout::{Lanes, Tile, left_rows};
use crate::block::matmul::{
    Blocks, Factor, assign_blocks, block_values, load_four, multiply_in_time, scale_pair, start_in_time,
};
use crate::block::pair::{Coordinates, Index, Values};
use crate::block::tf32;
use crate::build::{Builder, swizzle, zero};
use crate::schedules::{Chunkwise, Unit};
use crate::tile::{Expr, Memory, Operand, Reg, SharedId, Stmt};
use oplus_dsl::{Elem, Ty};

/// The blocks of the thread's warp, in the order of the depth.
pub(super) struct State {
    pub blocks: Vec<[Reg; 4]>,
    /// The power of two by which its numbers are multiplied, if they are scaled.
    pub scale: Option<Scale>,
    /// The sum of logarithms by whose power they are divided, if they [are](super::factored).
    pub base: Option<Reg>,
    /// The power of two by which they are multiplied when they are [saved](super::range) in `f16`.
    pub saved: Option<Reg>,
}

impl State {
    /// The numbers of every block, not scaled.
    pub(super) fn whole_blocks(&self, b: &mut Builder) -> Blocks {
        let by = match (self.scale, self.base) {
            (Some(scale), _) => scale.undone(b),
            (None, Some(base)) => b.let_(Ty::F32, Expr::Exp2Fast(base.into())),
            (None, None) => return block_values(&self.blocks),
        };
        self.blocks.iter().map(|block| block.map(|reg| b.mul(reg.into(), by))).collect()
    }

    /// Multiplies all numbers by another.
    pub(super) fn scale_by(&self, b: &mut Builder, by: Operand) {
        for reg in self.blocks.iter().flatten() {
            let scaled = b.mul((*reg).into(), by);
            b.assign(*reg, scaled);
        }
    }
}

/// The numbers of a thread's two places in the width among [`Values`]' columns: the second of two rows of the state.
const WIDTH_COLUMNS: [u32; 2] = [1 << 16, (1 << 16) + 1];

impl ChunkwiseKernel<'_> {
    /// Makes the thread's places of the width in the first or the last state, from its first row on, columns of [`Values`].
    pub(super) fn set_width(&self, b: &mut Builder, values: &mut Values, row: Operand) {
        for (h, number) in WIDTH_COLUMNS.into_iter().enumerate() {
            let at = b.add(row, h as u32 * COLUMNS);
            let index = self.index_along(b, at, self.form.width);
            values.set_column(number, index.of_states(b, &self.args));
        }
    }

    /// An index along an axis, from one of 32 bits; along the width, from one of the block's slice.
    pub(super) fn index_along(&self, b: &mut Builder, at: Operand, axis: oplus_dsl::ir::Axis) -> Index {
        let at = match self.slice.filter(|_| axis == self.form.width) {
            Some(first) => b.add(first, at),
            None => at,
        };
        Index::along(b, &self.args, at, axis)
    }

    /// The state before the first time.
    pub(super) fn first_state(&self, b: &mut Builder, values: &Values) -> State {
        let count = self.schedule.depth / COLUMNS;
        let (mut values, column) = (values.clone(), self.fragment.column(b));
        let row = self.first_row(b);
        self.set_width(b, &mut values, row);
        // Where only ends of segments are found, every segment starts from 0.
        let blocks = (0..count).map(|block| match self.form.init.filter(|_| !self.schedule.ends) {
            None => [0; 4].map(|_| b.var(zero(Ty::F32))),
            Some(init) => {
                let mut values = values.clone();
                let coordinates = self.coordinates(b, &mut values, column, block);
                coordinates.map(|coordinates| {
                    let value = values.value(b, init, coordinates);
                    let value = self.args.first_or_nothing(b, value);
                    b.var(value)
                })
            }
        });
        let blocks = blocks.collect();
        State { blocks, scale: self.powers.map(|_| Scale::none(b)), base: self.base(b), saved: self.saved_power(b) }
    }

    /// The coordinates of the thread's four elements of a block, from its first column on.
    pub(super) fn coordinates(
        &self,
        b: &mut Builder,
        values: &mut Values,
        column: Operand,
        block: u32,
    ) -> [Coordinates; 4] {
        for c in 0..2 {
            let at = b.add(column, block * COLUMNS + c);
            values.set_inner(c, self.form.depth, self.index_along(b, at, self.form.depth));
        }
        [0, 1, 2, 3].map(|r: usize| Coordinates {
            row: None,
            column: Some(WIDTH_COLUMNS[r / 2]),
            inner: Some(r as u32 % 2),
        })
    }

    /// The gains of the thread's two columns of a block, scaled to the chunk's end; in reverse, to before
    /// its first time.
    pub(super) fn remaining(&self, b: &mut Builder, decays: &Decays, block: u32) -> [Operand; 2] {
        if let Some(handover) = self.handover {
            return self.columns_of(b, decays, block, handover.remaining);
        }
        let [sums, gains] = self.columns(b, decays, block);
        let rounding_errors = self.rounding_errors(b, decays, block).filter(|_| !self.form.reverse);
        [0, 1].map(|c| {
            let apart = if self.form.reverse { sums[c] } else { b.sub(decays.end, sums[c]) };
            let apart = with_rounding_errors(b, apart, rounding_errors.map(|(own, columns)| (own[2], columns[c])));
            let decay = b.let_(Ty::F32, Expr::Exp2Fast(apart));
            b.mul(decay, gains[c])
        })
    }

    /// The warp's values at the chunk's times, times a number for each, of which `remaining` gives those of a block's two
    /// columns: a left factor for every 16 times, or in `tf32` for every eight.
    pub(super) fn scaled_values(
        &self,
        b: &mut Builder,
        remaining: impl Fn(&mut Builder, u32) -> [Operand; 2],
        values: Factor,
        lanes: Operand,
    ) -> Vec<[Operand; 4]> {
        if self.is_tf32 {
            return self.scaled_tf32(b, remaining, values, lanes);
        }
        let scaled = |sixteen: u32| {
            let rows = b.add(lanes, sixteen * ROWS * values.tile.depth);
            let index = b.add(rows, values.start);
            let packed = load_four(b, values.tile, index, true);
            // Registers 0 and 1 have the first eight times, 2 and 3 the others.
            let remaining = [0, 1].map(|half| remaining(b, 2 * sixteen + half));
            [0, 1, 2, 3].map(|r: usize| scale_pair(b, self.elem(), packed[r], remaining[r / 2]))
        };
        (0..self.schedule.times() / ROWS).map(scaled).collect()
    }

    /// S_next = decay·S + Σ scaled value⊗key.
    pub(super) fn advance(&self, b: &mut Builder, state: &State, decays: &Decays, left: &[[Operand; 4]], keys: Factor) {
        let mut sums: Blocks =
            state.blocks.iter().map(|block| block.map(|reg| b.mul(reg.into(), decays.whole))).collect();
        self.multiply_in_time(b, &mut sums, left, keys);
        assign_blocks(b, &state.blocks, &sums);
    }

    /// Whether products in `tf32` over time add to groups of blocks [apart](crate::block::rematerialise::Rematerialiser::apart) where
    /// accesses are whole: in `f32` of the greatest depth, but for the smallest blocks, and in `f16` beside resets of packed sequences and,
    /// of the greatest depth, beside slices of the width.
    pub(super) fn adds_apart(&self) -> bool {
        let Chunkwise { warps, depth, wide, padded, ends, vector, .. } = *self.schedule;
        let (is_deep, has_most) = (depth > 64, warps == 4 && !ends);
        let is_scarce = match self.elem() {
            Elem::F32 => is_deep && (warps == 4 || ends || wide || padded),
            _ => has_most && (self.is_packed() && depth == 64 || is_deep && (self.is_packed() || wide)),
        };
        self.is_tf32 && vector > 1 && is_scarce
    }

    /// Whether times of several sequences follow one another, so that decays are compared.
    pub(super) fn is_packed(&self) -> bool {
        self.form.decay.is_some_and(|decay| decay.reset.is_some())
    }

    /// Adds left·right over the chunk's times.
    pub(super) fn multiply_in_time(&self, b: &mut Builder, sums: &mut Blocks, left: &[[Operand; 4]], right: Factor) {
        if self.is_tf32 {
            let is_walk = self.stage.kind().matrices_back().is_ok();
            let has_addresses = self.schedule.vector == 1;
            let is_scarce = self.schedule.depth > 64 && (has_addresses || is_walk && self.has_rounding_errors());
            let is_scarce = is_scarce || !is_walk && self.adds_apart();
            return tf32::multiply_in_time(b, self.rematerialiser, sums, left, right, is_scarce);
        }
        for (sixteen, left) in left.iter().enumerate() {
            multiply_in_time(b, sums, *left, right, sixteen as u32);
        }
    }

    /// Starts S_next = decay·S + Σ scaled value⊗key by a warpgroup; without a decay, which the state may have already.
    pub(super) fn start_advance(
        &self,
        b: &mut Builder,
        state: &State,
        whole: Option<Operand>,
        left: &[[Operand; 4]],
        keys: Factor,
    ) {
        if let Some(whole) = whole {
            state.scale_by(b, whole);
        }
        start_in_time(b, &state.blocks, left, keys.stage());
    }

    /// Copies the rounded state, or both its parts, before a chunk to memory, if states are saved: a tile for every chunk of every recurrence. A copy
    /// engine only starts the copy.
    pub(super) fn save_state(&self, b: &mut Builder, state: &State, chunk: Operand, chunks: Operand) {
        let Some((Saved { to, bulk, elem }, states)) = self.saved.zip(self.states.as_ref()) else { return };
        let [chunk, chunks] = [chunk, chunks].map(|x| b.convert(Ty::I64, x));
        let before = self.first_saved.unwrap_or_else(|| b.mul(self.segment.row, chunks));
        let number = b.add(before, chunk);
        let arrays: Vec<SharedId> = [states.array].into_iter().chain(states.low).collect();
        let first_index = b.mul(number, arrays.len() as u32 * states.len() + elements_behind(elem));
        if !bulk {
            let (thread, threads) = (self.thread.number, self.schedule.threads());
            return WholeCopy { thread, threads, len: states.len() }.store(b, states, to, first_index);
        }
        let (from_index, count) = (Operand::i32(0), Operand::i32(states.len() as i32));
        let first = b.eq(self.thread.number, 0);
        b.if_(first, |b| {
            for (part, from) in (0..).zip(arrays) {
                let to_index = b.add(first_index, part * states.len());
                b.push(Stmt::BulkStore { to, to_index, from, from_index, count, adds: false });
            }
            self.save_power(b, state, first_index);
        });
    }

    /// Waits until the rounded state may change.
    pub(super) fn wait_saved(&self, b: &mut Builder) {
        if self.saved.is_some_and(|saved| saved.bulk) {
            let first = b.eq(self.thread.number, 0);
            b.if_(first, |b| b.push(Stmt::BulkWait { pending: 0, read: true }));
        }
    }

    /// Rounds the state for the queries, or to be saved.
    pub(super) fn store_state(&self, b: &mut Builder, state: &State) {
        let Some(states) = &self.states else { return };
        if states.elem == Elem::F32 {
            let blocks = state.whole_blocks(b);
            (0..).zip(blocks).for_each(|(k, block)| self.store_tf32(b, states, k, block));
            if self.saved.is_some_and(|saved| saved.bulk) {
                b.push(Stmt::FenceAsync);
            }
            return;
        }
        if self.handover.is_some() {
            return self.store_state_by_matrices(b, states, state);
        }
        let (row, column) = (self.first_row(b), self.fragment.column(b));
        let panel = states.panel();
        let pieces = panel / COLUMNS;
        for h in 0..2 {
            let row = b.add(row, h as u32 * COLUMNS);
            let from = b.mul(row, panel);
            let from = b.add(from, column);
            for (k, block) in state.blocks.iter().enumerate() {
                let (of_panel, piece) = (k as u32 / pieces, k as u32 % pieces);
                let place = swizzle(b, row, Operand::i32(piece as i32), pieces);
                let within = b.mul(place, COLUMNS);
                let index = b.add(from, within);
                let index = b.add(index, of_panel * states.rows * panel);
                let two = [block[2 * h].into(), block[2 * h + 1].into()];
                b.store(Memory::Shared(states.array), index, &two, None);
            }
        }
        if self.saved.is_some_and(|saved| saved.bulk) || self.schedule.unit == Unit::Warpgroup {
            b.push(Stmt::FenceAsync);
        }
    }

    /// [`Self::store_state`] beside warps that only copy: in packed pairs, which are written as matrices.
    fn store_state_by_matrices(&self, b: &mut Builder, states: &Tile, state: &State) {
        let lanes = self.lanes_of_rows(b, states);
        let start = self.of_head(b, Operand::i32(0), states.len());
        if let Some((powers, scale)) = self.powers.zip(state.scale).filter(|_| self.saved.is_none()) {
            self.store_scaled_state(b, states, &lanes, state, powers, scale);
        } else if let Some(power) = state.saved {
            self.store_in_range(b, states, &lanes, state, power);
        } else {
            // The state that queries read may lack its decays.
            let blocks = if self.saved.is_some() { state.whole_blocks(b) } else { block_values(&state.blocks) };
            for (step, two) in (0..).zip(blocks.chunks(2)) {
                let index = states.index(b, &lanes, 0, step);
                let index = b.add(index, start);
                states.store_blocks(b, index, two);
            }
        }
        b.push(Stmt::FenceAsync);
    }

    /// The lanes by which the warp's rows of a tile are written.
    pub(super) fn lanes_of_rows(&self, b: &mut Builder, tile: &Tile) -> Lanes {
        let (row, half) = left_rows(b, self.thread.lane);
        let before = b.mul(self.thread.warp, ROWS);
        let row = b.add(before, row);
        tile.lanes(b, row, half)
    }
}

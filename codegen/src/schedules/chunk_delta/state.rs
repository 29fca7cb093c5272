//! The state: 16 places of the width in every warp, all of the depth.

use super::ahead::TilePlace;
use super::rates::TO_END;
use super::solve::AddedRows;
use super::{COLUMNS, DeltaKernel, ELEMENTS};
use crate::block::matmul::{Blocks, block_values};
use crate::block::pair::{Coordinates, Values};
use crate::block::parts::{Parts, multiply_in_time};
use crate::build::{Builder, f32, zero};
use crate::tile::{Expr, Operand, Reg};
use oplus_dsl::{Elem, Ty};

/// The power of two by which the warp's rows of a state are multiplied, and its inverse.
#[derive(Clone, Copy)]
pub(in crate::schedules) struct Scale {
    /// The power.
    pub power: Reg,
    /// One over it.
    pub undone: Reg,
}

/// The state of the thread's warp.
pub(in crate::schedules) struct State {
    /// Its blocks, in the order of the depth.
    pub blocks: Vec<[Reg; 4]>,
    /// The power of two by which they are multiplied, if they are.
    pub scale: Option<Scale>,
}

impl Scale {
    /// A scale of 1.
    fn none(b: &mut Builder) -> Scale {
        Scale { power: b.var(f32(1.0)), undone: b.var(f32(1.0)) }
    }
}

impl State {
    /// The state of so many blocks, which is scaled or as it is.
    fn new(b: &mut Builder, blocks: Vec<[Reg; 4]>, is_scaled: bool) -> State {
        State { blocks, scale: is_scaled.then(|| Scale::none(b)) }
    }

    /// What the numbers of the state are to be multiplied by, if they are scaled: later changes of the power leave it as it is.
    pub(in crate::schedules) fn undone(&self, b: &mut Builder) -> Option<Operand> {
        self.scale.map(|scale| b.let_(Ty::F32, Expr::Copy(scale.undone.into())))
    }

    /// The numbers of the state.
    pub(in crate::schedules) fn numbers(&self, b: &mut Builder) -> Blocks {
        let blocks = block_values(&self.blocks);
        match self.scale {
            Some(scale) => {
                blocks.into_iter().map(|block| block.map(|x| b.mul(x, Operand::Reg(scale.undone)))).collect()
            }
            None => blocks,
        }
    }
}

/// The numbers of a thread's two places of the width among [`Values`]' columns.
pub(in crate::schedules) const PLACES: [u32; 2] = [0, 1];

impl DeltaKernel<'_> {
    /// Makes the thread's places of the width columns of [`Values`].
    pub(in crate::schedules) fn set_width(&self, b: &mut Builder, values: &mut Values) {
        let row = self.first_row(b);
        for (h, number) in (0..).zip(PLACES) {
            let at = b.add(row, Operand::i32(h * COLUMNS as i32));
            values.set_column(number, self.index_along(b, at, self.form.width));
        }
    }

    /// [`Self::set_width`] for the first and the last state, which the block's sequence may lack.
    pub(in crate::schedules) fn set_width_of_states(&self, b: &mut Builder, values: &mut Values) {
        let row = self.first_row(b);
        for (h, number) in (0..).zip(PLACES) {
            let at = b.add(row, Operand::i32(h * COLUMNS as i32));
            let index = self.index_along(b, at, self.form.width);
            values.set_column(number, index.of_states(b, &self.args));
        }
    }

    /// The coordinates of the thread's four elements of a block of the state.
    pub(in crate::schedules) fn coordinates(
        &self,
        b: &mut Builder,
        values: &mut Values,
        block: u32,
    ) -> [Coordinates; 4] {
        let column = self.fragment.column(b);
        for c in 0..2 {
            let at = b.add(column, Operand::i32((block * COLUMNS + c) as i32));
            values.set_inner(c, self.form.depth, self.index_along(b, at, self.form.depth));
        }
        ELEMENTS.map(|(h, c)| Coordinates { row: None, column: Some(PLACES[h]), inner: Some(c as u32) })
    }

    /// The state before the first time.
    pub(in crate::schedules) fn first_state(&self, b: &mut Builder, values: &Values) -> State {
        let mut values = values.clone();
        self.set_width_of_states(b, &mut values);
        let block = |block: u32| {
            let mut values = values.clone();
            let coordinates = self.coordinates(b, &mut values, block);
            coordinates.map(|here| {
                let value = self.form.init.map_or(f32(0.0), |init| values.value(b, init, here));
                let (_, exists) = values.indices(b, here);
                let value = b.select(exists, value, zero(Ty::F32));
                b.var(value)
            })
        };
        let blocks = (0..self.schedule.depth / COLUMNS).map(block).collect();
        State::new(b, blocks, self.scales_states())
    }

    /// The state as left factors.
    pub(in crate::schedules) fn left_of(&self, b: &mut Builder, state: &State) -> Vec<Parts> {
        let elem = if self.splits_states { Elem::F32 } else { self.elem() };
        block_values(&state.blocks).chunks(2).map(|two| Parts::of_blocks(b, elem, two)).collect()
    }

    /// The state before a chunk, decayed to the chunk's end.
    pub(super) fn decayed_state(&self, b: &mut Builder, state: &State, place: &TilePlace, chunk: u32) -> Blocks {
        let mut sums: Blocks = block_values(&state.blocks);
        if let Some(whole) = self.decay_of_chunk(b, place.rates, chunk) {
            sums = sums.into_iter().map(|block| block.map(|x| b.mul(x, whole))).collect();
        }
        if let Some(channels) = &self.channels {
            for (sums, two) in sums.iter_mut().zip(self.ends(b, channels, place, chunk)) {
                *sums = ELEMENTS.map(|(h, c)| b.mul(sums[2 * h + c], two[c]));
            }
        }
        sums
    }

    /// S_next = decayed S + Σ decayed row⊗key, over a chunk.
    pub(super) fn advance(
        &self,
        b: &mut Builder,
        state: &State,
        mut sums: Blocks,
        added: &[AddedRows<'_>],
        place: &TilePlace,
        chunk: u32,
    ) {
        for added in added {
            if let Some(early) = &added.early {
                self.multiply_early(b, &mut sums, early);
                continue;
            }
            let left = self.to_end(b, added.rows, chunk, place.rates);
            multiply_in_time(b, &mut sums, left, added.vectors, chunk);
        }
        for (block, sums) in state.blocks.iter().zip(sums) {
            block.iter().zip(sums).for_each(|(reg, sum)| b.assign(*reg, sum));
        }
    }

    /// The rows that a chunk's steps add, decayed to its end.
    pub(super) fn to_end(&self, b: &mut Builder, left: Parts, chunk: u32, from: Operand) -> Parts {
        if !self.form.decays() {
            return left;
        }
        let decays = [0, 1].map(|half| self.two_rates(b, TO_END, from, 2 * chunk + half));
        left.times_columns(b, self.elem(), decays)
    }
}

//! The rows that the steps of a chunk add to a warp's 16 places of the width, and what queries read of the state there.

use super::rates::{ADDED, FROM_START};
use super::{COLUMNS, DeltaKernel, ELEMENTS, ROWS};
use crate::block::matmul::{Blocks, Factor, load_four, zeros};
use crate::block::parts::Parts;
use crate::build::Builder;
use crate::tile::{Memory, Operand};
use oplus_dsl::Elem;
use oplus_dsl::ir::Binary;

/// The most sums that do not wait for one another.
const CHAINS: usize = 4;

/// What products of rows and vectors take, where it is read before the rows are handed over.
pub(super) struct Early {
    /// The rows, decayed to the chunk's end.
    pub rows: Parts,
    /// The vectors' fragments over the times of the chunk.
    pub vectors: Vec<Parts>,
}

/// Rows that the steps of a chunk add.
pub(super) struct AddedRows<'a> {
    /// The rows, as a left factor.
    pub rows: Parts,
    /// The vectors that they are added times.
    pub vectors: Factor<'a>,
    /// Their weights for queries.
    pub weights: Factor<'a>,
    /// Factors of the products of both, where they are read before the rows are handed over.
    pub early: Option<Early>,
}

impl DeltaKernel<'_> {
    /// The products of the state, as left factors of 16 places of the depth each, with the vectors of a chunk.
    pub(in crate::schedules) fn read(&self, b: &mut Builder, state: &[Parts], right: Factor, chunk: u32) -> Blocks {
        self.read_columns(b, state, |b, sixteen| right.parts(b, chunk * ROWS, sixteen, false))
    }

    /// The products of the state with vectors of which `columns` gives 16 places of the depth.
    pub(super) fn read_columns(
        &self,
        b: &mut Builder,
        state: &[Parts],
        mut columns: impl FnMut(&mut Builder, u32) -> Parts,
    ) -> Blocks {
        let chains = CHAINS.min(state.len().div_ceil(2));
        let mut sums: Vec<Blocks> = vec![vec![zeros(); 2]; chains];
        for (sixteen, left) in (0..).zip(state) {
            let columns = columns(b, sixteen);
            left.multiply(b, self.factor_tile().elem, &mut sums[sixteen as usize % chains], columns);
        }
        let add = |b: &mut Builder, k: usize, r: usize| {
            let first = sums[0][k][r];
            sums[1..].iter().fold(first, |sum, chain| b.add(sum, chain[k][r]))
        };
        (0..2).map(|k| [0, 1, 2, 3].map(|r| add(b, k, r))).collect()
    }

    /// The values of the warp's places at the times of a chunk, from the index of those of a tile.
    pub(in crate::schedules) fn values_of(&self, b: &mut Builder, first: Operand, chunk: u32) -> Blocks {
        let values = &self.values;
        if values.elem == Elem::F32 {
            return self.single_values_of(b, first, chunk);
        }
        let index = b.add(first, Operand::i32((chunk * ROWS * values.depth) as i32));
        let packed = load_four(b, values, index, true);
        let own = |eight: usize| {
            let [first, second] = [0, 1].map(|h| b.unpack(values.elem, packed[2 * eight + h]));
            [first[0], first[1], second[0], second[1]]
        };
        [0, 1].map(own).to_vec()
    }

    /// The values of the warp's places in `f32`, from the index of the thread's first one on.
    fn single_values_of(&self, b: &mut Builder, first: Operand, chunk: u32) -> Blocks {
        let values = &self.values;
        let mut value = |eight: u32, h: usize, c: usize| {
            // The other place is two pieces further.
            let place = if h == 0 { first } else { b.binary(Binary::Xor, first, COLUMNS) };
            let place = if c == 0 { place } else { values.below(b, place) };
            let index = b.add(place, (chunk * ROWS + eight * COLUMNS) * values.panel());
            b.load1(Memory::Shared(values.array), index)
        };
        [0, 1].map(|eight| ELEMENTS.map(|(h, c)| value(eight, h, c))).to_vec()
    }

    /// The rows that a chunk's steps add, as a left factor: the solution of its system for products with the state and values.
    pub(super) fn solve(
        &self,
        b: &mut Builder,
        read: &Blocks,
        values: &Blocks,
        inverses: Factor,
        from: Operand,
        chunk: u32,
    ) -> Parts {
        let mut sums: Blocks = vec![];
        for ((eight, read), own) in (0..).zip(read).zip(values) {
            let block = 2 * chunk + eight;
            let added = self.two_rates(b, ADDED, from, block);
            let scale = self.two_scales(b, from, block);
            sums.push(ELEMENTS.map(|(h, c)| {
                let value = b.mul(own[2 * h + c], added[c]);
                b.fma(read[2 * h + c], scale[c], value)
            }));
        }
        self.solved(b, sums, inverses, chunk)
    }

    /// The right side of a chunk's system whose rows are added times a vector that is not the key: the products of z with the state, and
    /// values by weights of their own.
    pub(super) fn read_with_values(
        &self,
        b: &mut Builder,
        read: &Blocks,
        values: &Blocks,
        weights: Factor,
        from: Operand,
        chunk: u32,
    ) -> Blocks {
        let mut sums: Blocks = vec![];
        for (eight, read) in (0..).zip(read) {
            let scale = self.two_scales(b, from, 2 * chunk + eight);
            sums.push(ELEMENTS.map(|(h, c)| b.mul(read[2 * h + c], scale[c])));
        }
        let values = self.scaled_values(b, values, from, chunk);
        let columns = weights.parts(b, chunk * ROWS, 0, false);
        values.multiply(b, self.elem(), &mut sums, columns);
        sums
    }

    /// The solution of a chunk's system for a right side, as a left factor.
    pub(super) fn solved(&self, b: &mut Builder, mut sums: Blocks, inverses: Factor, chunk: u32) -> Parts {
        // The inverse is stored without its identity.
        let left = Parts::of_blocks(b, self.elem(), &sums);
        let columns = inverses.parts(b, chunk * ROWS, 0, false);
        left.multiply(b, self.elem(), &mut sums, columns);
        Parts::of_blocks(b, self.elem(), &sums)
    }

    /// Values times their numbers, as a left factor.
    pub(super) fn scaled_values(&self, b: &mut Builder, values: &Blocks, from: Operand, chunk: u32) -> Parts {
        let mut scaled: Blocks = vec![];
        for (eight, own) in (0..).zip(values) {
            let added = self.two_rates(b, ADDED, from, 2 * chunk + eight);
            scaled.push(ELEMENTS.map(|(h, c)| b.mul(own[2 * h + c], added[c])));
        }
        Parts::of_blocks(b, self.elem(), &scaled)
    }

    /// The outputs of each step of a chunk: queries times the state before the chunk, and times what its steps so far have added.
    pub(super) fn reads(
        &self,
        b: &mut Builder,
        mut sums: Blocks,
        added: &[AddedRows<'_>],
        from: Operand,
        chunk: u32,
    ) -> Blocks {
        for (eight, sums) in (0..).zip(&mut sums) {
            if let Some(decays) = self.two_decays(b, FROM_START, from, 2 * chunk + eight) {
                *sums = ELEMENTS.map(|(h, c)| b.mul(sums[2 * h + c], decays[c]));
            }
        }
        for added in added {
            let columns = added.weights.parts(b, chunk * ROWS, 0, false);
            added.rows.multiply(b, self.elem(), &mut sums, columns);
        }
        sums
    }
}

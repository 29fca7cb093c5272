//! The rows that steps add, of a warp's 16 places of the width, and what is read of the state.

use super::rates::{ADDED, BEFORE, READ, SUMS};
use super::{BLOCKS, DeltaKernel, ELEMENTS, ROWS, WARPS};
use crate::block::layout::Tile;
use crate::block::matmul::{Blocks, Factor, load_four, mma_two, pack, zeros};
use crate::build::Builder;
use crate::tile::{Expr, Operand};
use oplus_dsl::Ty;

/// The rows that steps add, places of the width by times.
pub(super) struct Added {
    /// In `f32`.
    pub sums: Blocks,
    /// Of each 16 times as a left factor.
    pub left: Vec<[Operand; 4]>,
}

impl DeltaKernel<'_> {
    /// What the state, as left factors of 16 places of the depth each, gives for the vectors of all times of a tile.
    pub(super) fn read(&self, b: &mut Builder, state: &[[Operand; 4]], right: Factor) -> Blocks {
        let mut sums: Blocks = vec![zeros(); BLOCKS as usize];
        for (sixteen, left) in (0..).zip(state) {
            for (pair, sums) in (0..).zip(sums.chunks_exact_mut(2)) {
                let columns = right.four(b, pair * ROWS, sixteen, false);
                mma_two(b, self.keys.elem, sums, *left, columns);
            }
        }
        sums
    }

    /// The right side of the system: what is read of the state, and the values.
    pub(super) fn right_side(
        &self,
        b: &mut Builder,
        mut sums: Blocks,
        values: (&Tile, Operand),
        from: Operand,
    ) -> Blocks {
        let (tile, first) = values;
        for sixteen in 0..WARPS {
            let index = b.add(first, Operand::i32((sixteen * ROWS * tile.depth) as i32));
            let packed = load_four(b, tile, index, true);
            for half in 0..2 {
                let block = 2 * sixteen + half;
                let [read, added, before] = [READ, ADDED, BEFORE].map(|kind| self.two_rates(b, kind, from, block));
                let decays = self.powers(b, before);
                let read = [0, 1].map(|c| decays.map_or(read[c], |decays| b.mul(read[c], decays[c])));
                let own = [0, 1].map(|h| b.unpack(tile.elem, packed[2 * half as usize + h]));
                let sums = &mut sums[block as usize];
                *sums = ELEMENTS.map(|(h, c)| {
                    let value = b.mul(own[h][c], added[c]);
                    b.fma(sums[2 * h + c], read[c], value)
                });
            }
        }
        sums
    }

    /// Two to the power of logarithms, where there are decays.
    fn powers(&self, b: &mut Builder, logs: [Operand; 2]) -> Option<[Operand; 2]> {
        self.form.decay.map(|_| logs.map(|log| b.let_(Ty::F32, Expr::Exp2Fast(log))))
    }

    /// Solves the system, 16 times after the other.
    pub(super) fn solve(&self, b: &mut Builder, right: Blocks, system: Factor) -> Added {
        let elem = self.keys.elem;
        let mut added = Added { sums: vec![], left: vec![] };
        for (own, right) in (0..).zip(right.chunks_exact(2)) {
            let mut sums = right.to_vec();
            for (earlier, left) in (0..).zip(&added.left) {
                let columns = system.four(b, own * ROWS, earlier, false);
                mma_two(b, elem, &mut sums, *left, columns);
            }
            let left = pack(b, elem, &sums);
            let columns = system.four(b, own * ROWS, own, false);
            let mut solved = sums;
            mma_two(b, elem, &mut solved, left, columns);
            added.left.push(pack(b, elem, &solved[..]));
            added.sums.extend(solved);
        }
        added
    }

    /// What queries read after each step: of the state before the chunk, and of the steps since.
    pub(super) fn reads(
        &self,
        b: &mut Builder,
        mut sums: Blocks,
        added: &Added,
        weights: Factor,
        from: Operand,
    ) -> Blocks {
        for (block, sums) in (0..).zip(&mut sums) {
            let logs = self.two_rates(b, SUMS, from, block);
            if let Some(decays) = self.powers(b, logs) {
                *sums = ELEMENTS.map(|(h, c)| b.mul(sums[2 * h + c], decays[c]));
            }
        }
        for (own, sums) in (0..).zip(sums.chunks_exact_mut(2)) {
            for (earlier, left) in (0..=own).zip(&added.left) {
                let columns = weights.four(b, own * ROWS, earlier, false);
                mma_two(b, self.keys.elem, sums, *left, columns);
            }
        }
        sums
    }
}

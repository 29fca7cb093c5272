//! The rows that steps add, of a warp's 16 places of the width, and what is read of the state: for half of a chunk's times at once,
//! as registers are scarce.

use super::rates::{ADDED, BEFORE, READ, SUMS};
use super::{COLUMNS, DeltaKernel, ELEMENTS, ROWS, WARPS};
use crate::block::layout::Tile;
use crate::block::matmul::{Blocks, Factor, load_four, mma_two, pack, zeros};
use crate::build::Builder;
use crate::tile::{Expr, Operand};
use oplus_dsl::Ty;

/// 16 times of half a chunk.
pub(super) const HALF: u32 = WARPS / 2;

/// Blocks of eight times that 16 have.
const EIGHTS: u32 = ROWS / COLUMNS;

impl DeltaKernel<'_> {
    /// What the state, as left factors of 16 places of the depth each, gives for the vectors of half the times of a tile.
    pub(super) fn read(&self, b: &mut Builder, state: &[[Operand; 4]], right: Factor, half: u32) -> Blocks {
        let mut sums: Blocks = vec![zeros(); (HALF * EIGHTS) as usize];
        for (sixteen, left) in (0..).zip(state) {
            for (pair, sums) in (half * HALF..).zip(sums.chunks_exact_mut(2)) {
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
        (tile, first): (&Tile, Operand),
        (from, half): (Operand, u32),
    ) -> Blocks {
        for (sixteen, sums) in (half * HALF..).zip(sums.chunks_exact_mut(2)) {
            let index = b.add(first, Operand::i32((sixteen * ROWS * tile.depth) as i32));
            let packed = load_four(b, tile, index, true);
            for (eight, sums) in (0..).zip(sums) {
                let block = EIGHTS * sixteen + eight;
                let [read, added, before] = [READ, ADDED, BEFORE].map(|kind| self.two_rates(b, kind, from, block));
                let decays = self.powers(b, before);
                let read = [0, 1].map(|c| decays.map_or(read[c], |decays| b.mul(read[c], decays[c])));
                let own = [0, 1].map(|h| b.unpack(tile.elem, packed[2 * eight as usize + h]));
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
        self.form.decays().then(|| logs.map(|log| b.let_(Ty::F32, Expr::Exp2Fast(log))))
    }

    /// Solves the system for half the times, 16 after the other: the rows that steps add, as left factors, follow those of the other half.
    pub(super) fn solve(&self, b: &mut Builder, right: &Blocks, system: Factor, added: &mut Vec<[Operand; 4]>) {
        let elem = self.keys.elem;
        for right in right.chunks_exact(2) {
            let (mut sums, own) = (right.to_vec(), added.len() as u32);
            for (earlier, left) in (0..).zip(added.iter()) {
                let columns = system.four(b, own * ROWS, earlier, false);
                mma_two(b, elem, &mut sums, *left, columns);
            }
            // The inverse is stored without its identity.
            let left = pack(b, elem, &sums);
            let columns = system.four(b, own * ROWS, own, false);
            mma_two(b, elem, &mut sums, left, columns);
            added.push(pack(b, elem, &sums));
        }
    }

    /// What queries read after each step: of the state before the chunk, and of the steps since.
    pub(super) fn reads(
        &self,
        b: &mut Builder,
        mut sums: Blocks,
        (added, weights): (&[[Operand; 4]], Factor),
        (from, half): (Operand, u32),
    ) -> Blocks {
        for (block, sums) in (half * HALF * EIGHTS..).zip(&mut sums) {
            let logs = self.two_rates(b, SUMS, from, block);
            if let Some(decays) = self.powers(b, logs) {
                *sums = ELEMENTS.map(|(h, c)| b.mul(sums[2 * h + c], decays[c]));
            }
        }
        for (own, sums) in (half * HALF..).zip(sums.chunks_exact_mut(2)) {
            for (earlier, left) in (0..=own).zip(added) {
                let columns = weights.four(b, own * ROWS, earlier, false);
                mma_two(b, self.keys.elem, sums, *left, columns);
            }
        }
        sums
    }
}

//! Sums of pairs of times on both sides of a border of blocks, for cotangents of logarithms that are summed over all times.
//!
//! In that sum a pair counts as often as its times are apart. In running sums of query·query' − key·key' that go on through the
//! chunk it is the difference of two larger counts, and pairs of different blocks are rounded apart in query' and in key': of
//! strong decays, whose pairs are near, the errors were several times what rounding leaves of other gradients. So running sums
//! start from zero in every block, and what reaches over its end has no differences: pairs that leave the block are summed from the
//! same key', and those that pass over all of it from query'.

use super::{Borders, Steps};
use crate::block::matmul::Blocks;
use crate::build::{Builder, f32};
use crate::schedules::chunkwise::channels::Scale;
use crate::schedules::chunkwise_backward::{BLOCKS, ChunkwiseBackwardKernel};
use crate::tile::{Memory, Operand};
use oplus_dsl::ir::Binary;

impl ChunkwiseBackwardKernel<'_> {
    /// Writes the sums of pairs that leave the warp's block, from those of key' at its times.
    pub(super) fn store_leaving(&self, b: &mut Builder, own: &Steps, sums: &Blocks, scale: Scale) {
        if let Some(borders) = &own.arrays.borders {
            self.store_terms(b, own, (&self.keys, sums), scale, (borders.leaving, self.block));
        }
    }

    /// Writes the sums of pairs that pass over an earlier block, from those of query' at the warp's times of what lies before it.
    pub(super) fn store_passing(&self, b: &mut Builder, own: &Steps, sums: &Blocks, earlier: Operand) {
        if let Some(borders) = &own.arrays.borders {
            // Coordinates are rematerialised: kept through the loop, they would take registers.
            let kernel = self.with_rematerialised(b);
            let row = passing_row(b, kernel.block, earlier);
            let scale = Scale::Since(kernel.border(b, 0));
            kernel.store_terms(b, own, (&self.queries, sums), scale, (borders.passing, row));
        }
    }

    /// The sum of a channel's pairs that leave the warp's block, or pass over it to a later one.
    pub(super) fn over_end(&self, b: &mut Builder, borders: &Borders, channel: Operand) -> Operand {
        let at = b.mul(self.block, self.schedule.depth);
        let at = b.add(at, channel);
        let leaving = b.load1(Memory::Shared(borders.leaving), at);
        (1..BLOCKS as i32).map(Operand::i32).fold(leaving, |sum, later| {
            let is_later = b.lt(self.block, later);
            let row = passing_row(b, later, self.block);
            let at = b.mul(row, self.schedule.depth);
            let at = b.add(at, channel);
            let own = b.load(Memory::Shared(borders.passing), at, 1, Some(is_later), f32(0.0))[0];
            b.add(sum, own)
        })
    }
}

/// The row of a block and an earlier one.
fn passing_row(b: &mut Builder, block: Operand, earlier: Operand) -> Operand {
    let before = b.sub(block, 1);
    let twice = b.mul(block, before);
    let first = b.binary(Binary::Div, twice, 2);
    b.add(first, earlier)
}

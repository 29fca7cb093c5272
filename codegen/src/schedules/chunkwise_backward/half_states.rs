//! S and D in `f16` in a third sweep by warps, beside weights in `f32`.
//!
//! Warpgroups that walk have [saved](crate::schedules::chunkwise::range) each of them times a power of two, and the number that undoes it
//! behind the elements. Products with S and D have factors of 16 bits, which tensor cores multiply exactly; the numbers by which rows of these products are
//! multiplied anyway undo the powers, in `f32`.

use super::walk::{Chunk, HeadSlice};
use super::{ChunkwiseBackwardKernel, GradientSweep, ROWS, TIMES};
use crate::block::matmul::{Blocks, Factor, mma_two};
use crate::build::Builder;
use crate::schedules::chunkwise::range::power_of_element;
use crate::schedules::chunkwise::zeros;
use crate::tile::{Memory, Operand, SharedId, SharedKind, Stmt};
use oplus_dsl::Elem;

/// Which of the two saved matrices.
#[derive(Clone, Copy)]
pub(super) enum SavedMatrix {
    /// S, the states before a chunk.
    States = 0,
    /// D, the cotangents of those after it.
    Duals = 1,
}

/// Declares the numbers that undo the powers of S and D of each head in flight, where these are in `f16`.
pub(super) fn declare(b: &mut Builder, sweep: &GradientSweep) -> Option<SharedId> {
    let is_half = sweep.is_tf32 && sweep.states.elem == Elem::F16;
    is_half.then(|| b.shared("undone", SharedKind::Elem(Elem::F32), 2 * sweep.schedule.heads()))
}

impl GradientSweep<'_> {
    /// Reads the numbers by which S and D of a head in `f16` are to be multiplied.
    pub(super) fn read_undone(&self, b: &mut Builder, own: &HeadSlice, chunk: &Chunk) -> [Operand; 2] {
        let behind = self.saved(b, own, chunk);
        let behind = b.add(behind, TIMES * self.schedule.depth);
        [0, 1].map(|number: usize| {
            let element = b.load1(Memory::Global(self.args.scratch[number]), behind);
            power_of_element(b, element)
        })
    }
}

impl ChunkwiseBackwardKernel<'_> {
    /// Writes the numbers that undo the powers of a head to a stage, by one thread.
    pub(super) fn write_undone(&self, b: &mut Builder, own: &HeadSlice, chunk: &Chunk, stage: Operand) {
        let Some(array) = self.undone else { return };
        let is_first = b.eq(self.thread.number, 0);
        b.if_(is_first, |b| {
            let two = self.read_undone(b, own, chunk);
            let at = b.mul(stage, 2);
            b.store(Memory::Shared(array), at, &two, None);
        });
    }

    /// Numbers by which rows of a product with S or D are multiplied, times the number that undoes its power.
    pub(super) fn times_undone(
        &self,
        b: &mut Builder,
        scales: [Operand; 2],
        saved: SavedMatrix,
        stage: Operand,
    ) -> [Operand; 2] {
        let Some(undone) = self.undone_of(b, saved, stage) else { return scales };
        scales.map(|scale| b.mul(scale, undone))
    }

    /// A share of ⟨S, D⟩ without both powers.
    pub(super) fn energy_undone(&self, b: &mut Builder, share: Operand, stage: Operand) -> Operand {
        let both = [SavedMatrix::States, SavedMatrix::Duals].map(|saved| self.undone_of(b, saved, stage));
        both.into_iter().flatten().fold(share, |share, undone| b.mul(share, undone))
    }

    /// The sums of left·right over the rows of S or D, for so many blocks of its columns from a number on.
    pub(super) fn through_half(
        &self,
        b: &mut Builder,
        (first, count): (u32, u32),
        left: Factor,
        right: Factor,
    ) -> Blocks {
        let mut sums: Blocks = vec![zeros(); count as usize];
        for sixteen in 0..right.tile.rows / ROWS {
            let rows = left.four(b, 0, sixteen, false);
            for (pair, sums) in (first / 2..).zip(sums.chunks_exact_mut(2)) {
                let columns = right.four(b, sixteen * ROWS, pair, true);
                mma_two(b, right.tile.elem, sums, rows, columns);
            }
        }
        // Loads for later products, moved up, would take registers now.
        b.push(Stmt::SyncWarp);
        sums
    }

    fn undone_of(&self, b: &mut Builder, saved: SavedMatrix, stage: Operand) -> Option<Operand> {
        let array = self.undone?;
        let of_stage = b.mul(stage, 2);
        let at = b.add(of_stage, saved as u32);
        Some(b.load1(Memory::Shared(array), at))
    }
}

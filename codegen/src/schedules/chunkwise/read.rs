//! The readout: the reads of the state by queries, at the times of a chunk.

use super::decay::{Decays, NumberedDecays, with_rounding_errors};
use super::numbers::ChunkNumbers;
use super::state::State;
use super::walk::{Chunk, ReadFactors};
use super::{COLUMNS, ChunkwiseKernel, zeros};
use crate::block::matmul::{
    Blocks, Factor, block_numbers, block_values, block_vars, finish, multiply, pack, start, start_in_time,
};
use crate::block::tf32::left_of;
use crate::build::Builder;
use crate::schedules::Chunkwise;
use crate::tile::{Expr, Operand, Reg};
use oplus_dsl::ir::Unary;
use oplus_dsl::{Elem, Ty};

/// Products of a warpgroup that have started: queries and keys, and after that queries and the state before the chunk.
pub(super) struct Started {
    pub scores: Vec<[Reg; 4]>,
    pub y: Vec<[Reg; 4]>,
}

impl ChunkwiseKernel<'_> {
    /// The sums over depth of query·S at the chunk's times.
    pub(super) fn read(&self, b: &mut Builder, decays: &Decays, factors: &ReadFactors) -> Blocks {
        let ReadFactors { queries, keys, values: in_time, states } = *factors;
        let width = (self.schedule.width() / COLUMNS) as usize;
        let mut y: Blocks = vec![zeros(); width];
        multiply(b, &mut y, queries, states);
        let mut y: Blocks = y.iter().map(|block| from_start(b, decays.from_start, block)).collect();
        let mut scores: Blocks = vec![zeros(); (self.schedule.times() / COLUMNS) as usize];
        multiply(b, &mut scores, queries, keys);
        let packed = self.weights(b, decays, &scores);
        self.multiply_in_time(b, &mut y, &packed, in_time);
        y
    }

    /// What queries read, [apart](crate::block::rematerialise::Rematerialiser::apart) from outputs where the addresses of single elements leave
    /// few registers, or in `bf16` and `f32` the resets of packed sequences.
    pub(super) fn read_apart(&self, b: &mut Builder, read: impl FnOnce(&mut Builder) -> Blocks) -> Blocks {
        let Chunkwise { vector, depth, warps, .. } = *self.schedule;
        let is_scarce = match self.elem() {
            Elem::F32 => depth > 64,
            elem => elem == Elem::Bf16 && depth == 64,
        };
        let has_resets = is_scarce && warps == 4 && self.is_packed();
        if depth < 64 || vector > 1 && !has_resets {
            return read(b);
        }
        let mut y: Blocks = vec![zeros(); (self.schedule.width() / COLUMNS) as usize];
        self.rematerialiser.apart(b, &mut y, block_numbers, |b, y| *y = read(b));
        y
    }

    /// Starts the products of queries by a warpgroup, if there are queries. They are read from shared memory: as fragments they
    /// would take a quarter of the registers.
    pub(super) fn start_read(&self, b: &mut Builder, chunk: &Chunk) -> Option<Started> {
        let (queries, states) = chunk.queries.zip(chunk.states)?;
        let [scores, y] = [chunk.keys, states].map(|right| start(b, queries.stage(), right.stage()));
        Some(Started { scores, y })
    }

    /// Waits for the products of queries.
    pub(super) fn finish_read(&self, b: &mut Builder, Started { scores, y }: &Started) {
        finish(b, &[&scores[..], y].concat(), 0);
    }

    /// Reads as [`Self::read`] does, by a warpgroup, from products that have ended; the last product is only started.
    pub(super) fn read_asynchronously(
        &self,
        b: &mut Builder,
        decays: &Decays,
        in_time: Factor,
        started: Started,
    ) -> Vec<[Reg; 4]> {
        let Started { scores, y } = started;
        let scores = block_values(&scores);
        let packed = self.weights(b, decays, &scores);
        let y: Blocks = y.iter().map(|block| from_start(b, decays.from_start, &block.map(Operand::Reg))).collect();
        let y = block_vars(b, &y);
        start_in_time(b, &y, &packed, in_time.stage());
        y
    }

    /// Reads as [`Self::read`] does, by a warpgroup, from products that have started: pairs of times are weighed while the state is read. The last
    /// product is only started. Its rows are to be multiplied by numbers.
    pub(super) fn read_overlapped(
        &self,
        b: &mut Builder,
        NumberedDecays { decays, numbers }: NumberedDecays,
        factors: &[[Operand; 2]],
        state: &State,
        in_time: Factor,
        started: Started,
    ) -> (Vec<[Reg; 4]>, [Operand; 2]) {
        let Started { scores, y } = started;
        finish(b, &scores, 1);
        let weights = self.weighed_by_factors(b, decays, numbers, factors, &block_values(&scores));
        let (weights, powers) = self.weights_in_range(b, weights);
        let packed = self.packed(b, weights);
        let [before, after] = self.row_factors(b, decays, numbers);
        finish(b, &y, 0);
        let before = powers.map_or(before, |powers| powers.divided(b, before));
        self.scale_read(b, numbers, &y, before);
        self.follow(b, state, decays);
        start_in_time(b, &y, &packed, in_time.stage());
        let after = powers.map_or(after, |powers| powers.undone(b, after));
        (y, after)
    }

    /// Multiplies the thread's rows of the queries' reads, before weighed values are added, by numbers that differ from 1.
    fn scale_read(&self, b: &mut Builder, numbers: ChunkNumbers, y: &[[Reg; 4]], before: [Operand; 2]) {
        if self.powers.is_some() {
            return self.scale_scaled(b, y, before);
        }
        let is_far = b.unary(Unary::Not, numbers.is_near);
        b.if_(is_far, |b| self.scale_rows_of(b, y, before));
    }

    /// The weights of pairs of times as left factors.
    fn weights(&self, b: &mut Builder, decays: &Decays, scores: &Blocks) -> Blocks {
        let weights = self.weighed(b, decays, scores);
        self.packed(b, weights)
    }

    /// The weights of pairs of times.
    pub(super) fn weighed(&self, b: &mut Builder, decays: &Decays, scores: &Blocks) -> Blocks {
        scores.iter().enumerate().map(|(j, scores)| self.weigh(b, decays, j, scores)).collect()
    }

    /// Blocks of sums as left factors.
    pub(super) fn packed(&self, b: &mut Builder, weights: Blocks) -> Blocks {
        if self.is_tf32 {
            return weights.into_iter().map(|block| left_of(b, self.elem(), block)).collect();
        }
        weights.chunks(2).map(|two| pack(b, self.elem(), two)).collect()
    }

    /// The weights of a block of pairs of times; no row sees later columns.
    fn weigh(&self, b: &mut Builder, decays: &Decays, block: usize, scores: &[Operand; 4]) -> [Operand; 4] {
        let [sums, gains] = self.columns(b, decays, block as u32);
        let rounding_errors = self.rounding_errors(b, decays, block as u32);
        [0, 1, 2, 3].map(|r: usize| {
            let (h, c) = (r / 2, r % 2);
            let apart = b.sub(decays.rows[h], sums[c]);
            let apart = with_rounding_errors(b, apart, rounding_errors.map(|(own, columns)| (own[h], columns[c])));
            let decay = b.let_(Ty::F32, Expr::Exp2Fast(apart));
            let decay = b.mul(decay, gains[c]);
            let product = b.mul(scores[r], decay);
            self.if_earlier(b, decays, block as u32, r, product)
        })
    }
}

/// The thread's rows of a block of reads of the state before the chunk, each times a number.
pub(super) fn from_start(b: &mut Builder, rows: [Operand; 2], block: &[Operand; 4]) -> [Operand; 4] {
    [0, 1, 2, 3].map(|r: usize| b.mul(block[r], rows[r / 2]))
}

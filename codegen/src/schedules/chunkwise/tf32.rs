//! The walk in `tf32`: values scaled to a chunk's end, and the state for queries.

use super::{COLUMNS, ChunkwiseKernel, ROWS};
use crate::block::layout::Tile;
use crate::block::matmul::Factor;
use crate::block::tf32::{cut_off, first_transposed, rounded, tf32_bits, transposed};
use crate::build::Builder;
use crate::tile::{Memory, Operand, Stmt};

impl ChunkwiseKernel<'_> {
    /// [`ChunkwiseKernel::scaled_values`] in `tf32`: a left factor for every eight times.
    pub(super) fn scaled_tf32(
        &self,
        b: &mut Builder,
        remaining: impl Fn(&mut Builder, u32) -> [Operand; 2],
        values: Factor,
        place: Operand,
    ) -> Vec<[Operand; 4]> {
        let mut left = vec![];
        for sixteen in 0..self.schedule.times() / ROWS {
            for (eight, own) in (2 * sixteen..).zip(transposed(b, values, place, sixteen)) {
                let remaining = remaining(b, eight);
                left.push([(0, 0), (1, 0), (0, 1), (1, 1)].map(|(h, c)| {
                    let scaled = b.mul(own[h][c], remaining[c]);
                    tf32_bits(b, self.elem(), scaled)
                }));
            }
            // Loads for later products, moved up, would take registers.
            b.push(Stmt::SyncWarp);
        }
        left
    }

    /// The index of the thread's first value over time, of `f32`: the first of its places of the width, at time 2t.
    pub(super) fn first_value(&self, b: &mut Builder) -> Operand {
        first_transposed(b, &self.values, self.fragment, self.thread.warp)
    }

    /// Writes a block of the state for queries, in 16 rows: of `f32` as it is, else rounded, places 2t of the depth before
    /// places 2t + 1.
    pub(super) fn store_tf32(&self, b: &mut Builder, states: &Tile, k: u32, block: [Operand; 4]) {
        let row = self.first_row(b);
        for (h, two) in (0..).zip(block.chunks(2)) {
            let row = b.add(row, h * COLUMNS);
            if self.has_rounding_errors() {
                let column = self.fragment.column(b);
                let lanes = states.lanes_of_elements(b, row, column);
                let index = states.index(b, &lanes, 0, k);
                b.store(Memory::Shared(states.array), index, two, None);
                continue;
            }
            for (c, x) in (0..).zip(two) {
                let place = states.piece_index(b, row, Operand::i32((2 * k + c) as i32));
                let index = b.add(place, self.fragment.member);
                let x = rounded(b, *x);
                let x = if self.saved.is_some() { cut_off(b, x) } else { x };
                b.store(Memory::Shared(states.array), index, &[x], None);
            }
        }
    }
}

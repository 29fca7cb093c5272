//! The sums over rows of a tile: the weights through shared memory, the product, and what threads stage.
//!
//! Each warpgroup has 64 columns of the tile by 64 places: with heads of 128 both have the same columns and half of the places each, with
//! heads of 64 half of the columns. A thread has, of each 8 places, four numbers, at the places of the fragment.

use super::super::FlashKernel;
use super::super::{COLUMNS, ROWS};
use super::weigh::PackedRegisters;
use super::work::{BlockWork, TileStep};
use super::{ACROSS, BLOCK_ROWS, STAGED, SUMMING};
use crate::block::layout::{Tile, TileStage};
use crate::block::matmul::start_rows_from;
use crate::block::non_finite::Pieces;
use crate::block::ring::{Ring, RingStage};
use crate::build::{Builder, zero};
use crate::target::WARP;
use crate::tile::{Memory, Operand, Reg, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

/// Registers of a thread's sums over rows.
const SUMS: u32 = ACROSS / 2;

impl FlashKernel<'_> {
    /// The tile of the rows' parameter that sums over rows weight.
    fn across_leaf(&self) -> &Tile {
        let leaf = self.form.across.as_ref().map_or(0, |across| across.leaf.0);
        self.row_tile(leaf)
    }

    /// Waits until both warpgroups have read the weights of the step before.
    pub(super) fn wait_for_weights(&self, b: &mut Builder, step: &TileStep) {
        let read = RingStage::only(b, step.number).before(b);
        b.wait(self.arrays().weights_read, read);
    }

    /// Stores packed weights for both warpgroups: a row for each column.
    pub(super) fn share_weights(&self, b: &mut Builder, packed: &PackedRegisters) {
        let tile = &self.arrays().weights;
        // A lane names a column of the matrix that it belongs to. The warp's rows are two pieces.
        let lane = self.thread.lane;
        let [low, eighth, half] =
            [(Binary::Rem, 8), (Binary::Div, 8), (Binary::Div, 16)].map(|(op, n)| b.binary(op, lane, n));
        let of_half = b.mul(half, COLUMNS);
        let column = b.add(low, of_half);
        let odd = b.binary(Binary::Rem, eighth, 2);
        let of_warp = b.mul(self.thread.warp, ROWS / COLUMNS);
        let piece = b.add(of_warp, odd);
        let place = tile.piece_index(b, column, piece);
        for (sixteen, four) in packed.iter().enumerate() {
            let place = b.add(place, sixteen as u32 * ROWS * tile.panel());
            b.store_matrix(tile.array, place, &four.map(Operand::Reg), true);
        }
        b.push(Stmt::FenceAsync);
        self.team_barrier(b);
    }

    /// Starts the product for the sums over rows.
    pub(super) fn start_row_sums(&self, b: &mut Builder) -> Vec<Reg> {
        let (weights, leaf, zero) = (&self.arrays().weights, self.across_leaf(), Operand::i32(0));
        let group = self.group(b);
        // Half of the columns, or half of the places.
        let [column, start] = match self.schedule.columns == ACROSS {
            true => [zero, b.mul(group, leaf.rows * leaf.panel())],
            false => [b.mul(group, ACROSS), zero],
        };
        let [weights, leaf] = [(weights, zero), (leaf, start)].map(|(tile, start)| TileStage { tile, start });
        start_rows_from(b, weights, column, leaf).concat()
    }

    /// Waits for the stage of a step's sums over rows.
    pub(super) fn wait_for_stage(&self, b: &mut Builder, step: &TileStep) -> RingStage {
        let staged = Ring::of_power(STAGED).at(b, step.number);
        let free = staged.before(b);
        b.wait(self.arrays().unstaged, free);
        staged
    }

    /// Stores the thread's sums over rows in a stage, in the order of threads.
    pub(super) fn store_row_sums(&self, b: &mut Builder, stage: Operand, sums: &[Reg]) {
        let start = b.mul(stage, self.schedule.columns * self.schedule.depth);
        let own = b.mul(self.thread.number, 4);
        let from = b.add(start, own);
        for (k, four) in sums.chunks(4).enumerate() {
            let values: Vec<Operand> = four.iter().map(|reg| (*reg).into()).collect();
            let at = b.add(from, k as u32 * 4 * SUMMING);
            b.store(Memory::Shared(self.arrays().sums), at, &values, None);
        }
    }

    /// Hands a stage over to the warps that add, and the weights to those who write the next ones.
    pub(super) fn hand_over(&self, b: &mut Builder, staged: RingStage) {
        let arrays = self.arrays();
        b.arrive(arrays.weights_read, Operand::i32(0));
        b.push(Stmt::FenceAsync);
        b.arrive(arrays.staged, staged.index);
    }

    /// Whether the block's rows that sums over rows weight have non-finite elements.
    pub(super) fn find_non_finite(&self, b: &mut Builder) -> Operand {
        let (tile, array) = (self.across_leaf(), Memory::Shared(self.arrays().non_finite));
        let index = |b: &mut Builder, number: Operand| b.mul(number, tile.piece());
        let (first, count, step) = (self.thread.number, tile.rows * tile.pieces(), self.schedule.walkers());
        let finite = Pieces { tile, first, count, step, index: &index }.are_finite(b);
        let finite = b.all(finite);
        let flag = b.select(finite, Operand::i32(0), Operand::i32(1));
        let first = b.eq(self.thread.lane, 0);
        // All warps have read the flags of the rows before.
        self.team_barrier(b);
        b.store(array, self.thread.warp, &[flag], Some(first));
        self.team_barrier(b);
        let any = (0..self.schedule.warps).fold(Operand::i32(0), |any, warp| {
            let flag = b.load1(array, Operand::i32(warp as i32));
            b.binary(Binary::Max, any, flag)
        });
        b.ne(any, 0)
    }

    /// Computes the staged sums over rows again one row after the other, without those rows that a column is not seen by.
    pub(super) fn sum_rows_apart(&self, b: &mut Builder, work: &BlockWork, stage: Operand, first: Operand) {
        let Some(seen) = work.seen else { return };
        let (weights, leaf) = (&self.arrays().weights, self.across_leaf());
        let place = RowSums::of(b, self);
        let sums: Vec<Reg> = (0..SUMS).map(|_| b.var(zero(Ty::F32))).collect();
        b.for_(Operand::i32(0), BLOCK_ROWS, 1, |b, row| {
            let [piece, within] = b.div_rem(row, weights.piece());
            let [from, to] = [b.add(seen.from, row), b.add(seen.to, row)];
            for half in 0..2 {
                let column = b.add(place.column, half * COLUMNS);
                let at = weights.piece_index(b, column, piece);
                let at = b.add(at, within);
                let weight = b.load1(Memory::Shared(weights.array), at);
                let index = b.add(first, column);
                let [begins, ends] = [b.ge(index, from), b.lt(index, to)];
                let seen = b.and(begins, ends);
                for (k, four) in sums.chunks(4).enumerate() {
                    let along = b.add(place.along, k as u32 * COLUMNS);
                    let [piece, within] = b.div_rem(along, leaf.piece());
                    let at = leaf.piece_index(b, row, piece);
                    let at = b.add(at, within);
                    let two = b.load(Memory::Shared(leaf.array), at, 2, None, zero(Ty::F32));
                    for (c, element) in two.into_iter().enumerate() {
                        let reg = four[2 * half as usize + c];
                        let sum = b.fma(weight, element, reg.into());
                        let sum = b.select(seen, sum, reg.into());
                        b.assign(reg, sum);
                    }
                }
            }
        });
        self.store_row_sums(b, stage, &sums);
    }
}

/// Where a thread's sums over rows are in a tile, `i32`.
pub(super) struct RowSums {
    /// The column of the first two numbers of four; that of the others is 8 further.
    pub column: Operand,
    /// The first of two places; those of the next four numbers are 8 further.
    pub along: Operand,
}

impl RowSums {
    fn of(b: &mut Builder, kernel: &FlashKernel<'_>) -> RowSums {
        RowSums::at(b, kernel.thread.number, kernel.schedule.columns == ACROSS)
    }

    /// The place of a thread; whether both warpgroups have the same columns.
    pub(super) fn at(b: &mut Builder, thread: Operand, same_columns: bool) -> RowSums {
        let [warp, lane] = b.div_rem(thread, WARP);
        let [group, warp] = b.div_rem(warp, 4);
        let [row, member] = b.div_rem(lane, 4);
        let of_warp = b.mul(warp, ROWS);
        let column = b.add(of_warp, row);
        let along = b.mul(member, 2);
        let of_group = b.mul(group, ACROSS);
        if same_columns {
            RowSums { column, along: b.add(along, of_group) }
        } else {
            RowSums { column: b.add(column, of_group), along }
        }
    }
}

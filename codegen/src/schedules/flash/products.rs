//! The matrix products of a tile of columns.

use super::sums::Sums;
use super::tf32::with_low_products;
use super::{COLUMNS, FlashKernel, Grid, ROWS};
use crate::block::layout::{Lanes, Tile, TileStage};
use crate::block::matmul::{block_values, finish_all, load_four, mma, pack, start_from_row, start_in_time, zeros};
use crate::block::tf32::{FactorParts, factor_parts, mma_low_parts};
use crate::build::Builder;
use crate::schedules::Unit;
use crate::stage::kind::Contraction;
use crate::tile::{Operand, Reg};
use oplus_dsl::{Elem, Ty};

/// Where the tiles of both factors of a contraction begin in their arrays.
#[derive(Clone, Copy)]
pub(super) struct Starts {
    /// The stage of the rows; warpgroups alone have several.
    pub left: Operand,
    /// The stage of the columns.
    pub right: Operand,
}

impl FlashKernel<'_> {
    /// Σ left·right for the pairs with the columns of a stage whose first element is at `start`. By warpgroups the product
    /// is only started, see [`Self::finish`].
    pub(super) fn contract(
        &self,
        b: &mut Builder,
        contraction: &Contraction,
        left_lanes: &Lanes,
        right_lanes: &Lanes,
        Starts { left: left_start, right: start }: Starts,
    ) -> Grid {
        let (left, right) = (self.row_tile(contraction.left), self.column_tile(contraction.right));
        if self.schedule.unit == Unit::Warpgroup {
            return self.contract_asynchronously(b, left, left_start, right, start);
        }
        let (elem, blocks) = (self.elem(), (self.schedule.columns / COLUMNS) as usize);
        let mut grid: Grid = vec![zeros(); blocks * self.schedule.repeat as usize];
        let mut low_products = grid.clone();
        for step in 0..left.depth / left.step() {
            let rows: Vec<FactorParts<4>> = (0..self.schedule.repeat)
                .map(|k| {
                    let index = left.index(b, left_lanes, k * ROWS, step);
                    let rows = load_four(b, left, index, false);
                    factor_parts(b, elem, rows)
                })
                .collect();
            for pair in 0..blocks / 2 {
                let index = right.index(b, right_lanes, pair as u32 * ROWS, step);
                let index = b.add(index, start);
                let [x, y, z, w] = load_four(b, right, index, false);
                for (j, columns) in [(2 * pair, [x, y]), (2 * pair + 1, [z, w])] {
                    let columns = factor_parts(b, elem, columns);
                    for (k, rows) in rows.iter().enumerate() {
                        mma_low_parts(b, &mut low_products[k * blocks + j], rows, &columns);
                        mma(b, elem, &mut grid[k * blocks + j], rows[0], columns[0]);
                    }
                }
            }
        }
        if elem == Elem::F32 { with_low_products(b, &grid, &low_products) } else { grid }
    }

    /// Σ left·right by warpgroups: an asynchronous product that is only started.
    pub(super) fn contract_asynchronously(
        &self,
        b: &mut Builder,
        left: &Tile,
        left_start: Operand,
        right: &Tile,
        start: Operand,
    ) -> Grid {
        let first = self.first_row_of_group(b);
        let [left, right] = [(left, left_start), (right, start)].map(|(tile, start)| TileStage { tile, start });
        let mut grid = vec![];
        for k in 0..self.schedule.repeat {
            let row = b.add(first, k * self.row_step());
            grid.extend(block_values(&start_from_row(b, left, row, right)));
        }
        grid
    }

    /// Waits for the contraction of that number, if warpgroups have started them.
    pub(super) fn finish(&self, b: &mut Builder, products: &[Grid], number: usize) {
        if self.schedule.unit == Unit::Warpgroup {
            let later = (products.len() - 1 - number) as u32 * self.schedule.repeat;
            finish_all(b, registers(&products[number]), later);
        }
    }

    /// Waits for a contraction, after which `later` products have been started.
    pub(super) fn finish_before(&self, b: &mut Builder, product: &Grid, later: u32) {
        finish_all(b, registers(product), later);
    }

    /// Waits for the payloads' sums, if warpgroups have started them, after `weights` have been evaluated.
    pub(super) fn finish_sums(&self, b: &mut Builder, sums: &Sums, weights: &[Grid]) {
        if self.schedule.unit == Unit::Warpgroup {
            let sums = sums.registers().into_iter();
            finish_all(b, sums.chain(weights.iter().flat_map(registers)).collect(), 0);
        }
    }

    /// Waits for the payloads' sums, after which `later` products have been started.
    pub(super) fn finish_all_but(&self, b: &mut Builder, sums: &Sums, later: u32) {
        finish_all(b, sums.registers(), later * self.schedule.repeat);
    }

    /// Adds Σ weight·leaf over the columns of a stage to the sums of a payload; by warpgroups the product is only started.
    pub(super) fn accumulate(
        &self,
        b: &mut Builder,
        tile: &Tile,
        lanes: &[Lanes],
        weights: &[Vec<[Operand; 4]>],
        sums: &[[Reg; 4]],
        start: Operand,
    ) {
        if self.schedule.unit == Unit::Warpgroup {
            return self.accumulate_asynchronously(b, tile, weights, sums, start);
        }
        let blocks = (tile.depth / COLUMNS) as usize;
        for (sixteen, _) in (0..self.schedule.columns).step_by(ROWS as usize).enumerate() {
            for pair in 0..blocks / 2 {
                let index = tile.index(b, &lanes[0], sixteen as u32 * ROWS, pair as u32);
                let index = b.add(index, start);
                let [x, y, z, w] = load_four(b, tile, index, true);
                for (k, weights) in weights.iter().enumerate() {
                    for (j, columns) in [(2 * pair, [x, y]), (2 * pair + 1, [z, w])] {
                        b.mma(self.elem(), sums[k * blocks + j], weights[sixteen], columns);
                    }
                }
            }
        }
    }

    /// Adds Σ weight·leaf to the sums by warpgroups: an asynchronous product that is only started.
    fn accumulate_asynchronously(
        &self,
        b: &mut Builder,
        tile: &Tile,
        weights: &[Vec<[Operand; 4]>],
        sums: &[[Reg; 4]],
        start: Operand,
    ) {
        for (weights, sums) in weights.iter().zip(sums.chunks((tile.depth / COLUMNS) as usize)) {
            start_in_time(b, sums, weights, TileStage { tile, start });
        }
    }

    /// Weights as left factors: for every 16 rows, those of every 16 columns, or of every 8 of `f32`.
    pub(super) fn pack(&self, b: &mut Builder, weights: &Grid) -> Vec<Vec<[Operand; 4]>> {
        let blocks = (self.schedule.columns / COLUMNS) as usize;
        if self.elem() == Elem::F32 {
            let bits = |b: &mut Builder, w: &[Operand; 4]| [w[0], w[2], w[1], w[3]].map(|x| b.bits(Ty::U32, x));
            return weights.chunks(blocks).map(|rows| rows.iter().map(|w| bits(b, w)).collect()).collect();
        }
        let elem = self.elem();
        weights.chunks(blocks).map(|rows| rows.chunks(2).map(|two| pack(b, elem, two)).collect()).collect()
    }
}

/// The registers of a grid that products assign.
fn registers(grid: &Grid) -> Vec<Reg> {
    let register = |x: &Operand| if let Operand::Reg(reg) = x { Some(*reg) } else { None };
    grid.iter().flatten().filter_map(register).collect()
}

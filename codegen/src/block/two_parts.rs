//! Factors of `f32` in two parts, each in a tile of its own: a high part in `bf16`, rounded to nearest, and a low part, what is left.
//!
//! A tile [declares](Tile::in_parts) the array of its low parts beside that of the high ones. Warps read elements to registers and write
//! both parts when a stage is free; warpgroups multiply them. A product is that of both high parts and of each low part with the other's
//! high part; what is left out is below 2⁻¹⁶ of it.

use super::copy::ReadPiece;
use super::fragment::{ROWS, new_sums};
use super::layout::{Tile, TileStage};
use super::matmul::{block_of, pack};
use super::parts::Parts;
use crate::build::Builder;
use crate::tile::{Left, Memory, Operand, Panels, Reg, Stmt};
use oplus_dsl::Elem;

/// The parts of the left and the right factor in each of the three products, the smallest first.
const PRODUCTS: [(usize, usize); 3] = [(1, 0), (0, 1), (0, 0)];

/// The order in which the products of parts are added to a sum.
#[derive(Clone, Copy)]
pub(crate) enum Order {
    /// The products with low parts of all steps come before those of high parts.
    SmallestFirst,
    /// All products of a step come before those of the next step.
    StepByStep,
}

/// One step of a product: 16 terms, of the high and the low part of each factor.
pub(crate) struct Step {
    pub left: [Left; 2],
    pub right: [Panels; 2],
}

impl Tile {
    /// The panels of the high and the low parts of 16 elements of rows, as [`Tile::panels`].
    pub(crate) fn panels_of_parts(&self, b: &mut Builder, start: Operand, row: Operand, sixteen: u32) -> [Panels; 2] {
        let high = self.panels(b, start, row, sixteen);
        [high, Panels { array: self.low.unwrap_or(self.array), ..high }]
    }

    /// Writes both parts of elements that were read to the stage that begins at an index.
    pub(crate) fn write_parts(&self, b: &mut Builder, read: Vec<ReadPiece>, start: Operand) {
        let low = self.low.unwrap_or(self.array);
        for ReadPiece { at, elements } in read {
            let index = b.add(start, at);
            b.store(Memory::Shared(self.array), index, &elements, None);
            let low_part = low_parts(b, &elements);
            b.store(Memory::Shared(low), index, &low_part, None);
        }
    }

    /// Writes two neighbouring blocks of sums at the index that lanes name, as matrices; both parts, if the tile has low ones.
    pub(crate) fn store_blocks(&self, b: &mut Builder, index: Operand, two: &[[Operand; 4]]) {
        let packed = pack(b, self.elem, two);
        b.store_matrix(self.array, index, &packed, false);
        if let Some(low) = self.low {
            let low_part: Vec<_> = two.iter().map(|block| low_block(b, block)).collect();
            let packed = pack(b, self.elem, &low_part);
            b.store_matrix(low, index, &packed, false);
        }
    }

    /// The elements of a block, as [`block_of`] reads them: sums of both parts, if the tile has low ones.
    pub(crate) fn whole_block(
        &self,
        b: &mut Builder,
        start: Operand,
        row: Operand,
        piece: Operand,
        column: Operand,
    ) -> [Operand; 4] {
        let high = block_of(b, self, start, row, piece, column);
        let Some(low) = self.low_part() else { return high };
        let low = block_of(b, &low, start, row, piece, column);
        [0, 1, 2, 3].map(|r: usize| b.add(high[r], low[r]))
    }
}

/// The low parts of a block of numbers.
fn low_block(b: &mut Builder, block: &[Operand; 4]) -> [Operand; 4] {
    let low = low_parts(b, block);
    [low[0], low[1], low[2], low[3]]
}

impl Step {
    /// The steps of left·rightᵀ over the depth.
    pub(crate) fn over_depth(b: &mut Builder, left: TileStage, right: TileStage) -> Vec<Step> {
        let none = Operand::i32(0);
        let step = |sixteen: u32| Step {
            left: left.tile.panels_of_parts(b, left.start, none, sixteen).map(Left::Shared),
            right: right.tile.panels_of_parts(b, right.start, none, sixteen),
        };
        (0..left.tile.depth / ROWS).map(step).collect()
    }

    /// The steps of left·rightᵀ over the depth, whose left factors are in registers: one for every 16 places.
    fn over_depth_by(b: &mut Builder, left: &[Parts], right: TileStage) -> Vec<Step> {
        let step = |(sixteen, left): (u32, &Parts)| {
            let right = right.tile.panels_of_parts(b, right.start, Operand::i32(0), sixteen);
            Step { left: in_registers(left), right }
        };
        (0..).zip(left).map(step).collect()
    }

    /// The steps of left·right over the rows of the right factor, for the columns of its tile: 16 rows for each left factor.
    pub(crate) fn over_rows(b: &mut Builder, left: &[Parts], right: &Tile, start: Operand) -> Vec<Step> {
        let step = |(sixteen, left): (u32, &Parts)| {
            let row = Operand::i32((sixteen * ROWS) as i32);
            Step { left: in_registers(left), right: right.panels_of_parts(b, start, row, 0) }
        };
        (0..).zip(left).map(step).collect()
    }
}

/// Both parts of a left factor in registers.
fn in_registers(left: &Parts) -> [Left; 2] {
    [left.high(), left.low().unwrap_or(left.high())].map(Left::Registers)
}

/// Starts the product of all steps, added to sums unless these are cleared; `transposed` says whether rows of right factors are summed
/// over.
pub(crate) fn start(b: &mut Builder, sums: &[[Reg; 4]], clear: bool, steps: &[Step], order: Order, transposed: bool) {
    let of_parts = |step: &Step, (left, right): (usize, usize)| (step.left[left], step.right[right]);
    let steps = match order {
        Order::SmallestFirst => {
            PRODUCTS.into_iter().flat_map(|parts| steps.iter().map(move |step| of_parts(step, parts))).collect()
        }
        Order::StepByStep => steps.iter().flat_map(|step| PRODUCTS.map(|parts| of_parts(step, parts))).collect(),
    };
    b.push(Stmt::WarpgroupMma { elem: Elem::Bf16, sums: sums.concat(), clear, steps, transposed });
}

/// Starts left·rightᵀ over the depth.
pub(crate) fn start_over_depth(b: &mut Builder, left: TileStage, right: TileStage) -> Vec<[Reg; 4]> {
    let sums = new_sums(b, right.tile.rows);
    let steps = Step::over_depth(b, left, right);
    start(b, &sums, true, &steps, Order::SmallestFirst, false);
    sums
}

/// Starts left·rightᵀ over the depth, with a left factor in registers, in these registers of sums.
pub(crate) fn start_over_depth_by(b: &mut Builder, sums: &[[Reg; 4]], left: &[Parts], right: TileStage) {
    let steps = Step::over_depth_by(b, left, right);
    start(b, sums, true, &steps, Order::SmallestFirst, false);
}

/// The low parts of numbers: the differences from their high parts.
pub(crate) fn low_parts(b: &mut Builder, numbers: &[Operand]) -> Vec<Operand> {
    let of_two = |two: &[Operand]| {
        let packed = b.pack(Elem::Bf16, two[0], two[1]);
        let rounded = b.unpack(Elem::Bf16, packed);
        [0, 1].map(|c: usize| b.sub(two[c], rounded[c]))
    };
    numbers.chunks(2).flat_map(of_two).collect()
}

//! Products of a warpgroup whose factors are in two parts: a high one in `bf16`, rounded to nearest, and a low one, what is left, in tiles
//! of their own.
//!
//! A product is that of both high parts and of each low part with the other's high part; what is left out is below 2⁻¹⁶ of it.

use super::copy::ReadPiece;
use super::fragment::{COLUMNS, ROWS};
use super::layout::Tile;
use super::parts::Parts;
use crate::build::Builder;
use crate::tile::{Left, Memory, Operand, Panels, Reg, Stmt};
use oplus_dsl::{Elem, Ty};

/// The parts of the left and the right factor in each of the three products, the smallest first.
const PRODUCTS: [(usize, usize); 3] = [(1, 0), (0, 1), (0, 0)];

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
            let rest = rests(b, &elements);
            b.store(Memory::Shared(low), index, &rest, None);
        }
    }
}

impl Step {
    /// The steps of left·right over the rows of the right factor, for the columns of its tile: 16 rows for each left factor.
    pub(crate) fn over_rows(b: &mut Builder, left: &[Parts], right: &Tile, start: Operand) -> Vec<Step> {
        let step = |(sixteen, left): (u32, &Parts)| {
            let row = Operand::i32((sixteen * ROWS) as i32);
            let low = left.low().unwrap_or(left.high());
            let left = [left.high(), low].map(Left::Registers);
            Step { left, right: right.panels_of_parts(b, start, row, 0) }
        };
        (0..).zip(left).map(step).collect()
    }
}

/// New sums of so many columns.
pub(crate) fn new_sums(b: &mut Builder, columns: u32) -> Vec<[Reg; 4]> {
    (0..columns / COLUMNS).map(|_| [0; 4].map(|_| b.reg(Ty::F32))).collect()
}

/// Starts the product of all steps, added to sums unless these are cleared; `transposed` says whether rows of right factors are summed
/// over.
pub(crate) fn start(b: &mut Builder, sums: &[[Reg; 4]], clear: bool, steps: &[Step], transposed: bool) {
    let of_parts = |(left, right): (usize, usize)| steps.iter().map(move |step| (step.left[left], step.right[right]));
    let steps = PRODUCTS.into_iter().flat_map(of_parts).collect();
    b.push(Stmt::WarpgroupMma { elem: Elem::Bf16, sums: sums.concat(), clear, steps, transposed });
}

/// The low parts of numbers: the differences from their high parts.
pub(crate) fn rests(b: &mut Builder, numbers: &[Operand]) -> Vec<Operand> {
    let of_two = |two: &[Operand]| {
        let packed = b.pack(Elem::Bf16, two[0], two[1]);
        let rounded = b.unpack(Elem::Bf16, packed);
        [0, 1].map(|c: usize| b.sub(two[c], rounded[c]))
    };
    numbers.chunks(2).flat_map(of_two).collect()
}

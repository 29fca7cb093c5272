//! Fragments of factors whose sums need the range of `f32`: in `bf16`, or of `f32` as a high and a low part in `bf16`.
//!
//! Parts of `f32` lie in [one tile](super::split_tile) or in [two](super::two_parts), and fragments of both are read as those of 16 bits
//! are, along rows or transposed. A product is that of both high parts and of each low part with the other's high part; what is left out
//! is below 2⁻¹⁶ of it.

use super::fragment::{Factor, ROWS, load_four, mma_two};
use super::layout::Tile;
use super::split_tile::{low_index, split};
use crate::build::Builder;
use crate::tile::Operand;
use oplus_dsl::Elem;

/// A fragment of 16 × 16 numbers in packed pairs: whole, or the high and the low parts.
#[derive(Clone, Copy)]
pub(crate) struct Parts {
    high: [Operand; 4],
    low: Option<[Operand; 4]>,
}

/// The type of the packed pairs of factors.
fn pair_elem(elem: Elem) -> Elem {
    if elem == Elem::F32 { Elem::Bf16 } else { elem }
}

impl Parts {
    /// Two neighbouring blocks as a left factor.
    pub(crate) fn of_blocks(b: &mut Builder, elem: Elem, two: &[[Operand; 4]]) -> Parts {
        let pair = |block: usize, h: usize| [two[block][2 * h], two[block][2 * h + 1]];
        Parts::of_pairs(b, elem, &[pair(0, 0), pair(0, 1), pair(1, 0), pair(1, 1)])
    }

    /// A fragment of the numbers of each register's pair.
    pub(crate) fn of_pairs(b: &mut Builder, elem: Elem, pairs: &[[Operand; 2]; 4]) -> Parts {
        if elem != Elem::F32 {
            return Parts { high: pairs.map(|[x, y]| b.pack(elem, x, y)), low: None };
        }
        let both = pairs.map(|pair| split(b, pair));
        Parts { high: both.map(|[high, _]| high), low: Some(both.map(|[_, low]| low)) }
    }

    /// The numbers of each register's pair.
    pub(crate) fn pairs(self, b: &mut Builder, elem: Elem) -> [[Operand; 2]; 4] {
        let high = self.high.map(|pair| b.unpack(pair_elem(elem), pair));
        let Some(low) = self.low else { return high };
        [0, 1, 2, 3].map(|r: usize| {
            let low = b.unpack(pair_elem(elem), low[r]);
            [0, 1].map(|c: usize| b.add(high[r][c], low[c]))
        })
    }

    /// A left factor times a number for each of the thread's two columns in both blocks.
    pub(crate) fn times_columns(self, b: &mut Builder, elem: Elem, numbers: [[Operand; 2]; 2]) -> Parts {
        if elem != Elem::F32 {
            let high = [0, 1, 2, 3].map(|register: usize| {
                // Registers 0 and 1 have the first eight columns, 2 and 3 the others.
                let [first, second] = numbers[register / 2];
                let [low, high] = b.unpack(elem, self.high[register]);
                let (low, high) = (b.mul(low, first), b.mul(high, second));
                b.pack(elem, low, high)
            });
            return Parts { high, low: None };
        }
        let pairs = self.pairs(b, elem);
        let scaled = [0, 1, 2, 3].map(|r: usize| [0, 1].map(|c: usize| b.mul(pairs[r][c], numbers[r / 2][c])));
        Parts::of_pairs(b, elem, &scaled)
    }

    /// A fragment in registers: of high and low parts, or of whole elements.
    pub(crate) fn of_registers(high: [Operand; 4], low: Option<[Operand; 4]>) -> Parts {
        Parts { high, low }
    }

    /// The high parts, or whole elements.
    pub(crate) fn high(self) -> [Operand; 4] {
        self.high
    }

    /// The low parts, if there are any.
    pub(crate) fn low(self) -> Option<[Operand; 4]> {
        self.low
    }

    /// The fragment with every register mapped.
    pub(crate) fn map(self, mut map: impl FnMut(Operand) -> Operand) -> Parts {
        Parts { high: self.high.map(&mut map), low: self.low.map(|low| low.map(&mut map)) }
    }

    /// A left factor as the right one of its transpose: the two registers in the middle change places.
    pub(crate) fn as_right(self) -> Parts {
        let swap = |[a, c, e, g]: [Operand; 4]| [a, e, c, g];
        Parts { high: swap(self.high), low: self.low.map(swap) }
    }

    /// Four matrices whose rows lanes name by this index, of a tile that begins at a multiple of its rows' length.
    pub(crate) fn at(b: &mut Builder, tile: &Tile, index: Operand, transposed: bool) -> Parts {
        let high = load_four(b, tile, index, transposed);
        let low = match tile.low_part() {
            Some(low) => Some(load_four(b, &low, index, transposed)),
            None if tile.elem == Elem::F32 => {
                let beside = low_index(b, tile, index);
                Some(load_four(b, tile, beside, transposed))
            }
            None => None,
        };
        Parts { high, low }
    }

    /// [Self::multiply] with the product of both low parts, which it leaves out: for sums that are to cancel with those of the transposed factors.
    pub(crate) fn multiply_whole(self, b: &mut Builder, elem: Elem, sums: &mut [[Operand; 4]], right: Parts) {
        if let (Some(low), Some(other)) = (self.low, right.low) {
            mma_two(b, Elem::Bf16, sums, low, other);
        }
        self.multiply(b, elem, sums, right);
    }

    /// Adds the products of a left factor with two fragments of columns, side by side, to two blocks.
    pub(crate) fn multiply(self, b: &mut Builder, elem: Elem, sums: &mut [[Operand; 4]], right: Parts) {
        if let Some(low) = self.low {
            mma_two(b, Elem::Bf16, sums, low, right.high);
        }
        if let Some(low) = right.low {
            mma_two(b, Elem::Bf16, sums, self.high, low);
        }
        mma_two(b, pair_elem(elem), sums, self.high, right.high);
    }
}

impl Factor<'_> {
    /// Four matrices from row `first`, a multiple of 8, and 16 elements number `sixteen` on.
    pub(crate) fn parts(self, b: &mut Builder, first: u32, sixteen: u32, transposed: bool) -> Parts {
        if self.tile.elem != Elem::F32 {
            return Parts { high: self.four(b, first, sixteen, transposed), low: None };
        }
        // A step has eight elements of `f32`, or 16 of their parts.
        let [high, low] = [0, 1].map(|part| self.four(b, first, 2 * sixteen + part, transposed));
        Parts { high, low: Some(low) }
    }
}

/// Adds left·right over 16 rows of the right factor.
pub(crate) fn multiply_in_time(b: &mut Builder, sums: &mut [[Operand; 4]], left: Parts, right: Factor, sixteen: u32) {
    for (pair, sums) in (0..).zip(sums.chunks_exact_mut(2)) {
        let columns = right.parts(b, sixteen * ROWS, pair, true);
        left.multiply(b, right.tile.elem, sums, columns);
    }
}

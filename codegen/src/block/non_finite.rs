//! Non-finite elements of tiles in shared memory: threads find infinities and NaNs, and replace them by 0.
//!
//! A matrix product multiplies every element of a tile, also by weights that are 0 where a row does not see a column, and 0·∞ is NaN. So a
//! tile of which rows see some columns only is looked through before its product.

use super::layout::{EIGHT, Tile};
use crate::build::{Builder, zero};
use crate::target::WARP;
use crate::tile::{Memory, Operand, Reg};
use oplus_dsl::ir::{Binary, Literal, Unary};
use oplus_dsl::{Elem, Ty};

/// The pieces of a tile that a thread looks through: every `step`-th one from a number on.
pub(crate) struct Pieces<'a> {
    pub tile: &'a Tile,
    /// The number of the first piece, `i32`.
    pub first: Operand,
    /// The end of all numbers.
    pub count: u32,
    pub step: u32,
    /// Gives the index at which the piece of a number begins.
    pub index: &'a dyn Fn(&mut Builder, Operand) -> Operand,
}

/// A piece that has been loaded.
struct Loaded {
    index: Operand,
    elements: Vec<Operand>,
}

impl Pieces<'_> {
    /// Whether any element of the thread's pieces is not finite.
    pub(crate) fn has_non_finite(&self, b: &mut Builder) -> Operand {
        let sum = self.zeros(b);
        b.ne(sum, zero(Ty::F32))
    }

    /// Whether all elements of the thread's pieces are finite.
    pub(crate) fn are_finite(&self, b: &mut Builder) -> Operand {
        let sum = self.zeros(b);
        b.eq(sum, zero(Ty::F32))
    }

    /// Replaces the non-finite elements of the thread's pieces by 0.
    pub(crate) fn clear(&self, b: &mut Builder) {
        b.for_(self.first, self.count, self.step, |b, number| {
            let Loaded { index, elements } = self.load(b, number);
            let elements: Vec<Operand> = elements.into_iter().map(|x| finite_or_zero(b, x)).collect();
            b.store(Memory::Shared(self.tile.array), index, &elements, None);
        });
    }

    /// The sum of all elements times 0: NaN where one is not finite.
    fn zeros(&self, b: &mut Builder) -> Operand {
        let zeros = b.var(zero(Ty::F32));
        b.for_(self.first, self.count, self.step, |b, number| {
            let piece = self.load(b, number);
            let all = piece.elements.iter().fold(zeros.into(), |sum, x| b.fma(*x, zero(Ty::F32), sum));
            b.assign(zeros, all);
        });
        zeros.into()
    }

    fn load(&self, b: &mut Builder, number: Operand) -> Loaded {
        let index = (self.index)(b, number);
        let elements = b.load(Memory::Shared(self.tile.array), index, self.tile.piece(), None, zero(Ty::F32));
        Loaded { index, elements }
    }
}

/// The pieces of a tile of 16-bit elements that a warp looks through, some warps a whole tile.
pub(crate) struct PackedPieces<'a> {
    pub tile: &'a Tile,
    /// The index of the stage's first element, `i32`.
    pub start: Operand,
    /// The thread among those of the warps.
    pub thread: Operand,
    /// The warps.
    pub warps: u32,
}

/// The pieces that a lane loads before it tests their elements.
const LOADED: u32 = 4;

impl PackedPieces<'_> {
    /// Whether any element of the warp's pieces is not finite. Warp-collective.
    pub(crate) fn has_non_finite(&self, b: &mut Builder) -> Operand {
        let threads = self.warps * WARP;
        let count = (self.tile.rows * self.tile.pieces()).div_ceil(threads);
        let each = [LOADED, 2, 1].into_iter().find(|each| count.is_multiple_of(*each)).unwrap_or(1);
        let first = self.index(b, self.thread);
        let full = b.var(zero(Ty::U32));
        b.for_(Operand::i32(0), count, each, |b, number| {
            for k in 0..each {
                let number = b.add(number, k);
                if self.is_even() {
                    // Swizzles repeat, so that the thread's pieces are equally far apart.
                    let by = b.mul(number, threads / self.tile.pieces() * self.tile.panel());
                    let index = b.add(first, by);
                    self.add_exponents(b, full, index);
                } else {
                    self.add_existing(b, full, number);
                }
            }
        });
        let signs = b.binary(Binary::And, full.into(), SIGNS);
        let finite = b.eq(signs, zero(Ty::U32));
        let finite = b.all(finite);
        b.unary(Unary::Not, finite)
    }

    /// Whether all threads have as many pieces, of rows with one swizzle.
    fn is_even(&self) -> bool {
        let (threads, pieces) = (self.warps * WARP, self.tile.pieces());
        threads.is_multiple_of(pieces * EIGHT as u32) && (self.tile.rows * pieces).is_multiple_of(threads)
    }

    /// Adds the warp's pieces of a number, if there are any: a lane without one takes the last of the warp, which is no other warp's.
    fn add_existing(&self, b: &mut Builder, full: Reg, number: Operand) {
        let total = self.tile.rows * self.tile.pieces();
        let before = b.mul(number, self.warps * WARP);
        let piece = b.add(self.thread, before);
        let lane = b.binary(Binary::And, piece, WARP as i32 - 1);
        let first = b.sub(piece, lane);
        let some = b.lt(first, total);
        b.if_(some, |b| {
            let piece = b.binary(Binary::Min, piece, total as i32 - 1);
            let index = self.index(b, piece);
            self.add_exponents(b, full, index);
        });
    }

    /// Marks the full exponents of a piece of each lane.
    fn add_exponents(&self, b: &mut Builder, full: Reg, index: Operand) {
        let mut all = Operand::Reg(full);
        for pair in b.load_matrix(self.tile.array, index, 4, false) {
            let own = full_exponents(b, self.tile.elem, pair);
            all = b.binary(Binary::Or, all, own);
        }
        b.assign(full, all);
    }

    /// The index at which the tile's piece of a number begins.
    fn index(&self, b: &mut Builder, number: Operand) -> Operand {
        let [row, piece] = b.div_rem(number, self.tile.pieces());
        let index = self.tile.piece_index(b, row, piece);
        b.add(index, self.start)
    }
}

/// The signs of both elements of a pair.
const SIGNS: Operand = Operand::Const(Ty::U32, Literal::Int(0x8000_8000));

/// A pair in which the sign of an element is set where its exponent is the largest, as that of an infinity or NaN is: one more in the last
/// place of such an exponent carries into the sign.
fn full_exponents(b: &mut Builder, elem: Elem, pair: Operand) -> Operand {
    let (exponents, last) = match elem {
        Elem::F16 => (0x7c00_7c00, 0x0400_0400),
        _ => (0x7f80_7f80, 0x0080_0080),
    };
    let exponents = b.binary(Binary::And, pair, exponents);
    b.add(exponents, last)
}

/// A number where it is finite, else 0.
fn finite_or_zero(b: &mut Builder, x: Operand) -> Operand {
    let nothing = b.sub(x, x);
    let is_finite = b.eq(nothing, zero(Ty::F32));
    b.select(is_finite, x, zero(Ty::F32))
}

//! Non-finite elements of tiles in shared memory: threads find infinities and NaNs, and replace them by 0.
//!
//! A matrix product multiplies every element of a tile, also by weights that are 0 where a row does not see a column, and 0·∞ is NaN. So a
//! tile of which rows see some columns only is looked through before its product.

use super::layout::Tile;
use crate::build::{Builder, zero};
use crate::tile::{Memory, Operand};
use oplus_dsl::Ty;

/// The pieces of a tile that a thread looks through: every `step`-th one from a number on.
pub(crate) struct Pieces<'a> {
    pub tile: &'a Tile,
    /// The number of the first piece, `i32`.
    pub first: Operand,
    /// The end of all numbers.
    pub count: u32,
    pub step: u32,
    /// The pieces that are loaded and summed at once, each sum by itself; `None` where one sum goes through all pieces.
    pub at_once: Option<u32>,
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
        b.for_(self.first, self.count, self.at_once.unwrap_or(1) * self.step, |b, number| {
            let all = match self.at_once {
                None => {
                    let piece = self.load(b, number);
                    add_zeros(b, zeros.into(), &piece)
                }
                Some(at_once) => self.zeros_apart(b, zeros.into(), number, at_once),
            };
            b.assign(zeros, all);
        });
        zeros.into()
    }

    /// Adds the sums of several pieces' elements times 0: each sum waits for its piece and for itself.
    fn zeros_apart(&self, b: &mut Builder, all: Operand, number: Operand, at_once: u32) -> Operand {
        let mut loaded = vec![];
        for k in 0..at_once {
            let number = b.add(number, k * self.step);
            loaded.push(self.load(b, number));
        }
        let sums: Vec<Operand> = loaded.iter().map(|piece| add_zeros(b, zero(Ty::F32), piece)).collect();
        sums.into_iter().fold(all, |all, sum| b.add(all, sum))
    }

    fn load(&self, b: &mut Builder, number: Operand) -> Loaded {
        let index = (self.index)(b, number);
        let elements = b.load(Memory::Shared(self.tile.array), index, self.tile.piece(), None, zero(Ty::F32));
        Loaded { index, elements }
    }
}

/// Adds each element times 0 to a sum.
fn add_zeros(b: &mut Builder, sum: Operand, piece: &Loaded) -> Operand {
    piece.elements.iter().fold(sum, |sum, x| b.fma(*x, zero(Ty::F32), sum))
}

/// A number where it is finite, else 0.
fn finite_or_zero(b: &mut Builder, x: Operand) -> Operand {
    let nothing = b.sub(x, x);
    let is_finite = b.eq(nothing, zero(Ty::F32));
    b.select(is_finite, x, zero(Ty::F32))
}

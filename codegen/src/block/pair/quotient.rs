//! Quotients of a row's elements by a number that all of them share, and factors of rows that come late.
//!
//! A sum that is multiplied with a factor of its row and then divided takes two products: with the factor and the scale of the divisor,
//! and with the reciprocal of the scaled divisor.

use super::{Coordinates, Evaluate, Values};
use crate::build::{Builder, f32};
use crate::tile::{Expr, Operand};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Unary, Value};

/// A divisor is multiplied with this if it is smaller than its reciprocal, and divided by it if it is larger than it: 2⁶⁴. The
/// reciprocal of the scaled divisor is then neither infinite nor denormal.
const LARGE: f64 = (1_u128 << 64) as f64;

/// A number that divides all elements of a row.
#[derive(Clone, Copy)]
pub(super) struct Divisor {
    /// The scale of both sides of the quotient, a power of two.
    scale: Operand,
    /// The product of the scale and the late factor of the row.
    scaled_factor: Option<Operand>,
    /// The reciprocal of the scaled divisor.
    reciprocal: Operand,
}

impl Values<'_> {
    /// Sets what the sums of a row have yet to be multiplied with.
    pub(crate) fn set_late_factor(&mut self, row: u32, factor: Operand) {
        self.late_factors.insert(row, factor);
    }

    /// Sets the value of a tuple's field at coordinates, which is multiplied with the late factor of its row, if it has one, where it is
    /// used.
    pub(crate) fn set_early_state(&mut self, state: (Value, u32), coordinates: Coordinates, value: Operand) {
        for node in self.nodes_of(state) {
            let own = self.own(node, coordinates);
            if self.late_factor(own).is_some() {
                self.early_states.insert((node, own), value);
            } else {
                self.set(node, coordinates, value);
            }
        }
    }

    /// The factor that sums at coordinates have yet to be multiplied with.
    pub(crate) fn late_factor(&self, coordinates: Coordinates) -> Option<Operand> {
        self.late_factors.get(&coordinates.row?).copied()
    }

    /// A state that has a late factor, multiplied with it.
    pub(super) fn late_state(&mut self, b: &mut Builder, value: Value, coordinates: Coordinates) -> Option<Operand> {
        let early = *self.early_states.get(&(value, coordinates))?;
        Some(b.mul(early, self.late_factor(coordinates)?))
    }

    /// Whether all elements of a row share a value.
    pub(super) fn is_shared(&self, value: Value, coordinates: Coordinates) -> bool {
        coordinates.inner.is_some() && self.own(value, coordinates).inner.is_none()
    }

    /// x / y by the reciprocal of y.
    pub(super) fn quotient(&mut self, b: &mut Builder, x: Value, y: Value, coordinates: Coordinates) -> Operand {
        let Divisor { scale, scaled_factor, reciprocal } = self.divisor(b, y, coordinates);
        let early = self.early_states.get(&(x, self.own(x, coordinates))).copied();
        let x = match early.zip(scaled_factor) {
            Some((early, factor)) => b.mul(early, factor),
            None => {
                let x = self.value(b, x, coordinates);
                b.mul(x, scale)
            }
        };
        b.mul(x, reciprocal)
    }

    /// A divisor, with its scale and reciprocal.
    fn divisor(&mut self, b: &mut Builder, value: Value, coordinates: Coordinates) -> Divisor {
        let own = Coordinates { row: coordinates.row, ..self.own(value, coordinates) };
        if let Some(known) = self.divisors.get(&(value, own)) {
            return *known;
        }
        let x = self.value(b, value, coordinates);
        let size = b.unary(Unary::Abs, x);
        let is_small = b.lt(size, f32(1.0 / LARGE));
        let is_large = b.binary(Binary::Gt, size, f32(LARGE));
        let scale = b.select(is_large, f32(1.0 / LARGE), f32(1.0));
        let scale = b.select(is_small, f32(LARGE), scale);
        let scaled = b.mul(x, scale);
        // Factors are at most one: their products with the scale are finite, and as exact as they are.
        let scaled_factor = self.late_factor(coordinates).map(|factor| b.mul(factor, scale));
        let divisor = Divisor { scale, scaled_factor, reciprocal: reciprocal(b, scaled) };
        self.divisors.insert((value, own), divisor);
        divisor
    }
}

/// 1/x, rounded to nearest, of a number that is zero or neither small nor large: what the assembler makes of a division, without its
/// branch for the others.
fn reciprocal(b: &mut Builder, x: Operand) -> Operand {
    let near = b.let_(Ty::F32, Expr::RecipFast(x));
    let negative = b.unary(Unary::Neg, x);
    let error = b.fma(negative, near, f32(1.0));
    let nearer = b.fma(near, error, near);
    // The error of a zero's or an infinity's reciprocal is no number.
    let has_error = b.eq(error, error);
    b.select(has_error, nearer, near)
}

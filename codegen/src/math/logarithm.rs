//! Logarithms of `f32` and `f64`: one form, with the constants and the polynomial of each type.

use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

use super::number;
use crate::build::Builder;
use crate::tile::Operand;

/// A logarithm of one type of floats.
pub(super) struct Logarithm {
    pub ty: Ty,
    /// The least normal number. Smaller ones are first multiplied by `scale`, which adds `-shift` to their exponent.
    pub least_normal: f64,
    pub scale: f64,
    pub shift: f64,
    /// The bits of the number 4, in the integers of this size.
    pub four: Operand,
    /// The bits of the exponent of x, so that x divided by that power of two lies in 2/3 … 4/3.
    pub exponent_bits: fn(&mut Builder, Operand) -> Operand,
    /// x divided by the power of two of such bits.
    pub scale_down: fn(&mut Builder, Operand, Operand) -> Operand,
    /// e·ln 2 + ln(1 + m), where e is the number in the exponent bits plus a shift: takes the bits, the shift and m.
    pub sum: fn(&mut Builder, Operand, Operand, Operand) -> Operand,
}

impl Logarithm {
    fn number(&self, x: f64) -> Operand {
        number(self.ty, x)
    }

    /// ln x: x = 2^e·(1 + m) with 1 + m in 2/3 … 4/3.
    pub(super) fn ln(&self, b: &mut Builder, x: Operand) -> Operand {
        let tiny = b.lt(x, self.number(self.least_normal));
        let scaled = b.mul(x, self.number(self.scale));
        let normal = b.select(tiny, scaled, x);
        let shift = b.select(tiny, self.number(self.shift), self.number(0.0));
        let exponent = (self.exponent_bits)(b, normal);
        let m = (self.scale_down)(b, normal, exponent);
        let m = b.sub(m, self.number(1.0));
        let value = (self.sum)(b, exponent, shift, m);
        self.with_limits(b, x, 0.0, value)
    }

    /// ln(1 + x): 1 + x = 2^e·(1 + m), m = x·2^−e + (2^−e − 1), so that x is not rounded where e = 0.
    pub(super) fn log1p(&self, b: &mut Builder, x: Operand) -> Operand {
        let sum = b.add(x, self.number(1.0));
        let exponent = (self.exponent_bits)(b, sum);
        // 4·2^−e, because 2^−e itself is not normal for the largest x.
        let four = b.sub(self.four, exponent);
        let four = b.bits(self.ty, four);
        let offset = b.fma(four, self.number(0.25), self.number(-1.0));
        let m = (self.scale_down)(b, x, exponent);
        let m = b.add(m, offset);
        let value = (self.sum)(b, exponent, self.number(0.0), m);
        self.with_limits(b, x, -1.0, value)
    }

    /// `value` where low < x < ∞; −∞ at low, NaN below, x where it is +∞ or NaN.
    fn with_limits(&self, b: &mut Builder, x: Operand, low: f64, value: Operand) -> Operand {
        let above = b.binary(Binary::Gt, x, self.number(low));
        let finite = b.lt(x, self.number(f64::INFINITY));
        let inside = b.and(above, finite);
        let below = b.lt(x, self.number(low));
        let limit = b.select(below, self.number(f64::NAN), x);
        let pole = b.eq(x, self.number(low));
        let limit = b.select(pole, self.number(f64::NEG_INFINITY), limit);
        b.select(inside, value, limit)
    }
}

//! The remainder of floats, exact.
//!
//! r starts as |x| and is reduced to r − q·t until it is below d = |y|, with t = d·2ᵏ such that q = ⌊r/t⌋ has fewer
//! bits than a mantissa: then q·t − r is a number, and the fused multiply-add makes no error. The quotient's own
//! rounding may make q one too large; r is then negative and t is added back.

use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Literal, Unary};

use super::number;
use crate::build::Builder;
use crate::tile::Operand;

/// The constants by which the types differ.
struct Format {
    ty: Ty,
    /// The integer type of the same size.
    bits: Ty,
    /// Bits of the mantissa that are stored.
    mantissa: i64,
    /// The number that is added to an exponent when it is stored.
    bias: i64,
    /// The bit of the sign.
    sign: i64,
    smallest: f64,
}

const SINGLE: Format = Format {
    ty: Ty::F32,
    bits: Ty::I32,
    mantissa: 23,
    bias: 127,
    sign: i32::MIN as i64,
    smallest: f32::MIN_POSITIVE as f64,
};

const DOUBLE: Format =
    Format { ty: Ty::F64, bits: Ty::I64, mantissa: 52, bias: 1023, sign: i64::MIN, smallest: f64::MIN_POSITIVE };

impl Format {
    fn int(&self, x: i64) -> Operand {
        Operand::Const(self.bits, Literal::Int(x))
    }

    fn float(&self, x: f64) -> Operand {
        number(self.ty, x)
    }

    /// The stored exponent of a positive number.
    fn exponent(&self, b: &mut Builder, x: Operand) -> Operand {
        let bits = b.bits(self.bits, x);
        b.binary(Binary::Shr, bits, self.int(self.mantissa))
    }

    /// 2ⁿ for 0 ≤ n ≤ bias.
    fn power_of_two(&self, b: &mut Builder, n: Operand) -> Operand {
        let biased = b.add(n, self.int(self.bias));
        let bits = b.binary(Binary::Shl, biased, self.int(self.mantissa));
        b.bits(self.ty, bits)
    }

    /// x·2ⁿ for 0 ≤ n ≤ 2·bias, in two halves because 2ⁿ itself may be too large.
    fn scale(&self, b: &mut Builder, x: Operand, n: Operand) -> Operand {
        let half = b.binary(Binary::Shr, n, self.int(1));
        let rest = b.sub(n, half);
        let (half, rest) = (self.power_of_two(b, half), self.power_of_two(b, rest));
        let x = b.mul(x, half);
        b.mul(x, rest)
    }

    /// t = d·2ᵏ for which ⌊r/t⌋ has fewer bits than a mantissa. A d below the normal numbers has no exponent of its
    /// own: as long as r is much larger, d·2^(mantissa + 1) stands for it.
    fn multiple(&self, b: &mut Builder, r: Operand, d: Operand) -> Operand {
        let tiny = b.lt(d, self.float(self.smallest));
        let normal = b.mul(d, self.float(2f64.powi(self.mantissa as i32 + 1)));
        let far = b.ge(r, normal);
        let scaled = b.and(tiny, far);
        let base = b.select(scaled, normal, d);
        let (above, below) = (self.exponent(b, r), self.exponent(b, base));
        let distance = b.sub(above, below);
        let excess = b.sub(distance, self.int(self.mantissa - 3));
        let shift = b.binary(Binary::Max, excess, self.int(0));
        self.scale(b, base, shift)
    }

    /// `size` with the sign of x.
    fn with_sign_of(&self, b: &mut Builder, x: Operand, size: Operand) -> Operand {
        let (x, size) = (b.bits(self.bits, x), b.bits(self.bits, size));
        let sign = b.binary(Binary::And, x, self.int(self.sign));
        let bits = b.binary(Binary::Or, size, sign);
        b.bits(self.ty, bits)
    }
}

/// x − y·trunc(x/y), exactly; NaN for an infinite x, y = 0 or a NaN.
pub(super) fn remainder(b: &mut Builder, x: Operand, y: Operand) -> Operand {
    let format = if b.ty(x) == Ty::F64 { DOUBLE } else { SINGLE };
    let (size, divisor) = (b.unary(Unary::Abs, x), b.unary(Unary::Abs, y));
    let finite = b.lt(size, format.float(f64::INFINITY));
    let positive = b.binary(Binary::Gt, divisor, format.float(0.0));
    let defined = b.and(finite, positive);
    let size = b.select(defined, size, format.float(0.0));
    let d = b.select(defined, divisor, format.float(1.0));
    let r = b.var(size);
    b.loop_(|b| {
        let done = b.lt(r.into(), d);
        b.break_if(done);
        let t = format.multiple(b, r.into(), d);
        let q = b.binary(Binary::Div, r.into(), t);
        let q = b.unary(Unary::Floor, q);
        let minus = b.unary(Unary::Neg, q);
        let rest = b.fma(minus, t, r.into());
        let back = b.add(rest, t);
        let negative = b.lt(rest, format.float(0.0));
        let rest = b.select(negative, back, rest);
        b.assign(r, rest);
    });
    let signed = format.with_sign_of(b, x, r.into());
    b.select(defined, signed, format.float(f64::NAN))
}

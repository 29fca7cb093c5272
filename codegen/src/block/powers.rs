//! Powers of two near numbers of `f32`, found by their bits: to scale by one and to undo it are exact.

use crate::build::{Builder, f32, zero};
use crate::tile::Operand;
use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Unary};

/// The bits of an exponent.
const EXPONENT: i32 = 0x7f80_0000;
/// The bits of 1. The bits of a power of two and the bits of its inverse add up to twice these.
const ONE: i32 = 0x3f80_0000;
/// The powers' exponents are at most this, and at least its negative: the product of two of them is no infinity.
const MOST_EXPONENT: i32 = 60;
/// The greatest of the powers.
pub(crate) const MOST: f64 = (1u64 << MOST_EXPONENT) as f64;

/// The bits of a pair of `f16` of which one is set where a number is 2 or more; and those where a number is 2⁻⁷ or more.
pub(crate) const LARGE: i32 = 0x4000_4000;
pub(crate) const NOT_SMALL: i32 = 0x6000_6000;

/// The greatest power of two that is at most |x|, within 2⁻⁶⁰ and 2⁶⁰.
pub(crate) fn at_most(b: &mut Builder, x: Operand) -> Operand {
    let bits = b.bits(Ty::I32, x);
    let exponent = b.binary(Binary::And, bits, EXPONENT);
    let least = b.binary(Binary::Max, exponent, ONE - (MOST_EXPONENT << 23));
    let power = b.binary(Binary::Min, least, ONE + (MOST_EXPONENT << 23));
    b.bits(Ty::F32, power)
}

/// The inverse of a power of two.
pub(crate) fn inverse(b: &mut Builder, power: Operand) -> Operand {
    let bits = b.bits(Ty::I32, power);
    let bits = b.sub(Operand::i32(2 * ONE), bits);
    b.bits(Ty::F32, bits)
}

/// The largest magnitude of those numbers that are finite, or 0: an infinity in one row leaves other rows their bits.
pub(crate) fn largest_finite(b: &mut Builder, numbers: &[Operand]) -> Operand {
    numbers.iter().fold(zero(Ty::F32), |largest, x| {
        let magnitude = b.unary(Unary::Abs, *x);
        let is_finite = b.binary(Binary::Le, magnitude, f32(f64::from(f32::MAX)));
        let finite = b.select(is_finite, magnitude, zero(Ty::F32));
        b.binary(Binary::Max, largest, finite)
    })
}

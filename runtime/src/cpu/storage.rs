//! Elements as tensors store them, and the values they stand for.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::simd::simd;
use super::values::Scalar;

/// A type of elements in memory.
pub(super) trait Stored: Copy + Send + Sync + 'static {
    /// The type of the value it is loaded to.
    type Value: Scalar;
    /// The value of an element.
    fn widen(self) -> Self::Value;
    /// The element nearest to a value.
    fn narrow(value: Self::Value) -> Self;
    /// The values of a run of elements.
    fn widen_all(dst: &mut [Self::Value], src: &[Self]);
    /// The elements nearest to a run of values.
    fn narrow_all(dst: &mut [Self], src: &[Self::Value]);
    /// The elements themselves, where they are values already.
    fn as_values(src: &[Self]) -> Option<&[Self::Value]>;
}

macro_rules! stored_as_it_is {
    ($($t:ty),*) => {$(
        impl Stored for $t {
            type Value = $t;

            #[inline(always)]
            fn widen(self) -> $t {
                self
            }

            #[inline(always)]
            fn narrow(value: $t) -> $t {
                value
            }

            fn widen_all(dst: &mut [$t], src: &[$t]) {
                dst.copy_from_slice(src);
            }

            fn narrow_all(dst: &mut [$t], src: &[$t]) {
                dst.copy_from_slice(src);
            }

            fn as_values(src: &[$t]) -> Option<&[$t]> {
                Some(src)
            }
        }
    )*};
}

stored_as_it_is!(f64, f32, i32, i64, u32, u64);

/// A bool: any byte but 0 is true.
impl Stored for u8 {
    type Value = bool;

    #[inline(always)]
    fn widen(self) -> bool {
        self != 0
    }

    #[inline(always)]
    fn narrow(value: bool) -> u8 {
        u8::from(value)
    }

    fn widen_all(dst: &mut [bool], src: &[u8]) {
        dst.iter_mut().zip(src).for_each(|(d, s)| *d = s.widen());
    }

    fn narrow_all(dst: &mut [u8], src: &[bool]) {
        dst.iter_mut().zip(src).for_each(|(d, s)| *d = u8::from(*s));
    }

    fn as_values(_: &[u8]) -> Option<&[bool]> {
        None
    }
}

impl Stored for bf16 {
    type Value = f32;

    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    #[inline(always)]
    fn narrow(value: f32) -> bf16 {
        bf16::from_bits((bf16_bits(value) >> 16) as u16)
    }

    fn widen_all(dst: &mut [f32], src: &[bf16]) {
        simd(
            #[inline(always)]
            || dst.iter_mut().zip(src).for_each(|(d, s)| *d = s.widen()),
        );
    }

    fn narrow_all(dst: &mut [bf16], src: &[f32]) {
        simd(
            #[inline(always)]
            || dst.iter_mut().zip(src).for_each(|(d, s)| *d = bf16::narrow(*s)),
        );
    }

    fn as_values(_: &[bf16]) -> Option<&[f32]> {
        None
    }
}

impl Stored for f16 {
    type Value = f32;

    fn widen(self) -> f32 {
        self.to_f32()
    }

    fn narrow(value: f32) -> f16 {
        f16::from_f32(value)
    }

    fn widen_all(dst: &mut [f32], src: &[f16]) {
        src.convert_to_f32_slice(dst);
    }

    fn narrow_all(dst: &mut [f16], src: &[f32]) {
        dst.convert_from_f32_slice(src);
    }

    fn as_values(_: &[f16]) -> Option<&[f32]> {
        None
    }
}

/// The nearest bfloat16, ties to even, in the upper half of the bits; NaN stays NaN.
#[inline(always)]
fn bf16_bits(x: f32) -> u32 {
    let bits = x.to_bits();
    let nearest = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
    if x.is_nan() { bits | 0x0040_0000 } else { nearest }
}

/// The nearest bfloat16 as an `f32`.
#[inline(always)]
pub(super) fn round_bf16(x: f32) -> f32 {
    f32::from_bits(bf16_bits(x) & 0xffff_0000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bfloat16_rounds_as_the_half_crate_does() {
        for bits in (0..u32::MAX).step_by(1009).chain([0x7f7f_ffff, 0x7f80_0000, 0x7f80_0001, 0xffc0_0000, 0x3f80_8000])
        {
            let x = f32::from_bits(bits);
            assert_eq!(bf16::narrow(x).to_bits(), bf16::from_f32(x).to_bits(), "{bits:#x}");
            let rounded = round_bf16(x);
            assert!(rounded == bf16::from_f32(x).to_f32() || x.is_nan() && rounded.is_nan(), "{bits:#x}");
        }
    }
}

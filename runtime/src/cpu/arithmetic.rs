//! Arithmetic of scalars in their storage type, with the numeric corner cases of the program IR.

use super::math;
use super::values::Scalar;

/// Floating-point types.
pub(super) trait Float: Scalar + PartialOrd {
    fn neg(self) -> Self;
    fn abs(self) -> Self;
    fn sign(self) -> Self;
    fn exp(self) -> Self;
    fn exp2(self) -> Self;
    fn ln(self) -> Self;
    fn log1p(self) -> Self;
    fn sqrt(self) -> Self;
    fn recip(self) -> Self;
    fn tanh(self) -> Self;
    fn sigmoid(self) -> Self;
    fn softplus(self) -> Self;
    fn silu(self) -> Self;
    fn relu(self) -> Self;
    fn sin(self) -> Self;
    fn cos(self) -> Self;
    fn floor(self) -> Self;
    fn powi(self, n: i32) -> Self;
    fn add(self, r: Self) -> Self;
    fn sub(self, r: Self) -> Self;
    fn mul(self, r: Self) -> Self;
    fn div(self, r: Self) -> Self;
    fn rem(self, r: Self) -> Self;
    fn max(self, r: Self) -> Self;
    fn min(self, r: Self) -> Self;
}

/// Integer types; every operation wraps.
pub(super) trait Integer: Scalar + Ord {
    fn neg(self) -> Self;
    fn not(self) -> Self;
    fn abs(self) -> Self;
    fn sign(self) -> Self;
    fn add(self, r: Self) -> Self;
    fn sub(self, r: Self) -> Self;
    fn mul(self, r: Self) -> Self;
    fn div(self, r: Self) -> Self;
    fn rem(self, r: Self) -> Self;
    fn and(self, r: Self) -> Self;
    fn or(self, r: Self) -> Self;
    fn xor(self, r: Self) -> Self;
    fn shl(self, r: Self) -> Self;
    fn shr(self, r: Self) -> Self;
}

/// Functions whose vector form is ours for f32 and the standard library's for f64.
mod double {
    pub(super) fn sigmoid(x: f64) -> f64 {
        let e = (-x.abs()).exp();
        (if x < 0.0 { e } else { 1.0 }) / (1.0 + e)
    }

    pub(super) fn softplus(x: f64) -> f64 {
        x.max(0.0) + (-x.abs()).exp().ln_1p()
    }

    pub(super) fn silu(x: f64) -> f64 {
        if x == f64::NEG_INFINITY { -0.0 } else { x * sigmoid(x) }
    }
}

macro_rules! float {
    ($t:ty, $exp:path, $exp2:path, $ln:path, $log1p:path, $tanh:path, $sigmoid:path, $softplus:path, $silu:path) => {
        impl Float for $t {
            float!(@library exp $exp, exp2 $exp2, ln $ln, log1p $log1p, tanh $tanh);
            float!(@library sigmoid $sigmoid, softplus $softplus, silu $silu);
            float!(@library abs <$t>::abs, sqrt <$t>::sqrt, sin <$t>::sin, cos <$t>::cos, floor <$t>::floor);
            float!(@operator add +, sub -, mul *, div /, rem %);

            #[inline(always)]
            fn neg(self) -> Self {
                -self
            }

            #[inline(always)]
            fn sign(self) -> Self {
                if self > 0.0 { 1.0 } else if self < 0.0 { -1.0 } else { self }
            }

            #[inline(always)]
            fn recip(self) -> Self {
                1.0 / self
            }

            #[inline(always)]
            fn relu(self) -> Self {
                if self > 0.0 { self } else { 0.0 }
            }

            #[inline(always)]
            fn powi(self, n: i32) -> Self {
                let (mut result, mut square, mut left) = (1.0, self, n.unsigned_abs());
                while left > 0 {
                    if left & 1 == 1 {
                        result *= square;
                    }
                    square *= square;
                    left >>= 1;
                }
                if n < 0 { 1.0 / result } else { result }
            }

            #[inline(always)]
            fn max(self, r: Self) -> Self {
                let other = if self > r || r.is_nan() { self } else { r };
                if self == r { <$t>::from_bits(self.to_bits() & r.to_bits()) } else { other }
            }

            #[inline(always)]
            fn min(self, r: Self) -> Self {
                let other = if self < r || r.is_nan() { self } else { r };
                if self == r { <$t>::from_bits(self.to_bits() | r.to_bits()) } else { other }
            }
        }
    };
    (@library $($name:ident $f:expr),*) => {$(
        #[inline(always)]
        fn $name(self) -> Self {
            $f(self)
        }
    )*};
    (@operator $($name:ident $sign:tt),*) => {$(
        #[inline(always)]
        fn $name(self, r: Self) -> Self {
            self $sign r
        }
    )*};
}

float!(f32, math::exp, math::exp2, math::ln, math::log1p, math::tanh, math::sigmoid, math::softplus, math::silu);
float!(f64, f64::exp, f64::exp2, f64::ln, f64::ln_1p, f64::tanh, double::sigmoid, double::softplus, double::silu);

macro_rules! integer {
    ($t:ty, $abs:expr, $sign:expr) => {
        impl Integer for $t {
            integer!(@wrapping $t, add wrapping_add, sub wrapping_sub, mul wrapping_mul);
            integer!(@divide $t, div wrapping_div, rem wrapping_rem);
            integer!(@bits and &, or |, xor ^);
            integer!(@shift $t, shl <<, shr >>);

            #[inline(always)]
            fn neg(self) -> Self {
                self.wrapping_neg()
            }

            #[inline(always)]
            fn not(self) -> Self {
                !self
            }

            #[inline(always)]
            fn abs(self) -> Self {
                $abs(self)
            }

            #[inline(always)]
            fn sign(self) -> Self {
                $sign(self)
            }
        }
    };
    (@wrapping $t:ty, $($name:ident $f:ident),*) => {$(
        #[inline(always)]
        fn $name(self, r: Self) -> Self {
            self.$f(r)
        }
    )*};
    (@divide $t:ty, $($name:ident $f:ident),*) => {$(
        #[inline(always)]
        fn $name(self, r: Self) -> Self {
            if r == 0 { 0 } else { self.$f(r) }
        }
    )*};
    (@bits $($name:ident $sign:tt),*) => {$(
        #[inline(always)]
        fn $name(self, r: Self) -> Self {
            self $sign r
        }
    )*};
    (@shift $t:ty, $($name:ident $sign:tt),*) => {$(
        #[inline(always)]
        fn $name(self, r: Self) -> Self {
            if (0..<$t>::BITS as $t).contains(&r) { self $sign r } else { 0 }
        }
    )*};
}

integer!(i32, i32::wrapping_abs, i32::signum);
integer!(i64, i64::wrapping_abs, i64::signum);
integer!(u32, |x| x, |x: u32| x.min(1));
integer!(u64, |x| x, |x: u64| x.min(1));

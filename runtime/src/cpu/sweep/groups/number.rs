//! The arithmetic of instructions on registers.

use oplus_dsl::ir::{Binary, Unary};
use pulp::Simd;

use super::sums;
use crate::cpu::arithmetic::Float;
use crate::cpu::kernel::program::Term;
use crate::cpu::operations::{float_binary, float_unary};
use crate::cpu::turn::Rows;
use crate::cpu::values::Scalar;

/// A register: one number for each lane of a group.
pub(super) type Register<T, const W: usize> = [T; W];

/// A type of numbers whose kernels are stepped in groups.
pub(super) trait Number: Scalar + PartialOrd {
    /// Whether its groups are compiled for vectors of 512 bits.
    const IS_WIDE: bool;

    /// The number of a truth value.
    fn flag(is: bool) -> Self;
    /// Computes an operation for a register.
    fn unary<const W: usize>(op: Unary, dst: &mut Register<Self, W>, a: &Register<Self, W>);
    /// Computes an operation for a register.
    fn binary<const W: usize>(op: Binary, dst: &mut Register<Self, W>, a: &Register<Self, W>, b: &Register<Self, W>);

    /// Adds up terms in one of all registers, one after the other, each operation rounded; `factors` are the registers of their factors.
    fn sum<S: Simd, const W: usize>(
        simd: S,
        all: &mut [Register<Self, W>],
        dst: usize,
        terms: &[Term],
        factors: &[[u32; 2]],
    );

    /// See [`Rows::turn`].
    fn turn(rows: &Rows<'_>, dst: &mut [Self], src: &[Self]);
    /// See [`Rows::turn_back`].
    fn turn_back(rows: &Rows<'_>, dst: &mut [Self], src: &[Self]);

    /// The truth value of a number.
    #[inline(always)]
    fn is_set(self) -> bool {
        self != Self::default()
    }
}

macro_rules! number {
    ($($t:ty: $is_wide:literal, $sum:path, $turn:path, $turn_back:path;)*) => {$(
        impl Number for $t {
            const IS_WIDE: bool = $is_wide;

            #[inline(always)]
            fn flag(is: bool) -> Self {
                if is { 1.0 } else { 0.0 }
            }

            #[inline(always)]
            fn unary<const W: usize>(op: Unary, dst: &mut Register<Self, W>, a: &Register<Self, W>) {
                float_unary!(op, one(dst, a) over $t);
            }

            #[inline(always)]
            fn binary<const W: usize>(op: Binary, dst: &mut Register<Self, W>, a: &Register<Self, W>, b: &Register<Self, W>) {
                float_binary!(op, two(dst, a, b) over $t);
            }

            #[inline(always)]
            fn sum<S: Simd, const W: usize>(
                simd: S,
                all: &mut [Register<Self, W>],
                dst: usize,
                terms: &[Term],
                factors: &[[u32; 2]],
            ) {
                $sum(simd, all, dst, terms, factors);
            }

            fn turn(rows: &Rows<'_>, dst: &mut [Self], src: &[Self]) {
                $turn(rows, dst, src);
            }

            fn turn_back(rows: &Rows<'_>, dst: &mut [Self], src: &[Self]) {
                $turn_back(rows, dst, src);
            }
        }
    )*};
}

number!(
    f32: true, sums::single, Rows::turn_singles, Rows::turn_singles_back;
    f64: false, sums::double, Rows::turn, Rows::turn_back;
);

#[inline(always)]
pub(super) fn one<T: Number, const W: usize>(dst: &mut Register<T, W>, a: &Register<T, W>, f: impl Fn(T) -> T) {
    dst.iter_mut().zip(a).for_each(
        #[inline(always)]
        |(dst, a)| *dst = f(*a),
    );
}

#[inline(always)]
pub(super) fn two<T: Number, const W: usize>(
    dst: &mut Register<T, W>,
    a: &Register<T, W>,
    b: &Register<T, W>,
    f: impl Fn(T, T) -> T,
) {
    dst.iter_mut().zip(a).zip(b).for_each(
        #[inline(always)]
        |((dst, a), b)| *dst = f(*a, *b),
    );
}

/// An operation of truth values.
#[inline(always)]
pub(super) fn logic<T: Number, const W: usize>(
    op: Binary,
    dst: &mut Register<T, W>,
    a: &Register<T, W>,
    b: &Register<T, W>,
) {
    two(
        dst,
        a,
        b,
        #[inline(always)]
        |l, r| {
            let (l, r) = (l.is_set(), r.is_set());
            T::flag(match op {
                Binary::And => l & r,
                Binary::Or => l | r,
                Binary::Eq => l == r,
                _ => l ^ r,
            })
        },
    );
}

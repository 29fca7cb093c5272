//! The arithmetic of instructions on registers.

use oplus_dsl::ir::{Binary, Unary};
use pulp::Simd;

use super::file::Known;
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
    /// The number of a truth value.
    fn flag(is: bool) -> Self;
    /// Computes an operation for a register.
    fn unary<const W: usize>(op: Unary, dst: &mut Register<Self, W>, a: &Register<Self, W>);
    /// Computes an operation for a register.
    fn binary<const W: usize>(op: Binary, dst: &mut Register<Self, W>, a: &Register<Self, W>, b: &Register<Self, W>);

    /// Adds up terms, one after the other, each operation rounded.
    fn sum<S: Simd, const W: usize>(simd: S, dst: &mut Register<Self, W>, terms: &[Term], known: Known<'_, Self, W>);

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
    ($($t:ty: $sum:path, $turn:path, $turn_back:path;)*) => {$(
        impl Number for $t {
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
            fn sum<S: Simd, const W: usize>(simd: S, dst: &mut Register<Self, W>, terms: &[Term], known: Known<'_, Self, W>) {
                $sum(simd, dst, terms, known);
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
    f32: sums::single, Rows::turn_singles, Rows::turn_singles_back;
    f64: sums::double, Rows::turn, Rows::turn_back;
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

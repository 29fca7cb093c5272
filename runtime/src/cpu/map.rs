//! Maps over blocks of values: one loop nest per operation, compiled for the widest vectors.
//!
//! The result is dense; along the innermost loop an operand is either dense too or one value for the whole run.

use half::f16;
use oplus_dsl::Elem;
use oplus_dsl::ir::{Binary, Unary};

use super::CpuError;
use super::arithmetic::{Float, Integer};
use super::loops::Loops;
use super::operations::{compare, float_binary, float_unary, integer_binary, integer_unary, per_operation};
use super::simd::simd;
use super::storage::round_bf16;
use super::values::{Scalar, Slice, Values, with_type};

/// op a, for a result of the operand's type.
pub(super) fn unary(op: Unary, loops: &Loops<2>, dst: &mut Values, a: Slice<'_>) -> Result<(), CpuError> {
    let n = loops.len();
    match a {
        Slice::F32(a) => float_unary(op, loops, dst.room(n)?, a),
        Slice::F64(a) => float_unary(op, loops, dst.room(n)?, a),
        Slice::I32(a) => integer_unary(op, loops, dst.room(n)?, a),
        Slice::I64(a) => integer_unary(op, loops, dst.room(n)?, a),
        Slice::U32(a) => integer_unary(op, loops, dst.room(n)?, a),
        Slice::U64(a) => integer_unary(op, loops, dst.room(n)?, a),
        Slice::Bool(a) => each(
            loops,
            dst.room(n)?,
            a,
            #[inline(always)]
            |x: bool| !x,
        ),
    }
    Ok(())
}

/// l op r; comparisons give bools.
pub(super) fn binary(
    op: Binary,
    loops: &Loops<3>,
    dst: &mut Values,
    l: Slice<'_>,
    r: Slice<'_>,
) -> Result<(), CpuError> {
    match (l, op.is_comparison()) {
        (Slice::F32(l), false) => float_binary(op, loops, dst, l, r.of()),
        (Slice::F64(l), false) => float_binary(op, loops, dst, l, r.of()),
        (Slice::I32(l), false) => integer_binary(op, loops, dst, l, r.of()),
        (Slice::I64(l), false) => integer_binary(op, loops, dst, l, r.of()),
        (Slice::U32(l), false) => integer_binary(op, loops, dst, l, r.of()),
        (Slice::U64(l), false) => integer_binary(op, loops, dst, l, r.of()),
        (Slice::Bool(l), _) => bool_binary(op, loops, dst, l, r.of()),
        (Slice::F32(l), true) => compare(op, loops, dst, l, r.of()),
        (Slice::F64(l), true) => compare(op, loops, dst, l, r.of()),
        (Slice::I32(l), true) => compare(op, loops, dst, l, r.of()),
        (Slice::I64(l), true) => compare(op, loops, dst, l, r.of()),
        (Slice::U32(l), true) => compare(op, loops, dst, l, r.of()),
        (Slice::U64(l), true) => compare(op, loops, dst, l, r.of()),
    }
}

/// `if c { a } else { b }`.
pub(super) fn select(
    loops: &Loops<4>,
    dst: &mut Values,
    c: Slice<'_>,
    a: Slice<'_>,
    b: Slice<'_>,
) -> Result<(), CpuError> {
    let n = loops.len();
    with_type!(dst.ty(), T => select_typed::<T>(loops, dst.room(n)?, c.of(), a.of(), b.of()));
    Ok(())
}

/// Copies values, broadcast along axes of stride 0.
pub(super) fn copy(loops: &Loops<2>, dst: &mut Values, a: Slice<'_>) -> Result<(), CpuError> {
    let n = loops.len();
    with_type!(dst.ty(), T => each(loops, dst.room::<T>(n)?, a.of::<T>(), #[inline(always)] |x| x));
    Ok(())
}

/// Whether all elements of a block are finite.
pub(super) fn is_finite<T: Scalar>(loops: &Loops<1>, all: &[T]) -> bool {
    let mut is_finite = true;
    simd(
        #[inline(always)]
        || {
            loops.each(
                #[inline(always)]
                |[i]| {
                    for x in &all[i..][..loops.run] {
                        is_finite &= x.is_finite();
                    }
                },
            );
        },
    );
    is_finite
}

/// Sets the flags that the offsets name, and clears the others.
pub(super) fn starts(flags: &mut [bool], offsets: Slice<'_>) {
    flags.fill(false);
    let mut set = |offset: Option<usize>| {
        if let Some(flag) = offset.and_then(|i| flags.get_mut(i)) {
            *flag = true;
        }
    };
    match offsets {
        Slice::I32(all) => all.iter().for_each(|i| set(usize::try_from(*i).ok())),
        Slice::I64(all) => all.iter().for_each(|i| set(usize::try_from(*i).ok())),
        Slice::U32(all) => all.iter().for_each(|i| set(usize::try_from(*i).ok())),
        Slice::U64(all) => all.iter().for_each(|i| set(usize::try_from(*i).ok())),
        _ => {}
    }
}

/// Copies a block of values to another position; `at` is where the block begins in the result and in the operand.
pub(super) fn place(loops: &Loops<2>, dst: &mut Values, at: [isize; 2], a: Slice<'_>) {
    with_type!(dst.ty(), T => place_typed::<T>(loops, dst.all(), at, a.of()));
}

fn place_typed<T: Scalar>(loops: &Loops<2>, dst: &mut [T], at: [isize; 2], src: &[T]) {
    let [to, from] = loops.step;
    loops.each(|[d, s]| {
        let (d, s) = (at[0].wrapping_add(d as isize), at[1].wrapping_add(s as isize));
        match (to, from) {
            (1, 1) => dst[d as usize..][..loops.run].copy_from_slice(&src[s as usize..][..loops.run]),
            (1, 0) => dst[d as usize..][..loops.run].fill(src[s as usize]),
            _ => (0..loops.run as isize).for_each(|i| dst[(d + i * to) as usize] = src[(s + i * from) as usize]),
        }
    });
}

/// Conversion to the value type of an element type, rounded to that element type.
pub(super) fn convert(to: Elem, loops: &Loops<2>, dst: &mut Values, a: Slice<'_>) -> Result<(), CpuError> {
    match a {
        Slice::F64(a) => cast(to, loops, dst, a),
        Slice::F32(a) => cast(to, loops, dst, a),
        Slice::I32(a) => cast(to, loops, dst, a),
        Slice::I64(a) => cast(to, loops, dst, a),
        Slice::U32(a) => cast(to, loops, dst, a),
        Slice::U64(a) => cast(to, loops, dst, a),
        Slice::Bool(a) => cast(to, loops, dst, a),
    }
}

/// Not inlined: a program has one such loop for each type instead of one for each operation, type and set of instructions.
#[inline(never)]
fn fill<T: Scalar>(dst: &mut [T], value: T) {
    simd(
        #[inline(always)]
        || dst.fill(value),
    );
}

/// One function over a whole nest.
#[inline(always)]
fn each<T: Scalar, U: Scalar>(loops: &Loops<2>, dst: &mut [U], a: &[T], f: impl Fn(T) -> U + Copy) {
    simd(
        #[inline(always)]
        || {
            loops.each(
                #[inline(always)]
                |[d, i]| {
                    let dst = &mut dst[d..][..loops.run];
                    if loops.step[1] == 0 {
                        fill(dst, f(a[i]));
                    } else {
                        dst.iter_mut().zip(&a[i..]).for_each(
                            #[inline(always)]
                            |(d, x)| *d = f(*x),
                        );
                    }
                },
            )
        },
    );
}

#[inline(always)]
fn zip<T: Scalar, U: Scalar>(loops: &Loops<3>, dst: &mut [U], l: &[T], r: &[T], f: impl Fn(T, T) -> U + Copy) {
    simd(
        #[inline(always)]
        || {
            loops.each(
                #[inline(always)]
                |[d, i, j]| {
                    let dst = &mut dst[d..][..loops.run];
                    let (l, r) = (&l[i..], &r[j..]);
                    match (loops.step[1], loops.step[2]) {
                        (0, 0) => fill(dst, f(l[0], r[0])),
                        (0, _) => dst.iter_mut().zip(r).for_each(
                            #[inline(always)]
                            |(d, y)| *d = f(l[0], *y),
                        ),
                        (_, 0) => dst.iter_mut().zip(l).for_each(
                            #[inline(always)]
                            |(d, x)| *d = f(*x, r[0]),
                        ),
                        _ => dst.iter_mut().zip(l).zip(r).for_each(
                            #[inline(always)]
                            |((d, x), y)| *d = f(*x, *y),
                        ),
                    }
                },
            )
        },
    );
}

fn select_typed<T: Scalar>(loops: &Loops<4>, dst: &mut [T], c: &[bool], a: &[T], b: &[T]) {
    let [_, sc, sa, sb] = loops.step;
    simd(
        #[inline(always)]
        || {
            loops.each(
                #[inline(always)]
                |[d, i, j, k]| {
                    let dst = &mut dst[d..][..loops.run];
                    let (c, a, b) = (&c[i..], &a[j..], &b[k..]);
                    if sc == 0 {
                        let (chosen, step) = if c[0] { (a, sa) } else { (b, sb) };
                        match step {
                            0 => fill(dst, chosen[0]),
                            _ => dst.copy_from_slice(&chosen[..loops.run]),
                        }
                        return;
                    }
                    // Loops, not folds, which the compiler does not inline here.
                    match (sa, sb) {
                        (0, 0) => {
                            let (a, b) = (a[0], b[0]);
                            for (d, c) in dst.iter_mut().zip(c) {
                                *d = if *c { a } else { b };
                            }
                        }
                        (0, _) => {
                            let a = a[0];
                            for ((d, c), b) in dst.iter_mut().zip(c).zip(b) {
                                *d = if *c { a } else { *b };
                            }
                        }
                        (_, 0) => {
                            let b = b[0];
                            for ((d, c), a) in dst.iter_mut().zip(c).zip(a) {
                                *d = if *c { *a } else { b };
                            }
                        }
                        _ => {
                            for (((d, c), a), b) in dst.iter_mut().zip(c).zip(a).zip(b) {
                                *d = if *c { *a } else { *b };
                            }
                        }
                    }
                },
            )
        },
    );
}

fn float_unary<T: Float>(op: Unary, loops: &Loops<2>, dst: &mut [T], a: &[T]) {
    float_unary!(op, each(loops, dst, a) over T);
}

fn integer_unary<T: Integer>(op: Unary, loops: &Loops<2>, dst: &mut [T], a: &[T]) {
    integer_unary!(op, each(loops, dst, a) over T);
}

fn float_binary<T: Float>(op: Binary, loops: &Loops<3>, dst: &mut Values, l: &[T], r: &[T]) -> Result<(), CpuError> {
    let dst = dst.room(loops.len())?;
    float_binary!(op, zip(loops, dst, l, r) over T);
    Ok(())
}

fn integer_binary<T: Integer>(
    op: Binary,
    loops: &Loops<3>,
    dst: &mut Values,
    l: &[T],
    r: &[T],
) -> Result<(), CpuError> {
    let dst = dst.room(loops.len())?;
    integer_binary!(op, zip(loops, dst, l, r) over T);
    Ok(())
}

fn bool_binary(op: Binary, loops: &Loops<3>, dst: &mut Values, l: &[bool], r: &[bool]) -> Result<(), CpuError> {
    let dst = dst.room(loops.len())?;
    per_operation!(op, zip(loops, dst, l, r) over bool:
        Binary::And => |l, r| l & r,
        Binary::Or => |l, r| l | r,
        Binary::Eq => |l, r| l == r,
        _ => |l, r| l ^ r,
    );
    Ok(())
}

fn compare<T: Scalar + PartialOrd>(
    op: Binary,
    loops: &Loops<3>,
    dst: &mut Values,
    l: &[T],
    r: &[T],
) -> Result<(), CpuError> {
    let dst = dst.room(loops.len())?;
    compare!(op, zip(loops, dst, l, r) over T, |is: bool| is);
    Ok(())
}

/// The image of a value in every type: integers wrap, floats are truncated and saturate, all but zero is true.
trait Cast: Scalar {
    fn i32(self) -> i32;
    fn i64(self) -> i64;
    fn u32(self) -> u32;
    fn u64(self) -> u64;
    fn f32(self) -> f32;
    fn f64(self) -> f64;
    fn bool(self) -> bool;
}

macro_rules! cast {
    ($($ty:ty as $number:ty),*) => {$(
        impl Cast for $ty {
            #[inline(always)]
            fn i32(self) -> i32 {
                self as $number as i32
            }

            #[inline(always)]
            fn i64(self) -> i64 {
                self as $number as i64
            }

            #[inline(always)]
            fn u32(self) -> u32 {
                self as $number as u32
            }

            #[inline(always)]
            fn u64(self) -> u64 {
                self as $number as u64
            }

            #[inline(always)]
            fn f32(self) -> f32 {
                self as $number as f32
            }

            #[inline(always)]
            fn f64(self) -> f64 {
                self as $number as f64
            }

            #[inline(always)]
            fn bool(self) -> bool {
                self != <$ty>::default()
            }
        }
    )*};
}

cast!(f64 as f64, f32 as f32, i32 as i32, i64 as i64, u32 as u32, u64 as u64, bool as u8);

fn cast<T: Cast>(to: Elem, loops: &Loops<2>, dst: &mut Values, a: &[T]) -> Result<(), CpuError> {
    let n = loops.len();
    match to {
        Elem::I32 => each(loops, dst.room(n)?, a, T::i32),
        Elem::I64 => each(loops, dst.room(n)?, a, T::i64),
        Elem::U32 => each(loops, dst.room(n)?, a, T::u32),
        Elem::U64 => each(loops, dst.room(n)?, a, T::u64),
        Elem::Bool => each(loops, dst.room(n)?, a, T::bool),
        Elem::F32 => each(loops, dst.room(n)?, a, T::f32),
        Elem::Bf16 => each(
            loops,
            dst.room(n)?,
            a,
            #[inline(always)]
            |x: T| round_bf16(x.f32()),
        ),
        Elem::F16 => each(
            loops,
            dst.room(n)?,
            a,
            #[inline(always)]
            |x: T| f16::from_f32(x.f32()).to_f32(),
        ),
        _ => each(loops, dst.room(n)?, a, T::f64),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chooses by operands with these strides, whose elements are numbered, and compares with one choice after the other.
    fn chosen<T: Scalar + std::fmt::Debug>(n: usize, [c, a, b]: [usize; 3], number: impl Fn(usize) -> T) {
        let conditions: Vec<bool> = (0..n).map(|k| k * 7 % 3 == 1).collect();
        let (of_a, of_b): (Vec<T>, Vec<T>) = (0..n).map(|k| (number(k), number(k + 1000))).unzip();
        let loops = Loops::new([(n, [1, c, a, b].map(|stride| stride as isize))]).unit();
        let mut found = vec![T::default(); n];
        select_typed(&loops, &mut found, &conditions, &of_a, &of_b);
        let expected = |k: usize| if conditions[k * c] { of_a[k * a] } else { of_b[k * b] };
        assert_eq!(found, (0..n).map(expected).collect::<Vec<T>>(), "{n} elements by {c}, {a}, {b}");
    }

    #[test]
    fn choices_are_those_of_single_elements() {
        for n in [2, 3, 7, 8, 31, 64, 65, 257] {
            for bits in 0..8 {
                let strides = [bits & 1, bits >> 1 & 1, bits >> 2];
                chosen(n, strides, |k| k as f32);
                chosen(n, strides, |k| k as f64);
                chosen(n, strides, |k| k as u32);
                chosen(n, strides, |k| k as i64);
                chosen(n, strides, |k| k % 5 == 2);
            }
        }
    }
}

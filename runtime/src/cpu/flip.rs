//! Blocks in reverse order along one axis.

use super::CpuError;
use super::simd::simd;
use super::values::{Scalar, Slice, Values, with_type};

/// Reverses an axis of the first `len` values: `size` rows of `inside` neighbouring values each.
pub(super) fn flip(values: &mut Values, len: usize, size: usize, inside: usize) -> Result<(), CpuError> {
    with_type!(values.ty(), T => flip_typed(values.room::<T>(len)?, size, inside));
    Ok(())
}

/// Makes the first `len` values of a copy the reversed ones of others.
pub(super) fn flip_to(
    copy: &mut Values,
    values: Slice<'_>,
    len: usize,
    size: usize,
    inside: usize,
) -> Result<(), CpuError> {
    with_type!(values.ty(), T => copy_typed(copy.room::<T>(len)?, &values.of::<T>()[..len], size, inside));
    Ok(())
}

fn copy_typed<T: Scalar>(to: &mut [T], from: &[T], size: usize, inside: usize) {
    let block = (size * inside).max(1);
    for (to, from) in to.chunks_exact_mut(block).zip(from.chunks_exact(block)) {
        if inside > 1 {
            to.chunks_exact_mut(inside).zip(from.rchunks_exact(inside)).for_each(|(to, from)| to.copy_from_slice(from));
            continue;
        }
        simd(
            #[inline(always)]
            || {
                for (to, from) in to.iter_mut().zip(from.iter().rev()) {
                    *to = *from;
                }
            },
        );
    }
}

fn flip_typed<T: Scalar>(values: &mut [T], size: usize, inside: usize) {
    for block in values.chunks_exact_mut((size * inside).max(1)) {
        if inside == 1 {
            simd(
                #[inline(always)]
                || block.reverse(),
            );
            continue;
        }
        let (front, back) = block.split_at_mut(size.div_ceil(2) * inside);
        front.chunks_exact_mut(inside).zip(back.rchunks_exact_mut(inside)).for_each(|(a, b)| a.swap_with_slice(b));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_change_places() {
        for (outside, size, inside) in [(2, 3, 1), (1, 4, 3), (3, 5, 2), (2, 1, 4), (2, 0, 4)] {
            let n = outside * size * inside;
            let values = Values::I64((0..n as i64 + 3).collect());
            let mut found = Values::I64(vec![]);
            flip_to(&mut found, values.from(0), n, size, inside).unwrap();
            let at =
                |i: usize| i / inside / size * size * inside + (size - 1 - i / inside % size) * inside + i % inside;
            assert_eq!(found, Values::I64((0..n).map(|i| at(i) as i64).collect()));
            flip(&mut found, n, size, inside).unwrap();
            assert_eq!(found, Values::I64((0..n as i64).collect()));
        }
    }
}

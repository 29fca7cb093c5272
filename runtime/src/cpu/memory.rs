//! Moving blocks between tensors and registers.

use super::CpuError;
use super::loops::Loops;
use super::simd::simd;
use super::storage::Stored;
use super::values::{Scalar, Slice, Values};
use super::view::{Data, Parts, with_elements};

/// Loads a block. The loops' operands are the register and the tensor; `at` is where the block begins in each.
///
/// # Errors
/// [`CpuError::OutOfMemory`].
pub(super) fn load(
    loops: &Loops<2>,
    dst: &mut Values,
    n: usize,
    from: Data<'_>,
    at: [isize; 2],
) -> Result<(), CpuError> {
    with_elements!(Data, from, all => load_typed(loops, dst.room(n)?, all, at));
    Ok(())
}

/// The block itself as values, if it is one run of elements that need no conversion.
pub(super) fn alias<'a>(loops: &Loops<2>, n: usize, from: Data<'a>, at: isize) -> Option<Slice<'a>> {
    let dense = loops.run == n && (loops.step[1] == 1 || n == 1);
    if !dense || n == 0 {
        return None;
    }
    with_elements!(Data, from, all => Stored::as_values(&all[at as usize..][..n]).map(Scalar::erase))
}

/// Stores a block. The loops' operands are the register, the list of slices and the slice; `at` is where the block
/// begins in each.
pub(super) fn store(loops: &Loops<3>, to: &mut Parts<'_>, at: [isize; 2], src: Slice<'_>) {
    with_elements!(Parts, to, all => store_typed(loops, all, at, src.of()));
}

fn load_typed<S: Stored>(loops: &Loops<2>, dst: &mut [S::Value], src: &[S], at: [isize; 2]) {
    let [to, from] = loops.step;
    loops.each(|[d, s]| {
        let (d, s) = (at[0].wrapping_add(d as isize), at[1].wrapping_add(s as isize));
        if to != 1 {
            for i in 0..loops.run as isize {
                dst[(d + i * to) as usize] = src[(s + i * from) as usize].widen();
            }
            return;
        }
        let dst = &mut dst[d as usize..][..loops.run];
        match from {
            0 => dst.fill(src[s as usize].widen()),
            1 => S::widen_all(dst, &src[s as usize..][..loops.run]),
            -1 => {
                let run = &src[(s + 1) as usize - loops.run..=s as usize];
                simd(
                    #[inline(always)]
                    || {
                        for (d, s) in dst.iter_mut().zip(run.iter().rev()) {
                            *d = s.widen();
                        }
                    },
                );
            }
            _ => (0..).zip(dst).for_each(|(i, d): (isize, _)| *d = src[(s + i * from) as usize].widen()),
        }
    });
}

fn store_typed<S: Stored>(loops: &Loops<3>, dst: &mut [&mut [S]], at: [isize; 2], src: &[S::Value]) {
    let [from, per_slice, to] = loops.step;
    loops.each(|[s, slice, d]| {
        let (slice, d) = (at[0].wrapping_add(slice as isize), at[1].wrapping_add(d as isize));
        if per_slice != 0 {
            for i in 0..loops.run as isize {
                let value = src[s + (i * from) as usize];
                dst[(slice + i * per_slice) as usize][(d + i * to) as usize] = S::narrow(value);
            }
            return;
        }
        let dst = &mut dst[slice as usize];
        match (from, to) {
            (1, 1) => S::narrow_all(&mut dst[d as usize..][..loops.run], &src[s..][..loops.run]),
            (1, -1) => {
                let (run, src) = (&mut dst[(d + 1) as usize - loops.run..=d as usize], &src[s..]);
                simd(
                    #[inline(always)]
                    || {
                        for (d, s) in run.iter_mut().rev().zip(src) {
                            *d = S::narrow(*s);
                        }
                    },
                );
            }
            (0, 1) => dst[d as usize..][..loops.run].fill(S::narrow(src[s])),
            _ => (0..loops.run as isize)
                .for_each(|i| dst[(d + i * to) as usize] = S::narrow(src[s + (i * from) as usize])),
        }
    });
}

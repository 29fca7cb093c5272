//! Turning `f32` in squares of 8×8 in AVX2 registers.
//!
//! Two squares behind one another along the steps are as long as a line of the cache, so that each line is read and written once.

use core::arch::x86_64::{__m128, __m256};

use pulp::x86::V3;
use pulp::{NullaryFnOnce, cast};

const SIDE: usize = 8;
/// How many steps are turned before the next lanes.
const LINE: usize = 16;

/// dst[s·lanes + k] = src[starts[k] + s]; false, and nothing done, without AVX2.
pub(super) fn turn(dst: &mut [f32], src: &[f32], starts: &[usize], steps: usize) -> bool {
    let Some(v3) = V3::try_new() else { return false };
    v3.vectorize(Turn { v3, dst, src, starts, steps });
    true
}

/// dst[starts[k] + s] = src[s·lanes + k]; false, and nothing done, without AVX2.
pub(super) fn turn_back(dst: &mut [f32], src: &[f32], starts: &[usize], steps: usize) -> bool {
    let Some(v3) = V3::try_new() else { return false };
    v3.vectorize(Back { v3, dst, src, starts, steps });
    true
}

struct Turn<'a> {
    v3: V3,
    dst: &'a mut [f32],
    src: &'a [f32],
    starts: &'a [usize],
    steps: usize,
}

struct Back<'a> {
    v3: V3,
    dst: &'a mut [f32],
    src: &'a [f32],
    starts: &'a [usize],
    steps: usize,
}

impl NullaryFnOnce for Turn<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Turn { v3, dst, src, starts, steps } = self;
        let lanes = starts.len();
        let (squares, rest) = starts.as_chunks::<SIDE>();
        for from in (0..steps).step_by(LINE) {
            let to = steps.min(from + LINE);
            for (k, starts) in squares.iter().enumerate() {
                let mut s = from;
                while s + SIDE <= to {
                    let rows = transposed(v3, squared(src, starts, s));
                    for (i, row) in rows.iter().enumerate() {
                        dst[(s + i) * lanes + k * SIDE..][..SIDE].copy_from_slice(row);
                    }
                    s += SIDE;
                }
                for s in s..to {
                    for (d, start) in dst[s * lanes + k * SIDE..].iter_mut().zip(starts) {
                        *d = src[start + s];
                    }
                }
            }
            for s in from..to {
                for (d, start) in dst[s * lanes + squares.len() * SIDE..].iter_mut().zip(rest) {
                    *d = src[start + s];
                }
            }
        }
    }
}

impl NullaryFnOnce for Back<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Back { v3, dst, src, starts, steps } = self;
        let lanes = starts.len();
        let (squares, rest) = starts.as_chunks::<SIDE>();
        for from in (0..steps).step_by(LINE) {
            let to = steps.min(from + LINE);
            for (k, starts) in squares.iter().enumerate() {
                let mut s = from;
                while s + SIDE <= to {
                    let [at, l] = [s * lanes + k * SIDE, lanes];
                    let steps = [at, at + l, at + 2 * l, at + 3 * l, at + 4 * l, at + 5 * l, at + 6 * l, at + 7 * l];
                    let rows = transposed(v3, squared(src, &steps, 0));
                    for (row, start) in rows.iter().zip(starts) {
                        dst[start + s..][..SIDE].copy_from_slice(row);
                    }
                    s += SIDE;
                }
                for s in s..to {
                    for (x, start) in src[s * lanes + k * SIDE..].iter().zip(starts) {
                        dst[start + s] = *x;
                    }
                }
            }
            for s in from..to {
                for (x, start) in src[s * lanes + squares.len() * SIDE..].iter().zip(rest) {
                    dst[start + s] = *x;
                }
            }
        }
    }
}

/// Eight elements from each of eight places on, which all begin so much later.
#[inline(always)]
fn squared<'a>(all: &'a [f32], [a, b, c, d, e, f, g, h]: &[usize; SIDE], later: usize) -> [&'a [f32; SIDE]; SIDE] {
    let row = |at: &usize| all[at + later..].first_chunk().expect("a whole square");
    [row(a), row(b), row(c), row(d), row(e), row(f), row(g), row(h)]
}

/// The columns of a square as rows.
#[inline(always)]
fn transposed(v3: V3, rows: [&[f32; SIDE]; SIDE]) -> [[f32; SIDE]; SIDE] {
    let ([a, b, c, d], [e, f, g, h]) = (quarters(v3, halves(v3, rows, 0)), quarters(v3, halves(v3, rows, 4)));
    [cast(a), cast(b), cast(c), cast(d), cast(e), cast(f), cast(g), cast(h)]
}

/// Four columns of a square, each register with those of one row and of the row four below.
#[inline(always)]
fn halves(v3: V3, rows: [&[f32; SIDE]; SIDE], at: usize) -> [__m256; 4] {
    let quarter =
        |row: usize| -> __m128 { cast([rows[row][at], rows[row][at + 1], rows[row][at + 2], rows[row][at + 3]]) };
    let pair = |k: usize| v3.avx._mm256_insertf128_ps::<1>(v3.avx._mm256_castps128_ps256(quarter(k)), quarter(k + 4));
    [pair(0), pair(1), pair(2), pair(3)]
}

/// Transposes 4×4 in each half.
#[inline(always)]
pub(in crate::cpu) fn quarters(v3: V3, r: [__m256; 4]) -> [__m256; 4] {
    let avx = v3.avx;
    let (a, b) = (avx._mm256_unpacklo_ps(r[0], r[1]), avx._mm256_unpacklo_ps(r[2], r[3]));
    let (c, d) = (avx._mm256_unpackhi_ps(r[0], r[1]), avx._mm256_unpackhi_ps(r[2], r[3]));
    [
        avx._mm256_shuffle_ps::<0x44>(a, b),
        avx._mm256_shuffle_ps::<0xee>(a, b),
        avx._mm256_shuffle_ps::<0x44>(c, d),
        avx._mm256_shuffle_ps::<0xee>(c, d),
    ]
}

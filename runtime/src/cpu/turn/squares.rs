//! Turning `f32` in squares of 8×8 in AVX2 registers.
//!
//! Two squares behind one another along the steps are as long as a line of the cache, so that each line is read and written once.

use core::arch::x86_64::{__m128, __m256};
use std::ops::Range;

use pulp::x86::V3;
use pulp::{NullaryFnOnce, cast};

use super::Rows;

const SIDE: usize = 8;
/// How many steps are turned before the next lanes.
const LINE: usize = 16;

/// [`Rows::turn`] with a stride of 1; false, and nothing done, without AVX2.
pub(super) fn turn(rows: &Rows<'_>, dst: &mut [f32], src: &[f32]) -> bool {
    each(rows, Turn { dst, src, pitch: rows.pitch })
}

/// [`Rows::turn_back`] with a stride of 1; false, and nothing done, without AVX2.
pub(super) fn turn_back(rows: &Rows<'_>, dst: &mut [f32], src: &[f32]) -> bool {
    each(rows, Back { dst, src, pitch: rows.pitch })
}

fn each(rows: &Rows<'_>, moves: impl Moves) -> bool {
    let Some(v3) = V3::try_new() else { return false };
    v3.vectorize(Each { v3, rows, moves });
    true
}

/// Moves elements between rows and lanes.
trait Moves {
    /// Moves some steps, at most [`LINE`], in eight lanes from `k` on, whose rows begin there: in squares, as far as these reach.
    fn eight(&mut self, v3: V3, starts: &[usize; SIDE], steps: Range<usize>, k: usize);
    /// Moves some steps in a lane.
    fn one(&mut self, start: usize, steps: Range<usize>, k: usize);
}

struct Turn<'a> {
    dst: &'a mut [f32],
    src: &'a [f32],
    pitch: usize,
}

impl Moves for Turn<'_> {
    #[inline(always)]
    fn eight(&mut self, v3: V3, starts: &[usize; SIDE], steps: Range<usize>, k: usize) {
        let row = |i: usize| &self.src[starts[i] + steps.start..][..steps.len()];
        let rows = [row(0), row(1), row(2), row(3), row(4), row(5), row(6), row(7)];
        let mut lines = self.dst[steps.start * self.pitch + k..].chunks_mut(self.pitch);
        let whole = steps.len() / SIDE * SIDE;
        for s in (0..whole).step_by(SIDE) {
            let part = |i: usize| rows[i][s..].first_chunk().expect("a whole square");
            let square = [part(0), part(1), part(2), part(3), part(4), part(5), part(6), part(7)];
            for (column, line) in transposed(v3, square).iter().zip(lines.by_ref()) {
                line[..SIDE].copy_from_slice(column);
            }
        }
        for (s, line) in (whole..steps.len()).zip(lines) {
            for (x, row) in line.iter_mut().zip(&rows) {
                *x = row[s];
            }
        }
    }

    #[inline(always)]
    fn one(&mut self, start: usize, steps: Range<usize>, k: usize) {
        for s in steps {
            self.dst[s * self.pitch + k] = self.src[start + s];
        }
    }
}

struct Back<'a> {
    dst: &'a mut [f32],
    src: &'a [f32],
    pitch: usize,
}

impl Moves for Back<'_> {
    #[inline(always)]
    fn eight(&mut self, v3: V3, starts: &[usize; SIDE], steps: Range<usize>, k: usize) {
        let mut lines = self.src[steps.start * self.pitch + k..].chunks(self.pitch);
        let whole = steps.start + steps.len() / SIDE * SIDE;
        for s in (steps.start..whole).step_by(SIDE) {
            let mut next = || lines.next().and_then(|line| line.first_chunk()).expect("a whole square");
            let square = [next(), next(), next(), next(), next(), next(), next(), next()];
            for (row, start) in transposed(v3, square).iter().zip(starts) {
                self.dst[start + s..][..SIDE].copy_from_slice(row);
            }
        }
        for (s, line) in (whole..steps.end).zip(lines) {
            for (x, start) in line.iter().zip(starts) {
                self.dst[start + s] = *x;
            }
        }
    }

    #[inline(always)]
    fn one(&mut self, start: usize, steps: Range<usize>, k: usize) {
        for s in steps {
            self.dst[start + s] = self.src[s * self.pitch + k];
        }
    }
}

/// All moves of some rows.
struct Each<'a, M> {
    v3: V3,
    rows: &'a Rows<'a>,
    moves: M,
}

impl<M: Moves> NullaryFnOnce for Each<'_, M> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Each { v3, rows: Rows { starts, steps, .. }, mut moves } = self;
        let (eights, rest) = starts.as_chunks::<SIDE>();
        for from in (0..*steps).step_by(LINE) {
            let to = from + LINE.min(steps - from);
            for (k, starts) in eights.iter().enumerate() {
                moves.eight(v3, starts, from..to, k * SIDE);
            }
            for (k, start) in rest.iter().enumerate() {
                moves.one(*start, from..to, eights.len() * SIDE + k);
            }
        }
    }
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

//! Turning `f32` in squares of 8×8 in AVX2 registers.
//!
//! Two squares behind one another along the steps are as long as a line of the cache, so that each line is read and written once.

use core::arch::x86_64::{__m128, __m256};
use std::ops::Range;

use pulp::x86::{V3, V4};
use pulp::{NullaryFnOnce, cast};

use super::{Rows, wide};
use crate::cpu::simd::{AVX2, AVX512};

const SIDE: usize = 8;
/// How many steps are turned before the next lanes.
const LINE: usize = wide::SIDE;

/// [`Rows::turn`] with a stride of 1 or −1; false, and nothing done, without AVX2.
pub(super) fn turn(rows: &Rows<'_>, dst: &mut [f32], src: &[f32]) -> bool {
    each(rows, Turn { dst, src, rows: *rows })
}

/// [`Rows::turn_back`] with a stride of 1 or −1; false, and nothing done, without AVX2.
pub(super) fn turn_back(rows: &Rows<'_>, dst: &mut [f32], src: &[f32]) -> bool {
    each(rows, Back { dst, src, rows: *rows })
}

fn each(rows: &Rows<'_>, moves: impl Moves) -> bool {
    if let Some(v4) = *AVX512 {
        v4.vectorize(EachWide { v4, rows, moves });
        return true;
    }
    let Some(v3) = *AVX2 else { return false };
    v3.vectorize(Each { v3, rows, moves });
    true
}

/// Moves elements between rows and lanes.
trait Moves {
    /// Moves some steps, at most [`LINE`], in eight lanes from `k` on, whose rows begin there: in squares, as far as these reach.
    fn eight(&mut self, v3: V3, starts: &[usize; SIDE], steps: Range<usize>, k: usize);
    /// Moves a square of so many steps as a line has in as many lanes.
    fn sixteen(&mut self, v4: V4, starts: &[usize; LINE], step: usize, k: usize);
    /// Moves some steps in a lane.
    fn one(&mut self, start: usize, steps: Range<usize>, k: usize);
}

struct Turn<'a> {
    dst: &'a mut [f32],
    src: &'a [f32],
    rows: Rows<'a>,
}

impl Moves for Turn<'_> {
    #[inline(always)]
    fn eight(&mut self, v3: V3, starts: &[usize; SIDE], steps: Range<usize>, k: usize) {
        let (pitch, is_forward) = (self.rows.pitch, self.rows.stride == 1);
        let whole = steps.start + steps.len() / SIDE * SIDE;
        for s in (steps.start..whole).step_by(SIDE) {
            let first = if is_forward { s } else { s + SIDE - 1 };
            let part = |i: usize| self.src[self.rows.at(starts[i], first)..].first_chunk().expect("a whole square");
            let square = [part(0), part(1), part(2), part(3), part(4), part(5), part(6), part(7)];
            let columns = transposed(v3, square);
            let lines = self.dst[s * pitch + k..].chunks_mut(pitch);
            if is_forward {
                columns.iter().zip(lines).for_each(|(column, line)| line[..SIDE].copy_from_slice(column));
            } else {
                columns.iter().rev().zip(lines).for_each(|(column, line)| line[..SIDE].copy_from_slice(column));
            }
        }
        for (i, start) in starts.iter().enumerate() {
            self.one(*start, whole..steps.end, k + i);
        }
    }

    #[inline(always)]
    fn sixteen(&mut self, v4: V4, starts: &[usize; LINE], step: usize, k: usize) {
        let (pitch, is_forward) = (self.rows.pitch, self.rows.stride == 1);
        let first = if is_forward { step } else { step + LINE - 1 };
        let row = |i: usize| self.src[self.rows.at(starts[i], first)..].first_chunk().expect("a whole line");
        let columns = wide::transposed(v4, wide::all!(row));
        let lines = self.dst[step * pitch + k..].chunks_mut(pitch);
        if is_forward {
            columns.iter().zip(lines).for_each(|(column, line)| line[..LINE].copy_from_slice(column));
        } else {
            columns.iter().rev().zip(lines).for_each(|(column, line)| line[..LINE].copy_from_slice(column));
        }
    }

    #[inline(always)]
    fn one(&mut self, start: usize, steps: Range<usize>, k: usize) {
        for s in steps {
            self.dst[s * self.rows.pitch + k] = self.src[self.rows.at(start, s)];
        }
    }
}

struct Back<'a> {
    dst: &'a mut [f32],
    src: &'a [f32],
    rows: Rows<'a>,
}

impl Moves for Back<'_> {
    #[inline(always)]
    fn eight(&mut self, v3: V3, starts: &[usize; SIDE], steps: Range<usize>, k: usize) {
        let (pitch, is_forward) = (self.rows.pitch, self.rows.stride == 1);
        let whole = steps.start + steps.len() / SIDE * SIDE;
        for s in (steps.start..whole).step_by(SIDE) {
            let first = if is_forward { s } else { s + SIDE - 1 };
            let line = |i: usize| {
                let step = if is_forward { s + i } else { s + SIDE - 1 - i };
                self.src[step * pitch + k..].first_chunk().expect("a whole square")
            };
            let square = [line(0), line(1), line(2), line(3), line(4), line(5), line(6), line(7)];
            for (row, start) in transposed(v3, square).iter().zip(starts) {
                self.dst[self.rows.at(*start, first)..][..SIDE].copy_from_slice(row);
            }
        }
        for (i, start) in starts.iter().enumerate() {
            self.one(*start, whole..steps.end, k + i);
        }
    }

    #[inline(always)]
    fn sixteen(&mut self, v4: V4, starts: &[usize; LINE], step: usize, k: usize) {
        let (pitch, is_forward) = (self.rows.pitch, self.rows.stride == 1);
        let first = if is_forward { step } else { step + LINE - 1 };
        let line = |i: usize| {
            let step = if is_forward { step + i } else { step + LINE - 1 - i };
            self.src[step * pitch + k..].first_chunk().expect("a whole line")
        };
        for (row, start) in wide::transposed(v4, wide::all!(line)).iter().zip(starts) {
            self.dst[self.rows.at(*start, first)..][..LINE].copy_from_slice(row);
        }
    }

    #[inline(always)]
    fn one(&mut self, start: usize, steps: Range<usize>, k: usize) {
        for s in steps {
            self.dst[self.rows.at(start, s)] = self.src[s * self.rows.pitch + k];
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
        for from in (0..*steps).step_by(LINE) {
            strip(v3, &mut moves, starts, from..from + LINE.min(steps - from), 0);
        }
    }
}

/// Moves some steps, at most [`LINE`], in the lanes from `k` on, whose rows begin there.
#[inline(always)]
fn strip(v3: V3, moves: &mut impl Moves, starts: &[usize], steps: Range<usize>, k: usize) {
    let (eights, rest) = starts.as_chunks();
    for (i, starts) in eights.iter().enumerate() {
        moves.eight(v3, starts, steps.clone(), k + i * SIDE);
    }
    for (i, start) in rest.iter().enumerate() {
        moves.one(*start, steps.clone(), k + eights.len() * SIDE + i);
    }
}

/// All moves of some rows with wider registers.
struct EachWide<'a, M> {
    v4: V4,
    rows: &'a Rows<'a>,
    moves: M,
}

impl<M: Moves> NullaryFnOnce for EachWide<'_, M> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let EachWide { v4, rows: Rows { starts, steps, .. }, mut moves } = self;
        let (sixteens, rest) = starts.as_chunks();
        for from in (0..*steps).step_by(LINE) {
            let to = from + LINE.min(steps - from);
            if to - from < LINE {
                strip(*v4, &mut moves, starts, from..to, 0);
                continue;
            }
            for (i, starts) in sixteens.iter().enumerate() {
                moves.sixteen(v4, starts, from, i * LINE);
            }
            strip(*v4, &mut moves, rest, from..to, sixteens.len() * LINE);
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

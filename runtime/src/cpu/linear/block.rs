//! Blocks of 64 `f32` in AVX2 registers.

use core::arch::x86_64::{__m128, __m256};
use std::ops::Range;

use pulp::x86::V3;
use pulp::{NullaryFnOnce, cast};

use super::{BLOCK, Coefficient, Series};
use crate::cpu::turn::squares::quarters;

/// [`super::sum`] of whole blocks.
pub(super) struct Sum<'a, const BACKWARD: bool> {
    pub(super) v3: V3,
    pub(super) x: &'a [f32],
    pub(super) out: &'a mut [f32],
    pub(super) state: f32,
}

/// [`super::linear`] of whole blocks.
pub(super) struct Linear<'a, const BACKWARD: bool> {
    pub(super) v3: V3,
    pub(super) series: Series<'a>,
    pub(super) out: &'a mut [f32],
    pub(super) state: f32,
}

/// [`super::affine`] of whole blocks.
pub(super) struct Affine<'a, const BACKWARD: bool> {
    pub(super) v3: V3,
    pub(super) series: Series<'a>,
    pub(super) before: (f32, f32),
}

/// Where the elements of a block lie among so many.
#[inline(always)]
fn place<const BACKWARD: bool>(block: usize, len: usize) -> Range<usize> {
    let start = if BACKWARD { len - BLOCK * (block + 1) } else { BLOCK * block };
    start..start + BLOCK
}

impl<const BACKWARD: bool> NullaryFnOnce for Sum<'_, BACKWARD> {
    type Output = Swept;

    #[inline(always)]
    fn call(self) -> Swept {
        let Sum { v3, x, out, state } = self;
        let (zero, mut state, mut ends) = (splat(0.0), splat(state), splat(0.0));
        for block in 0..x.len() / BLOCK {
            let at = place::<BACKWARD>(block, x.len());
            let mut lanes = load::<BACKWARD>(v3, &x[at.clone()]);
            for step in 1..8 {
                lanes[step] = add(v3, lanes[step - 1], lanes[step]);
            }
            let mut totals = lanes[7];
            totals = add(v3, shift1(v3, totals, zero), totals);
            totals = add(v3, shift2(v3, totals, zero), totals);
            totals = add(v3, shift4(v3, totals, zero), totals);
            let before = add(v3, previous(v3, totals, zero), state);
            for lane in &mut lanes {
                *lane = add(v3, before, *lane);
            }
            state = last(v3, lanes[7]);
            ends = mul_add(v3, lanes[7], zero, ends);
            store::<BACKWARD>(v3, &mut out[at], lanes);
        }
        Swept::new(state, ends)
    }
}

impl<const BACKWARD: bool> NullaryFnOnce for Linear<'_, BACKWARD> {
    type Output = Swept;

    #[inline(always)]
    fn call(self) -> Swept {
        let Linear { v3, series: Series { c, x, .. }, out, state } = self;
        let (mut state, mut ends) = (splat(state), splat(0.0));
        match c {
            Coefficient::Each(c) => {
                for block in 0..x.len() / BLOCK {
                    let at = place::<BACKWARD>(block, x.len());
                    let elements = (load::<BACKWARD>(v3, &c[at.clone()]), load::<BACKWARD>(v3, &x[at.clone()]));
                    (state, ends) = linear_block::<BACKWARD>(v3, elements, &mut out[at], (state, ends));
                }
            }
            Coefficient::All(c) => {
                for block in 0..x.len() / BLOCK {
                    let at = place::<BACKWARD>(block, x.len());
                    let elements = ([splat(c); 8], load::<BACKWARD>(v3, &x[at.clone()]));
                    (state, ends) = linear_block::<BACKWARD>(v3, elements, &mut out[at], (state, ends));
                }
            }
        }
        Swept::new(state, ends)
    }
}

impl<const BACKWARD: bool> NullaryFnOnce for Affine<'_, BACKWARD> {
    type Output = (f32, f32);

    #[inline(always)]
    fn call(self) -> (f32, f32) {
        let Affine { v3, series: Series { c, x, .. }, before } = self;
        let splatted = [if let Coefficient::All(c) = c { c } else { 0.0 }; BLOCK];
        let mut state = (splat(before.0), splat(before.1));
        for block in 0..x.len() / BLOCK {
            let at = place::<BACKWARD>(block, x.len());
            let c = if let Coefficient::Each(c) = c { &c[at.clone()] } else { &splatted };
            state = total_block::<BACKWARD>(v3, c, &x[at], state);
        }
        (first(state.0), first(state.1))
    }
}

/// The result of sweeping blocks.
pub(super) struct Swept {
    /// The last state.
    pub(super) last: f32,
    /// Whether all states are finite. One that is not makes those after it in its lane so, up to the lane's end, whose
    /// product with 0 is then no number; the lanes after it may be combined in another order.
    pub(super) is_finite: bool,
}

impl Swept {
    /// From the last state, and the sum of the products of all lanes' ends with 0.
    #[inline(always)]
    fn new(state: __m256, ends: __m256) -> Swept {
        let ends: [f32; 8] = cast(ends);
        Swept { last: first(state), is_finite: ends.iter().all(|end| !end.is_nan()) }
    }
}

#[inline(always)]
fn linear_block<const BACKWARD: bool>(
    v3: V3,
    (mut c, mut x): ([__m256; 8], [__m256; 8]),
    out: &mut [f32],
    (state, ends): (__m256, __m256),
) -> (__m256, __m256) {
    for step in 1..8 {
        x[step] = mul_add(v3, c[step], x[step - 1], x[step]);
        c[step] = mul(v3, c[step - 1], c[step]);
    }
    let (totals_c, totals_x) = scan_lanes(v3, c[7], x[7]);
    let (before_c, before_x) = (previous(v3, totals_c, splat(1.0)), previous(v3, totals_x, splat(0.0)));
    let before = mul_add(v3, before_c, state, before_x);
    for step in 0..8 {
        x[step] = mul_add(v3, c[step], before, x[step]);
    }
    store::<BACKWARD>(v3, out, x);
    (last(v3, x[7]), mul_add(v3, x[7], splat(0.0), ends))
}

/// The product and the state after a block, by pairs: neighbours are combined until each half of the registers has four runs of 8.
#[inline(always)]
fn total_block<const BACKWARD: bool>(v3: V3, c: &[f32], x: &[f32], before: (__m256, __m256)) -> (__m256, __m256) {
    let (c, x) = (&c[..BLOCK], &x[..BLOCK]);
    macro_rules! of_steps {
        ($all:expr, $step:expr) => {
            halves(v3, $all, quarter_from::<BACKWARD>($step), quarter_from::<BACKWARD>($step + 32))
        };
    }
    macro_rules! pair {
        ($step:expr) => {{
            let (a, b) =
                ((of_steps!(c, $step), of_steps!(x, $step)), (of_steps!(c, $step + 4), of_steps!(x, $step + 4)));
            if BACKWARD { combine_neighbours_backward(v3, a, b) } else { combine_neighbours(v3, a, b) }
        }};
    }
    let left = combine_neighbours(v3, pair!(0), pair!(8));
    let right = combine_neighbours(v3, pair!(16), pair!(24));
    let (c, x) = combine_neighbours(v3, left, right);
    let (c, x) = scan_lanes(v3, c, x);
    combine(v3, before, (last(v3, c), last(v3, x)))
}

/// Where four steps lie in a block. Backward they lie there from the last to the first.
#[inline(always)]
const fn quarter_from<const BACKWARD: bool>(step: usize) -> usize {
    if BACKWARD { BLOCK - 4 - step } else { step }
}

/// Combines element 2i with element 2i + 1 of the sequence that each half of two registers holds.
#[inline(always)]
fn combine_neighbours(v3: V3, a: (__m256, __m256), b: (__m256, __m256)) -> (__m256, __m256) {
    const EVEN: i32 = 0b10_00_10_00;
    const ODD: i32 = 0b11_01_11_01;
    let avx = v3.avx;
    let (lc, lx) = (avx._mm256_shuffle_ps::<EVEN>(a.0, b.0), avx._mm256_shuffle_ps::<EVEN>(a.1, b.1));
    let (rc, rx) = (avx._mm256_shuffle_ps::<ODD>(a.0, b.0), avx._mm256_shuffle_ps::<ODD>(a.1, b.1));
    (mul(v3, lc, rc), mul_add(v3, rc, lx, rx))
}

/// [`combine_neighbours`] where each half holds its elements from the last to the first.
#[inline(always)]
fn combine_neighbours_backward(v3: V3, a: (__m256, __m256), b: (__m256, __m256)) -> (__m256, __m256) {
    const EVEN: i32 = 0b01_11_01_11;
    const ODD: i32 = 0b00_10_00_10;
    let avx = v3.avx;
    let (lc, lx) = (avx._mm256_shuffle_ps::<EVEN>(a.0, b.0), avx._mm256_shuffle_ps::<EVEN>(a.1, b.1));
    let (rc, rx) = (avx._mm256_shuffle_ps::<ODD>(a.0, b.0), avx._mm256_shuffle_ps::<ODD>(a.1, b.1));
    (mul(v3, lc, rc), mul_add(v3, rc, lx, rx))
}

/// Scans the lanes of a register by the affine operator.
#[inline(always)]
fn scan_lanes(v3: V3, c: __m256, x: __m256) -> (__m256, __m256) {
    let (one, zero) = (splat(1.0), splat(0.0));
    let (c, x) = combine(v3, (shift1(v3, c, one), shift1(v3, x, zero)), (c, x));
    let (c, x) = combine(v3, (shift2(v3, c, one), shift2(v3, x, zero)), (c, x));
    combine(v3, (shift4(v3, c, one), shift4(v3, x, zero)), (c, x))
}

#[inline(always)]
fn combine(v3: V3, l: (__m256, __m256), r: (__m256, __m256)) -> (__m256, __m256) {
    (mul(v3, l.0, r.0), mul_add(v3, r.0, l.1, r.1))
}

#[inline(always)]
fn add(v3: V3, l: __m256, r: __m256) -> __m256 {
    v3.avx._mm256_add_ps(l, r)
}

#[inline(always)]
fn mul(v3: V3, l: __m256, r: __m256) -> __m256 {
    v3.avx._mm256_mul_ps(l, r)
}

/// a·b + c, rounded once.
#[inline(always)]
fn mul_add(v3: V3, a: __m256, b: __m256, c: __m256) -> __m256 {
    v3.fma._mm256_fmadd_ps(a, b, c)
}

#[inline(always)]
fn splat(x: f32) -> __m256 {
    cast([x; 8])
}

#[inline(always)]
fn first(x: __m256) -> f32 {
    let lanes: [f32; 8] = cast(x);
    lanes[0]
}

/// Lanes moved up by one within each half; `fill` in the half's first lane.
#[inline(always)]
fn shift1(v3: V3, x: __m256, fill: __m256) -> __m256 {
    v3.avx._mm256_blend_ps::<0b0001_0001>(v3.avx._mm256_permute_ps::<0b10_01_00_00>(x), fill)
}

/// Lanes moved up by two within each half.
#[inline(always)]
fn shift2(v3: V3, x: __m256, fill: __m256) -> __m256 {
    v3.avx._mm256_blend_ps::<0b0011_0011>(v3.avx._mm256_permute_ps::<0b01_00_00_00>(x), fill)
}

/// The last lane of the lower half in all of the upper half; `fill` in the lower half.
#[inline(always)]
fn shift4(v3: V3, x: __m256, fill: __m256) -> __m256 {
    v3.avx._mm256_permute2f128_ps::<0x02>(v3.avx._mm256_permute_ps::<0xff>(x), fill)
}

/// All lanes moved up by one; `fill` in the first.
#[inline(always)]
fn previous(v3: V3, x: __m256, fill: __m256) -> __m256 {
    let rotated = v3.avx._mm256_permute_ps::<0b10_01_00_11>(x);
    let crossed = v3.avx._mm256_permute2f128_ps::<0x02>(rotated, fill);
    v3.avx._mm256_blend_ps::<0b0001_0001>(rotated, crossed)
}

/// The last lane in all lanes.
#[inline(always)]
fn last(v3: V3, x: __m256) -> __m256 {
    let of_half = v3.avx._mm256_permute_ps::<0xff>(x);
    v3.avx._mm256_permute2f128_ps::<0x11>(of_half, of_half)
}

#[inline(always)]
fn quarter(x: &[f32], at: usize) -> __m128 {
    cast([x[at], x[at + 1], x[at + 2], x[at + 3]])
}

/// Four elements from each of two places.
#[inline(always)]
fn halves(v3: V3, x: &[f32], low: usize, high: usize) -> __m256 {
    v3.avx._mm256_insertf128_ps::<1>(v3.avx._mm256_castps128_ps256(quarter(x, low)), quarter(x, high))
}

/// 64 elements as 8 lanes: register s holds step s of each lane's 8.
#[inline(always)]
fn load<const BACKWARD: bool>(v3: V3, x: &[f32]) -> [__m256; 8] {
    let x = &x[..BLOCK];
    macro_rules! lanes {
        ($lane:expr, $at:expr) => {
            halves(v3, x, row::<BACKWARD>($lane) + $at, row::<BACKWARD>($lane + 4) + $at)
        };
    }
    macro_rules! steps {
        ($at:expr) => {
            quarters(v3, [lanes!(0, $at), lanes!(1, $at), lanes!(2, $at), lanes!(3, $at)])
        };
    }
    let ([a, b, c, d], [e, f, g, h]) = (steps!(0), steps!(4));
    if BACKWARD { [h, g, f, e, d, c, b, a] } else { [a, b, c, d, e, f, g, h] }
}

/// Where the 8 elements of a lane begin in memory.
#[inline(always)]
const fn row<const BACKWARD: bool>(lane: usize) -> usize {
    if BACKWARD { 8 * (7 - lane) } else { 8 * lane }
}

/// The inverse of [`load`].
#[inline(always)]
fn store<const BACKWARD: bool>(v3: V3, out: &mut [f32], lanes: [__m256; 8]) {
    let out = &mut out[..BLOCK];
    let [a, b, c, d, e, f, g, h] = lanes;
    let [a, b, c, d, e, f, g, h] = if BACKWARD { [h, g, f, e, d, c, b, a] } else { [a, b, c, d, e, f, g, h] };
    for (at, rows) in [(0, quarters(v3, [a, b, c, d])), (4, quarters(v3, [e, f, g, h]))] {
        for (lane, both) in rows.into_iter().enumerate() {
            let [low, high]: [[f32; 4]; 2] = cast(both);
            out[row::<BACKWARD>(lane) + at..][..4].copy_from_slice(&low);
            out[row::<BACKWARD>(lane + 4) + at..][..4].copy_from_slice(&high);
        }
    }
}

//! Turning `f32` in squares of 16×16 in AVX-512 registers, whose rows are lines of the cache.

use core::arch::x86_64::__m512;

use pulp::cast;
use pulp::x86::V4;

pub(super) const SIDE: usize = 16;

/// The results of a function for all rows: the compiler inlines none that `map` or `from_fn` of an array would call.
macro_rules! all {
    ($f:expr) => {
        [
            $f(0),
            $f(1),
            $f(2),
            $f(3),
            $f(4),
            $f(5),
            $f(6),
            $f(7),
            $f(8),
            $f(9),
            $f(10),
            $f(11),
            $f(12),
            $f(13),
            $f(14),
            $f(15),
        ]
    };
}
pub(super) use all;

/// The columns of a square as rows.
#[inline(always)]
pub(super) fn transposed(v4: V4, rows: [&[f32; SIDE]; SIDE]) -> [[f32; SIDE]; SIDE] {
    let row = |k: usize| -> __m512 { cast(*rows[k]) };
    let four = |k: usize| quarters(v4, [row(4 * k), row(4 * k + 1), row(4 * k + 2), row(4 * k + 3)]);
    let [a, b, c, d] = [four(0), four(1), four(2), four(3)];
    let column = |k: usize| gathered(v4, [a[k], b[k], c[k], d[k]]);
    let [a, b, c, d] = [column(0), column(1), column(2), column(3)];
    // Register k of four has columns k, 4 + k, 8 + k and 12 + k.
    let result = |i: usize| cast([a, b, c, d][i % 4][i / 4]);
    all!(result)
}

/// Transposes 4×4 in each quarter.
#[inline(always)]
fn quarters(v4: V4, r: [__m512; 4]) -> [__m512; 4] {
    let avx = v4.avx512f;
    let (a, b) = (avx._mm512_unpacklo_ps(r[0], r[1]), avx._mm512_unpacklo_ps(r[2], r[3]));
    let (c, d) = (avx._mm512_unpackhi_ps(r[0], r[1]), avx._mm512_unpackhi_ps(r[2], r[3]));
    [
        avx._mm512_shuffle_ps::<0x44>(a, b),
        avx._mm512_shuffle_ps::<0xee>(a, b),
        avx._mm512_shuffle_ps::<0x44>(c, d),
        avx._mm512_shuffle_ps::<0xee>(c, d),
    ]
}

/// The first quarters of four registers, then the second ones, and so on.
#[inline(always)]
fn gathered(v4: V4, r: [__m512; 4]) -> [__m512; 4] {
    let avx = v4.avx512f;
    let (a, b) = (avx._mm512_shuffle_f32x4::<0x44>(r[0], r[1]), avx._mm512_shuffle_f32x4::<0x44>(r[2], r[3]));
    let (c, d) = (avx._mm512_shuffle_f32x4::<0xee>(r[0], r[1]), avx._mm512_shuffle_f32x4::<0xee>(r[2], r[3]));
    [
        avx._mm512_shuffle_f32x4::<0x88>(a, b),
        avx._mm512_shuffle_f32x4::<0xdd>(a, b),
        avx._mm512_shuffle_f32x4::<0x88>(c, d),
        avx._mm512_shuffle_f32x4::<0xdd>(c, d),
    ]
}

//! Running sums and first-order linear recurrences of `f32` along contiguous memory, in registers.
//!
//! A block of 64 elements is 8 lanes of 8: transposed in registers, each lane is scanned from the operator's identity
//! (8 steps for all lanes at once), the lanes' totals are scanned across the register, and every lane gets what
//! precedes it. Only the state is carried from block to block, so the blocks overlap in the processor's pipeline.
//! Within a block, a product is added to a state with one rounding. The order of all operations is fixed by the length
//! alone, but for blocks that lose a finite state ([`lost`](super::lost)): they are taken step by step.

#[cfg(target_arch = "x86_64")]
mod block;

use std::ops::Range;

use super::lanes::First;
use super::lost::is_lost;
#[cfg(target_arch = "x86_64")]
use super::simd::AVX2;
use super::simd::simd;

/// The coefficients of s[t] = c[t]·s[t−1] + x[t].
#[derive(Clone, Copy, Debug)]
pub(super) enum Coefficient<'a> {
    /// One per element.
    Each(&'a [f32]),
    /// One for all elements.
    All(f32),
}

/// The elements of a block.
const BLOCK: usize = 64;

impl<'a> Coefficient<'a> {
    /// The coefficients from one element on.
    fn from(self, start: usize) -> Coefficient<'a> {
        if let Coefficient::Each(c) = self { Coefficient::Each(&c[start..]) } else { self }
    }

    /// The coefficients of the first n elements.
    #[cfg(target_arch = "x86_64")]
    fn to(self, n: usize) -> Coefficient<'a> {
        if let Coefficient::Each(c) = self { Coefficient::Each(&c[..n]) } else { self }
    }

    #[inline(always)]
    fn at(&self, t: usize) -> f32 {
        match self {
            Coefficient::Each(c) => c[t],
            Coefficient::All(c) => *c,
        }
    }
}

/// Whether this processor has the registers for it.
pub(super) fn is_available() -> bool {
    #[cfg(target_arch = "x86_64")]
    return AVX2.is_some();
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// Writes s[t] = s[t−1] + x[t] and returns the last s; `state` is s[−1].
pub(super) fn sum(x: &[f32], out: &mut [f32], state: f32) -> f32 {
    sum_in_blocks(x, out, state).unwrap_or_else(|| {
        one_by_one(x.len(), state, |block, state| {
            let (x, out) = (&x[block.clone()], &mut out[block]);
            sum_in_blocks(x, out, state).unwrap_or_else(|| sum_in_steps(x, out, state))
        })
    })
}

/// Goes through the blocks of a row, each from the state that the one before leaves.
fn one_by_one(len: usize, state: f32, mut block: impl FnMut(Range<usize>, f32) -> f32) -> f32 {
    (0..len).step_by(BLOCK).fold(state, |state, start| block(start..len.min(start + BLOCK), state))
}

fn sum_in_steps(x: &[f32], out: &mut [f32], mut state: f32) -> f32 {
    for (x, out) in x.iter().zip(out) {
        state += x;
        *out = state;
    }
    state
}

/// The last s; `None` if a finite state is lost.
fn sum_in_blocks(x: &[f32], out: &mut [f32], before: f32) -> Option<f32> {
    let (mut state, mut is_finite, mut done) = (before, true, 0);
    #[cfg(target_arch = "x86_64")]
    if let Some(v3) = *AVX2 {
        done = x.len() / 64 * 64;
        let swept = v3.vectorize(block::Sum { v3, x: &x[..done], out: &mut out[..done], state });
        (state, is_finite) = (swept.last, swept.is_finite);
    }
    let last = sum_in_steps(&x[done..], &mut out[done..], state);
    (is_finite || !before.is_finite()).then_some(last)
}

/// Writes s[t] = c[t]·s[t−1] + x[t] and returns the last s; `state` is s[−1]. No block rounds together what is before
/// and in a first element that is alone.
pub(super) fn linear(c: Coefficient<'_>, x: &[f32], out: &mut [f32], state: f32, first: First) -> f32 {
    if first == First::Alone && !x.is_empty() {
        return linear_after_first(c, x, out, c.at(0) * state + x[0]);
    }
    linear_in_blocks(c, x, out, state).unwrap_or_else(|| {
        one_by_one(x.len(), state, |block, state| {
            let (c, x, out) = (c.from(block.start), &x[block.clone()], &mut out[block]);
            linear_in_blocks(c, x, out, state).unwrap_or_else(|| linear_in_steps(c, x, out, state))
        })
    })
}

fn linear_in_steps(c: Coefficient<'_>, x: &[f32], out: &mut [f32], mut state: f32) -> f32 {
    for ((t, x), out) in x.iter().enumerate().zip(out) {
        state = c.at(t) * state + x;
        *out = state;
    }
    state
}

/// The last s; `None` if a finite state is lost.
fn linear_in_blocks(c: Coefficient<'_>, x: &[f32], out: &mut [f32], before: f32) -> Option<f32> {
    let (mut state, mut is_finite, mut done) = (before, true, 0);
    #[cfg(target_arch = "x86_64")]
    if let Some(v3) = *AVX2 {
        done = x.len() / BLOCK * BLOCK;
        let swept = v3.vectorize(block::Linear { v3, c: c.to(done), x: &x[..done], out: &mut out[..done], state });
        (state, is_finite) = (swept.last, swept.is_finite);
    }
    let last = linear_in_steps(c.from(done), &x[done..], &mut out[done..], state);
    (is_finite || !before.is_finite()).then_some(last)
}

/// Sweeps s[t] = c[t]·s[t−1] + x[t] where `state` is s[0] already: in the first block the identity takes the place of the first
/// element.
fn linear_after_first(c: Coefficient<'_>, x: &[f32], out: &mut [f32], state: f32) -> f32 {
    let n = x.len().min(BLOCK);
    let (first_c, first_x) = without_first(c, &x[..n]);
    let (opening, rest) = out.split_at_mut(n);
    let state = linear(Coefficient::Each(&first_c[..n]), &first_x[..n], opening, state, First::AsOthers);
    linear(c.from(n), &x[n..], rest, state, First::AsOthers)
}

/// The elements of a first block, with the identity as the first.
fn without_first(c: Coefficient<'_>, x: &[f32]) -> ([f32; BLOCK], [f32; BLOCK]) {
    let (mut of_c, mut of_x) = ([1.0; BLOCK], [0.0; BLOCK]);
    of_x[1..x.len()].copy_from_slice(&x[1..]);
    match c {
        Coefficient::Each(c) => of_c[1..x.len()].copy_from_slice(&c[1..x.len()]),
        Coefficient::All(c) => of_c[1..].fill(c),
    }
    (of_c, of_x)
}

/// The last s of s[t] = c[t]·s[t−1] + x[t]; `state` is s[−1].
pub(super) fn linear_total(c: Coefficient<'_>, x: &[f32], state: f32, first: First) -> f32 {
    let last = affine(c, x, (1.0, state), first).1;
    let steps = || (first.from()..x.len()).fold(state, |s, t| c.at(t) * s + x[t]);
    if is_lost(state, last) { steps() } else { last }
}

/// Π c[t], and the last s of s[t] = c[t]·s[t−1] + x[t] from s[−1] = 0. Either may overflow where no state does.
pub(super) fn affine_total(c: Coefficient<'_>, x: &[f32]) -> (f32, f32) {
    affine(c, x, (1.0, 0.0), First::AsOthers)
}

/// Combines (c[t], x[t]) in order, from what comes before: a product and a state.
fn affine(c: Coefficient<'_>, x: &[f32], before: (f32, f32), first: First) -> (f32, f32) {
    if first == First::LeftOut && !x.is_empty() {
        let n = x.len().min(BLOCK);
        let (first_c, first_x) = without_first(c, &x[..n]);
        let before = affine(Coefficient::Each(&first_c[..n]), &first_x[..n], before, First::AsOthers);
        return affine(c.from(n), &x[n..], before, First::AsOthers);
    }
    let ((mut product, mut state), mut done) = (before, 0);
    #[cfg(target_arch = "x86_64")]
    if let Some(v3) = *AVX2 {
        done = x.len() / 64 * 64;
        (product, state) = v3.vectorize(block::Affine { v3, c, x: &x[..done], before });
    }
    for (t, x) in x.iter().enumerate().skip(done) {
        (product, state) = (product * c.at(t), c.at(t) * state + x);
    }
    (product, state)
}

/// The product of a state and all c[t].
pub(super) fn product(c: &[f32], state: f32, first: First) -> f32 {
    let last = affine(Coefficient::Each(c), c, (state, 0.0), first).0;
    let steps = || c[first.from().min(c.len())..].iter().fold(state, |s, c| s * c);
    if is_lost(state, last) { steps() } else { last }
}

/// Σ x[t], in 64 interleaved parts.
pub(super) fn sum_total(x: &[f32]) -> f32 {
    simd(
        #[inline(always)]
        || {
            let Some((first, rest)) = x.split_first_chunk::<64>() else { return x.iter().fold(0.0, |s, x| s + x) };
            let (mut parts, (blocks, tail)) = (*first, rest.as_chunks::<64>());
            for block in blocks {
                parts.iter_mut().zip(block).for_each(|(part, x)| *part += x);
            }
            parts.iter().chain(tail).fold(0.0, |s, x| s + x)
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(n: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32
        };
        (0..n).map(|_| next()).collect()
    }

    /// s[t] and Σ|terms of s[t]| in f64.
    fn exact(c: &[f32], x: &[f32], state: f32) -> Vec<(f64, f64)> {
        let mut s = (f64::from(state), f64::from(state.abs()));
        let step = |(c, x): (&f32, &f32)| {
            let (c, x) = (f64::from(*c), f64::from(*x));
            s = (c * s.0 + x, c.abs() * s.1 + x.abs());
            s
        };
        c.iter().zip(x).map(step).collect()
    }

    fn assert_close(found: &[f32], exact: &[(f64, f64)], what: &str) {
        for (t, (found, (exact, scale))) in found.iter().zip(exact).enumerate() {
            let bound = 3.0 * (t + 64) as f64 * f64::from(f32::EPSILON) * scale;
            assert!((f64::from(*found) - exact).abs() <= bound, "{what}[{t}]: {found} against {exact}");
        }
    }

    #[test]
    fn blocks_and_tails_follow_the_recurrence() {
        for n in [0, 1, 2, 63, 64, 65, 127, 128, 1009] {
            let x: Vec<f32> = numbers(n, 1).iter().map(|x| x - 0.5).collect();
            let c: Vec<f32> = numbers(n, 2).iter().map(|c| 1.1 - 0.2 * c).collect();
            let mut out = vec![0.0; n];
            let last = sum(&x, &mut out, 0.25);
            assert_close(&out, &exact(&vec![1.0; n], &x, 0.25), "sum");
            assert_eq!(out.last().copied().unwrap_or(0.25), last);
            let last = linear(Coefficient::Each(&c), &x, &mut out, 0.25, First::AsOthers);
            assert_close(&out, &exact(&c, &x, 0.25), "linear");
            assert_eq!(out.last().copied().unwrap_or(0.25), last);
            let expected = exact(&c, &x, 0.25).last().copied();
            let total = linear_total(Coefficient::Each(&c), &x, 0.25, First::AsOthers);
            expected.into_iter().for_each(|(s, scale)| {
                assert!((f64::from(total) - s).abs() <= 3.0 * (n + 64) as f64 * f64::from(f32::EPSILON) * scale);
            });
            let (product, total) = affine_total(Coefficient::Each(&c), &x);
            let expected = c.iter().map(|c| f64::from(*c)).product::<f64>();
            assert!((f64::from(product) / expected - 1.0).abs() <= (n + 64) as f64 * f64::from(f32::EPSILON));
            assert_close(&[total], &[exact(&c, &x, 0.0).last().copied().unwrap_or_default()], "total");
            assert_close(&[sum_total(&x)], &[exact(&vec![1.0; n], &x, 0.0).last().copied().unwrap_or_default()], "Σ");
            linear(Coefficient::All(0.9), &x, &mut out, 0.25, First::AsOthers);
            assert_close(&out, &exact(&vec![0.9; n], &x, 0.25), "linear with one coefficient");
        }
    }

    #[test]
    fn a_coefficient_of_zero_forgets_what_was_before() {
        let mut c = vec![1.0; 200];
        c[100] = 0.0;
        let mut out = vec![0.0; 200];
        linear(Coefficient::Each(&c), &[1.0; 200], &mut out, 5.0, First::AsOthers);
        assert_eq!((out[99], out[100], out[199]), (105.0, 1.0, 100.0));
    }
}

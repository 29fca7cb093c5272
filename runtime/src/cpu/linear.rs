//! Running sums and first-order linear recurrences of `f32` along contiguous memory, in registers.
//!
//! A block of 64 elements is 8 lanes of 8: transposed in registers, each lane is scanned from the operator's identity
//! (8 steps for all lanes at once), the lanes' totals are scanned across the register, and every lane gets what
//! precedes it. Only the state is carried from block to block, so the blocks overlap in the processor's pipeline.
//! Within a block, a product is added to a state with one rounding. The order of all operations is fixed by the length
//! alone, but for blocks that lose a finite state ([`lost`](super::lost)): they are taken step by step.

#[cfg(target_arch = "x86_64")]
mod block;

#[cfg(target_arch = "x86_64")]
use pulp::x86::V3;

use super::lanes::FirstElement;
use super::lost::is_lost;
#[cfg(target_arch = "x86_64")]
use super::simd::AVX2;
use super::simd::simd;

/// The coefficients of s[t] = c[t]·s[t−1] + x[t].
#[derive(Clone, Copy, Debug)]
pub(super) enum Coefficient<'a> {
    /// One per element, in the order of memory.
    Each(&'a [f32]),
    /// One for all elements.
    All(f32),
}

/// From which end of memory a sweep goes to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Forward,
    Backward,
}

/// The elements of a recurrence, as they lie in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Series<'a> {
    pub(super) c: Coefficient<'a>,
    pub(super) x: &'a [f32],
    pub(super) direction: Direction,
}

/// The elements of a block.
const BLOCK: usize = 64;

impl Direction {
    /// The direction of a distance between one step and the next.
    pub(super) fn of(step: isize) -> Direction {
        if step < 0 { Direction::Backward } else { Direction::Forward }
    }

    /// The place in memory of a step among so many.
    #[inline(always)]
    fn place(self, step: usize, len: usize) -> usize {
        if self == Direction::Forward { step } else { len - 1 - step }
    }

    /// The first n steps, and the others.
    pub(super) fn split<T>(self, all: &[T], n: usize) -> (&[T], &[T]) {
        if self == Direction::Forward {
            return all.split_at(n);
        }
        let (others, first) = all.split_at(all.len() - n);
        (first, others)
    }

    /// The first n steps, and the others.
    pub(super) fn split_mut<T>(self, all: &mut [T], n: usize) -> (&mut [T], &mut [T]) {
        if self == Direction::Forward {
            return all.split_at_mut(n);
        }
        let (others, first) = all.split_at_mut(all.len() - n);
        (first, others)
    }
}

impl<'a> Series<'a> {
    /// Elements in the order of memory.
    pub(super) fn forward(c: Coefficient<'a>, x: &'a [f32]) -> Series<'a> {
        Series { c, x, direction: Direction::Forward }
    }

    /// The first n steps, and the others.
    pub(super) fn split(self, n: usize) -> (Series<'a>, Series<'a>) {
        let (x, others_x) = self.direction.split(self.x, n);
        let (c, others_c) = match self.c {
            Coefficient::Each(c) => {
                let (c, others) = self.direction.split(c, n);
                (Coefficient::Each(c), Coefficient::Each(others))
            }
            all => (all, all),
        };
        (Series { c, x, ..self }, Series { c: others_c, x: others_x, ..self })
    }

    /// The coefficient and the element of a step.
    #[inline(always)]
    fn at(&self, step: usize) -> (f32, f32) {
        let place = self.direction.place(step, self.x.len());
        match self.c {
            Coefficient::Each(c) => (c[place], self.x[place]),
            Coefficient::All(c) => (c, self.x[place]),
        }
    }

    /// The coefficients and elements from a step on.
    fn steps(self, from: usize) -> impl Iterator<Item = (f32, f32)> {
        (from..self.x.len()).map(move |step| self.at(step))
    }

    /// Coefficients and elements with the identity as the first.
    fn without_first(self) -> ([f32; BLOCK], [f32; BLOCK]) {
        let (mut of_c, mut of_x, n) = ([1.0; BLOCK], [0.0; BLOCK], self.x.len());
        of_x[..n].copy_from_slice(self.x);
        match self.c {
            Coefficient::Each(c) => of_c[..n].copy_from_slice(c),
            Coefficient::All(c) => of_c[..n].fill(c),
        }
        let first = self.direction.place(0, n);
        (of_c[first], of_x[first]) = (1.0, 0.0);
        (of_c, of_x)
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
pub(super) fn sum(x: &[f32], direction: Direction, out: &mut [f32], state: f32) -> f32 {
    let series = Series { c: Coefficient::All(1.0), x, direction };
    Sweep { is_sum: true, series, state }.run(out)
}

/// Writes s[t] = c[t]·s[t−1] + x[t] and returns the last s; `state` is s[−1]. No block rounds together what is before
/// and in a first element that is alone.
pub(super) fn linear(series: Series<'_>, out: &mut [f32], state: f32, first: FirstElement) -> f32 {
    if first == FirstElement::Separate && !series.x.is_empty() {
        let (c, x) = series.at(0);
        return linear_after_first(series, out, c * state + x);
    }
    Sweep { is_sum: false, series, state }.run(out)
}

/// A recurrence with results.
#[derive(Clone, Copy)]
struct Sweep<'a> {
    /// Whether all coefficients are 1.
    is_sum: bool,
    series: Series<'a>,
    /// The state before.
    state: f32,
}

impl Sweep<'_> {
    /// Writes all states and returns the last. Where blocks lose a finite state, they are taken one by one, and those that do step by step.
    fn run(self, out: &mut [f32]) -> f32 {
        self.in_blocks(out).unwrap_or_else(|| {
            let (mut rest, mut rest_of_out, mut state) = (self.series, out, self.state);
            while !rest.x.is_empty() {
                let n = rest.x.len().min(BLOCK);
                let (series, others) = rest.split(n);
                let (out, others_of_out) = rest.direction.split_mut(rest_of_out, n);
                let sweep = Sweep { series, state, ..self };
                state = sweep.in_blocks(out).unwrap_or_else(|| sweep.in_steps(out));
                (rest, rest_of_out) = (others, others_of_out);
            }
            state
        })
    }

    /// The last s; `None` if a finite state is lost.
    fn in_blocks(self, out: &mut [f32]) -> Option<f32> {
        let (mut state, mut is_finite, mut done) = (self.state, true, 0);
        #[cfg(target_arch = "x86_64")]
        if let Some(v3) = *AVX2 {
            done = self.series.x.len() / BLOCK * BLOCK;
            let (out, _) = self.series.direction.split_mut(out, done);
            let swept = Sweep { series: self.series.split(done).0, ..self }.by_registers(v3, out);
            (state, is_finite) = (swept.last, swept.is_finite);
        }
        let rest = Sweep { series: self.series.split(done).1, state, ..self };
        let last = rest.in_steps(self.series.direction.split_mut(out, done).1);
        (is_finite || !self.state.is_finite()).then_some(last)
    }

    fn in_steps(self, out: &mut [f32]) -> f32 {
        let (Series { direction, x, .. }, mut state) = (self.series, self.state);
        for (step, (c, element)) in self.series.steps(0).enumerate() {
            state = c * state + element;
            out[direction.place(step, x.len())] = state;
        }
        state
    }

    /// Whole blocks.
    #[cfg(target_arch = "x86_64")]
    fn by_registers(self, v3: V3, out: &mut [f32]) -> block::Swept {
        let Sweep { series, state, .. } = self;
        match (self.is_sum, series.direction) {
            (true, Direction::Forward) => v3.vectorize(block::Sum::<false> { v3, x: series.x, out, state }),
            (true, Direction::Backward) => v3.vectorize(block::Sum::<true> { v3, x: series.x, out, state }),
            (false, Direction::Forward) => v3.vectorize(block::Linear::<false> { v3, series, out, state }),
            (false, Direction::Backward) => v3.vectorize(block::Linear::<true> { v3, series, out, state }),
        }
    }
}

/// Sweeps s[t] = c[t]·s[t−1] + x[t] where `state` is s[0] already: in the first block the identity takes the place of the first
/// element.
fn linear_after_first(series: Series<'_>, out: &mut [f32], state: f32) -> f32 {
    let n = series.x.len().min(BLOCK);
    let (opening, others) = series.split(n);
    let (c, x) = opening.without_first();
    let opening = Series { c: Coefficient::Each(&c[..n]), x: &x[..n], ..series };
    let (out, others_of_out) = series.direction.split_mut(out, n);
    let state = linear(opening, out, state, FirstElement::Combined);
    linear(others, others_of_out, state, FirstElement::Combined)
}

/// The last s of s[t] = c[t]·s[t−1] + x[t]; `state` is s[−1].
pub(super) fn linear_total(series: Series<'_>, state: f32, first: FirstElement) -> f32 {
    let last = affine(series, (1.0, state), first).1;
    let steps = || series.steps(first.from()).fold(state, |s, (c, x)| c * s + x);
    if is_lost(state, last) { steps() } else { last }
}

/// Π c[t], and the last s of s[t] = c[t]·s[t−1] + x[t] from s[−1] = 0. Either may overflow where no state does.
pub(super) fn affine_total(series: Series<'_>) -> (f32, f32) {
    affine(series, (1.0, 0.0), FirstElement::Combined)
}

/// Combines (c[t], x[t]) in order, from what comes before: a product and a state.
fn affine(series: Series<'_>, before: (f32, f32), first: FirstElement) -> (f32, f32) {
    if first == FirstElement::Skipped && !series.x.is_empty() {
        let n = series.x.len().min(BLOCK);
        let (opening, others) = series.split(n);
        let (c, x) = opening.without_first();
        let opening = Series { c: Coefficient::Each(&c[..n]), x: &x[..n], ..series };
        let before = affine(opening, before, FirstElement::Combined);
        return affine(others, before, FirstElement::Combined);
    }
    let ((mut product, mut state), mut done) = (before, 0);
    #[cfg(target_arch = "x86_64")]
    if let Some(v3) = *AVX2 {
        done = series.x.len() / BLOCK * BLOCK;
        let series = series.split(done).0;
        (product, state) = match series.direction {
            Direction::Forward => v3.vectorize(block::Affine::<false> { v3, series, before }),
            Direction::Backward => v3.vectorize(block::Affine::<true> { v3, series, before }),
        };
    }
    for (c, x) in series.steps(done) {
        (product, state) = (product * c, c * state + x);
    }
    (product, state)
}

/// The product of a state and all c[t].
pub(super) fn product(c: &[f32], direction: Direction, state: f32, first: FirstElement) -> f32 {
    let series = Series { c: Coefficient::Each(c), x: c, direction };
    let last = affine(series, (state, 0.0), first).0;
    let steps = || series.steps(first.from()).fold(state, |s, (c, _)| s * c);
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
            let last = sum(&x, Direction::Forward, &mut out, 0.25);
            assert_close(&out, &exact(&vec![1.0; n], &x, 0.25), "sum");
            assert_eq!(out.last().copied().unwrap_or(0.25), last);
            let series = Series::forward(Coefficient::Each(&c), &x);
            let last = linear(series, &mut out, 0.25, FirstElement::Combined);
            assert_close(&out, &exact(&c, &x, 0.25), "linear");
            assert_eq!(out.last().copied().unwrap_or(0.25), last);
            let expected = exact(&c, &x, 0.25).last().copied();
            let total = linear_total(series, 0.25, FirstElement::Combined);
            expected.into_iter().for_each(|(s, scale)| {
                assert!((f64::from(total) - s).abs() <= 3.0 * (n + 64) as f64 * f64::from(f32::EPSILON) * scale);
            });
            let (product, total) = affine_total(series);
            let expected = c.iter().map(|c| f64::from(*c)).product::<f64>();
            assert!((f64::from(product) / expected - 1.0).abs() <= (n + 64) as f64 * f64::from(f32::EPSILON));
            assert_close(&[total], &[exact(&c, &x, 0.0).last().copied().unwrap_or_default()], "total");
            assert_close(&[sum_total(&x)], &[exact(&vec![1.0; n], &x, 0.0).last().copied().unwrap_or_default()], "Σ");
            linear(Series::forward(Coefficient::All(0.9), &x), &mut out, 0.25, FirstElement::Combined);
            assert_close(&out, &exact(&vec![0.9; n], &x, 0.25), "linear with one coefficient");
        }
    }

    #[test]
    fn backward_gives_the_bits_of_reversed_elements() {
        let reversed = |x: &[f32]| x.iter().rev().copied().collect::<Vec<f32>>();
        let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
        for n in [0, 1, 2, 63, 64, 65, 127, 128, 1009] {
            let (x, mut c) = (numbers(n, 1), numbers(n, 2));
            // Powers that overflow in a block, and then lose the state before it.
            c.iter_mut().skip(400).take(60).for_each(|c| *c *= 1e4);
            let (back_x, back_c) = (reversed(&x), reversed(&c));
            let coefficients = [
                (Coefficient::Each(&c), Coefficient::Each(&back_c[..])),
                (Coefficient::All(0.9), Coefficient::All(0.9)),
            ];
            let (mut forward, mut backward) = (vec![0.0; n], vec![0.0; n]);
            for (c, back_c) in coefficients {
                let series = Series::forward(c, &x);
                let back = Series { c: back_c, x: &back_x, direction: Direction::Backward };
                for first in [FirstElement::Combined, FirstElement::Separate] {
                    let last = linear(series, &mut forward, 0.25, first);
                    assert_eq!(linear(back, &mut backward, 0.25, first).to_bits(), last.to_bits(), "{n} {first:?}");
                    assert_eq!(bits(&reversed(&backward)), bits(&forward), "{n} {first:?}");
                }
                for first in [FirstElement::Combined, FirstElement::Skipped] {
                    let totals = [series, back].map(|series| linear_total(series, 0.25, first).to_bits());
                    assert_eq!(totals[0], totals[1], "{n} {first:?}");
                }
            }
            let last = sum(&x, Direction::Forward, &mut forward, 0.25);
            assert_eq!(sum(&back_x, Direction::Backward, &mut backward, 0.25).to_bits(), last.to_bits());
            assert_eq!(bits(&reversed(&backward)), bits(&forward), "{n}");
            for first in [FirstElement::Combined, FirstElement::Skipped] {
                let of = product(&c, Direction::Forward, 0.5, first);
                assert_eq!(product(&back_c, Direction::Backward, 0.5, first).to_bits(), of.to_bits(), "{n}");
            }
        }
    }

    #[test]
    fn a_coefficient_of_zero_forgets_what_was_before() {
        let mut c = vec![1.0; 200];
        c[100] = 0.0;
        let mut out = vec![0.0; 200];
        linear(Series::forward(Coefficient::Each(&c), &[1.0; 200]), &mut out, 5.0, FirstElement::Combined);
        assert_eq!((out[99], out[100], out[199]), (105.0, 1.0, 100.0));
    }
}

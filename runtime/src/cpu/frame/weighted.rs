//! Sums and softmax merges of a tile by products of matrices.

use std::borrow::Cow;

use ndarray::LinalgScalar;
use oplus_dsl::ir::{Binary, Literal};

use crate::cpu::CpuError;
use crate::cpu::arithmetic::Float;
use crate::cpu::loops::Loops;
use crate::cpu::map;
use crate::cpu::simd::simd;
use crate::cpu::tile::{Combine, Gauge, Matrix, Payload, Products, Reg, strides};
use crate::cpu::values::Values;

use super::Frame;
use super::product::{Block, SumAxes};

/// The weights of a tile of a merge.
struct Weights {
    /// By pair.
    all: Values,
    /// By row, what the states from before are multiplied with.
    kept: Values,
    /// Whether that is 1 for all rows.
    keeps_all: bool,
}

/// The factors of a payload's weights, and the pairs that count.
#[derive(Clone, Copy, PartialEq)]
struct Scaling<'a> {
    left: Option<&'a Matrix>,
    seen: Option<Reg>,
}

impl Frame<'_> {
    /// Adds a tile to the states of a sum or merge.
    pub(super) fn add_tile(&mut self, combine: &Combine, products: &Products) -> Result<(), CpuError> {
        if !combine.is_streamed {
            self.reset(combine)?;
        }
        let mut states: Vec<Option<Values>> = vec![];
        for state in &combine.states {
            states.push(state.map(|state| self.take(state)));
        }
        let is_single = states.iter().flatten().any(|state| matches!(state, Values::F32(_)));
        let added = if is_single {
            self.add_tile_of::<f32>(combine, products, &mut states)
        } else {
            self.add_tile_of::<f64>(combine, products, &mut states)
        };
        for (state, values) in combine.states.iter().zip(states) {
            if let (Some(state), Some(values)) = (state, values) {
                *self.get_mut(*state) = values;
            }
        }
        added
    }

    fn add_tile_of<T: Float + LinalgScalar>(
        &self,
        combine: &Combine,
        products: &Products,
        states: &mut [Option<Values>],
    ) -> Result<(), CpuError> {
        if let Some(gauge) = products.gauge {
            return self.merge_tile::<T>(combine, gauge, &products.payloads, states);
        }
        for payload in &products.payloads {
            let (Some(left), Some(right), Some(state)) = (&payload.left, &payload.right, &mut states[payload.field])
            else {
                continue;
            };
            if self.is_zero(left) || self.is_zero(right) {
                continue;
            }
            let [left, right] = [self.block::<T>(left)?, self.block::<T>(right)?];
            let over = SumAxes { axis: combine.axis, dims: combine.dims[payload.field] };
            self.add_product(over, state.all(), [&left, &right])?;
        }
        Ok(())
    }

    fn merge_tile<T: Float + LinalgScalar>(
        &self,
        combine: &Combine,
        gauge: Gauge,
        payloads: &[Payload],
        states: &mut [Option<Values>],
    ) -> Result<(), CpuError> {
        let Some(maxima) = &mut states[gauge.field] else { return Ok(()) };
        let weights = self.weights::<T>(combine.axis, gauge, maxima.all())?;
        let mut latest: Option<(Scaling<'_>, Values)> = None;
        for payload in payloads {
            let Some(state) = &mut states[payload.field] else { continue };
            let dims = combine.dims[payload.field];
            if !weights.keeps_all {
                self.keep::<T>(dims, state.all(), (combine.dims[gauge.field], weights.kept.from(0).of()));
            }
            let answer = payload.seen.and_then(|seen| self.one_answer(seen));
            if answer == Some(false) {
                continue;
            }
            let by = Scaling { left: payload.left.as_ref(), seen: payload.seen.filter(|_| answer.is_none()) };
            if latest.as_ref().is_none_or(|(known, _)| *known != by) {
                latest = self.weighted(gauge, by, &weights)?.map(|values| (by, values));
            }
            let own = latest.as_ref().map_or(&weights.all, |(_, values)| values).from(0).of::<T>();
            let Some(right) = &payload.right else {
                add_rows(state.all(), own, self.tile.extents[combine.axis]);
                continue;
            };
            let of_score = self.code.registers[gauge.score.0].dims;
            let left = Block {
                elements: Cow::Borrowed(own),
                dims: of_score,
                strides: strides(of_score, &self.tile.extents),
                mask: by.seen.map(|seen| self.mask(seen)),
            };
            let over = SumAxes { axis: combine.axis, dims };
            self.add_product(over, state.all(), [&left, &self.block(right)?])?;
        }
        Ok(())
    }

    /// The weights of the pairs of a tile, measured against the maxima with this tile.
    fn weights<T: Float>(&self, axis: usize, gauge: Gauge, maxima: &mut [T]) -> Result<Weights, CpuError> {
        let (n, columns) = (self.len(gauge.score), self.tile.extents[axis]);
        let scores = &self.get(gauge.score).of::<T>()[..n];
        let ty = T::erase(&[]).ty();
        let (mut all, mut kept) = (Values::empty(ty), Values::empty(ty));
        let rows = maxima.len();
        let keeps_all = weigh(scores, columns, gauge.rate, maxima, all.room(n)?, kept.room(rows)?);
        Ok(Weights { all, kept, keeps_all })
    }

    /// The weights times a factor where pairs are seen; `None` where there is neither.
    fn weighted(
        &self,
        gauge: Gauge,
        Scaling { left, seen }: Scaling<'_>,
        weights: &Weights,
    ) -> Result<Option<Values>, CpuError> {
        let own = self.strides(gauge.score);
        let mut values = None;
        if let Some(left) = left {
            let mut product = Values::empty(weights.all.ty());
            for register in left.registers() {
                let loops = self.loops(gauge.score, [&own, &own, &self.strides(register)]);
                map::binary(Binary::Mul, &loops, &mut product, weights.all.from(0), self.get(register))?;
            }
            values = Some(product);
        }
        if let Some(seen) = seen {
            let of = values.as_ref().unwrap_or(&weights.all);
            let (mut chosen, zero) = (Values::empty(of.ty()), Values::filled(of.ty(), 1, Literal::Float(0.0))?);
            let none = vec![0; own.len()];
            let loops = self.loops(gauge.score, [&own, &self.strides(seen), &own, &none]);
            map::select(&loops, &mut chosen, self.get(seen), of.from(0), zero.from(0))?;
            values = Some(chosen);
        }
        Ok(values)
    }

    /// Multiplies a state by a factor of each row.
    fn keep<T: Float>(&self, dims: u64, state: &mut [T], (of_rows, kept): (u64, &[T])) {
        let [own, rows] = [dims, of_rows].map(|dims| strides(dims, &self.tile.extents));
        let axes = (0..own.len()).filter(|k| dims >> k & 1 == 1);
        let loops = Loops::new(axes.map(|k| (self.tile.extents[k], [own[k], rows[k]]))).unit();
        simd(
            #[inline(always)]
            || {
                loops.each(
                    #[inline(always)]
                    |[s, r]| {
                        let (state, first) = (&mut state[s..][..loops.run], kept[r]);
                        if loops.step[1] == 0 {
                            for x in state {
                                *x = x.mul(first);
                            }
                            return;
                        }
                        for (x, kept) in state.iter_mut().zip(&kept[r..]) {
                            *x = x.mul(*kept);
                        }
                    },
                );
            },
        );
    }
}

/// How many numbers of a row are folded side by side.
const LANES: usize = 32;

/// Makes maxima those with the scores of a tile, row by row, writes the weights and what states from before are multiplied with.
/// Whether that is 1 for all rows.
fn weigh<T: Float>(
    scores: &[T],
    columns: usize,
    rate: f64,
    maxima: &mut [T],
    weights: &mut [T],
    kept: &mut [T],
) -> bool {
    if columns == 0 {
        return true;
    }
    let (decay, one) = (Decay::of(rate), T::of(Literal::Float(1.0)));
    simd(
        #[inline(always)]
        || {
            let mut keeps_all = true;
            let rows = scores.chunks_exact(columns).zip(weights.chunks_exact_mut(columns));
            for ((scores, weights), (most, kept)) in rows.zip(maxima.iter_mut().zip(kept)) {
                let before = *most;
                *most = largest(scores, before);
                *kept = decay.weight(before, *most);
                keeps_all &= *kept == one;
                for (weight_of, score) in weights.iter_mut().zip(scores) {
                    *weight_of = decay.weight(*score, *most);
                }
            }
            keeps_all
        },
    )
}

/// How a weight follows from the distance of a score from the maximum.
#[derive(Clone, Copy)]
struct Decay<T> {
    /// The base is e; else 2, at this rate.
    rate: Option<T>,
    /// Powers of the base below this exponent are 0. They are not computed, as numbers that are nearly 0 are slow.
    least: T,
}

impl<T: Float> Decay<T> {
    fn of(rate: f64) -> Decay<T> {
        let is_natural = (rate - std::f64::consts::LOG2_E).abs() < 1e-12;
        let is_single = size_of::<T>() == size_of::<f32>();
        let least = match (is_natural, is_single) {
            (true, true) => -104.0,
            (true, false) => -746.0,
            (false, true) => -151.0,
            (false, false) => -1076.0,
        };
        let number = |x| T::of(Literal::Float(x));
        Decay { rate: if is_natural { None } else { Some(number(rate)) }, least: number(least) }
    }

    /// The weight of a score against a maximum.
    #[inline(always)]
    fn weight(self, score: T, most: T) -> T {
        let distance = score.sub(most);
        let exponent = match self.rate {
            None => distance,
            Some(rate) => distance.mul(rate),
        };
        let is_far = exponent < self.least;
        let near = if is_far { T::default() } else { exponent };
        let weight = if self.rate.is_none() { near.exp() } else { near.exp2() };
        let weight = if is_far { T::default() } else { weight };
        if score == most { T::of(Literal::Float(1.0)) } else { weight }
    }
}

/// Adds the sum of each row of weights to a state.
fn add_rows<T: Float>(state: &mut [T], weights: &[T], columns: usize) {
    if columns == 0 {
        return;
    }
    simd(
        #[inline(always)]
        || {
            for (state, weights) in state.iter_mut().zip(weights.chunks_exact(columns)) {
                *state = state.add(total(weights));
            }
        },
    );
}

/// The largest of a number and those of a row.
#[inline(always)]
fn largest<T: Float>(row: &[T], first: T) -> T {
    let (blocks, rest) = row.as_chunks::<LANES>();
    let mut lanes = [first; LANES];
    for block in blocks {
        for (x, y) in lanes.iter_mut().zip(block) {
            *x = x.max(*y);
        }
    }
    let mut most = halves(lanes, T::max);
    for x in rest {
        most = most.max(*x);
    }
    most
}

/// The sum of a row.
#[inline(always)]
fn total<T: Float>(row: &[T]) -> T {
    let (blocks, rest) = row.as_chunks::<LANES>();
    let mut lanes = [T::default(); LANES];
    for block in blocks {
        for (x, y) in lanes.iter_mut().zip(block) {
            *x = x.add(*y);
        }
    }
    let mut sum = halves(lanes, T::add);
    for x in rest {
        sum = sum.add(*x);
    }
    sum
}

/// Folds lanes, one half onto the other.
#[inline(always)]
fn halves<T: Float>(mut lanes: [T; LANES], f: impl Fn(T, T) -> T) -> T {
    let mut n = LANES / 2;
    while n > 0 {
        for k in 0..n {
            lanes[k] = f(lanes[k], lanes[k + n]);
        }
        n /= 2;
    }
    lanes[0]
}

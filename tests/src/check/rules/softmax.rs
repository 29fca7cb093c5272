//! Softmax attention as plain loops over one head of keys, exactly or as it is written without any care.
//!
//! With the scores s[m, n] = Σ over E of q·k / √E of what query m sees, for the cotangent ō of the mean o:
//!
//! ```text
//! p = exp(s − lse)    o = Σ over N of p·v    delta = Σ over N of p·(Σ over F of ō·v)    s̄ = p·(Σ over F of ō·v − delta)
//! q̄ = Σ over N of s̄·k/√E    k̄ = Σ over M of s̄·q/√E    v̄ = Σ over M of p·ō
//! ```

use oplus_dsl::{Elem, scalar};
use rayon::prelude::*;

/// How numbers are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// In `f64`.
    Exact,
    /// Every matrix is stored in an element type, sums are in `f32`.
    Plain(Elem),
}

/// Rows of queries (those of all heads that share the keys, one head after the other), keys and values, row-major.
pub struct Head {
    /// Queries of each head, keys, channels of queries and of values.
    pub sizes: [usize; 4],
    /// Rows × E.
    pub q: Vec<f64>,
    /// N × E.
    pub k: Vec<f64>,
    /// N × F.
    pub v: Vec<f64>,
    /// Added to the scores, rows × N; or nothing.
    pub bias: Option<Vec<f64>>,
    /// Keeps scores within ±cap.
    pub cap: Option<f64>,
    /// The cotangent of the mean, rows × F.
    pub o_bar: Vec<f64>,
    /// Which of a head's queries sees which key.
    pub seen: Box<dyn Fn(usize, usize) -> bool + Sync>,
}

/// The sums over all keys that a query's gradients need.
#[derive(Clone, Copy, Debug)]
pub struct Statistic {
    /// The log-sum-exp of its scores.
    pub lse: f64,
    /// Σ over N of p·(Σ over F of ō·v).
    pub delta: f64,
}

/// A head under an arithmetic.
pub struct Loops<'h> {
    head: &'h Head,
    arithmetic: Arithmetic,
    /// The keys over √E.
    keys: Vec<f64>,
}

/// A key that a query sees: its number, score, and the score's derivative by that of q·k/√E.
type Score = (usize, f64, f64);

impl Arithmetic {
    /// A number as it is stored.
    fn stored(self, x: f64) -> f64 {
        if let Arithmetic::Plain(elem) = self { scalar::round(elem, x) } else { x }
    }

    /// A number as it is computed.
    fn computed(self, x: f64) -> f64 {
        if self == Arithmetic::Exact { x } else { f64::from(x as f32) }
    }

    fn dot(self, a: &[f64], b: &[f64]) -> f64 {
        let pairs = a.iter().zip(b);
        match self {
            Arithmetic::Exact => pairs.map(|(a, b)| a * b).sum(),
            Arithmetic::Plain(_) => f64::from(pairs.map(|(a, b)| (*a as f32) * (*b as f32)).sum::<f32>()),
        }
    }

    /// sums += factor·row.
    fn add(self, sums: &mut [f64], factor: f64, row: &[f64]) {
        sums.iter_mut().zip(row).for_each(|(sum, x)| *sum = self.computed(*sum + factor * x));
    }

    fn all_stored(self, row: Vec<f64>) -> Vec<f64> {
        row.into_iter().map(|x| self.stored(x)).collect()
    }
}

impl<'h> Loops<'h> {
    /// Loops over a head.
    pub fn new(head: &'h Head, arithmetic: Arithmetic) -> Loops<'h> {
        let scale = (head.sizes[2] as f64).sqrt().recip();
        let keys = head.k.iter().map(|k| arithmetic.stored(k * scale)).collect();
        Loops { head, arithmetic, keys }
    }

    /// The rows of queries.
    pub fn rows(&self) -> usize {
        self.head.q.len() / self.head.sizes[2].max(1)
    }

    fn key(&self, n: usize) -> &[f64] {
        let e = self.head.sizes[2];
        &self.keys[n * e..][..e]
    }

    fn query(&self, row: usize) -> &[f64] {
        let e = self.head.sizes[2];
        &self.head.q[row * e..][..e]
    }

    fn value(&self, n: usize) -> &[f64] {
        let f = self.head.sizes[3];
        &self.head.v[n * f..][..f]
    }

    fn cotangent(&self, row: usize) -> &[f64] {
        let f = self.head.sizes[3];
        &self.head.o_bar[row * f..][..f]
    }

    fn score(&self, row: usize, n: usize) -> Option<Score> {
        let (Head { sizes: [m, keys, ..], bias, cap, seen, .. }, arithmetic) = (self.head, self.arithmetic);
        let bias = bias.as_ref().map_or(0.0, |bias| bias[row * keys + n]);
        if !seen(row % m, n) || bias == f64::NEG_INFINITY {
            return None;
        }
        let score = arithmetic.stored(arithmetic.dot(self.query(row), self.key(n)));
        let Some(cap) = *cap else { return Some((n, arithmetic.stored(score + bias), 1.0)) };
        let tanh = arithmetic.stored(arithmetic.stored(score / cap).tanh());
        Some((n, arithmetic.stored(cap * tanh), 1.0 - tanh * tanh))
    }

    /// The scores of the keys that a query sees, and their log-sum-exp.
    fn scores(&self, row: usize) -> (Vec<Score>, f64) {
        let scores: Vec<Score> = (0..self.head.sizes[1]).filter_map(|n| self.score(row, n)).collect();
        let largest = scores.iter().map(|s| s.1).fold(f64::NEG_INFINITY, f64::max);
        let sum = scores.iter().fold(0.0, |sum, s| self.arithmetic.computed(sum + (s.1 - largest).exp()));
        (scores, if sum == 0.0 { f64::NEG_INFINITY } else { largest + sum.ln() })
    }

    /// A score's weight, and the cotangent of the weight.
    fn weight(&self, row: usize, score: Score, lse: f64) -> (f64, f64) {
        let weight = self.arithmetic.stored((score.1 - lse).exp());
        (weight, self.arithmetic.stored(self.arithmetic.dot(self.cotangent(row), self.value(score.0))))
    }

    /// The cotangent of a score.
    fn score_bar(&self, (weight, weight_bar): (f64, f64), slope: f64, delta: f64) -> f64 {
        let capped = self.arithmetic.stored(weight * (weight_bar - delta));
        self.arithmetic.stored(capped * slope)
    }

    /// The sums that a query's gradients need.
    pub fn statistic(&self, row: usize) -> Statistic {
        let (scores, lse) = self.scores(row);
        let delta = scores.iter().fold(0.0, |sum, score| {
            let (weight, bar) = self.weight(row, *score, lse);
            self.arithmetic.computed(sum + weight * bar)
        });
        Statistic { lse, delta }
    }

    /// The statistics of all queries.
    pub fn statistics(&self) -> Vec<Statistic> {
        (0..self.rows()).into_par_iter().map(|row| self.statistic(row)).collect()
    }

    /// The mean of a query, and its gradient.
    pub fn of_query(&self, row: usize) -> [Vec<f64>; 2] {
        let ((scores, lse), [_, _, e, f]) = (self.scores(row), self.head.sizes);
        let delta = self.statistic(row).delta;
        let (mut o, mut q_bar) = (vec![0.0; f], vec![0.0; e]);
        for score in scores {
            let both = self.weight(row, score, lse);
            self.arithmetic.add(&mut o, both.0, self.value(score.0));
            self.arithmetic.add(&mut q_bar, self.score_bar(both, score.2, delta), self.key(score.0));
        }
        [o, q_bar].map(|row| self.arithmetic.all_stored(row))
    }

    /// The gradients of a key and its value.
    pub fn of_key(&self, n: usize, statistics: &[Statistic]) -> [Vec<f64>; 2] {
        let [_, _, e, f] = self.head.sizes;
        let (mut k_bar, mut v_bar) = (vec![0.0; e], vec![0.0; f]);
        for (row, Statistic { lse, delta }) in statistics.iter().enumerate() {
            let Some(score) = self.score(row, n) else { continue };
            let both = self.weight(row, score, *lse);
            self.arithmetic.add(&mut k_bar, self.score_bar(both, score.2, *delta), self.query(row));
            self.arithmetic.add(&mut v_bar, both.0, self.cotangent(row));
        }
        let scale = (e as f64).sqrt().recip();
        let k_bar = self.arithmetic.all_stored(k_bar).into_iter().map(|x| x * scale).collect();
        [k_bar, v_bar].map(|row| self.arithmetic.all_stored(row))
    }
}

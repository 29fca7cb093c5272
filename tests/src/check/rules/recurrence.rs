//! A recurrence of matrices as plain loops in `f64`: `S[t] = exp(g[t])·S[t−1] + k[t]⊗v[t]`,
//! `o[t] = Σ over K of q[t]·S[t]`.
//!
//! With D the cotangent of the state, D\[t\] = q\[t\]⊗ō\[t\] + exp(g\[t+1\])·D\[t+1\] from that of the last state on:
//!
//! ```text
//! q̄ = Σ over V of S·ō    k̄ = Σ over V of D·v    v̄ = Σ over K of D·k    ḡ[t] = Σ over V of D[t]·exp(g[t])·S[t−1]
//! ```

use rayon::prelude::*;

/// One head, row-major; times × K or V.
pub struct Recurrence {
    /// Times, K, V.
    pub sizes: [usize; 3],
    /// Queries, keys, values.
    pub factors: [Vec<f64>; 3],
    /// Logarithms of decays, times × K.
    pub g: Vec<f64>,
    /// The state before the first time, K × V.
    pub s0: Vec<f64>,
    /// The cotangents of o and of the last state.
    pub bars: [Vec<f64>; 2],
}

/// The outputs and all gradients.
#[derive(Default)]
pub struct Outcome {
    /// o, the last state.
    pub outputs: [Vec<f64>; 2],
    /// q̄, k̄, v̄, ḡ (times × K), and that of the first state.
    pub gradients: [Vec<f64>; 5],
}

impl Recurrence {
    /// The outcome. Columns of the state, the places of V, go on their own.
    pub fn run(&self) -> Outcome {
        let [times, k, v] = self.sizes;
        let columns: Vec<Column> = (0..v).into_par_iter().map(|place| self.column(place)).collect();
        let mut all = Outcome {
            outputs: [vec![0.0; times * v], vec![0.0; k * v]],
            gradients: [times * k, times * k, times * v, times * k, k * v].map(|len| vec![0.0; len]),
        };
        for (place, column) in columns.iter().enumerate() {
            (0..times).for_each(|t| all.outputs[0][t * v + place] = column.o[t]);
            (0..times).for_each(|t| all.gradients[2][t * v + place] = column.v_bar[t]);
            (0..k).for_each(|c| all.outputs[1][c * v + place] = column.last[c]);
            (0..k).for_each(|c| all.gradients[4][c * v + place] = column.s0_bar[c]);
            for (sum, own) in [0, 1, 3].into_iter().zip(&column.sums) {
                all.gradients[sum].iter_mut().zip(own).for_each(|(sum, x)| *sum += x);
            }
        }
        all
    }

    /// The factor `which` at a time.
    fn at(&self, which: usize, t: usize) -> &[f64] {
        let k = self.sizes[1];
        &self.factors[which][t * k..][..k]
    }

    fn column(&self, place: usize) -> Column {
        let [times, k, v] = self.sizes;
        let mut state: Vec<f64> = (0..k).map(|c| self.s0[c * v + place]).collect();
        let mut before = vec![0.0; times * k];
        let mut column = Column { o: vec![0.0; times], v_bar: vec![0.0; times], ..Column::default() };
        column.sums = [0, 1, 2].map(|_| vec![0.0; times * k]);
        for t in 0..times {
            let (value, o_bar) = (self.factors[2][t * v + place], self.bars[0][t * v + place]);
            let (q, key) = (self.at(0, t), self.at(1, t));
            for c in 0..k {
                before[t * k + c] = self.g[t * k + c].exp() * state[c];
                state[c] = before[t * k + c] + key[c] * value;
                column.o[t] += q[c] * state[c];
                column.sums[0][t * k + c] = state[c] * o_bar;
            }
        }
        column.last = state;
        let mut bar: Vec<f64> = (0..k).map(|c| self.bars[1][c * v + place]).collect();
        for t in (0..times).rev() {
            let (value, o_bar) = (self.factors[2][t * v + place], self.bars[0][t * v + place]);
            let (q, key) = (self.at(0, t), self.at(1, t));
            for c in 0..k {
                bar[c] += q[c] * o_bar;
                column.sums[1][t * k + c] = bar[c] * value;
                column.v_bar[t] += bar[c] * key[c];
                column.sums[2][t * k + c] = bar[c] * before[t * k + c];
                bar[c] *= self.g[t * k + c].exp();
            }
        }
        column.s0_bar = bar;
        column
    }
}

/// The part of q̄, k̄ and ḡ that one column of the state contributes.
#[derive(Default)]
struct Column {
    o: Vec<f64>,
    last: Vec<f64>,
    v_bar: Vec<f64>,
    s0_bar: Vec<f64>,
    sums: [Vec<f64>; 3],
}

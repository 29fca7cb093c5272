//! A thread's partial sums of the cotangent of the decay's logarithm.

use super::rates::Decays;
use crate::build::Builder;
use crate::tile::Operand;

/// A thread's shares of the cotangent of the decay's logarithm.
#[derive(Default)]
pub(super) struct Partials {
    /// The shares at the thread's two times among rows: of pairs, values and queries.
    pub pairs: [Option<Operand>; 2],
    pub values: [Option<Operand>; 2],
    pub queries: [Option<Operand>; 2],
    /// The shares at the thread's times among columns.
    pub columns: Vec<Option<Operand>>,
}

/// A block of 16 × 8 sums of the first term of query'.
pub(super) struct QueryBlock {
    /// Its number along the depth.
    pub number: u32,
    /// The products, whose rows are yet to be scaled.
    pub found: [Operand; 4],
    /// The factors of the thread's two rows.
    pub scales: [Operand; 2],
    /// The block's queries.
    pub queries: [Operand; 4],
}

/// Adds a product to a sum that may have none yet.
pub(super) fn accumulate(b: &mut Builder, sum: &mut Option<Operand>, [x, y]: [Operand; 2]) {
    *sum = Some(match *sum {
        None => b.mul(x, y),
        Some(sum) => b.fma(x, y, sum),
    });
}

impl Partials {
    /// Adds E·G of row h and column c.
    pub(super) fn add_pair(&mut self, b: &mut Builder, h: usize, c: usize, factors: [Operand; 2]) {
        self.columns.resize(self.columns.len().max(c + 1), None);
        accumulate(b, &mut self.pairs[h], factors);
        accumulate(b, &mut self.columns[c], factors);
    }

    pub(super) fn add_value(&mut self, b: &mut Builder, h: usize, factors: [Operand; 2]) {
        accumulate(b, &mut self.values[h], factors);
    }

    /// Applies the gains of the values.
    pub(super) fn scale_values(&mut self, b: &mut Builder, decays: &Decays) {
        for (sum, [_, gain, _]) in self.values.iter_mut().zip(decays.rows) {
            *sum = sum.map(|sum| b.mul(sum, gain));
        }
    }

    pub(super) fn add_query(&mut self, b: &mut Builder, h: usize, factors: [Operand; 2]) {
        accumulate(b, &mut self.queries[h], factors);
    }
}

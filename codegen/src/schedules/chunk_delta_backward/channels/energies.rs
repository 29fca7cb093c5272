//! Σ over the width of S\[t−1\]·Λ\[t\] for every channel: what reaches the state at the chunk's end, and at every step back from there the
//! difference of what queries and z read and of what keys add.
//!
//! Each pair of times enters once for its later and once for its earlier time. Both are products of the same rounded numbers, so that what
//! cancels does so exactly.

use super::ChannelGradients;
use super::sixteen::Vectors;
use crate::block::pair::{Coordinates, Values};
use crate::build::Builder;
use crate::schedules::chunk_delta::{Fragment, Logs};
use crate::schedules::chunkwise::decay::f32;
use crate::stage::kind::DeltaSum;
use crate::tile::{Expr, Operand, Shuffle};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Unary};

/// The least logarithm of a decay that the energy is divided by.
const LEAST: f64 = -100.0;

/// The sums that energies follow from.
pub(super) struct Shares<'a> {
    pub vectors: &'a Vectors,
    /// Of each vector its sums with the states at the borders, with their decays.
    pub of_states: &'a [Fragment],
    /// Of each vector its sums over pairs of times, without the decays of rounded vectors.
    pub of_pairs: &'a [Fragment],
}

impl ChannelGradients<'_> {
    pub(super) fn needs_energies(&self) -> bool {
        self.form.needs(DeltaSum::Energies)
    }

    /// The energies at the thread's elements, from S·D at the chunk's borders.
    pub(super) fn energies(
        &self,
        b: &mut Builder,
        values: &mut Values,
        (shares, at_border): (&Shares<'_>, &[[Operand; 2]; 2]),
        (own, logs): (&Fragment, &Logs),
    ) -> Fragment {
        let mut energies = [[f32(0.0); 2]; 4];
        for eight in 0..2 {
            for c in 0..2 {
                let rows = [0, 1].map(|h| self.change(b, shares, (2 * eight + h, c)));
                let whole = b.let_(Ty::F32, Expr::Exp2Fast(logs.end[eight][c]));
                let added = b.add(rows[0].added, rows[1].added);
                let added = self.over_rows(b, added);
                let at_end = b.fma(whole, at_border[eight][c], added);
                let later = self.later_rows(b, rows.each_ref().map(|row| row.before));
                for h in 0..2 {
                    let sum = b.add(at_end, later[h]);
                    let sum = b.add(sum, rows[h].at);
                    energies[2 * eight + h][c] = self.undecayed(b, values, h as u32, (sum, own[2 * eight + h][c]));
                }
            }
        }
        energies
    }

    /// What a step changes, at a register's element.
    fn change(&self, b: &mut Builder, shares: &Shares<'_>, (r, c): (usize, usize)) -> Change {
        let Shares { vectors: Vectors { plain, decayed }, of_states, of_pairs } = shares;
        let product = |b: &mut Builder, k: usize| {
            let of_states = b.mul(plain[k][r][c], of_states[k][r][c]);
            (of_states, b.fma(decayed[k][r][c], of_pairs[k][r][c], of_states))
        };
        let ((_, queries), (_, columns), (mut added, mut all)) = (product(b, 0), product(b, 1), product(b, 2));
        for k in 3..plain.len() {
            let other = product(b, k);
            (added, all) = (b.add(added, other.0), b.add(all, other.1));
        }
        let at = b.sub(queries, all);
        Change { added, at, before: b.add(at, columns) }
    }

    /// The sum over all 16 rows, of numbers that are summed over the thread's two.
    fn over_rows(&self, b: &mut Builder, sum: Operand) -> Operand {
        [4, 8, 16].into_iter().fold(sum, |sum, by| {
            let other = b.shuffle(Shuffle::Xor, sum, Operand::i32(by));
            b.add(sum, other)
        })
    }

    /// Sums over the rows after each of the thread's two.
    fn later_rows(&self, b: &mut Builder, own: [Operand; 2]) -> [Operand; 2] {
        let [(first, _), (second, whole)] = own.map(|own| self.later_of_eight(b, own));
        [b.add(first, whole), second]
    }

    /// The sum over the later of eight rows, one for each group of lanes, and over all of them.
    fn later_of_eight(&self, b: &mut Builder, own: Operand) -> (Operand, Operand) {
        let mut sum = own;
        for by in [1, 2, 4] {
            let other = b.shuffle(Shuffle::Down, sum, Operand::i32(4 * by));
            let both = b.add(sum, other);
            let inside = b.lt(self.group, 8 - by);
            sum = b.select(inside, both, sum);
        }
        let whole = b.shuffle(Shuffle::Index, sum, self.member);
        let next = b.shuffle(Shuffle::Down, sum, Operand::i32(4));
        let has_next = b.lt(self.group, 7);
        (b.select(has_next, next, f32(0.0)), whole)
    }

    /// An energy without the decay of its step; nothing where the state is forgotten.
    fn undecayed(&self, b: &mut Builder, values: &mut Values, h: u32, (energy, log): (Operand, Operand)) -> Operand {
        let log = b.binary(Binary::Max, log, f32(LEAST));
        let log = b.unary(Unary::Neg, log);
        let power = b.let_(Ty::F32, Expr::Exp2Fast(log));
        let energy = b.mul(energy, power);
        match self.form.states.reset {
            None => energy,
            Some(reset) => {
                let here = Coordinates { row: Some(h), ..Coordinates::default() };
                let reset = values.value(b, reset, here);
                b.select(reset, f32(0.0), energy)
            }
        }
    }
}

/// What a step changes of the energy.
struct Change {
    /// What keys have added to the state at the chunk's end.
    added: Operand,
    /// From the state after the step to the decayed state before it.
    at: Operand,
    /// From the state after the step to the state after the one before.
    before: Operand,
}

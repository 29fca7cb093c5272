//! The energy of a channel, the sum over the width of the state S\[t−1\] times the cotangent Λ\[t\], from which the gradient of the decay
//! follows.
//!
//! The energy at the chunk's end is known from the borders. A step back from there adds the difference between the terms that its query and
//! its read vector z have in the gradients and the term that its key has. Each pair of times enters once for its later and once for its
//! earlier time, as a product of the same rounded numbers, so terms that cancel do so exactly.

use super::super::common::without_decay;
use super::ChannelGradients;
use super::sums::Front;
use crate::block::lane_sum::over_lanes;
use crate::block::pair::{Coordinates, Values};
use crate::build::{Builder, f32};
use crate::schedules::chunk_delta::{Fragment, Logs};
use crate::stage::kind::DeltaSum;
use crate::tile::{Expr, Operand, Shuffle};
use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

impl ChannelGradients<'_> {
    pub(super) fn needs_energies(&self) -> bool {
        self.form.needs(DeltaSum::Energies)
    }

    /// The energy at the chunk's end in each of the thread's channels: the share of the state before the chunk, and the share of the rows that
    /// the chunk's steps add.
    pub(super) fn at_end(
        &self,
        b: &mut Builder,
        vectors: &[Fragment],
        borders: &[[[Operand; 4]; 2]],
        sums: &Front,
        logs: &Logs,
    ) -> [[Operand; 2]; 2] {
        let at_border = self.energies_of_states(b, sums.energies);
        let mut energies = at_border;
        for (eight, two) in energies.iter_mut().enumerate() {
            for (c, energy) in two.iter_mut().enumerate() {
                let mut added = f32(0.0);
                for (vectors, borders) in vectors.iter().zip(borders).skip(self.readers()) {
                    for h in 0..2 {
                        added = b.fma(vectors[2 * eight + h][c], borders[eight][2 * h + c], added);
                    }
                }
                let added = self.over_rows(b, added);
                let whole = b.let_(Ty::F32, Expr::Exp2Fast(logs.end[eight][c]));
                *energy = b.fma(whole, *energy, added);
            }
        }
        energies
    }

    /// The energies at the thread's elements: the energies at the chunk's end and the changes of all later steps, which are products of
    /// vectors and of their gradients' sums.
    pub(super) fn energies(
        &self,
        b: &mut Builder,
        values: &mut Values,
        vectors: &[Fragment],
        sums: &[Fragment],
        at_end: &[[Operand; 2]; 2],
        own: &Fragment,
    ) -> Fragment {
        let mut energies = [[f32(0.0); 2]; 4];
        for eight in 0..2 {
            for c in 0..2 {
                let rows = [0, 1].map(|h| self.change(b, vectors, sums, 2 * eight + h, c));
                let later = self.later_rows(b, rows.each_ref().map(|row| row.before));
                for h in 0..2 {
                    let sum = b.add(at_end[eight][c], later[h]);
                    let sum = b.add(sum, rows[h].at);
                    energies[2 * eight + h][c] = self.undecayed(b, values, h as u32, sum, own[2 * eight + h][c]);
                }
            }
        }
        energies
    }

    /// The change of the energy at a step, at a register's element.
    fn change(&self, b: &mut Builder, vectors: &[Fragment], sums: &[Fragment], r: usize, c: usize) -> Change {
        let product = |b: &mut Builder, k: usize| b.mul(vectors[k][r][c], sums[k][r][c]);
        let readers = self.readers();
        let (queries, mut added) = (product(b, 0), product(b, readers));
        let columns = self.form.states.reads.then(|| product(b, 1));
        for k in readers + 1..vectors.len() {
            let other = product(b, k);
            added = b.add(added, other);
        }
        let at = b.sub(queries, added);
        Change { at, before: columns.map_or(at, |columns| b.add(at, columns)) }
    }

    /// The sum over all 16 rows, of numbers that are summed over the thread's two.
    fn over_rows(&self, b: &mut Builder, sum: Operand) -> Operand {
        over_lanes(b, Binary::Add, sum, &[4, 8, 16])
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
            let inside = b.lt(self.fragment.group, 8 - by);
            sum = b.select(inside, both, sum);
        }
        let whole = b.shuffle(Shuffle::Index, sum, self.fragment.member);
        let next = b.shuffle(Shuffle::Down, sum, Operand::i32(4));
        let has_next = b.lt(self.fragment.group, 7);
        (b.select(has_next, next, f32(0.0)), whole)
    }

    /// An energy without the decay of its step; nothing where the state is forgotten.
    fn undecayed(&self, b: &mut Builder, values: &mut Values, h: u32, energy: Operand, log: Operand) -> Operand {
        let here = Coordinates { row: Some(h), ..Coordinates::default() };
        without_decay(b, values, self.form.states.reset, here, energy, Some(log))
    }
}

/// The change of the energy at a step.
struct Change {
    /// From the state after the step to the decayed state before it.
    at: Operand,
    /// From the state after the step to the state after the one before.
    before: Operand,
}

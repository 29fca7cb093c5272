//! Sums over the depth at every time: outputs are maps of some, and the energy of a step follows from the others.

use super::common::{Place, without_decay};
use super::gradients::{Gradients, Sixteen, TOTALS};
use super::rates::{ADDED, EACH, GIVEN, READ};
use super::{TIMES, WARPS};
use crate::block::lane_sum::{Neighbours, Side, over_lanes, sum_beside};
use crate::block::layout::TileStage;
use crate::block::matmul::COLUMNS;
use crate::block::pair::{Coordinates, Values};
use crate::build::{Builder, f32};
use crate::schedules::chunk_delta::ELEMENTS;
use crate::schedules::chunkwise::decay::logarithm_at;
use crate::stage::kind::{DeltaCotangent, DeltaSum};
use crate::tile::{Expr, Memory, Operand};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Value};

/// Rows of parts: of q·(c·S), z·(p·S) and k·(e·D), each by half; sums over earlier times of pairs that queries and columns weigh, by half;
/// sums over later times of both, by block; then [totals](TOTALS).
const QUERIES: u32 = 0;
const COLUMNS_OF_STATES: u32 = 2;
const KEYS: u32 = 4;
const EARLIER: u32 = 6;
const LATER: u32 = 10;

/// A number at a time.
#[derive(Clone, Copy)]
pub(super) enum Share {
    /// The sum over the depth that a node is.
    Total(Value),
    /// ⟨S\[t−1\], Λ\[t\]⟩.
    Energy,
}

/// A thread's shares of sums of pairs of times.
pub(super) struct PairShares {
    /// Over the earlier times, at its two times: of pairs that queries weigh, and that columns do.
    earlier: [[Operand; 2]; 2],
    /// Over the later times, at its earlier times.
    later: Vec<[Operand; 2]>,
}

impl Gradients<'_> {
    pub(super) fn needs_energy(&self) -> bool {
        self.form.needs(DeltaSum::Energy)
    }

    /// The shares of nothing.
    pub(super) fn no_pair_shares(&self) -> PairShares {
        let none = [f32(0.0); 2];
        PairShares { earlier: [none; 2], later: vec![none; (TIMES / 2 / COLUMNS) as usize] }
    }

    /// Adds the values that totals sum, at a place of a row.
    pub(super) fn add_totals(
        &self,
        b: &mut Builder,
        values: &mut Values,
        shares: &mut [[Operand; 2]],
        here: Coordinates,
        h: usize,
    ) {
        for ((_, element), share) in self.form.totals.iter().zip(shares) {
            let (_, exists) = values.indices(b, here);
            let term = values.value(b, *element, here);
            let term = b.select(exists, term, f32(0.0));
            share[h] = b.add(share[h], term);
        }
    }

    /// Writes the thread's shares of totals.
    pub(super) fn store_totals(&self, b: &mut Builder, shares: &[[Operand; 2]]) {
        for (k, share) in (0..).zip(shares) {
            self.store_rows(b, TOTALS + 2 * k, share);
        }
    }

    /// Adds the products of queries, columns and keys with what the state before the times and the cotangent after them give, at 16
    /// places of the depth of the warp's half.
    pub(super) fn add_first(&self, b: &mut Builder, shares: &mut [[Operand; 2]; 3], pair: u32, sums: &[Sixteen; 3]) {
        if !self.needs_energy() {
            return;
        }
        let tiles = [&self.tiles.queries, self.tiles.columns(), &self.tiles.keys];
        for ((share, tile), sums) in shares.iter_mut().zip(tiles).zip(sums) {
            for (block, sums) in (2 * pair..).zip(sums) {
                let own = self.own_block(b, TileStage::only(tile), block);
                for (h, c) in ELEMENTS {
                    share[h] = b.fma(own[2 * h + c], sums[2 * h + c], share[h]);
                }
            }
        }
    }

    /// Writes these products.
    pub(super) fn store_first(&self, b: &mut Builder, shares: &[[Operand; 2]; 3]) {
        if self.needs_energy() {
            for (part, share) in [QUERIES, COLUMNS_OF_STATES, KEYS].into_iter().zip(shares) {
                self.store_rows(b, part, share);
            }
        }
    }

    /// Adds a block of pairs, that queries weigh or columns do (`kind` 0 or 1): weights times products.
    pub(super) fn add_pair_shares(
        &self,
        b: &mut Builder,
        shares: &mut PairShares,
        kind: usize,
        block: usize,
        weights: [Operand; 4],
        products: &[Operand; 4],
    ) {
        for (h, c) in ELEMENTS {
            let pair = b.mul(weights[2 * h + c], products[2 * h + c]);
            let earlier = &mut shares.earlier[kind][h];
            *earlier = b.add(*earlier, pair);
            let later = &mut shares.later[block][c];
            *later = b.add(*later, pair);
        }
    }

    /// Writes the thread's shares of sums of pairs.
    pub(super) fn store_pair_shares(&self, b: &mut Builder, shares: &PairShares) {
        for (k, share) in (0..).zip(&shares.earlier) {
            self.store_rows(b, EARLIER + 2 * k, share);
        }
        let own = b.eq(self.fragment.group, Operand::i32(0));
        let (half, column) = (self.half_of(b, TIMES), self.fragment.column(b));
        let of_block = b.mul(self.block, Operand::i32(TIMES as i32));
        let at = b.add(half, column);
        let at = b.add(at, of_block);
        for (block, two) in (0..).zip(&shares.later) {
            let two = two.map(|share| over_lanes(b, Binary::Add, share, &[4, 8, 16]));
            let at = b.add(at, Operand::i32((LATER * TIMES + block * COLUMNS) as i32));
            b.store(Memory::Shared(self.parts), at, &two, Some(own));
        }
    }

    /// Writes sums over the four lanes of a row: row `part` of the parts, and the warp's half.
    fn store_rows(&self, b: &mut Builder, part: u32, shares: &[Operand; 2]) {
        let own = b.eq(self.fragment.member, Operand::i32(0));
        let row = self.first_row(b);
        let half = b.mul(self.half, Operand::i32(TIMES as i32));
        let at = b.add(row, half);
        for (h, share) in (0..).zip(shares) {
            let sum = over_lanes(b, Binary::Add, *share, &[1, 2]);
            let at = b.add(at, Operand::i32((part * TIMES + h * COLUMNS) as i32));
            b.store(Memory::Shared(self.parts), at, &[sum], Some(own));
        }
    }

    /// Writes the warp's share of ⟨S, D⟩.
    pub(super) fn share_energy(&self, b: &mut Builder, share: Operand) {
        if !self.needs_energy() {
            return;
        }
        let sum = over_lanes(b, Binary::Add, share, &[1, 2, 4, 8, 16]);
        let own = b.eq(self.thread.lane, Operand::i32(0));
        b.store(Memory::Shared(self.energies), self.thread.warp, &[sum], Some(own));
    }

    /// The sums of some parts at the lane's times.
    fn at_times(&self, b: &mut Builder, parts: std::ops::Range<u32>) -> [Operand; 2] {
        let own = b.mul(self.thread.lane, Operand::i32(EACH as i32));
        let mut sums: Option<[Operand; 2]> = None;
        for part in parts {
            let at = b.add(own, Operand::i32((part * TIMES) as i32));
            let two = b.load(Memory::Shared(self.parts), at, EACH, None, f32(0.0));
            sums = Some(match sums {
                None => [two[0], two[1]],
                Some(sums) => [0, 1].map(|k: usize| b.add(sums[k], two[k])),
            });
        }
        sums.unwrap_or([f32(0.0); 2])
    }

    /// Stores the outputs over time, by the first warp.
    pub(super) fn store_steps(&self, b: &mut Builder, place: &Place) {
        if !self.form.outputs.contains(&DeltaCotangent::OverTime) {
            return;
        }
        let is_first = b.eq(self.thread.warp, Operand::i32(0));
        b.if_(is_first, |b| {
            let place = self.rematerialised_place(b, place);
            let mut values = self.values(&place);
            self.set_times(b, &mut values, &place);
            let mut shares: Vec<(Share, [Operand; 2])> = vec![];
            for (k, (node, _)) in (0..).zip(&self.form.totals) {
                let sums = self.at_times(b, TOTALS + 2 * k..TOTALS + 2 * k + 2);
                shares.push((Share::Total(*node), sums));
            }
            if self.needs_energy() {
                let energies = self.energies(b, &mut values);
                shares.push((Share::Energy, energies));
            }
            for k in 0..EACH {
                let here = Coordinates { row: Some(k), ..Coordinates::default() };
                let own: Vec<(Share, Operand)> =
                    shares.iter().map(|(share, sums)| (*share, sums[k as usize])).collect();
                self.store_at(b, &mut values, here, &own);
            }
        });
    }

    /// ⟨S\[t−1\], Λ\[t\]⟩ at the lane's times, from w\[t\]·⟨S\[t−1\], Λ\[t\]⟩: the energy at the end, and its changes at all later steps.
    fn energies(&self, b: &mut Builder, values: &mut Values) -> [Operand; 2] {
        let kinds = [(QUERIES, GIVEN), (COLUMNS_OF_STATES, READ), (KEYS, ADDED)];
        let [queries, columns, first] = kinds.map(|(part, kind)| {
            let (sums, by) = (self.at_times(b, part..part + 2), self.of_times(b, kind));
            [0, 1].map(|k: usize| b.mul(sums[k], by[k]))
        });
        let [of_queries, of_columns] = [EARLIER, EARLIER + 2].map(|part| self.at_times(b, part..part + 2));
        let later = self.at_times(b, LATER..TOTALS);
        let add = |b: &mut Builder, x: [Operand; 2], y: [Operand; 2]| [0, 1].map(|k: usize| b.add(x[k], y[k]));
        let (queries, columns) = (add(b, queries, of_queries), add(b, columns, of_columns));
        let keys = add(b, first, later);
        let energy = (0..WARPS).map(|warp| b.load1(Memory::Shared(self.energies), Operand::i32(warp as i32)));
        let energy = energy.collect::<Vec<_>>().into_iter().reduce(|sum, own| b.add(sum, own)).unwrap_or(f32(0.0));
        let whole = if self.form.states.decays() {
            let end = self.end(b);
            b.let_(Ty::F32, Expr::Exp2Fast(end))
        } else {
            f32(1.0)
        };
        let both = b.add(first[0], first[1]);
        let first = over_lanes(b, Binary::Add, both, &[1, 2, 4, 8, 16]);
        let at_end = b.fma(whole, energy, first);
        let change = [0, 1].map(|k| {
            let own = b.sub(queries[k], keys[k]);
            (own, b.add(own, columns[k]))
        });
        let both = b.add(change[0].1, change[1].1);
        let later = sum_beside(b, Neighbours::in_warp(self.thread.lane), both, Side::Behind);
        let later = b.add(at_end, later);
        let second = b.add(later, change[1].0);
        let through = b.add(later, change[1].1);
        let energies = [b.add(through, change[0].0), second];
        self.undecayed(b, values, energies)
    }

    /// Numbers at the lane's times without the decay of the step; nothing where the state is forgotten.
    fn undecayed(&self, b: &mut Builder, values: &mut Values, energies: [Operand; 2]) -> [Operand; 2] {
        let rule = &self.form.states;
        let mut k = 0;
        energies.map(|energy| {
            let here = Coordinates { row: Some(k), ..Coordinates::default() };
            k += 1;
            let log = rule.decay.map(|decay| logarithm_at(b, values, Some(decay), here));
            without_decay(b, values, rule.reset, here, energy, log)
        })
    }
}

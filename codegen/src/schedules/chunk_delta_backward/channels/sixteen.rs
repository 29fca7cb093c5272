//! The gradients at a chunk's times in 16 places of the depth.

use super::sums::{Front, Pairs, Sums};
use super::{ChannelGradients, SLICE};
use crate::block::layout::{Tile, left_rows};
use crate::block::matmul::{COLUMNS, ROWS};
use crate::block::pair::{Coordinates, Values};
use crate::block::parts::Parts;
use crate::block::prepare::copied_fragment;
use crate::build::{Builder, f32};
use crate::schedules::chunk_delta::{CHANNELS, Fragment, Logs, times};
use crate::schedules::chunk_delta_backward::common::number;
use crate::stage::kind::{Channels, DeltaSum, Factored};
use crate::tile::{Expr, Operand, Reg};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Literal, Unary};

/// Powers of two of logarithms, or 1 where decays are too strong for vectors to be multiplied by their reciprocals.
pub(super) struct Powers {
    after: Fragment,
    read: Fragment,
    /// 2^−s.
    before: Fragment,
    /// Whether decays are weak enough for that.
    pub is_mild: Operand,
}

/// The right factors of sums over pairs of times: queries, the vectors that read the state, and for each kind of added rows the vectors by
/// which rows are multiplied. Each vector is multiplied by its number and by powers of its decays, and rounded.
pub(super) type Vectors = Vec<Fragment>;

impl Powers {
    /// By which each of the [vectors](Vectors) is multiplied, of which so many read states, and each sum over pairs of its times.
    fn of_vectors(&self, readers: usize) -> impl Iterator<Item = &Fragment> {
        [&self.after, &self.read].into_iter().take(readers).chain(std::iter::repeat(&self.before))
    }
}

impl ChannelGradients<'_> {
    /// Goes through the warp's places of the depth, 16 at a time. A loop that is not unrolled takes fewer registers: the sums of later
    /// places move to the front from one iteration to the next.
    pub(super) fn sixteens(&self, b: &mut Builder, values: &Values, sums: &Sums, totals: &[[Reg; 2]]) {
        let regs: Vec<Vec<Reg>> =
            sums.by_sixteen().map(|own| own.into_iter().map(|sum| b.var(sum)).collect()).collect();
        b.for_(Operand::i32(0), Operand::i32((SLICE / ROWS) as i32), Operand::i32(1), |b, sixteen| {
            let own = sums.front(&regs[0]);
            self.sixteen(b, values, &own, sixteen, totals);
            for two in regs.windows(2) {
                two[0].iter().zip(&two[1]).for_each(|(to, from)| b.assign(*to, (*from).into()));
            }
        });
    }

    /// Computes and stores 16 of the warp's places of the depth, and adds to totals. Vectors and products over pairs are read again where
    /// they are needed: beside the sums no registers are left for them.
    fn sixteen(&self, b: &mut Builder, values: &Values, sums: &Front, sixteen: Operand, totals: &[[Reg; 2]]) {
        let mut values = values.clone();
        let first = b.mul(self.slice, SLICE);
        let column = self.fragment.column(b);
        let first = b.add(first, column);
        let by = b.mul(sixteen, ROWS);
        let first = b.add(first, by);
        let own = self.log_reader().logs_from(b, &mut values, first);
        let logs = self.log_reader().channel_logs(b, &values, &own);
        let powers = self.powers(b, &logs);
        let added = self.added().into_iter().map(|(_, vectors)| vectors);
        let readers = [&self.queries, self.columns()].into_iter().take(self.readers());
        let tiles: Vec<&Tile> = readers.chain(added).collect();
        let given: Vec<Fragment> = tiles.iter().map(|tile| self.loaded(b, tile, sixteen)).collect();
        let vectors = self.vectors(b, &mut values, &given, &own, &powers);
        self.store_vectors(b, &vectors);
        let borders = self.of_borders(b, sums, &logs, &powers);
        let at_end = self.needs_energies().then(|| self.at_end(b, &vectors, &borders, sums, &logs));
        let found = self.with_pairs(b, borders, &logs, &powers);
        if let Some(at_end) = at_end {
            let vectors = if self.rows.is_some() { self.stored_vectors(b) } else { vectors };
            let energies = self.energies(b, &mut values, &vectors, &found, &at_end, &own);
            self.set_all(b, &mut values, DeltaSum::Energies, &energies);
        }
        let all: Vec<Fragment> = found
            .iter()
            .zip(powers.of_vectors(self.readers()))
            .map(|(found, powers)| times(b, found, powers))
            .collect();
        for tile in tiles {
            let elements = self.loaded(b, tile, sixteen);
            each(|r, c, here| values.set_param(tile.param, here, elements[r][c]));
        }
        let of_added: &[DeltaSum] =
            if self.rows.is_some() { &[DeltaSum::Reads, DeltaSum::Values] } else { &[DeltaSum::Keys] };
        let of_readers = [DeltaSum::Queries, DeltaSum::Columns].iter().take(self.readers());
        for (sum, own) in of_readers.chain(of_added).zip(&all) {
            self.set_all(b, &mut values, *sum, own);
        }
        self.store_deep(b, &mut values, totals);
    }

    fn powers(&self, b: &mut Builder, logs: &Logs) -> Powers {
        let is_mild = logs.is_mild(b);
        let mut power = |logs: &Fragment, negated: bool| {
            logs.map(|two| {
                two.map(|log| {
                    let log = if negated { b.unary(Unary::Neg, log) } else { log };
                    let power = b.let_(Ty::F32, Expr::Exp2Fast(log));
                    b.select(is_mild, power, f32(1.0))
                })
            })
        };
        let (after, read, before) = (power(&logs.after, false), power(&logs.read, false), power(&logs.after, true));
        Powers { after, read, before, is_mild }
    }

    /// The warp's elements of a tile over the depth.
    fn loaded(&self, b: &mut Builder, tile: &Tile, sixteen: Operand) -> Fragment {
        let first = self.first_of_chunk(b);
        let of_slice = b.mul(self.slice, SLICE / COLUMNS);
        let eight = b.mul(sixteen, 2);
        let eight = b.add(of_slice, eight);
        copied_fragment(b, (tile, tile.elem), self.thread.lane, Operand::i32(0), first, eight)
    }

    fn vectors(
        &self,
        b: &mut Builder,
        values: &mut Values,
        given: &[Fragment],
        own: &Fragment,
        powers: &Powers,
    ) -> Vectors {
        let (rule, elem) = (&self.form.states, self.factors[0].elem);
        let one = Factored { param: 0, factors: vec![], negative: false };
        let read = if self.rows.is_some() { [&rule.column, &one] } else { [&rule.column, &rule.row] };
        let value = [&rule.value, &one];
        let of_added = if self.rows.is_some() { vec![[&one, &one], value] } else { vec![value] };
        let readers = [[&self.form.cotangents.value, &one], read].into_iter().take(self.readers());
        let numbers = readers.chain(of_added);
        let numbers: Vec<[Operand; 2]> = numbers.map(|two| self.at_rows(b, values, two)).collect();
        let scaled = |b: &mut Builder, own: &Fragment, numbers: [Operand; 2]| {
            [0, 1, 2, 3].map(|r: usize| own[r].map(|x| b.mul(x, numbers[r % 2])))
        };
        let mut plain: Vec<Fragment> =
            given.iter().zip(numbers).map(|(own, numbers)| scaled(b, own, numbers)).collect();
        if rule.reads && rule.channels == Some(Channels::ReadAfter) {
            // The vector that the state before the step is read by has the decay as a factor.
            let decays = own.map(|two| two.map(|log| b.let_(Ty::F32, Expr::Exp2Fast(log))));
            plain[1] = times(b, &plain[1], &decays);
        }
        let decayed = plain.iter().zip(powers.of_vectors(self.readers())).map(|(plain, powers)| {
            let own = times(b, plain, powers);
            Parts::of_pairs(b, elem, &own).pairs(b, elem)
        });
        decayed.collect()
    }

    /// The product of the numbers of two parameters at the thread's rows; 0 where there is none.
    fn at_rows(&self, b: &mut Builder, values: &mut Values, two: [&Factored; 2]) -> [Operand; 2] {
        [0, 1].map(|h| {
            let here = Coordinates { row: Some(h), ..Coordinates::default() };
            let [first, second] = two.map(|own| number(b, values, own, here));
            let product = b.mul(first, second);
            b.select(values.row(h).exists, product, f32(0.0))
        })
    }

    /// Writes the vectors to shared memory, as right factors over time.
    fn store_vectors(&self, b: &mut Builder, vectors: &[Fragment]) {
        // All lanes have read the vectors before.
        self.sync(b);
        for (tile, own) in self.factors.iter().zip(vectors) {
            for (eight, elements) in (0..).zip(blocks(own)) {
                self.store_own(b, tile, eight, &elements);
            }
        }
        self.sync(b);
    }

    /// The vectors as shared memory has them.
    fn stored_vectors(&self, b: &mut Builder) -> Vectors {
        let (row, half) = left_rows(b, self.thread.lane);
        let lanes = self.factors[0].lanes(b, row, half);
        let elem = self.factors[0].elem;
        let own = |tile| self.own_factor(b, tile, &lanes).parts(b, 0, 0, false).pairs(b, elem);
        self.factors.iter().map(own).collect()
    }

    /// The terms of the state before the chunk and of the cotangent after it, before they are multiplied by powers of the decays.
    fn of_borders(&self, b: &mut Builder, sums: &Front, logs: &Logs, powers: &Powers) -> Vec<[[Operand; 4]; 2]> {
        let is_mild = powers.is_mild;
        let left = |b: &mut Builder, mild: Operand, strong: Operand| {
            let log = b.select(is_mild, mild, strong);
            b.let_(Ty::F32, Expr::Exp2Fast(log))
        };
        let mut to_end = logs.after;
        for (r, two) in to_end.iter_mut().enumerate() {
            for (c, log) in two.iter_mut().enumerate() {
                let end = logs.end[r / 2][c];
                let apart = b.sub(end, *log);
                *log = left(b, end, apart);
            }
        }
        let [after, read] = [&logs.after, &logs.read].map(|logs| logs.map(|two| two.map(|log| left(b, f32(0.0), log))));
        let all = [after, read].into_iter().take(self.readers()).chain(std::iter::repeat(to_end));
        sums.states.iter().zip(all).map(|(sums, powers)| blocks(&times(b, &fragment(sums), &powers))).collect()
    }

    /// Adds the sums over pairs of times to the terms of the borders.
    fn with_pairs(
        &self,
        b: &mut Builder,
        borders: Vec<[[Operand; 4]; 2]>,
        logs: &Logs,
        powers: &Powers,
    ) -> Vec<Fragment> {
        let elem = self.elem();
        let right: Vec<Parts> = self.factors.iter().map(|tile| self.own_over_rows(b, tile)).collect();
        // Where decays are strong, products have another factor for every pair.
        let nothing = Operand::Const(Ty::U32, Literal::Int(0));
        let right: Vec<Parts> =
            right.into_iter().map(|four| four.map(|pair| b.select(powers.is_mild, pair, nothing))).collect();
        let mut found = borders;
        for (kind, tiles) in (self.readers()..).zip(&self.pairs) {
            let Pairs { by_later, by_earlier } = self.stored_pairs(b, tiles);
            for (n, (later, earlier)) in by_later.into_iter().zip(by_earlier).enumerate() {
                later.multiply_whole(b, elem, &mut found[n], right[kind]);
                earlier.multiply_whole(b, elem, &mut found[kind], right[n]);
            }
        }
        let regs: Vec<[[Reg; 2]; 4]> = found.iter().map(|own| fragment(own).map(|two| two.map(|x| b.var(x)))).collect();
        let is_strong = b.unary(Unary::Not, powers.is_mild);
        b.if_(is_strong, |b| {
            let all = self.strong_pairs(b, logs);
            for (reg, x) in regs.iter().flatten().flatten().zip(all.iter().flatten().flatten()) {
                let sum = b.add((*reg).into(), *x);
                b.assign(*reg, sum);
            }
        });
        regs.into_iter().map(|own| own.map(|two| two.map(Operand::Reg))).collect()
    }
}

/// Two blocks as the elements of a left factor.
fn fragment(two: &[[Operand; 4]]) -> Fragment {
    [0, 1, 2, 3].map(|r: usize| [0, 1].map(|c| two[r / 2][2 * (r % 2) + c]))
}

/// The elements of a left factor as two blocks.
fn blocks(own: &Fragment) -> [[Operand; 4]; 2] {
    [0, 1].map(|eight: usize| {
        let [first, second] = [0, 1].map(|h: usize| own[2 * eight + h]);
        [first[0], first[1], second[0], second[1]]
    })
}

/// Calls a function for each of a thread's elements of a left factor: the register, the element there, and its coordinates.
pub(super) fn each(mut each: impl FnMut(usize, usize, Coordinates)) {
    for (eight, c) in CHANNELS {
        for h in 0..2 {
            let here = Coordinates { row: Some(h), column: None, inner: Some(2 * eight + c) };
            each((2 * eight + h) as usize, c as usize, here);
        }
    }
}

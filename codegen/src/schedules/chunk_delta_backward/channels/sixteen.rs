//! The gradients at a chunk's times in 16 places of the depth.

use super::energies::Shares;
use super::sums::{Pairs, Sums};
use super::{ChannelGradients, SLICE};
use crate::block::layout::Tile;
use crate::block::matmul::{Blocks, ROWS, load_four, mma_two, zeros};
use crate::block::pair::{Coordinates, Values};
use crate::build::Builder;
use crate::schedules::chunk_delta::{CHANNELS, Fragment, Logs, packed, times};
use crate::schedules::chunk_delta_backward::rates::number;
use crate::schedules::chunkwise::decay::f32;
use crate::stage::kind::{Channels, DeltaSum, Factored};
use crate::tile::{Expr, Operand};
use oplus_dsl::Ty;
use oplus_dsl::ir::Unary;

/// Powers of two of logarithms, or 1 where decays are too strong for vectors to be multiplied by their reciprocals.
pub(super) struct Powers {
    after: Fragment,
    read: Fragment,
    /// 2^−s.
    before: Fragment,
    /// Whether that is so mild.
    pub is_mild: Operand,
}

/// The vectors that products over pairs of times take: keys, queries, and those that the state is read by, each times its number.
pub(super) struct Vectors {
    /// Before they are multiplied by powers.
    pub plain: [Fragment; 3],
    /// After that, rounded.
    pub decayed: [Fragment; 3],
}

impl ChannelGradients<'_> {
    /// Computes and stores 16 of the warp's places of the depth, and adds to totals.
    pub(super) fn sixteen(
        &self,
        b: &mut Builder,
        values: &Values,
        (sums, pairs): (&Sums, &Pairs),
        (sixteen, totals): (u32, &mut [[Operand; 2]]),
    ) {
        let mut values = values.clone();
        let first = b.mul(self.slice, SLICE);
        let column = self.first_column(b);
        let first = b.add(first, column);
        let first = b.add(first, sixteen * ROWS);
        let own = self.log_reader().logs_from(b, &mut values, first);
        let logs = self.log_reader().channel_logs(b, &values, &own);
        let powers = self.powers(b, &logs);
        let given = [&self.keys, &self.queries, self.columns()].map(|tile| (tile.param, self.loaded(b, tile, sixteen)));
        let vectors = self.vectors(b, &mut values, given.map(|(_, elements)| elements), (&own, &powers));
        self.store_vectors(b, &vectors);
        let of_pairs = self.pairs_of_times(b, pairs, (&logs, &powers));
        let of_states = self.from_borders(b, sums, sixteen, &logs);
        let mut all = of_states;
        for ((all, pairs), powers) in all.iter_mut().zip(&of_pairs).zip([&powers.after, &powers.read, &powers.before]) {
            for r in 0..4 {
                for c in 0..2 {
                    all[r][c] = b.fma(pairs[r][c], powers[r][c], all[r][c]);
                }
            }
        }
        if self.needs_energies() {
            let at_border = self.energies_of_states(b, sums, sixteen);
            let shares = Shares { vectors: &vectors, of_states: &of_states, of_pairs: &of_pairs };
            let energies = self.energies(b, &mut values, (&shares, &at_border), (&own, &logs));
            self.set_all(b, &mut values, DeltaSum::Energies, &energies);
        }
        for (param, elements) in given {
            each(|r, c, here| values.set_param(param, here, elements[r][c]));
        }
        for (sum, own) in [DeltaSum::Queries, DeltaSum::Columns, DeltaSum::Keys].into_iter().zip(&all) {
            self.set_all(b, &mut values, sum, own);
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
    fn loaded(&self, b: &mut Builder, tile: &Tile, sixteen: u32) -> Fragment {
        let first = self.first_of_chunk(b);
        let (lanes, start) = self.slice_lanes(b, tile, first);
        let index = tile.index(b, &lanes, 0, sixteen);
        let index = b.add(index, start);
        load_four(b, tile, index, false).map(|pair| b.unpack(tile.elem, pair))
    }

    fn vectors(&self, b: &mut Builder, values: &mut Values, given: [Fragment; 3], (own, powers): (&Fragment, &Powers)) -> Vectors {
        let rule = &self.form.states;
        let mut at_rows = |factored: [&Factored; 2]| {
            [0, 1].map(|h| {
                let here = Coordinates { row: Some(h), ..Coordinates::default() };
                let [first, second] = factored.map(|own| number(b, values, own, here));
                let product = b.mul(first, second);
                b.select(values.row(h).exists, product, f32(0.0))
            })
        };
        let one = Factored { param: 0, factors: vec![], negative: false };
        let numbers = [
            at_rows([&rule.value, &one]),
            at_rows([&self.form.cotangents.value, &one]),
            at_rows([&rule.column, &rule.row]),
        ];
        let mut k = 0;
        let mut plain = given.map(|own| {
            let numbers = numbers[k];
            k += 1;
            let mut r = 0;
            own.map(|two| {
                r += 1;
                two.map(|x| b.mul(x, numbers[(r - 1) % 2]))
            })
        });
        if rule.channels == Some(Channels::ReadAfter) {
            // The vector that the state before the step is read by has the decay as a factor.
            let decays = own.map(|two| two.map(|log| b.let_(Ty::F32, Expr::Exp2Fast(log))));
            plain[2] = times(b, &plain[2], &decays);
        }
        let elem = self.keys.elem;
        let of = [&powers.before, &powers.after, &powers.read];
        let decayed = [0, 1, 2].map(|k: usize| {
            let own = times(b, &plain[k], of[k]);
            packed(b, elem, &own).map(|pair| b.unpack(elem, pair))
        });
        Vectors { plain, decayed }
    }

    /// Writes the vectors to shared memory, as right factors over time.
    fn store_vectors(&self, b: &mut Builder, vectors: &Vectors) {
        // All lanes have read the vectors before.
        self.sync(b);
        for (tile, own) in self.factors.iter().zip(&vectors.decayed) {
            for (eight, elements) in (0..).zip(blocks(own)) {
                self.store_own(b, tile, eight, &elements);
            }
        }
        self.sync(b);
    }

    /// The sums over pairs of times, but for the decay from the chunk's start, or to it, at the thread's own time.
    fn pairs_of_times(
        &self,
        b: &mut Builder,
        pairs: &Pairs,
        (logs, powers): (&Logs, &Powers),
    ) -> [Fragment; 3] {
        let elem = self.keys.elem;
        let [keys, queries, columns] = [0, 1, 2].map(|k: usize| self.own_over_rows(b, &self.factors[k]));
        let mut product = |all: &[([Operand; 4], [Operand; 4])]| {
            let mut sums: Blocks = vec![zeros(); 2];
            all.iter().for_each(|(left, right)| mma_two(b, elem, &mut sums, *left, *right));
            fragment(&sums)
        };
        let [by_later, by_earlier] = [pairs.by_later, pairs.by_earlier];
        let found = [
            product(&[(by_later[0], keys)]),
            product(&[(by_later[1], keys)]),
            product(&[(by_earlier[0], queries), (by_earlier[1], columns)]),
        ];
        let regs = found.map(|own| own.map(|two| two.map(|x| b.var(x))));
        let is_strong = b.unary(Unary::Not, powers.is_mild);
        b.if_(is_strong, |b| {
            let all = self.strong_pairs(b, logs);
            for (reg, x) in regs.iter().flatten().flatten().zip(all.iter().flatten().flatten()) {
                b.assign(*reg, *x);
            }
        });
        regs.map(|own| own.map(|two| two.map(Operand::Reg)))
    }

    /// What the state before the chunk and the cotangent after it give.
    fn from_borders(&self, b: &mut Builder, sums: &Sums, sixteen: u32, logs: &Logs) -> [Fragment; 3] {
        let own = 2 * sixteen as usize..2 * sixteen as usize + 2;
        let all = [0, 1, 2].map(|k: usize| fragment(&sums.states[k][own.clone()]));
        let to_end = [0, 1, 2, 3].map(|r: usize| [0, 1].map(|c| b.sub(logs.end[r / 2][c], logs.after[r][c])));
        let of = [&logs.after, &logs.read, &to_end];
        [0, 1, 2].map(|k: usize| {
            [0, 1, 2, 3].map(|r: usize| {
                [0, 1].map(|c: usize| {
                    let power = b.let_(Ty::F32, Expr::Exp2Fast(of[k][r][c]));
                    b.mul(all[k][r][c], power)
                })
            })
        })
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

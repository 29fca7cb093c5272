//! Maxima that lag behind: weights are taken against an earlier maximum as long as no score of the warp exceeds it by much.
//!
//! Each thread compares its own scores alone. Only where one of them exceeds the maximum of its row by more than the schedule's slack do
//! the four lanes of a row exchange what they have found, and earlier sums are scaled.

use super::sums::{PayloadSums, Sums};
use super::weigh::{Scores, Weights, of_grid, over_group};
use super::{FlashKernel, Grid};
use crate::block::pair::Values;
use crate::build::{Builder, f32, zero};
use crate::stage::kind::Gauge;
use crate::tile::{Expr, Operand, Reg};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Unary};

/// Maxima of a row's scores that grow independently of each other: in one chain every comparison would wait for the one before it.
const CHAINS: usize = 4;

/// How scores become exponents of two.
#[derive(Clone, Copy)]
struct Scaling {
    /// The factor that makes a difference of scores an exponent.
    rate: Operand,
    /// Whether rows may have seen nothing.
    has_unseen: bool,
}

/// The largest of some numbers.
fn largest(b: &mut Builder, mut numbers: Vec<Operand>) -> Operand {
    while numbers.len() > 1 {
        numbers =
            numbers.chunks(2).map(|two| two[1..].iter().fold(two[0], |x, y| b.binary(Binary::Max, x, *y))).collect();
    }
    numbers[0]
}

impl FlashKernel<'_> {
    /// The weights against maxima that lag behind. Sums of rows are scaled here where these grow, other sums by [`Self::shrink`].
    pub(super) fn lagging(&self, b: &mut Builder, scores: Scores, values: &mut Values, sums: &Sums) -> Weights {
        let thread_tile = self.thread_tile();
        let has_unseen = scores.seen.is_some() || !self.is_scaled();
        let scaling = Scaling { rate: self.rate(b, scores.gauge, values), has_unseen };
        let mut grid = vec![[zero(Ty::F32); 4]; self.blocks() * self.schedule.repeat as usize];
        let mut most = vec![];
        for row in 0..thread_tile.rows {
            let mut chains: Vec<Operand> = vec![];
            for column in 0..thread_tile.columns {
                let score = self.score(b, scores, values, row, column);
                let (block, at) = of_grid(self.blocks(), row, column);
                grid[block][at] = score;
                match chains.get_mut(column as usize % CHAINS) {
                    Some(chain) => *chain = b.binary(Binary::Max, *chain, score),
                    None => chains.push(score),
                }
            }
            most.push(largest(b, chains));
        }
        let (shrink, grows) = self.raise_some(b, sums, &most, scaling);
        for row in 0..thread_tile.rows {
            let against = against(b, sums.maximum[row as usize], scaling);
            for column in 0..thread_tile.columns {
                let (block, at) = of_grid(self.blocks(), row, column);
                let exponent = b.fma(grid[block][at], scaling.rate, against);
                grid[block][at] = b.let_(Ty::F32, Expr::Exp2Fast(exponent));
            }
        }
        let payloads = self.form.payloads.iter();
        let grids: Vec<Grid> = payloads.map(|p| self.weighted(b, values, p, &grid)).collect();
        self.add_rows(b, &grids, sums, Some(&shrink));
        Weights { grids, shrink, grows: Some(grows) }
    }

    /// Raises the maxima of the thread's rows if a score exceeds one by much, in any row of the warp. Gives the factors of earlier sums,
    /// and whether maxima were raised.
    fn raise_some(&self, b: &mut Builder, sums: &Sums, most: &[Operand], scaling: Scaling) -> (Vec<Operand>, Operand) {
        let mut all_stay = Operand::bool(true);
        for ((most, highest), maximum) in most.iter().zip(&sums.highest).zip(&sums.maximum) {
            let higher = b.binary(Binary::Max, (*highest).into(), *most);
            b.assign(*highest, higher);
            let stays = self.may_stay(b, *maximum, *most, scaling);
            all_stay = b.and(all_stay, stays);
        }
        let all_stay = b.all(all_stay);
        let grows = b.unary(Unary::Not, all_stay);
        let shrink: Vec<Reg> = most.iter().map(|_| b.var(f32(1.0))).collect();
        b.if_(grows, |b| {
            for ((most, maximum), shrink) in most.iter().zip(&sums.maximum).zip(&shrink) {
                let factor = self.raise(b, *maximum, *most, scaling);
                b.assign(*shrink, factor);
            }
        });
        (shrink.into_iter().map(Operand::Reg).collect(), grows)
    }

    /// Raises the maximum of a row to the largest score of its four lanes, if that exceeds it by much; gives the factor of earlier sums.
    fn raise(&self, b: &mut Builder, maximum: Reg, most: Operand, scaling: Scaling) -> Operand {
        let most = b.binary(Binary::Max, maximum.into(), most);
        let most = over_group(b, Binary::Max, most);
        let stays = self.may_stay(b, maximum, most, scaling);
        let most = b.select(stays, maximum.into(), most);
        // Rounded as the new maximum is: sums keep what they are where the maximum stays.
        let before = b.mul(maximum.into(), scaling.rate);
        b.assign(maximum, most);
        let against = against(b, maximum, scaling);
        let old = b.add(before, against);
        b.let_(Ty::F32, Expr::Exp2Fast(old))
    }

    /// Whether a maximum may stay though there is such a score. Not that of a row that has seen nothing: it grows from −∞.
    fn may_stay(&self, b: &mut Builder, maximum: Reg, score: Operand, scaling: Scaling) -> Operand {
        let growth = b.sub(score, Operand::Reg(maximum));
        let growth = b.mul(growth, scaling.rate);
        b.binary(Binary::Le, growth, f32(f64::from(self.schedule.slack)))
    }

    /// Takes all sums from the maximum against which weights were taken to the largest score. Sums with a leaf in registers are
    /// multiplied where they are stored.
    pub(super) fn settle(&self, b: &mut Builder, gauge: &Gauge, values: &mut Values, sums: &Sums) {
        if sums.highest.is_empty() {
            return;
        }
        let rate = self.rate(b, gauge, values);
        let mut shrink = vec![];
        for (row, (highest, maximum)) in (0..).zip(sums.highest.iter().zip(&sums.maximum)) {
            let highest = over_group(b, Binary::Max, (*highest).into());
            let more = b.sub((*maximum).into(), highest);
            let exponent = b.mul(more, rate);
            let equal = b.eq((*maximum).into(), highest);
            let factor = b.let_(Ty::F32, Expr::Exp2Fast(exponent));
            let factor = b.select(equal, f32(1.0), factor);
            values.set_late_factor(row, factor);
            shrink.push(factor);
            b.assign(*maximum, highest);
        }
        for payload in &sums.payloads {
            let PayloadSums::Rows(rows) = payload else { continue };
            for (sum, shrink) in rows.iter().zip(&shrink) {
                let less = b.mul((*sum).into(), *shrink);
                b.assign(*sum, less);
            }
        }
    }
}

/// The negative maximum, which is added to scaled scores; 0 for a row that has seen nothing: its maximum is −∞, and no weight may be exp(−∞ + ∞).
fn against(b: &mut Builder, maximum: Reg, Scaling { rate, has_unseen }: Scaling) -> Operand {
    let most = Operand::Reg(maximum);
    let finite = if has_unseen {
        let nothing = b.eq(most, f32(f64::NEG_INFINITY));
        b.select(nothing, f32(0.0), most)
    } else {
        most
    };
    let scaled = b.mul(finite, rate);
    b.unary(Unary::Neg, scaled)
}

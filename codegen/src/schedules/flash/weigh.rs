//! The weights of a tile's pairs.

use super::sums::{BlockSums, PayloadSums, Sums};
use super::visible::Range;
use super::{COLUMNS, FlashKernel, Grid};
use crate::block::lane_sum::over_lanes;
use crate::block::pair::{Coordinates, Values};
use crate::build::{Builder, f32, zero};
use crate::stage::kind::{Gauge, Payload};
use crate::tile::{Expr, Operand, Reg};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Op, Unary, Value};
use std::collections::BTreeSet;

/// The scores of a tile's pairs.
#[derive(Clone, Copy)]
pub(super) struct Scores<'a> {
    pub gauge: &'a Gauge,
    /// The contractions that have ended.
    pub products: &'a [Grid],
    /// The columns that each of the thread's rows sees; `None` where every row sees every column.
    pub seen: Option<&'a [Range]>,
}

/// The weights of a tile's pairs.
pub(super) struct Weights {
    /// The weights of every payload.
    pub grids: Vec<Grid>,
    /// The factor of the earlier sums of each of the thread's rows; nothing without a gauge.
    pub shrink: Vec<Operand>,
    /// Whether some of these factors are not one, alike in all threads of a warp, where maxima lag behind.
    pub grows: Option<Operand>,
}

/// The position of a pair in a grid: the block and the number in it.
pub(super) fn of_grid(blocks: usize, row: u32, column: u32) -> (usize, usize) {
    ((row / 2) as usize * blocks + (column / 2) as usize, (2 * (row % 2) + column % 2) as usize)
}

/// Combines the numbers of the four lanes of a group.
pub(super) fn over_group(b: &mut Builder, op: Binary, x: Operand) -> Operand {
    over_lanes(b, op, x, &[1, 2])
}

impl FlashKernel<'_> {
    /// The largest values beneath the weights that depend neither on columns nor on contractions.
    pub(super) fn constant_values(&self) -> Vec<Value> {
        let form = self.form;
        let score = form.gauge.iter().map(|g| g.score);
        let factors = form.payloads.iter().flat_map(|p| p.factors.iter().chain(&p.conditions)).copied();
        let contracted = form.contractions.iter().flat_map(|c| c.factors.iter().chain(&c.conditions)).copied();
        let mut stack: Vec<Value> =
            score.chain(factors).chain(contracted).chain(form.conditions.iter().copied()).collect();
        let (mut found, mut seen) = (vec![], BTreeSet::new());
        while let Some(value) = stack.pop() {
            let node = self.stage.program.node(value);
            if !seen.insert(value) || matches!(node.op, Op::Const(_) | Op::Field(..)) || form.terms.contains(&value) {
                continue;
            }
            if node.axes.contains(form.column) || form.grouped.is_some_and(|over| node.axes.contains(over)) {
                stack.extend(node.op.operands());
            } else {
                found.push(value);
            }
        }
        found.sort();
        found
    }

    /// Makes the values of a contraction at all pairs known to the evaluator, which knows those of earlier contractions; and with them
    /// the factors of the next contraction, which has yet to end.
    pub(super) fn know(&self, b: &mut Builder, values: &mut Values, grid: &Grid, number: usize) {
        if self.is_scaled() {
            return;
        }
        let contraction = &self.form.contractions[number];
        let next = self.form.contractions.get(number + 1);
        for (row, column) in self.pairs() {
            let coordinates = Coordinates { row: Some(row), column: Some(column), inner: None };
            self.form.limits.iter().for_each(|limit| values.set(limit.term, coordinates, Operand::bool(true)));
            let (block, at) = of_grid(self.blocks(), row, column);
            let sum = values.product(b, Some(grid[block][at]), &contraction.factors, coordinates);
            let holds = values.all(b, &contraction.conditions, coordinates);
            let value = b.select(holds, sum.unwrap_or(zero(Ty::F32)), zero(Ty::F32));
            values.set_state((contraction.tuple, 0), coordinates, value);
            for factor in next.iter().flat_map(|next| &next.factors) {
                values.value(b, *factor, coordinates);
            }
        }
    }

    /// The rows and columns of all pairs, column by column, so that values of a column are not kept for long.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (u32, u32)> + use<> {
        let thread_tile = self.thread_tile();
        (0..thread_tile.columns).flat_map(move |column| (0..thread_tile.rows).map(move |row| (row, column)))
    }

    pub(super) fn blocks(&self) -> usize {
        (self.schedule.columns / COLUMNS) as usize
    }

    /// Whether a row sees a column, both by number; `None` where every row sees every column.
    pub(super) fn sees(&self, b: &mut Builder, seen: Option<&[Range]>, row: u32, column: u32) -> Option<Operand> {
        let range = seen?[row as usize];
        let at = Operand::i32((column / 2 * COLUMNS + column % 2) as i32);
        let below = b.binary(Binary::Gt, range.to, at);
        if self.form.limits.iter().all(|l| l.above) {
            return Some(below);
        }
        let above = b.binary(Binary::Le, range.from, at);
        Some(b.and(above, below))
    }

    /// The weights without a gauge, for every payload.
    pub(super) fn plain(&self, b: &mut Builder, values: &mut Values, sums: &Sums, seen: Option<&[Range]>) -> Weights {
        let empty = vec![[zero(Ty::F32); 4]; self.blocks() * self.schedule.repeat as usize];
        let mut grids = vec![empty; self.form.payloads.len()];
        for (row, column) in self.pairs() {
            let coordinates = Coordinates { row: Some(row), column: Some(column), inner: None };
            let sees = self.sees(b, seen, row, column).unwrap_or(Operand::bool(true));
            let holds = values.all(b, &self.form.conditions, coordinates);
            let counts = b.and(sees, holds);
            let (block, at) = of_grid(self.blocks(), row, column);
            for (payload, grid) in self.form.payloads.iter().zip(&mut grids) {
                let weight = values.product(b, None, &payload.factors, coordinates).unwrap_or(f32(1.0));
                let holds = values.all(b, &payload.conditions, coordinates);
                let counts = b.and(counts, holds);
                grid[block][at] = b.select(counts, weight, zero(Ty::F32));
            }
        }
        self.add_rows(b, &grids, sums, None);
        Weights { grids, shrink: vec![], grows: None }
    }

    /// The weights against the maximum, which grows. Sums of rows are scaled to the new maximum here, other sums by
    /// [`Self::shrink`].
    pub(super) fn gauged(&self, b: &mut Builder, scores: Scores, values: &mut Values, sums: &Sums) -> Weights {
        if self.schedule.slack > 0 {
            return self.lagging(b, scores, values, sums);
        }
        let thread_tile = self.thread_tile();
        let rate = self.rate(b, scores.gauge, values);
        let mut grid = vec![[zero(Ty::F32); 4]; self.blocks() * self.schedule.repeat as usize];
        let mut shrink = vec![];
        for row in 0..thread_tile.rows {
            let mut most = Operand::Reg(sums.maximum[row as usize]);
            for column in 0..thread_tile.columns {
                let score = self.score(b, scores, values, row, column);
                let (block, at) = of_grid(self.blocks(), row, column);
                grid[block][at] = score;
                most = b.binary(Binary::Max, most, score);
            }
            let most = over_group(b, Binary::Max, most);
            // The maximum of a row that has seen nothing is −∞, and no weight may be exp(−∞ + ∞).
            let finite = if scores.seen.is_some() || !self.is_scaled() {
                let nothing = b.eq(most, f32(f64::NEG_INFINITY));
                b.select(nothing, f32(0.0), most)
            } else {
                most
            };
            let scaled = b.mul(finite, rate);
            let against = b.unary(Unary::Neg, scaled);
            // Rounded as the new maximum is: sums keep what they are where the maximum stays.
            let before = b.mul(sums.maximum[row as usize].into(), rate);
            let old = b.add(before, against);
            shrink.push(b.let_(Ty::F32, Expr::Exp2Fast(old)));
            b.assign(sums.maximum[row as usize], most);
            for column in 0..thread_tile.columns {
                let (block, at) = of_grid(self.blocks(), row, column);
                let exponent = b.fma(grid[block][at], rate, against);
                grid[block][at] = b.let_(Ty::F32, Expr::Exp2Fast(exponent));
            }
        }
        let payloads = self.form.payloads.iter();
        let grids: Vec<Grid> = payloads.map(|p| self.weighted(b, values, p, &grid)).collect();
        self.add_rows(b, &grids, sums, Some(&shrink));
        Weights { grids, shrink, grows: None }
    }

    /// Whether scores are compared as contractions, before they are scaled.
    pub(super) fn is_scaled(&self) -> bool {
        self.form.scale(&self.stage.program).is_some()
    }

    /// The factor that makes a difference of compared scores an exponent of two.
    pub(super) fn rate(&self, b: &mut Builder, gauge: &Gauge, values: &mut Values) -> Operand {
        match self.form.scale(&self.stage.program) {
            Some(Some(scale)) => {
                let scale = values.value(b, scale, Coordinates::default());
                b.mul(scale, f32(gauge.rate))
            }
            _ => f32(gauge.rate),
        }
    }

    /// The score of a pair as scores are compared; −∞ where the row does not see the column.
    pub(super) fn score(
        &self,
        b: &mut Builder,
        Scores { gauge, products, seen }: Scores,
        values: &mut Values,
        row: u32,
        column: u32,
    ) -> Operand {
        let (block, place) = of_grid(self.blocks(), row, column);
        let (score, holds) = if self.is_scaled() {
            (products[0][block][place], Operand::bool(true))
        } else {
            let coordinates = Coordinates { row: Some(row), column: Some(column), inner: None };
            let holds = values.all(b, &self.form.conditions, coordinates);
            (values.value(b, gauge.score, coordinates), holds)
        };
        let sees = self.sees(b, seen, row, column).unwrap_or(Operand::bool(true));
        let counts = b.and(sees, holds);
        b.select(counts, score, f32(f64::NEG_INFINITY))
    }

    /// The gauge's weights times those of a payload.
    pub(super) fn weighted(&self, b: &mut Builder, values: &mut Values, payload: &Payload, weights: &Grid) -> Grid {
        let mut grid = weights.clone();
        if payload.factors.is_empty() && payload.conditions.is_empty() {
            return grid;
        }
        let thread_tile = self.thread_tile();
        for (row, column) in (0..thread_tile.rows).flat_map(|r| (0..thread_tile.columns).map(move |c| (r, c))) {
            let coordinates = Coordinates { row: Some(row), column: Some(column), inner: None };
            let (block, at) = of_grid(self.blocks(), row, column);
            let weight = values.product(b, Some(weights[block][at]), &payload.factors, coordinates);
            let holds = values.all(b, &payload.conditions, coordinates);
            grid[block][at] = b.select(holds, weight.unwrap_or(zero(Ty::F32)), zero(Ty::F32));
        }
        grid
    }

    /// Adds the weights of payloads without a leaf, after their sums have shrunk.
    pub(super) fn add_rows(&self, b: &mut Builder, grids: &[Grid], sums: &Sums, shrink: Option<&[Operand]>) {
        let thread_tile = self.thread_tile();
        for (grid, sums) in grids.iter().zip(&sums.payloads) {
            let PayloadSums::Rows(rows) = sums else { continue };
            for (row, sum) in rows.iter().enumerate() {
                let mut total: Option<Operand> = None;
                for column in 0..thread_tile.columns {
                    let (block, at) = of_grid(self.blocks(), row as u32, column);
                    let weight = grid[block][at];
                    total = Some(total.map_or(weight, |total| b.add(total, weight)));
                }
                let total = total.unwrap_or(zero(Ty::F32));
                let next = match shrink {
                    Some(shrink) => b.fma((*sum).into(), shrink[row], total),
                    None => b.add((*sum).into(), total),
                };
                b.assign(*sum, next);
            }
        }
    }

    /// Scales the sums with a leaf that stand in registers to the new maximum.
    pub(super) fn shrink(&self, b: &mut Builder, sums: &Sums, weights: &Weights) {
        match weights.grows {
            Some(grows) => b.if_(grows, |b| self.scale_sums(b, sums, &weights.shrink)),
            None => self.scale_sums(b, sums, &weights.shrink),
        }
    }

    /// Scales the sums with a leaf that stand in registers, row by row.
    pub(super) fn scale_sums(&self, b: &mut Builder, sums: &Sums, shrink: &[Operand]) {
        for sums in &sums.payloads {
            let PayloadSums::Blocks(BlockSums::Registers(blocks)) = sums else { continue };
            let per_row = blocks.len() / self.schedule.repeat as usize;
            for (i, block) in blocks.iter().enumerate() {
                for (k, reg) in block.iter().enumerate() {
                    let less = b.mul(Operand::Reg(*reg), shrink[i / per_row * 2 + k / 2]);
                    b.assign(*reg, less);
                }
            }
        }
    }

    /// The maximum of one of the thread's rows in the units of the gauge.
    pub(super) fn maximum(&self, b: &mut Builder, values: &mut Values, reg: Reg) -> Operand {
        match self.form.scale(&self.stage.program) {
            Some(Some(scale)) => {
                let scale = values.value(b, scale, Coordinates::default());
                b.mul(reg.into(), scale)
            }
            _ => reg.into(),
        }
    }
}

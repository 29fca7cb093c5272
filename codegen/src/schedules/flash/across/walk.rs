//! The warps that walk: both warpgroups evaluate their rows' weights and meet for the product of the sums over rows.

use super::super::sums::{BlockSums, PayloadSums};
use super::super::walk::{Past, Walk};
use super::super::weigh::{Weights, of_grid};
use super::super::{FlashKernel, Grid};
use super::course::{Course, Visit};
use crate::block::copy::Source;
use crate::block::ring::RingStage;
use crate::build::{Builder, zero};
use crate::tile::{Operand, Reg, Stmt};
use oplus_dsl::Ty;

/// The parts of a walk that stay the same from visit to visit.
pub(super) struct AcrossWalk<'w, 'k, 's> {
    pub course: &'w Course,
    pub walk: &'w Walk<'k, 's>,
    /// Whether the block's rows have non-finite elements; none where all rows see all columns.
    pub non_finite: Option<Operand>,
}

impl FlashKernel<'_> {
    /// Walks the tiles of all rows of the block.
    pub(super) fn walk_across(&self, b: &mut Builder) {
        let number = b.var(Operand::i32(0));
        self.each_point(b, |kernel, b, course, round| {
            let past = Past { tiles: Some(number), rows: Some(round) };
            kernel.on_course(b, past, |b, own, values| {
                kernel.walk(b, own, values, |b, walk| {
                    let non_finite = course.sight.map(|_| kernel.find_non_finite(b));
                    let across = AcrossWalk { course, walk, non_finite };
                    kernel.each_visit(b, course, number, |b, visit| kernel.visit(b, &across, visit));
                    b.arrive(kernel.rows_empty, Operand::i32(0));
                });
            });
        });
    }

    /// Computes a tile.
    fn visit(&self, b: &mut Builder, across: &AcrossWalk, visit: &Visit) {
        let outer = self.outer_of(b, visit);
        let mut values = across.walk.values.clone();
        for (axis, index) in &outer[self.outer.len()..] {
            values.set_outer(*axis, *index);
        }
        let source = Source { outer: &outer, ..*across.walk.source };
        let walk = Walk { source: &source, values: &values, ..*across.walk };
        let filled = self.ring().at(b, visit.number);
        let first = b.mul(visit.tile, self.schedule.columns);
        let products = self.contract_in_turn(b, &walk, filled);
        let weights = self.weights(b, &walk, &products, (filled.index, first), false);
        let is_partial = across.course.is_partial(b, self, first);
        let grids = self.variables(b, &weights);
        let non_finite: Vec<(u32, Reg)> =
            self.hidden(true).into_iter().map(|param| (param, b.var(Operand::bool(false)))).collect();
        b.if_(is_partial, |b| {
            self.hide(b, &walk, &grids, first);
            let params: Vec<u32> = non_finite.iter().map(|(param, _)| *param).collect();
            for ((_, flag), (_, any)) in non_finite.iter().zip(self.take_out(b, &params, filled.index)) {
                b.assign(*flag, any);
            }
        });
        self.multiply(b, across, visit, (filled, first, is_partial), &grids);
        let non_finite: Vec<(u32, Operand)> = non_finite.iter().map(|(param, any)| (*param, (*any).into())).collect();
        self.put_back(b, &walk, first, &non_finite);
        self.leave_ring(b, 0, filled.index);
    }

    /// Starts both contractions, each as soon as its tile is there.
    fn contract_in_turn(&self, b: &mut Builder, walk: &Walk, filled: RingStage) -> Vec<Grid> {
        let mut waited = vec![];
        let lanes = walk.lanes.map(|(contracted, _)| contracted.clone()).unwrap_or_default();
        let contractions = self.form.contractions.iter().zip(&lanes);
        contractions
            .map(|(contraction, (left, right))| {
                self.wait_for(b, &[contraction.right], filled, &mut waited);
                let start = b.mul(filled.index, self.column_tile(contraction.right).len());
                self.contract(b, contraction, left, right, start)
            })
            .collect()
    }

    /// Registers that hold the weights of all payloads.
    fn variables(&self, b: &mut Builder, weights: &Weights) -> Vec<Vec<[Reg; 4]>> {
        let grid = |grid: &Grid| grid.iter().map(|four| four.map(|weight| b.var(weight))).collect();
        weights.grids.iter().map(grid).collect()
    }

    /// Makes the weights of pairs that are not seen, or that do not exist, zero.
    fn hide(&self, b: &mut Builder, walk: &Walk, grids: &[Vec<[Reg; 4]>], first: Operand) {
        let seen = self.seen(b, walk.course.ranges, first);
        for (row, column) in self.pairs() {
            let (block, at) = of_grid(self.blocks(), row, column);
            let sees = self.sees(b, Some(&seen), row, column).unwrap_or(Operand::bool(true));
            let counts = b.and(sees, walk.values.row(row).exists);
            for grid in grids {
                let reg = grid[block][at];
                let weight = b.select(counts, reg.into(), zero(Ty::F32));
                b.assign(reg, weight);
            }
        }
    }

    /// Adds a tile to all sums.
    fn multiply(
        &self,
        b: &mut Builder,
        across: &AcrossWalk,
        visit: &Visit,
        (filled, first, is_partial): (RingStage, Operand, Operand),
        grids: &[Vec<[Reg; 4]>],
    ) {
        let own = self.form.across.as_ref().map_or(0, |across| across.payload);
        let grid = |k: usize| -> Grid { grids[k].iter().map(|four| four.map(Operand::Reg)).collect() };
        let other = 1 - own;
        let packed = [self.pack(b, &grid(own)), self.pack(b, &grid(other))];
        self.start_payload(b, across.walk, other, &packed[1], filled);
        self.share_weights(b, visit, &grid(own));
        let sums = self.start_row_sums(b);
        self.start_payload(b, across.walk, own, &packed[0], filled);
        let both = sums.iter().copied().chain(self.payload_sums(across.walk, other)).collect();
        b.push(Stmt::WarpgroupWait { pending: 1, sums: both });
        self.leave_ring(b, 1, filled.index);
        if let Some(non_finite) = across.non_finite {
            // No product may be under way where registers of another are assigned.
            b.push(Stmt::WarpgroupWait { pending: 0, sums: self.payload_sums(across.walk, own) });
            let apart = b.and(non_finite, is_partial);
            b.if_(apart, |b| self.sum_rows_apart(b, across.course, &sums, first));
        }
        self.stage_row_sums(b, visit, &sums);
        if across.non_finite.is_none() {
            b.push(Stmt::WarpgroupWait { pending: 0, sums: self.payload_sums(across.walk, own) });
        }
    }

    /// Starts the product of a payload.
    fn start_payload(
        &self,
        b: &mut Builder,
        walk: &Walk,
        number: usize,
        packed: &[Vec<[Operand; 4]>],
        filled: RingStage,
    ) {
        let (Some((param, _)), PayloadSums::Blocks(BlockSums::Registers(sums))) =
            (self.form.payloads[number].leaf, &walk.sums.payloads[number])
        else {
            return;
        };
        let tile = self.column_tile(param);
        let start = b.mul(filled.index, tile.len());
        self.accumulate(b, tile, &[], packed, sums, start);
    }

    /// The registers of a payload's sums.
    fn payload_sums(&self, walk: &Walk, number: usize) -> Vec<Reg> {
        match &walk.sums.payloads[number] {
            PayloadSums::Blocks(BlockSums::Registers(blocks)) => blocks.concat(),
            _ => vec![],
        }
    }
}

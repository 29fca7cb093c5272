//! The warps that walk: both warpgroups evaluate their rows' weights and meet for the product of the sums over rows.

use super::super::non_finite::SeeingRows;
use super::super::sums::{BlockSums, PayloadSums, Sums};
use super::super::walk::Packed;
use super::super::{FlashKernel, Grid, ROWS};
use super::weigh::{Needed, PackedRegisters};
use super::work::{BlockWork, TileStep};
use crate::block::matmul::finish_all;
use crate::block::pair::Values;
use crate::block::ring::RingStage;
use crate::build::Builder;
use crate::tile::{Operand, Reg};
use oplus_dsl::ir::Binary;

/// The parts of a walk that stay the same from step to step.
struct AcrossWalk<'w, 's> {
    work: &'w BlockWork,
    values: &'w Values<'s>,
    sums: &'w Sums,
    /// Whether the block's rows have non-finite elements; none where all rows see all columns.
    non_finite: Option<Operand>,
}

/// A tile of columns that has been copied.
struct LoadedTile<'w, 's> {
    across: &'w AcrossWalk<'w, 's>,
    step: &'w TileStep,
    /// Its stage in the ring.
    filled: RingStage,
    /// Its first column.
    first: Operand,
    /// Whether some rows of the block do not see all of it.
    is_partial: Operand,
}

impl FlashKernel<'_> {
    /// Walks the tiles of all rows of the block.
    pub(super) fn walk_across(&self, b: &mut Builder) {
        let number = b.var(Operand::i32(0));
        self.each_point(b, |kernel, b, work, iteration| kernel.walk_rows(b, work, iteration, number));
    }

    /// Walks the tiles of the rows of a block at a point, and stores their outputs.
    fn walk_rows(&self, b: &mut Builder, work: &BlockWork, iteration: Reg, number: Reg) {
        let thread_tile = self.thread_tile();
        self.keep_place(b, work, iteration);
        let mut values = self.walk_values(b);
        values.fast = true;
        self.hoist(b, &mut values, thread_tile);
        let sums = self.sums(b, thread_tile);
        let filled = RingStage::only(b, iteration.into());
        self.row_tiles.iter().for_each(|tile| b.wait(tile.full, filled));
        let non_finite = work.seen.map(|_| self.find_non_finite(b));
        let across = AcrossWalk { work, values: &values, sums: &sums, non_finite };
        self.each_step(b, work, number, |b, step| self.compute(b, &across, step));
        b.arrive(self.rows_empty, Operand::i32(0));
        self.at_kept_place(b, iteration).store_outputs(b, &sums);
    }

    /// An evaluator that knows no rows.
    pub(super) fn new_values(&self) -> Values<'_> {
        Values::new(self.stage, &self.args, [self.form.row, self.form.column], self.outer.clone())
    }

    /// The evaluator of the walk; it knows the thread's rows, which take registers, only if weights depend on them.
    fn walk_values(&self, b: &mut Builder) -> Values<'_> {
        let mut values = self.new_values();
        if self.constant_values().iter().any(|value| self.stage.program.node(*value).axes.contains(self.form.row)) {
            self.set_rows(b, &mut values, self.thread_tile());
        }
        values
    }

    /// Computes a tile.
    fn compute(&self, b: &mut Builder, across: &AcrossWalk, step: &TileStep) {
        let outer = self.outer_of(b, step);
        let mut values = across.values.clone();
        for (axis, index) in &outer[self.outer.len()..] {
            values.set_outer(*axis, *index);
        }
        let filled = self.ring().at(b, step.number);
        let first = b.mul(step.tile, self.schedule.columns);
        let is_partial = across.work.is_partial(b, self, first);
        let tile = LoadedTile { across: &AcrossWalk { values: &values, ..*across }, step, filled, first, is_partial };
        let (products, values) = self.contract_in_turn(b, &tile);
        let [owns, others] = self.evaluate_in_turn(b, &tile, values, &products);
        let non_finite = self.hide_all(b, &tile, [&owns, &others]);
        self.multiply(b, &tile, &owns, &others);
        let non_finite: Vec<(u32, Operand)> = non_finite.iter().map(|(param, any)| (*param, (*any).into())).collect();
        let source = self.source(&outer);
        let ranges = |b: &mut Builder| self.seen_columns(b, across.work);
        let rows = SeeingRows { values: tile.across.values, source: &source, sums: across.sums, ranges: &ranges };
        self.put_back_to(b, &rows, first, &non_finite);
        self.leave_ring(b, 0, filled.index);
    }

    /// Starts both contractions, each as soon as its tile is there. Numbers of columns are read before products keep the shared memory
    /// busy.
    fn contract_in_turn<'v>(&self, b: &mut Builder, tile: &LoadedTile<'_, 'v>) -> ([Grid; 2], Values<'v>) {
        let mut values = tile.across.values.clone();
        self.set_columns(b, &mut values, self.thread_tile(), tile.first);
        self.set_numbers(b, &mut values, tile.filled.index);
        let products = [0, 1].map(|number| {
            let contraction = &self.form.contractions[number];
            let (left, right) = (self.row_tile(contraction.left), self.column_tile(contraction.right));
            b.wait(right.full, tile.filled);
            if number == 0 {
                self.read_numbers(b, &mut values, Needed::First);
            }
            let start = b.mul(tile.filled.index, right.len());
            self.contract_asynchronously(b, left, Operand::i32(0), right, start)
        });
        (products, values)
    }

    /// The packed weights of the payload that has a sum over rows, and those of the other.
    fn evaluate_in_turn(
        &self,
        b: &mut Builder,
        tile: &LoadedTile,
        mut values: Values,
        products: &[Grid; 2],
    ) -> [PackedRegisters; 2] {
        self.finish(b, products, 0);
        self.know(b, &mut values, &products[0], 0);
        self.read_numbers(b, &mut values, Needed::Second);
        // The assembler moves no exponentials across this wait, behind the second contraction.
        self.wait_for_weights(b, tile.step);
        self.finish(b, products, 1);
        self.know(b, &mut values, &products[1], 1);
        let own = self.own_payload();
        [own, 1 - own].map(|number| self.packed_weights(b, &mut values, number))
    }

    /// The payload whose weights have a sum over rows.
    fn own_payload(&self) -> usize {
        self.form.across.as_ref().map_or(0, |across| across.payload)
    }

    /// Makes the weights of pairs that do not count zero, and the non-finite elements of a tile seen in part; gives for each of the
    /// parameters of the tile whether there were such.
    fn hide_all(&self, b: &mut Builder, tile: &LoadedTile, weights: [&PackedRegisters; 2]) -> Vec<(u32, Reg)> {
        let non_finite: Vec<(u32, Reg)> =
            self.hidden(true).into_iter().map(|param| (param, b.var(Operand::bool(false)))).collect();
        b.if_(tile.is_partial, |b| {
            self.hide(b, tile, weights);
            let params: Vec<u32> = non_finite.iter().map(|(param, _)| *param).collect();
            for ((_, flag), (_, any)) in non_finite.iter().zip(self.take_out(b, &params, tile.filled.index)) {
                b.assign(*flag, any);
            }
        });
        non_finite
    }

    /// Makes the weights of pairs that are not seen, or that do not exist, zero.
    fn hide(&self, b: &mut Builder, tile: &LoadedTile, weights: [&PackedRegisters; 2]) {
        let ranges = self.seen_columns(b, tile.across.work);
        let seen = self.seen(b, &ranges, tile.first);
        for (sixteen, number) in
            (0..self.schedule.columns / ROWS).flat_map(|sixteen| [0, 1, 2, 3].map(|k| (sixteen, k)))
        {
            // As fragments are packed: registers 0 and 2 have the first row, 2 and 3 the columns from the eighth on.
            let (row, block) = (number % 2, 2 * sixteen + number / 2);
            let [low, high] = [0, 1].map(|c| {
                let counts = self.sees(b, Some(&seen), row, 2 * block + c).unwrap_or(Operand::bool(true));
                b.select(counts, Operand::u32(0xffff << (16 * c)), Operand::u32(0))
            });
            let mask = b.binary(Binary::Or, low, high);
            for weights in weights {
                let reg = weights[sixteen as usize][number as usize];
                let weight = b.binary(Binary::And, reg.into(), mask);
                b.assign(reg, weight);
            }
        }
    }

    /// Adds a tile to all sums.
    fn multiply(&self, b: &mut Builder, tile: &LoadedTile, owns: &PackedRegisters, others: &PackedRegisters) {
        let (across, own) = (tile.across, self.own_payload());
        let operands = |weights: &PackedRegisters| vec![weights.iter().map(|four| four.map(Operand::Reg)).collect()];
        let [packed, of_others]: [Packed; 2] = [owns, others].map(operands);
        self.start_payload(b, tile, 1 - own, &of_others);
        self.share_weights(b, owns);
        let sums = self.start_row_sums(b);
        self.start_payload(b, tile, own, &packed);
        // It is waited for while the products are under way.
        let staged = self.wait_for_stage(b, tile.step);
        let both = sums.iter().copied().chain(self.payload_sums(across.sums, 1 - own)).collect();
        finish_all(b, both, 1);
        self.leave_ring(b, 1, tile.filled.index);
        self.store_row_sums(b, staged.index, &sums);
        if let Some(non_finite) = across.non_finite {
            let apart = b.and(non_finite, tile.is_partial);
            b.if_(apart, |b| self.sum_rows_apart(b, across.work, staged.index, tile.first));
        }
        self.hand_over(b, staged);
        finish_all(b, self.payload_sums(across.sums, own), 0);
    }

    /// Starts the product of a payload.
    fn start_payload(&self, b: &mut Builder, tile: &LoadedTile, number: usize, packed: &Packed) {
        let (Some((param, _)), PayloadSums::Blocks(BlockSums::Registers(sums))) =
            (self.form.payloads[number].leaf, &tile.across.sums.payloads[number])
        else {
            return;
        };
        let leaf = self.column_tile(param);
        let start = b.mul(tile.filled.index, leaf.len());
        self.accumulate(b, leaf, &[], packed, sums, start);
    }

    /// The registers of a payload's sums.
    fn payload_sums(&self, sums: &Sums, number: usize) -> Vec<Reg> {
        match &sums.payloads[number] {
            PayloadSums::Blocks(BlockSums::Registers(blocks)) => blocks.concat(),
            _ => vec![],
        }
    }
}

//! The outputs of a head at every time of a chunk: sums over the width, and the cotangent of the decay's logarithm.

use super::partials::{Partials, accumulate};
use super::rates::{Decays, PER_LANE};
use super::walk::Chunk;
use super::{BLOCKS, ChunkwiseBackward, ChunkwiseBackwardKernel, GradientSweep, TIMES};
use crate::abi::Tensor;
use crate::block::lane_sum::{Neighbours, Side, over_lanes, sum_beside};
use crate::block::layout::Tile;
use crate::block::pair::{Coordinates, Values};
use crate::build::{Builder, f32, zero};
use crate::schedules::chunkwise::COLUMNS;
use crate::stage::kind::{Cotangent, MatrixRecurrenceBackward};
use crate::target::WARP;
use crate::tile::{Memory, Operand};
use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

/// Sums over rows j of E·G, by block; over columns i; ⟨value, first term of value'⟩ and ⟨query, first term of query'⟩, by half.
const OVER_ROWS: u32 = 0;
const OVER_COLUMNS: u32 = OVER_ROWS + BLOCKS;
const OF_VALUES: u32 = OVER_COLUMNS + 2;
const OF_QUERIES: u32 = OF_VALUES + 2;
/// Sums over the width, by half.
const OVER_WIDTH: u32 = OF_QUERIES + 2;

/// The rows of times that partial sums of all sets take, with the outputs over time of the slices of a wide head so far.
pub(super) fn rows_of_partial_sums(form: &MatrixRecurrenceBackward, schedule: &ChunkwiseBackward) -> u32 {
    let over_time = form.outputs.iter().filter(|kind| schedule.wide && kind.is_over_time()).count() as u32;
    schedule.sets() * rows_of_set(form, schedule) + over_time
}

/// The rows of a set of partial sums.
fn rows_of_set(form: &MatrixRecurrenceBackward, schedule: &ChunkwiseBackward) -> u32 {
    first_over_width(schedule) + 2 * form.sums_over_width()
}

/// The first row of sums over the width: where tiles lie over one another there are no others.
fn first_over_width(schedule: &ChunkwiseBackward) -> u32 {
    if schedule.overlaid { 0 } else { OVER_WIDTH }
}

impl ChunkwiseBackwardKernel<'_> {
    /// Writes the warp's share of ⟨S, D⟩: both tiles have the same layout.
    pub(super) fn share_energy(&self, b: &mut Builder, stage: Operand) {
        if !self.has_decay() {
            return;
        }
        let mut sum = None;
        self.add_energy(b, stage, &mut sum);
        let sum = sum.map(|sum| self.energy_undone(b, sum, stage));
        self.store_energy(b, sum);
    }
}

impl GradientSweep<'_> {
    /// Whether the decay's logarithm has a cotangent.
    pub(super) fn has_decay(&self) -> bool {
        self.form.outputs.contains(&Cotangent::Decay)
    }

    /// Writes a sum over the four lanes of a row: row `number` of the partial sums, and the warp's half.
    pub(super) fn store_row(&self, b: &mut Builder, number: u32, h: usize, sum: Operand) {
        let sum = over_lanes(b, Binary::Add, sum, &[1, 2]);
        let own = b.eq(self.fragment.member, 0);
        let row = self.first_row(b);
        let half = b.mul(self.half, TIMES);
        let at = b.add(row, half);
        let at = b.add(at, number * TIMES + h as u32 * COLUMNS);
        let at = self.in_set(b, at);
        b.store(Memory::Shared(self.partial_sums), at, &[sum], Some(own));
    }

    /// Writes the shares of the warp.
    pub(super) fn store_partials(&self, b: &mut Builder, partials: &Partials) {
        if !self.has_decay() {
            return;
        }
        let Partials { pairs, values, queries, columns } = partials;
        for (number, sums) in [(OVER_COLUMNS, pairs), (OF_VALUES, values), (OF_QUERIES, queries)] {
            for (h, sum) in sums.iter().enumerate().filter_map(|(h, sum)| Some((h, (*sum)?))) {
                self.store_row(b, number, h, sum);
            }
        }
        let own = b.eq(self.fragment.group, 0);
        let at = self.first_of_columns(b);
        for (block, two) in columns.chunks(2).enumerate() {
            self.store_columns(b, own, at, block, two);
        }
    }

    /// Writes the warp's shares at the two times of a block among columns.
    pub(super) fn store_block_columns(&self, b: &mut Builder, block: usize, two: &[Option<Operand>]) {
        if !self.has_decay() {
            return;
        }
        let own = b.eq(self.fragment.group, 0);
        let at = self.first_of_columns(b);
        self.store_columns(b, own, at, block, two);
    }

    /// The index of the warp's shares at the thread's first time among columns.
    fn first_of_columns(&self, b: &mut Builder) -> Operand {
        let (half, column) = (self.half_of(b, TIMES), self.fragment.column(b));
        let of_block = b.mul(self.block, TIMES);
        let at = b.add(half, column);
        b.add(at, of_block)
    }

    fn store_columns(&self, b: &mut Builder, own: Operand, at: Operand, block: usize, two: &[Option<Operand>]) {
        let two: Vec<Operand> =
            two.iter().map(|sum| over_lanes(b, Binary::Add, sum.unwrap_or(f32(0.0)), &[4, 8, 16])).collect();
        let at = b.add(at, OVER_ROWS * TIMES + block as u32 * COLUMNS);
        let at = self.in_set(b, at);
        b.store(Memory::Shared(self.partial_sums), at, &two, Some(own));
    }

    /// Adds the thread's share of ⟨S, D⟩ in a stage of their tiles.
    pub(super) fn add_energy(&self, b: &mut Builder, stage: Operand, sum: &mut Option<Operand>) {
        let start = b.mul(stage, self.states.len());
        let piece = self.states.piece();
        let own = b.mul(self.thread.number, piece);
        let from = b.add(start, own);
        let per_iteration = self.schedule.sharing() * piece;
        for iteration in 0..self.states.len() / per_iteration {
            let at = b.add(from, iteration * per_iteration);
            self.load_late(b);
            let [states, duals] = [&self.states, &self.duals].map(|tile| piece_of(b, tile, at));
            states.into_iter().zip(duals).for_each(|(x, y)| accumulate(b, sum, [x, y]));
        }
    }

    /// Writes the warp's share of ⟨S, D⟩, of which the thread has this sum.
    pub(super) fn store_energy(&self, b: &mut Builder, sum: Option<Operand>) {
        let sum = over_lanes(b, Binary::Add, sum.unwrap_or(f32(0.0)), &[1, 2, 4, 8, 16]);
        let own = b.eq(self.thread.lane, 0);
        let first = self.first_energy(b);
        let at = b.add(first, self.thread.warp);
        b.store(Memory::Shared(self.energies), at, &[sum], Some(own));
    }

    /// Stores the outputs of all times of a head, by the first warp.
    pub(super) fn store_steps(
        &self,
        b: &mut Builder,
        values: &Values,
        decays: &Decays,
        slice: Option<(Operand, &Chunk)>,
    ) {
        if !self.form.outputs.iter().any(|kind| kind.is_over_time()) {
            return;
        }
        let is_first = b.eq(self.thread.warp, 0);
        b.if_(is_first, |b| self.store_over_time(b, values, decays, slice));
    }

    /// Stores the outputs of all times of a head, by one warp.
    pub(super) fn store_over_time(
        &self,
        b: &mut Builder,
        values: &Values,
        decays: &Decays,
        slice: Option<(Operand, &Chunk)>,
    ) {
        let mut values = values.clone();
        let own = b.mul(self.thread.lane, PER_LANE);
        let mut sums = 0;
        let over_time = self.form.outputs.iter().enumerate().filter(|(_, kind)| kind.is_over_time());
        for (number, (output, kind)) in over_time.enumerate() {
            let two = match kind {
                Cotangent::Sum(..) => {
                    sums += 1;
                    let first = first_over_width(self.schedule) + 2 * (sums - 1);
                    self.add_halves(b, own, first)
                }
                Cotangent::Decay => self.of_decay(b, own, decays),
                _ => continue,
            };
            match slice {
                None => self.store_at_times(b, &mut values, output, *kind, two),
                Some((slice, chunk)) => {
                    let all = self.add_slice(b, number as u32, slice, two);
                    let next = b.add(slice, 1);
                    let is_last = b.eq(next, chunk.slices);
                    b.if_(is_last, |b| self.store_at_times(b, &mut values.clone(), output, *kind, all));
                }
            }
        }
    }

    /// Adds the sums of a slice of a wide head, at the lane's times, to those of the slices before, if it is not the first.
    fn add_slice(&self, b: &mut Builder, number: u32, slice: Operand, two: [Operand; 2]) -> [Operand; 2] {
        let own = b.mul(self.thread.lane, PER_LANE);
        let at = b.add(own, (self.schedule.sets() * rows_of_set(self.form, self.schedule) + number) * TIMES);
        let has_before = b.ne(slice, 0);
        let before = b.load(Memory::Shared(self.partial_sums), at, PER_LANE, Some(has_before), zero(Ty::F32));
        let all = [0, 1].map(|k: usize| b.add(before[k], two[k]));
        b.store(Memory::Shared(self.partial_sums), at, &all, None);
        all
    }

    fn store_at_times(
        &self,
        b: &mut Builder,
        values: &mut Values,
        output: usize,
        kind: Cotangent,
        two: [Operand; PER_LANE as usize],
    ) {
        let tensor = Tensor::Output(output as u32);
        let value = self.stage.program.outputs[output].value;
        for (k, sum) in two.into_iter().enumerate() {
            let coordinates = Coordinates { row: Some(k as u32), ..Coordinates::default() };
            match kind {
                Cotangent::Sum(tuple, _) => values.set_state((tuple, 0), coordinates, sum),
                _ => values.set(value, coordinates, sum),
            }
            let (indices, exists) = values.indices(b, coordinates);
            let stored = values.value(b, value, coordinates);
            let offset = self.args.offset(b, tensor, &indices);
            b.store(Memory::Global(self.args.pointer(tensor)), offset, &[stored], Some(exists));
        }
    }

    /// The index of a partial sum in the head's set.
    fn in_set(&self, b: &mut Builder, at: Operand) -> Operand {
        let before = b.mul(self.set, rows_of_set(self.form, self.schedule) * TIMES);
        b.add(before, at)
    }

    /// The index of the first warp's share of ⟨S, D⟩ in the head's set.
    fn first_energy(&self, b: &mut Builder) -> Operand {
        b.mul(self.set, self.schedule.sharing() / WARP)
    }

    /// Adds the rows of a warp's halves at the lane's times.
    fn add_halves(&self, b: &mut Builder, own: Operand, first: u32) -> [Operand; 2] {
        self.add_partial_sums(b, own, first..first + self.schedule.halves())
    }

    /// Adds rows of partial sums at the lane's times.
    fn add_partial_sums(&self, b: &mut Builder, own: Operand, rows: std::ops::Range<u32>) -> [Operand; 2] {
        let mut sums: Option<[Operand; 2]> = None;
        for row in rows {
            let at = b.add(own, row * TIMES);
            let at = self.in_set(b, at);
            let two = b.load(Memory::Shared(self.partial_sums), at, PER_LANE, None, zero(Ty::F32));
            sums = Some(match sums {
                None => [two[0], two[1]],
                Some(sums) => [b.add(sums[0], two[0]), b.add(sums[1], two[1])],
            });
        }
        sums.unwrap_or([f32(0.0); 2])
    }

    /// The cotangent of the decay's logarithm at the lane's times.
    fn of_decay(&self, b: &mut Builder, own: Operand, decays: &Decays) -> [Operand; 2] {
        let rows = self.add_partial_sums(b, own, OVER_ROWS..OVER_COLUMNS);
        let columns = self.add_halves(b, own, OVER_COLUMNS);
        let after = self.add_halves(b, own, OF_VALUES);
        let before = self.add_halves(b, own, OF_QUERIES);
        let inside = [0, 1].map(|k| b.sub(rows[k], columns[k]));
        let through = [0, 1].map(|k| b.sub(before[k], after[k]));
        let change = [0, 1].map(|k| b.add(inside[k], through[k]));
        let both = b.add(after[0], after[1]);
        let all_after = over_lanes(b, Binary::Add, both, &[1, 2, 4, 8, 16]);
        let first = self.first_energy(b);
        let energies = (0..self.schedule.sharing() / WARP).map(|warp| {
            let at = b.add(first, warp);
            b.load1(Memory::Shared(self.energies), at)
        });
        let energies: Vec<Operand> = energies.collect();
        let energy = energies.into_iter().reduce(|sum, own| b.add(sum, own)).unwrap_or(f32(0.0));
        let constant = b.fma(decays.whole, energy, all_after);
        let both = b.add(change[0], change[1]);
        let later = sum_beside(b, Neighbours::in_warp(self.thread.lane), both, Side::Behind);
        let later = b.add(later, constant);
        let second = b.add(later, change[1]);
        [b.add(second, change[0]), second]
    }

    /// Writes a head's sum over the width of a map, of which the thread has these shares at its two times among rows.
    pub(super) fn store_width_sum(&self, b: &mut Builder, number: u32, shares: [Operand; 2]) {
        for (h, share) in shares.into_iter().enumerate() {
            self.store_row(b, first_over_width(self.schedule) + 2 * number, h, share);
        }
    }
}

/// The elements of a piece of a tile.
fn piece_of(b: &mut Builder, tile: &Tile, at: Operand) -> Vec<Operand> {
    let mut load = |array| b.load(Memory::Shared(array), at, tile.piece(), None, zero(Ty::F32));
    let high = load(tile.array);
    let Some(low) = tile.low.map(&mut load) else { return high };
    high.into_iter().zip(low).map(|(high, low)| b.add(high, low)).collect()
}

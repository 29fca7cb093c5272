//! The walk of a block over the chunks of its recurrence.

use super::decay::Rates;
use super::segments::Iterations;
use super::state::State;
use super::{Chunkwise, ChunkwiseKernel, ROWS, origin_at};
use crate::block::copy::{Origin, Source};
use crate::block::layout::{Lanes, Tile, left_rows, right_rows};
use crate::block::matmul::Factor;
use crate::block::pair::Values;
use crate::block::ring::{Ring, RingStage};
use crate::build::{Builder, f32};
use crate::schedules::Unit;
use crate::tile::{Operand, Reg, Stmt};
use oplus_dsl::ir::{Binary, Param};
use oplus_dsl::{Elem, Ty};

/// The lanes by which tiles are read.
pub(super) struct AllLanes {
    /// Queries as a left factor.
    queries: Option<Lanes>,
    /// Keys as a right factor over the depth, and over time: of `f32`, lanes name elements of rows 2t.
    keys: Lanes,
    keys_in_time: Lanes,
    /// Values as a right factor over time.
    values: Lanes,
    /// The index of the warp's values as a left factor over time, within 16 times.
    values_left: Operand,
    /// States as a right factor.
    states: Option<Lanes>,
}

/// The carry of a recurrence from chunk to chunk.
#[derive(Clone, Copy)]
pub(super) struct Running<'w> {
    pub state: &'w State,
    /// The sum of the decays' logarithms so far.
    pub logs: Reg,
}

/// Values that stay constant from chunk to chunk.
pub(super) struct Walk<'w, 's> {
    /// Where every tile's tensor begins.
    origins: &'w [Origin],
    values: &'w Values<'s>,
    pub(super) running: Running<'w>,
    pub(super) iterations: Iterations,
}

/// The factors of a readout.
#[derive(Clone, Copy)]
pub(super) struct ReadFactors<'a> {
    pub queries: Factor<'a>,
    /// Keys over the depth.
    pub keys: Factor<'a>,
    /// Values over time.
    pub values: Factor<'a>,
    /// The state before the chunk.
    pub states: Factor<'a>,
}

/// The factors that a chunk's products read.
pub(super) struct Chunk<'a> {
    /// The iteration of the chunk, and its first time, `i32`.
    pub iteration: Operand,
    pub first: Operand,
    pub queries: Option<Factor<'a>>,
    /// Keys over the depth, and over time.
    pub keys: Factor<'a>,
    pub keys_in_time: Factor<'a>,
    /// Values over time, and the index of the warp's own as a left factor.
    pub values: Factor<'a>,
    pub values_left: Operand,
    /// The state before the chunk.
    pub states: Option<Factor<'a>>,
}

impl ChunkwiseKernel<'_> {
    pub(crate) fn body(&self, b: &mut Builder) {
        self.start(b);
        let origins = if self.handover.is_none() { self.origins(b) } else { vec![] };
        let mut iterations = self.iterations(b);
        let mut before = self.segment.number;
        if self.is_final() {
            let is_last = self.segment.is_last(b);
            for count in [&mut iterations.count, &mut before] {
                *count = b.select(is_last, *count, Operand::i32(0));
            }
        }
        if self.handover.is_some() {
            return self.roles(b, iterations, before);
        }
        for iteration in 0..self.schedule.stages as i32 - 1 {
            self.fetch(b, &origins, Operand::i32(iteration), iterations);
        }
        self.walk(b, &origins, iterations, before);
    }

    /// The iterations of the block's segment.
    pub(super) fn iterations(&self, b: &mut Builder) -> Iterations {
        let times = i64::from(self.schedule.times());
        let chunks = b.div_ceil(self.args.size(self.form.time), times);
        let chunks = b.convert(Ty::I32, chunks);
        self.segment.iterations(b, chunks)
    }

    /// Where every tile's tensor begins.
    pub(super) fn origins(&self, b: &mut Builder) -> Vec<Origin> {
        let source = self.source();
        self.tiles().map(|tile| self.origin(b, tile, &source)).collect()
    }

    /// Walks the chunks of the segment, which has so many segments before it.
    pub(super) fn walk(&self, b: &mut Builder, origins: &[Origin], iterations: Iterations, before: Operand) {
        let values = Values::new(self.stage, &self.args, [self.form.time, self.form.width], self.outer.clone());
        let state = self.first_state(b, &values);
        if !self.schedule.ends {
            self.join(b, &state, before);
        }
        if self.form.channels {
            self.clear_logs(b);
        } else if self.handover.is_none() {
            let rates = self.rates_at(b, &values, Operand::i32(0), iterations);
            self.store_rates(b, &rates, Operand::i32(0));
        }
        let logs = b.var(f32(0.0));
        let running = Running { state: &state, logs };
        let walk = Walk { origins, values: &values, running, iterations };
        b.for_(Operand::i32(0), iterations.count, 1, |b, iteration| {
            if self.state_handover.is_some() {
                return self.advance_alone(b, &walk, iteration);
            }
            let kernel = self.rematerialised(b).or_else(|| self.with_constants_read(b));
            kernel.as_ref().unwrap_or(self).iteration(b, &walk, iteration);
        });
        if self.schedule.ends {
            return self.store_carries(b, &state, logs);
        }
        let is_last = self.rematerialiser.read(b, self.outer.len());
        let is_last = b.ne(is_last, 0);
        let kernel = self.with_constants_read(b);
        b.if_(is_last, |b| kernel.as_ref().unwrap_or(self).finals(b, &state));
    }

    /// Initialises the mbarriers and writes the rematerialised numbers, by one thread.
    fn start(&self, b: &mut Builder) {
        let is_last = self.segment.is_last(b);
        let is_last = b.select(is_last, Operand::i64(1), Operand::i64(0));
        let constants = self.shared_constants(b);
        let numbers: Vec<Operand> =
            self.outer.iter().map(|(_, index)| *index).chain([is_last]).chain(constants).collect();
        let first = b.eq(self.thread.number, 0);
        b.if_(first, |b| {
            self.rematerialiser.store(b, &numbers);
            for (array, arrivals) in self.mbarriers() {
                b.init_mbarriers(array, self.schedule.stages, arrivals);
            }
            if self.are_prepared() {
                b.init_mbarriers(self.keys.full, self.schedule.stages, 1);
            }
            if let Some(tile) = &self.gate {
                b.init_mbarriers(tile.full, 1, self.schedule.walkers());
            }
            self.init_handover(b);
            self.init_readers(b);
            b.push(Stmt::FenceInit);
        });
        b.barrier();
    }

    /// Where a tile's tensor begins for the block, at its slice of the width.
    pub(super) fn origin(&self, b: &mut Builder, tile: &Tile, source: &Source) -> Origin {
        origin_at(b, tile, source, self.slice.filter(|_| tile.inner == self.form.width))
    }

    /// Starts the copies of a chunk, if there is one.
    fn fetch(&self, b: &mut Builder, origins: &[Origin], iteration: Operand, iterations: Iterations) {
        let exists = b.lt(iteration, iterations.count);
        b.if_(exists, |b| {
            let chunk = self.chunk(b, iteration, iterations);
            let first = b.mul(chunk, self.schedule.times());
            let stage = b.binary(Binary::Rem, iteration, self.schedule.stages);
            let outer = self.is_scarce().then(|| self.rematerialiser.outer(b, &self.outer));
            let source = self.source_of_iteration(b);
            let source = Source { outer: outer.as_deref().unwrap_or(source.outer), ..source };
            for (tile, origin) in self.tiles().zip(origins) {
                let origin = if self.is_scarce() { self.origin(b, tile, &source) } else { *origin };
                tile.fill(b, &source, origin, first, stage);
            }
        });
    }

    /// The chunk of an iteration of the segment.
    pub(super) fn chunk(&self, b: &mut Builder, iteration: Operand, iterations: Iterations) -> Operand {
        let first = self.first_chunk_read(b).unwrap_or(iterations.first);
        let iteration = b.add(first, iteration);
        if !self.form.reverse {
            return iteration;
        }
        let last = b.sub(iterations.all, 1);
        let chunk = b.sub(last, iteration);
        // A sequence may have no chunks.
        if self.stage.sequences().is_some() { b.binary(Binary::Max, chunk, 0) } else { chunk }
    }

    pub(super) fn lanes(&self, b: &mut Builder) -> AllLanes {
        let (row, half) = left_rows(b, self.thread.lane);
        let of_warp = b.mul(self.thread.warp, ROWS);
        let own = b.add(row, of_warp);
        let queries = self.queries.as_ref().map(|tile| tile.lanes(b, own, half));
        let has_elements = self.elem() == Elem::F32;
        let [keys_in_time, values] = [&self.keys, &self.values].map(|tile| match has_elements {
            true => {
                let row = self.fragment.column(b);
                tile.lanes_of_elements(b, row, self.fragment.group)
            }
            false => tile.lanes(b, row, half),
        });
        let (row, half) = right_rows(b, self.thread.lane);
        let keys = self.keys.lanes(b, row, half);
        let states = self.states.as_ref().map(|tile| tile.lanes(b, row, half));
        let values_left =
            if has_elements { self.first_value(b) } else { self.values.lanes_at(b, row, half, self.thread.warp) };
        AllLanes { queries, keys, keys_in_time, values, values_left, states }
    }

    /// Computes one chunk.
    fn iteration(&self, b: &mut Builder, walk: &Walk, iteration: Operand) {
        let Walk { origins, values, running, iterations } = *walk;
        let rematerialised = self.is_scarce().then(|| self.values(b));
        let values = rematerialised.as_ref().unwrap_or(values);
        let filled = Ring::of(self.schedule.stages).at(b, iteration);
        let chunk = self.chunk(b, iteration, iterations);
        let first = b.mul(chunk, self.schedule.times());
        if self.factored.is_some() {
            self.wait_filled(b, filled);
            let numbers = self.numbers(b, filled.index);
            self.renew(b, running.state, numbers);
        }
        self.store_state(b, running.state);
        if self.form.channels {
            // The sums of the chunk before are read until its end.
            b.barrier();
            if self.schedule.stages == 1 {
                self.fetch(b, origins, iteration, iterations);
            }
            self.sum_channels(b, values, first);
        }
        // From here on all threads see the sums and the state, and none reads the chunk before.
        self.walkers_barrier(b);
        self.fetch_gate(b, first);
        if self.handover.is_none() && self.schedule.stages > 1 {
            let next = b.add(iteration, self.schedule.stages as i32 - 1);
            self.fetch(b, origins, next, iterations);
        }
        self.keep_in_range(b, running.state);
        self.save_state(b, running.state, chunk, iterations.all);
        if self.factored.is_none() {
            self.wait_filled(b, filled);
        }
        if self.are_prepared() {
            b.wait(self.keys.full, filled);
        }
        let lanes = self.lanes(b);
        let chunk = self.tiles_of(b, &lanes, iteration, first, filled.index);
        let started = (self.schedule.unit == Unit::Warpgroup).then(|| self.start_chunk(b, &chunk));
        // Reading the next rates takes as long as the products, and as many registers.
        let late = self.is_late();
        let own_rates = !self.form.channels && self.handover.is_none();
        let rates = (own_rates && !late).then(|| self.next_rates(b, values, iteration, iterations));
        match started {
            Some(started) => self.finish_chunk(b, running, &chunk, started),
            None => self.by_warps(b, values, running, &chunk),
        }
        // Of single elements nothing is kept for them from before the walk, nor beside resets where queries read.
        let behind = (late
            && (self.schedule.vector == 1 || self.is_packed() && self.queries.is_some())
            && self.schedule.depth > 64)
            .then(|| self.with_thread_rematerialised(b));
        let own = behind.as_ref().unwrap_or(self);
        let rates = if late { Some(own.next_rates(b, values, iteration, iterations)) } else { rates };
        if let Some(rates) = rates {
            let following = b.add(iteration, 1);
            own.store_rates(b, &rates, following);
        }
        self.free(b, filled);
    }

    /// Waits until a stage has its tiles.
    pub(super) fn wait_filled(&self, b: &mut Builder, filled: RingStage) {
        self.mbarriers().into_iter().for_each(|(array, _)| b.wait(array, filled));
    }

    /// The factors that a chunk's products read.
    pub(super) fn tiles_of<'a>(
        &'a self,
        b: &mut Builder,
        lanes: &'a AllLanes,
        iteration: Operand,
        first: Operand,
        stage: Operand,
    ) -> Chunk<'a> {
        let keys = Factor::of(b, &self.keys, &lanes.keys, stage);
        let keys_in_time = Factor { lanes: &lanes.keys_in_time, ..keys };
        let of_values = self.of_head(b, stage, self.schedule.stages);
        let values = Factor::of(b, &self.values, &lanes.values, of_values);
        let queries = self.queries.as_ref().zip(lanes.queries.as_ref());
        let queries = queries.map(|(tile, lanes)| Factor::of(b, tile, lanes, stage));
        let states = self.states.as_ref().zip(lanes.states.as_ref());
        let states = states.map(|(tile, lanes)| {
            let start = self.of_head(b, Operand::i32(0), tile.len());
            Factor { tile, lanes, start }
        });
        Chunk { iteration, first, queries, keys, keys_in_time, values, values_left: lanes.values_left, states }
    }

    /// Computes one chunk by products of warps.
    fn by_warps(&self, b: &mut Builder, values: &Values, running: Running, chunk: &Chunk) {
        let Running { state, logs } = running;
        let decays = (!self.form.channels).then(|| self.decays(b, chunk.iteration));
        if let Some((queries, states)) = chunk.queries.zip(chunk.states) {
            let factors = ReadFactors { queries, keys: chunk.keys, values: chunk.values, states };
            let y = self.read_apart(b, |b| match &decays {
                Some(decays) => self.read(b, decays, &factors),
                None => self.read_channels(b, &factors),
            });
            let behind = self.reads_elements_of_others().then(|| self.with_thread_rematerialised(b));
            behind.as_ref().unwrap_or(self).store_outputs(b, values.clone(), chunk, queries, &y);
        }
        let decays = self.decays_again(b, chunk.iteration).or(decays);
        let remaining = |b: &mut Builder, block: u32| match &decays {
            Some(decays) => self.remaining(b, decays, block),
            None => self.gains_of(b, block),
        };
        let left = self.scaled_values(b, remaining, chunk.values, chunk.values_left);
        self.wait_saved(b);
        b.barrier();
        match &decays {
            Some(decays) => {
                self.advance(b, state, decays, &left, chunk.keys_in_time);
                let sum = b.add(logs.into(), decays.end);
                b.assign(logs, sum);
            }
            None => self.advance_channels(b, state, &left, chunk.keys_in_time),
        }
    }

    /// Whether outputs of a warp without rematerialised coordinates read single elements of two tensors beside the values: their addresses
    /// leave no registers for where the thread is.
    fn reads_elements_of_others(&self) -> bool {
        let Chunkwise { vector, depth, warps, ends, .. } = *self.schedule;
        let is_meant = self.schedule.unit == Unit::Warp && vector == 1 && depth == 64 && warps == 4 && !ends;
        let (time, width) = (self.form.time, self.form.width);
        let has_both = |param: &&Param| param.axes.contains(&time) && param.axes.contains(&width);
        is_meant && !self.is_scarce() && self.stage.program.params.iter().filter(has_both).count() > 2
    }

    /// Whether the next rates are read after the products, which leave them no registers where queries read: split products,
    /// and products in `tf32` beside single elements.
    fn is_late(&self) -> bool {
        let queries = self.is_tf32 && !self.form.channels && !self.schedule.ends;
        queries && (self.has_rounding_errors() || self.schedule.vector == 1)
    }

    /// Reads the rates of the next iteration from memory.
    fn next_rates(&self, b: &mut Builder, values: &Values, iteration: Operand, iterations: Iterations) -> Rates {
        let (next, last) = (b.add(iteration, 1), b.sub(iterations.count, 1));
        let known = b.binary(Binary::Min, next, last);
        self.rates_at(b, values, known, iterations)
    }

    /// Reads the rates of an iteration; past the last one, of times that need not exist.
    pub(super) fn rates_at(
        &self,
        b: &mut Builder,
        values: &Values,
        iteration: Operand,
        iterations: Iterations,
    ) -> Rates {
        let chunk = self.chunk(b, iteration, iterations);
        let first = b.mul(chunk, self.schedule.times());
        self.rates(b, values, first)
    }
}

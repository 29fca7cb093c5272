//! The fourth warpgroup: tiles, decays and gains ahead of the others, and outputs over time behind them.

use super::WarpgroupSweep;
use super::range::SummedRates;
use crate::block::copy::Source;
use crate::block::pair::Values;
use crate::block::ring::{Ring, RingStage};
use crate::build::Builder;
use crate::schedules::chunkwise::origin_at;
use crate::schedules::chunkwise_backward::parameters::ROLES;
use crate::schedules::chunkwise_backward::walk::{Chunk, HeadSlice};
use crate::schedules::chunkwise_backward::{GradientSweep, TIMES};
use crate::target::WARP;
use crate::tile::Operand;

impl WarpgroupSweep<'_> {
    /// Divides the warpgroup in warps that copy tiles, one that evaluates decays and gains, and one that stores outputs over time.
    pub(super) fn copy_role(&self, b: &mut Builder) {
        let own = self.of_group(b, ROLES);
        let copying = self.schedule.copying() / WARP;
        let copies = b.lt(own.thread.warp, copying);
        b.if_else(
            copies,
            |b| own.copy_tiles(b),
            |b| {
                let is_first = b.eq(own.thread.warp, copying);
                b.if_else(is_first, |b| own.write_rates(b), |b| own.steps_role(b));
            },
        );
    }

    /// Goes through the stages of all heads as others leave them.
    fn each_free(&self, b: &mut Builder, chunk: &Chunk, body: impl FnOnce(&mut Builder, Operand, RingStage)) {
        b.for_(Operand::i32(0), chunk.heads, 1, |b, iteration| {
            let to = self.ring().at(b, iteration);
            let left = to.before(b);
            b.wait(self.free, left);
            body(b, iteration, to);
        });
    }

    /// Copies keys and queries, and the tiles of all heads.
    fn copy_tiles(&self, b: &mut Builder) {
        let chunk = self.chunk(b);
        let none = Operand::i32(0);
        let source = Source { rolled: Some(1), ..self.source(&chunk.shared) };
        for tile in [&self.keys, &self.queries] {
            let origin = tile.origin(b, &source);
            tile.start_copies(b, &source, origin.into(), chunk.first, none);
        }
        b.arrive_with_copies(self.begun, none);
        self.each_free(b, &chunk, |b, iteration, to| {
            let head = self.head(b, &chunk, iteration);
            let own = self.at_stage(b, to.index);
            let source = Source { rolled: Some(1), ..own.source(&head.outer) };
            for tile in [&self.values, &self.cotangents] {
                let place = head.slice.map(|slice| b.mul(slice, TIMES));
                let origin = origin_at(b, tile, &source, place);
                tile.start_copies(b, &source, origin, chunk.first, to.index);
            }
            b.arrive_with_copies(self.full, to.index);
        });
    }

    /// Starts the copies of S and D of all heads, and evaluates decays and gains.
    fn write_rates(&self, b: &mut Builder) {
        let chunk = self.chunk(b);
        let power = self.power_of_keys(b);
        self.wait_largest_scores(b);
        self.each_free(b, &chunk, |b, iteration, to| {
            let head = self.head(b, &chunk, iteration);
            let starts = b.eq(self.thread.lane, 0);
            b.if_(starts, |b| {
                let chunk = self.with_count(b, &chunk);
                self.load_states(b, &head, &chunk, self.full, to.index);
            });
            let own = self.at_stage(b, to.index);
            let undone = own.read_undone_states(b, &head, &chunk);
            let rates = own.rates(b, &head.outer, chunk.first);
            let at = own.own_rates(b, iteration);
            let sums = rates.summed(b, own.thread.lane);
            rates.store_summed(b, &sums, &self.rates, at, Operand::bool(true));
            if let Some((undone, power)) = undone.zip(power) {
                own.write_range(b, undone, power, &SummedRates { rates: &rates, sums: &sums }, at);
            }
            b.arrive(self.full, to.index);
        });
    }

    /// Stores the outputs over time of all heads, when their partial sums are complete.
    fn steps_role(&self, b: &mut Builder) {
        if !self.has_steps() {
            return;
        }
        let chunk = self.chunk(b);
        b.for_(Operand::i32(0), chunk.heads, 1, |b, iteration| {
            let at = Ring::of(self.schedule.heads()).at(b, iteration);
            let head = self.head(b, &chunk, iteration);
            let own = self.at_stage(b, at.index);
            let values = own.read_steps(b, &head, &chunk);
            b.wait(self.summed, at);
            let decays = own.decays(b, iteration);
            own.store_over_time(b, &values, &decays, head.slice.map(|slice| (slice, &chunk)));
            b.arrive(self.free, at.index);
        });
    }

    /// Reads what outputs over time need, at the lane's times.
    pub(super) fn read_steps(&self, b: &mut Builder, head: &HeadSlice, chunk: &Chunk) -> Values<'_> {
        let (time, width) = (self.form.states.time, self.form.states.width);
        let sweep: &GradientSweep = self;
        let mut steps = Values::new(self.stage, &self.args, [time, width], head.outer.clone());
        for (k, place) in (0..).zip(sweep.own_times(b, chunk.first)) {
            steps.set_row(k, place);
        }
        (0..2).for_each(|row| steps.read_row(b, row));
        steps
    }
}

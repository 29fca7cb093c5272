//! Warps that only copy: they fill the stages of tiles ahead of the warps that multiply, and evaluate decays and gains.
//!
//! The copying warps wait until a stage is free, start its copies and write its sums and gains. Elements of `f32` they divide in two
//! [parts](super::parts). The warps that multiply wait for all of these, and free the stage when its outputs are stored.

use super::ChunkwiseKernel;
use super::decay::{Rates, with_rounding_errors};
use super::segments::Iterations;
use crate::block::copy::{Origin, Source};
use crate::block::pair::Values;
use crate::block::ring::{Ring, RingStage};
use crate::block::roles;
use crate::block::thread::Thread;
use crate::build::{Builder, f32};
use crate::target::WARP;
use crate::tile::{Expr, Memory, Operand, SharedId, SharedKind, Stmt};
use oplus_dsl::{Elem, Ty};

/// The number of the barrier of the warps that multiply, for the first of a block's recurrences.
pub(super) const WALKERS: u32 = 1;

/// The mbarriers, one for every stage, by which warps that multiply give stages back to those that copy.
#[derive(Clone, Copy)]
pub(crate) struct Handover {
    /// Completes when no thread reads the stage any more.
    free: SharedId,
    /// The gains of every stage, scaled to the chunk's end, or the [factors](super::factored) of its columns, in `f32`.
    pub(super) remaining: SharedId,
}

impl Handover {
    /// Declares the mbarriers.
    pub(super) fn declare(b: &mut Builder, stages: u32, times: u32) -> Handover {
        let remaining = b.shared("remaining", SharedKind::Elem(Elem::F32), stages * times);
        let free = b.shared("free", SharedKind::Mbarrier, stages);
        Handover { free, remaining }
    }
}

impl ChunkwiseKernel<'_> {
    /// Initialises the mbarriers, by one thread.
    pub(super) fn init_handover(&self, b: &mut Builder) {
        if let Some(Handover { free, .. }) = self.handover {
            b.init_mbarriers(free, self.schedule.stages, self.schedule.multipliers() * WARP);
        }
    }

    /// Divides the block in warps that multiply and warps that copy.
    pub(super) fn roles(&self, b: &mut Builder, iterations: Iterations, before: Operand) {
        let warps = self.schedule.multipliers();
        let walks = b.lt(self.thread.warp, warps);
        let walk = |b: &mut Builder| match self.state_handover {
            Some(_) => self.walk_or_read(b, iterations, before),
            None => self.with_own_head(b).walk(b, &[], iterations, before),
        };
        let copy = |b: &mut Builder| {
            let Thread { number, warp, lane } = self.thread;
            let thread = Thread { number: b.sub(number, warps * WARP), warp: b.sub(warp, warps), lane };
            let kernel = ChunkwiseKernel { thread, ..self.clone() };
            if self.schedule.heads > 1 { kernel.copy_heads(b, iterations) } else { kernel.copy_role(b, iterations) }
        };
        roles::divide(b, walks, self.schedule.registers(), walk, copy);
    }

    /// Copies all chunks of the segment, and writes their sums and gains.
    fn copy_role(&self, b: &mut Builder, iterations: Iterations) {
        let Some(handover) = self.handover else { return };
        let source = Source { threads: self.schedule.copiers * WARP, ..self.source() };
        if self.are_prepared() {
            return self.copy_prepared(b, handover, &source, iterations);
        }
        let kernel = self.with_constants_read(b);
        let origins = kernel.as_ref().unwrap_or(self).origins(b);
        if self.is_split() {
            return self.copy_parts(b, handover, &source, &origins, iterations);
        }
        let ahead = self.read_first(b, iterations);
        let is_first = b.eq(self.thread.warp, 0);
        b.for_(Operand::i32(0), iterations.count, 1, |b, iteration| {
            let next = self.read_early(b, &ahead, iteration, iterations);
            let to = Ring::of(self.schedule.stages).at(b, iteration);
            let first = self.first_time(b, iteration, iterations);
            self.wait_free(b, handover, to);
            for (tile, origin) in self.tiles().zip(&origins) {
                tile.start_copies_in_steps(b, &source, *origin, first, to.index);
                tile.arrive(b, &source, to.index);
            }
            b.if_(is_first, |b| self.write_rates(b, &ahead, iteration, first, iterations));
            b.arrive(self.keys.full, to.index);
            ahead.take(b, next.as_ref());
        });
    }

    /// Copies all chunks of the segment, whose elements are divided in two parts.
    fn copy_parts(
        &self,
        b: &mut Builder,
        handover: Handover,
        source: &Source,
        origins: &[Origin],
        iterations: Iterations,
    ) {
        let values = Values::new(self.stage, &self.args, [self.form.time, self.form.width], self.outer.clone());
        b.for_(Operand::i32(0), iterations.count, 1, |b, iteration| {
            let to = Ring::of(self.schedule.stages).at(b, iteration);
            let first = self.first_time(b, iteration, iterations);
            let read = self.read_rows(b, source, origins, first);
            let rates = self.rates(b, &values, first);
            self.wait_free(b, handover, to);
            self.write_parts(b, read, to.index);
            self.store_all_rates(b, handover, iteration, &rates);
            b.arrive(self.keys.full, to.index);
        });
    }

    /// The first time of an iteration's chunk.
    pub(super) fn first_time(&self, b: &mut Builder, iteration: Operand, iterations: Iterations) -> Operand {
        let chunk = self.chunk(b, iteration, iterations);
        b.mul(chunk, self.schedule.times())
    }

    /// Waits until no thread reads a stage any more.
    pub(super) fn wait_free(&self, b: &mut Builder, handover: Handover, to: RingStage) {
        let left = to.before(b);
        b.wait(handover.free, left);
    }

    /// Writes the sums and gains of an iteration, and the gains scaled to the chunk's end.
    pub(super) fn store_all_rates(&self, b: &mut Builder, handover: Handover, iteration: Operand, rates: &Rates) {
        self.store_rates(b, rates, iteration);
        self.store_remaining(b, handover, iteration);
    }

    /// Writes the gains scaled to the chunk's end, in reverse to before its first time, by the warp that wrote the sums.
    fn store_remaining(&self, b: &mut Builder, handover: Handover, iteration: Operand) {
        let (times, per_lane) = (self.schedule.times(), self.schedule.times() / WARP);
        let from = self.rates_of(b, iteration);
        let is_first = b.eq(self.thread.warp, 0);
        b.if_(is_first, |b| {
            b.push(Stmt::SyncWarp);
            let own = b.mul(self.thread.lane, per_lane);
            let at = b.add(from, own);
            let end = b.add(from, times as i32 - 1);
            let end = b.load1(Memory::Shared(self.sums), end);
            let [sums, gains] =
                [self.sums, self.gains].map(|array| b.load(Memory::Shared(array), at, per_lane, None, f32(0.0)));
            let errors = self.has_rounding_errors().then(|| {
                let (at, last) = (b.add(at, self.errors_apart()), b.add(from, times - 1 + self.errors_apart()));
                let own = b.load(Memory::Shared(self.sums), at, per_lane, None, f32(0.0));
                (b.load1(Memory::Shared(self.sums), last), own)
            });
            let remaining = (0..).zip(sums).zip(gains).map(|((k, sum), gain): ((usize, Operand), Operand)| {
                let apart = if self.form.reverse { sum } else { b.sub(end, sum) };
                let errors = errors.as_ref().filter(|_| !self.form.reverse).map(|(end, own)| (*end, own[k]));
                let apart = with_rounding_errors(b, apart, errors);
                let decay = b.let_(Ty::F32, Expr::Exp2Fast(apart));
                b.mul(decay, gain)
            });
            let remaining: Vec<Operand> = remaining.collect();
            b.store(Memory::Shared(handover.remaining), at, &remaining, None);
        });
    }

    /// Waits for all threads that multiply.
    pub(super) fn walkers_barrier(&self, b: &mut Builder) {
        match self.handover {
            None => b.barrier(),
            Some(_) => self.barrier_of_head(b),
        }
    }

    /// Reports that the thread reads a stage no more.
    pub(super) fn free(&self, b: &mut Builder, read: RingStage) {
        if let Some(handover) = self.handover {
            b.arrive(handover.free, read.index);
        }
    }
}

//! Several recurrences of a block that share queries and keys, as the heads of a group do in Mamba-2.
//!
//! Each has a warpgroup that multiplies, values, a state and decays of its own. Queries and keys are copied once for all, so that a block reads a
//! third less from the device's cache than blocks of one recurrence each.

use super::copiers::WALKERS;
use super::segments::Iterations;
use super::{Chunkwise, ChunkwiseKernel};
use crate::abi::{Tensor, axes};
use crate::block::copy::{Origin, Source};
use crate::block::layout::Tile;
use crate::block::ring::Ring;
use crate::block::thread::Thread;
use crate::build::Builder;
use crate::stage::Stage;
use crate::stage::kind::MatrixRecurrence;
use crate::target::WARP;
use crate::tile::{Operand, Stmt};
use oplus_dsl::ir::{Axis, Binary};
use oplus_dsl::{Elem, Ty};

/// Recurrences of a block that has several.
pub(super) const HEADS: u32 = 2;
/// Chunks in flight of such a block, and of one that only finds the ends of segments: what shared memory has room for.
pub(super) const STAGES: u32 = 3;
pub(super) const STAGES_OF_ENDS: u32 = 6;

/// The axis of the recurrences of a block: the last one that they differ by, where neither queries nor keys have it.
pub(super) fn axis(stage: &Stage, form: &MatrixRecurrence) -> Option<Axis> {
    let last = form.outer.iter().last()?;
    let has_axis = |param: u32| axes(stage, Tensor::Param(param)).contains(&last);
    let is_shared = !has_axis(form.key) && form.readout.as_ref().is_none_or(|readout| !has_axis(readout.query));
    is_shared.then_some(last)
}

/// Whether blocks of a schedule may have several recurrences: beside warps that only copy, in `bf16`, with all of the width, without a gate and
/// without sequences that have blocks of their own.
pub(super) fn are_possible(stage: &Stage, form: &MatrixRecurrence, schedule: &Chunkwise) -> bool {
    let elem = stage.program.params[form.key as usize].elem;
    let is_plain = !schedule.wide && schedule.vector > 1 && elem == Elem::Bf16 && !form.reverse;
    schedule.heads == HEADS
        && schedule.copiers > 0
        && is_plain
        && stage.sequences().is_none()
        && ChunkwiseKernel::gate_of(stage, form, schedule).is_none()
        && axis(stage, form).is_some()
}

/// Moves indices along outer axes on to those of another recurrence of the block. The last axis comes first.
pub(super) fn move_on(b: &mut Builder, outer: &mut [(Axis, Operand)], head: Operand) {
    if let Some((_, index)) = outer.iter_mut().max_by_key(|(axis, _)| axis.0) {
        let head = b.convert(Ty::I64, head);
        *index = b.add(*index, head);
    }
}

impl ChunkwiseKernel<'_> {
    /// The kernel as the threads of one of the block's recurrences see it.
    pub(super) fn with_head(&self, b: &mut Builder, head: Operand) -> Self {
        let mut kernel = self.clone();
        move_on(b, &mut kernel.outer, head);
        let by = b.convert(Ty::I64, head);
        kernel.segment.row = b.add(kernel.segment.row, by);
        kernel.head = Some(head);
        kernel
    }

    /// The kernel as a thread that multiplies sees it: its number and its warp's are those among the threads of its recurrence.
    pub(super) fn with_own_head(&self, b: &mut Builder) -> Self {
        if self.schedule.heads == 1 {
            return self.clone();
        }
        let head = b.binary(Binary::Div, self.thread.warp, self.schedule.warps);
        let kernel = self.with_head(b, head);
        let number = b.binary(Binary::Rem, self.thread.number, self.schedule.walkers());
        let warp = b.binary(Binary::Rem, self.thread.warp, self.schedule.warps);
        ChunkwiseKernel { thread: Thread { number, warp, ..self.thread }, ..kernel }
    }

    /// Copies all chunks of the segment: queries and keys once, and the values of every recurrence. A warp for each evaluates its decays.
    pub(super) fn copy_heads(&self, b: &mut Builder, iterations: Iterations) {
        let Some(handover) = self.handover else { return };
        let threads = self.schedule.copiers * WARP;
        let kernels: Vec<Self> = (0..self.schedule.heads as i32).map(|k| self.with_head(b, Operand::i32(k))).collect();
        let of_heads: Vec<(Source, Origin)> = kernels
            .iter()
            .map(|kernel| {
                let source = Source { threads, ..kernel.source() };
                let origin = kernel.values.origin(b, &source).into();
                (source, origin)
            })
            .collect();
        let source = Source { threads, ..self.source() };
        let shared: Vec<&Tile> = self.queries.iter().chain([&self.keys]).collect();
        let origins: Vec<Origin> = shared.iter().map(|tile| tile.origin(b, &source).into()).collect();
        let last = b.binary(Binary::Min, self.thread.warp, self.schedule.heads as i32 - 1);
        let own = self.with_head(b, last);
        let ahead = own.read_first(b, iterations);
        b.for_(Operand::i32(0), iterations.count, 1, |b, iteration| {
            let next = own.read_early(b, &ahead, iteration, iterations);
            let to = Ring::of(self.schedule.stages).at(b, iteration);
            self.wait_free(b, handover, to);
            let first = self.first_time(b, iteration, iterations);
            for (tile, origin) in shared.iter().zip(&origins) {
                tile.start_copies_in_steps(b, &source, *origin, first, to.index);
            }
            for (kernel, (source, origin)) in kernels.iter().zip(&of_heads) {
                let stage = kernel.of_head(b, to.index, self.schedule.stages);
                self.values.start_copies_in_steps(b, source, *origin, first, stage);
            }
            self.keys.arrive(b, &source, to.index);
            let has_rates = b.lt(self.thread.warp, self.schedule.heads);
            b.if_(has_rates, |b| own.write_rates(b, &ahead, iteration, first, iterations));
            b.arrive(self.keys.full, to.index);
            ahead.take(b, next.as_ref());
        });
    }

    /// An index from that of the block's first recurrence on, where each has so many numbers.
    pub(super) fn of_head(&self, b: &mut Builder, index: Operand, len: u32) -> Operand {
        let Some(head) = self.head else { return index };
        let before = b.mul(head, len);
        b.add(index, before)
    }

    /// Waits for the threads that multiply for the thread's recurrence.
    pub(super) fn barrier_of_head(&self, b: &mut Builder) {
        let threads = self.schedule.walkers();
        let barrier = |id| move |b: &mut Builder| b.push(Stmt::Barrier { id, threads });
        match self.head {
            None => barrier(WALKERS)(b),
            Some(head) => {
                let is_first = b.eq(head, 0);
                b.if_else(is_first, barrier(WALKERS), barrier(WALKERS + 1));
            }
        }
    }
}

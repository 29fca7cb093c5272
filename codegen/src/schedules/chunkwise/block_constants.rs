//! Constants of a block that wait in shared memory where registers are scarce, and are read where they are needed: they lie there behind the
//! [rematerialised](crate::block::rematerialise) outer indices.

use super::decay::Decays;
use super::{Chunkwise, ChunkwiseKernel};
use crate::block::args::NUMBERS_OF_SEQUENCE;
use crate::build::Builder;
use crate::schedules::Unit;
use crate::stage::Stage;
use crate::stage::kind::MatrixRecurrence;
use crate::tile::Operand;
use oplus_dsl::{Elem, Ty};
use std::array::from_fn;

/// Which constants of a block are in shared memory.
#[derive(Clone, Copy)]
pub(crate) struct BlockConstants {
    /// The first place of a slice, in every iteration and after the last one.
    slice: bool,
    /// The number of a segment's first chunk, in every iteration.
    first_chunk: bool,
    /// The first time and the number of times of the block's sequence, and whether it has states, in every iteration and after the last one.
    sequence: bool,
}

impl BlockConstants {
    /// The constants that a kernel has no registers for.
    pub(super) fn of(stage: &Stage, form: &MatrixRecurrence, schedule: &Chunkwise, elem: Elem) -> BlockConstants {
        let is_forward = !schedule.ends && stage.kind().matrices_back().is_err();
        BlockConstants {
            slice: is_forward && schedule.wide && is_slice_too_much(stage, form, schedule, elem),
            first_chunk: is_forward && is_first_chunk_too_much(stage, form, schedule, elem),
            sequence: is_forward && is_sequence_too_much(stage, form, schedule, elem),
        }
    }

    /// How many these are.
    pub(super) fn count(self) -> usize {
        self.before_sequence() + if self.sequence { NUMBERS_OF_SEQUENCE } else { 0 }
    }

    /// How many lie before those of the sequence.
    fn before_sequence(self) -> usize {
        usize::from(self.slice) + usize::from(self.first_chunk)
    }
}

/// Whether there is no register for the first place of a slice. In `f32` it is so with the greatest depth beside decays; beside those of channels only
/// with whole slices, and where several axes number the recurrences. In `bf16`, where gains and final states take registers, too, it is so by a
/// warpgroup of the greatest depth that copies, and by warps that copy single elements; in `f16` where a block finds its sequence.
fn is_slice_too_much(stage: &Stage, form: &MatrixRecurrence, schedule: &Chunkwise, elem: Elem) -> bool {
    let Chunkwise { unit, depth, vector, warps, copiers, padded, .. } = *schedule;
    let Some(decay) = form.decay else { return false };
    let has_finals = (0..stage.program.outputs.len()).any(|output| stage.is_final(output));
    let has_most = decay.reset.is_none() && !form.gain.is_empty() && has_finals;
    match (elem, unit) {
        (Elem::F32, Unit::Warp) if form.channels => {
            depth > 64 && vector > 1 && warps == 2 && !padded && form.outer.iter().count() > 1
        }
        (Elem::F32, Unit::Warp) => depth > 64 && vector > 1,
        _ if form.channels => false,
        (Elem::Bf16, Unit::Warp) => has_most && (depth, vector, warps) == (64, 1, 4),
        (Elem::Bf16, Unit::Warpgroup) => {
            has_most && depth > 64 && copiers == 0 && ChunkwiseKernel::gate_of(stage, form, schedule).is_none()
        }
        (Elem::F16, Unit::Warpgroup) => depth > 64 && padded && stage.sequences().is_some(),
        _ => false,
    }
}

/// Whether there is no register for the number of a segment's first chunk, with the greatest depth: in `f16` by warpgroups where a block finds its
/// sequence, and beside a gate; in `f32` by warps beside the resets of single elements, and where a block finds its sequence.
fn is_first_chunk_too_much(stage: &Stage, form: &MatrixRecurrence, schedule: &Chunkwise, elem: Elem) -> bool {
    let Chunkwise { unit, depth, padded, wide, vector, warps, .. } = *schedule;
    let has_resets = form.decay.is_some_and(|decay| decay.reset.is_some());
    let has_gate = || ChunkwiseKernel::gate_of(stage, form, schedule).is_some();
    match (elem, unit) {
        _ if depth <= 64 => false,
        (Elem::F16, Unit::Warpgroup) => stage.sequences().is_some() || padded == wide && has_gate(),
        (Elem::F32, Unit::Warp) => match warps {
            2 => vector > 1 && padded && stage.sequences().is_some() && !form.channels,
            _ => vector == 1 && has_resets,
        },
        _ => false,
    }
}

/// Whether there are no registers for a block's sequence: in `f32` by warps that have most of the state or of a chunk.
fn is_sequence_too_much(stage: &Stage, form: &MatrixRecurrence, schedule: &Chunkwise, elem: Elem) -> bool {
    let Chunkwise { unit, depth, padded, wide, vector, warps, .. } = *schedule;
    let is_meant = stage.sequences().is_some() && !form.channels && (unit, elem) == (Unit::Warp, Elem::F32);
    is_meant
        && match (warps, depth) {
            (2, 128) => vector > 1 || wide,
            (4, 64) => vector > 1,
            (4, 128) => vector > 1 && padded,
            _ => false,
        }
}

impl ChunkwiseKernel<'_> {
    /// The constants, in the order in which they lie behind the outer indices and whether the segment is the last.
    pub(super) fn shared_constants(&self, b: &mut Builder) -> Vec<Operand> {
        let slice = self.slice.filter(|_| self.in_shared.slice);
        let first_chunk = self.in_shared.first_chunk.then(|| self.iterations(b).first);
        let of_block: Vec<Operand> =
            slice.into_iter().chain(first_chunk).map(|number| b.convert(Ty::I64, number)).collect();
        let of_sequence = if self.in_shared.sequence { self.args.numbers_of_sequence(b) } else { None };
        of_block.into_iter().chain(of_sequence.into_iter().flatten()).collect()
    }

    /// The constant of a place in that order, `i64`.
    fn shared_constant(&self, b: &mut Builder, place: usize) -> Operand {
        self.rematerialiser.read(b, self.outer.len() + 1 + place)
    }

    /// The kernel with the slice and the sequence read from shared memory, where they are.
    pub(super) fn with_constants_read(&self, b: &mut Builder) -> Option<Self> {
        let BlockConstants { slice, sequence, .. } = self.in_shared;
        if !slice && !sequence {
            return None;
        }
        let mut kernel = self.clone();
        if slice {
            let slice = self.shared_constant(b, 0);
            kernel.slice = Some(b.convert(Ty::I32, slice));
        }
        if sequence {
            let before = self.in_shared.before_sequence();
            let numbers = from_fn(|k| self.shared_constant(b, before + k));
            kernel.args = self.args.with_numbers_of_sequence(b, numbers);
        }
        Some(kernel)
    }

    /// The number of the segment's first chunk, if it is read from shared memory.
    pub(super) fn first_chunk_read(&self, b: &mut Builder) -> Option<Operand> {
        let first_chunk =
            self.in_shared.first_chunk.then(|| self.shared_constant(b, usize::from(self.in_shared.slice)))?;
        Some(b.convert(Ty::I32, first_chunk))
    }

    /// The decays of an iteration behind what queries read, by warps that have no register for these, either: they read the number of the first chunk
    /// again, or walk chunks of two warps of a sequence by whole accesses.
    pub(super) fn decays_again(&self, b: &mut Builder, iteration: Operand) -> Option<Decays> {
        let Chunkwise { unit, warps, vector, .. } = *self.schedule;
        let are_read =
            unit == Unit::Warp && (self.in_shared.first_chunk || self.in_shared.sequence && warps == 2 && vector > 1);
        are_read.then(|| self.decays(b, iteration))
    }
}

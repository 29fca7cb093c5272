//! Constants of a block and of the launch that wait in shared memory in the third sweep, and are read where they are needed: an assembler would
//! keep them in registers from head to head.

use super::walk::Chunk;
use super::{ChunkwiseBackward, GradientSweep, MOST_DEPTH};
use crate::block::args::Args;
use crate::build::Builder;
use crate::stage::Stage;
use crate::stage::kind::MatrixRecurrenceBackward;
use crate::tile::Operand;
use oplus_dsl::Elem;
use oplus_dsl::ir::AxisSet;

/// The numbers of a block's sequence: the chunk's first time in it, the places for chunks of all
/// sequences, the sequence's first time and the number of its times.
const NUMBERS_OF_SEQUENCE: usize = 4;

/// How many constants are in shared memory.
pub(super) fn count(
    stage: &Stage,
    form: &MatrixRecurrenceBackward,
    schedule: &ChunkwiseBackward,
    args: &mut Args,
) -> usize {
    let of_chunk = if reads_chunk_again(stage, form, schedule) { form.shared().iter().count() + 1 } else { 0 };
    let of_sequence = match stage.sequences() {
        Some(_) if is_largest(stage, form, schedule) => NUMBERS_OF_SEQUENCE,
        Some(_) if reads_count_again(stage, form, schedule) => 1,
        _ => 0,
    };
    of_chunk + strides_of_gains(args, stage, form, schedule).len() + of_sequence
}

impl GradientSweep<'_> {
    /// The constants: which chunk is the block's, [strides](strides_of_gains), and where the block's sequence lies.
    pub(super) fn shared_constants(&self, b: &mut Builder) -> Vec<Operand> {
        if !reads_chunk_again(self.stage, self.form, self.schedule) {
            let tile = self.tile.as_ref().filter(|_| reads_count_again(self.stage, self.form, self.schedule));
            return tile.map(|tile| tile.count).into_iter().collect();
        }
        let mut args = self.args.clone();
        let strides = strides_of_gains(&mut args, self.stage, self.form, self.schedule);
        let mut numbers = self.numbers_of_chunk(b);
        numbers.extend(strides.into_iter().map(|stride| *stride));
        if let Some(tile) = self.tile.as_ref().filter(|_| self.is_largest()) {
            numbers.extend([tile.first, tile.count]);
            numbers.extend(self.args.clone().bounds_of_sequence().into_iter().flatten().map(|bound| *bound));
        }
        numbers
    }

    /// Whether sums of `f32` take most registers.
    fn is_largest(&self) -> bool {
        is_largest(self.stage, self.form, self.schedule)
    }

    /// The place of the first of the numbers of the block's sequence, where these are read from shared memory again.
    fn place_of_sequence(&self) -> Option<usize> {
        let is_read = self.tile.is_some() && self.is_largest();
        let strides = strides_of_gains(&mut self.args.clone(), self.stage, self.form, self.schedule).len();
        is_read.then(|| self.shared().iter().count() + 1 + strides)
    }

    /// The chunk with a number of places for chunks of all sequences that is read again.
    pub(super) fn with_count(&self, b: &mut Builder, chunk: &Chunk) -> Chunk {
        let is_read = self.tile.is_some() && reads_count_again(self.stage, self.form, self.schedule);
        let count = if is_read { self.rematerialiser.read(b, 0) } else { chunk.count };
        Chunk { count, shared: chunk.shared.clone(), ..*chunk }
    }

    /// The first time of the block's chunk in its sequence, and the number of places of all, read again.
    pub(super) fn chunk_of_sequence(&self, b: &mut Builder) -> Option<[Operand; 2]> {
        let place = self.place_of_sequence()?;
        Some([0, 1].map(|k| self.rematerialiser.read(b, place + k)))
    }

    /// The arguments with bounds of the block's sequence that are read again.
    pub(super) fn args_of_sequence(&self, b: &mut Builder) -> Args {
        let mut args = self.args.clone();
        if let Some((place, bounds)) = self.place_of_sequence().zip(args.bounds_of_sequence()) {
            bounds.into_iter().zip(place + 2..).for_each(|(bound, at)| *bound = self.rematerialiser.read(b, at));
        }
        args
    }

    /// The sweep with [strides](strides_of_gains) that are read again.
    pub(super) fn with_strides_of_gains(&self, b: &mut Builder) -> Self {
        let mut own = self.clone();
        let before = self.shared().iter().count() + 1;
        let strides = strides_of_gains(&mut own.args, self.stage, self.form, self.schedule);
        strides.into_iter().enumerate().for_each(|(k, stride)| *stride = self.rematerialiser.read(b, before + k));
        own
    }
}

/// Whether the numbers that say which chunk is the block's are read from shared memory again.
fn reads_chunk_again(stage: &Stage, form: &MatrixRecurrenceBackward, schedule: &ChunkwiseBackward) -> bool {
    schedule.are_split(stage, form) || schedule.lays_sums_over_borders(stage, form)
}

/// Whether sums of `f32` take most registers: of slices, and beside numbers of a sequence.
fn is_largest(stage: &Stage, form: &MatrixRecurrenceBackward, schedule: &ChunkwiseBackward) -> bool {
    let is_crowded = schedule.wide || stage.sequences().is_some();
    schedule.are_split(stage, form) && is_crowded && schedule.depth == MOST_DEPTH
}

/// Whether the number of places for chunks of all sequences is read from shared memory again, where threads that copy have none left for it.
fn reads_count_again(stage: &Stage, form: &MatrixRecurrenceBackward, schedule: &ChunkwiseBackward) -> bool {
    let ChunkwiseBackward { depth, padded, wide, warpgroups, .. } = *schedule;
    warpgroups && wide && padded && depth == MOST_DEPTH && form.elem(stage) == Elem::Bf16
}

/// The strides of what gains and decays are computed from, where sums of slices of `f32` take most registers: an assembler keeps parameters
/// in registers from head to head, and threads that weigh pairs have none left for those of gains. They read them from shared memory.
fn strides_of_gains<'a>(
    args: &'a mut Args,
    stage: &Stage,
    form: &MatrixRecurrenceBackward,
    schedule: &ChunkwiseBackward,
) -> Vec<&'a mut Operand> {
    if !is_largest(stage, form, schedule) || form.states.gain.is_empty() {
        return vec![];
    }
    args.strides_without(AxisSet::from_iter([form.states.depth, form.states.width])).collect()
}

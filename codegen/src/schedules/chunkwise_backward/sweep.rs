//! The third sweep, by warps or by warpgroups: its declarations, and the coordinates of its threads.

use super::tiles::Tiles;
use super::walk::Chunk;
use super::{BLOCKS, ChunkwiseBackward, GradientSweep, MOST_DEPTH, TIMES, is_iterated, steps};
use crate::block::args::Args;
use crate::block::copy::Source;
use crate::block::pair::Index;
use crate::block::rematerialise::Rematerialiser;
use crate::block::thread::{FragmentPlace, Thread};
use crate::build::Builder;
use crate::stage::Stage;
use crate::stage::kind::MatrixRecurrenceBackward;
use crate::target::WARP;
use crate::tile::{Operand, SharedKind};
use oplus_dsl::ir::{Axis, AxisSet};
use oplus_dsl::{Elem, Ty};

/// The numbers of a block's sequence that are read from shared memory again: the chunk's first time in it, the places for chunks of all
/// sequences, the sequence's first time and the number of its times.
const NUMBERS_OF_SEQUENCE: usize = 4;

impl<'s> GradientSweep<'s> {
    /// Declares the arrays of all heads, and finds the place of the thread among eight warps.
    pub(super) fn declare(
        b: &mut Builder,
        stage: &'s Stage,
        form: &'s MatrixRecurrenceBackward,
        schedule: &'s ChunkwiseBackward,
        args: Args,
        tiles: Tiles,
    ) -> Self {
        let Tiles { keys, queries, values, cotangents, states, duals, weights } = tiles;
        let elem = form.elem(stage);
        let heads = schedule.sets_of_rates();
        let of_sums = if elem == Elem::F32 { 2 * heads * TIMES } else { heads * TIMES };
        let rates = [("sums", of_sums), ("gains", heads * TIMES), ("back_gains", heads * TIMES)];
        let rates = rates.map(|(name, len)| b.shared(name, SharedKind::Elem(Elem::F32), len));
        let rows = steps::rows_of_partial_sums(form, schedule);
        let partial_sums = b.shared("parts", SharedKind::Elem(Elem::F32), rows * TIMES);
        let energies = b.shared("energies", SharedKind::Elem(Elem::F32), schedule.sets() * schedule.sharing() / WARP);
        let mut args = args;
        let numbers = if schedule.are_split(stage, form) { form.shared().iter().count() + 1 } else { 0 };
        let of_sequence = match stage.sequences() {
            Some(_) if is_largest(stage, form, schedule) => NUMBERS_OF_SEQUENCE,
            Some(_) if reads_count_again(stage, form, schedule) => 1,
            _ => 0,
        };
        let strides = strides_of_gains(&mut args, stage, form, schedule).len();
        let rematerialiser = Rematerialiser::declare(b, numbers + strides + of_sequence);
        let thread = Thread::of(b);
        let [half, block] = b.div_rem(thread.warp, BLOCKS);
        let fragment = FragmentPlace::of(b, thread.lane);
        let tile = args.enter_tile(b, stage, form.shared(), (TIMES, 1));
        let (is_tf32, set) = (schedule.saved_elem(stage, form) == Elem::F32, Operand::i32(0));
        GradientSweep {
            stage,
            form,
            schedule,
            args,
            tile,
            keys,
            queries,
            values,
            cotangents,
            states,
            duals,
            weights,
            is_tf32,
            rates,
            partial_sums,
            energies,
            rematerialiser,
            thread,
            block,
            half,
            fragment,
            set,
        }
    }

    /// The numbers that are read from shared memory again: which chunk is the block's, and [strides](strides_of_gains).
    pub(super) fn numbers_in_shared(&self, b: &mut Builder) -> Vec<Operand> {
        if !self.schedule.are_split(self.stage, self.form) {
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

    /// Whether sums of slices of `f32` take most registers.
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

    /// The source of the copies of all threads, at a point of outer axes.
    pub(super) fn source<'a>(&'a self, outer: &'a [(Axis, Operand)]) -> Source<'a> {
        let (threads, thread) = (self.schedule.copying(), self.thread.number);
        let (vector, padded) = (self.schedule.vector, self.schedule.padded);
        Source { args: &self.args, outer, threads, thread, vector, padded, fenced: false, rolled: None }
    }

    /// Whether a block goes through heads, or slices of the width, one after the other.
    pub(super) fn is_iterated(&self) -> bool {
        is_iterated(self.form, self.schedule)
    }

    /// The axes over which blocks are apart, beside chunks.
    pub(super) fn shared(&self) -> AxisSet {
        self.form.shared()
    }

    /// The thread's first time of the 16 of its warp.
    pub(super) fn first_row(&self, b: &mut Builder) -> Operand {
        self.fragment.row(b, self.block)
    }

    /// A column from which others are counted: of 64 bits, so that their addresses are constants apart.
    pub(super) fn first_column(&self, b: &mut Builder, column: Operand) -> Operand {
        if self.schedule.warpgroups { b.convert(Ty::I64, column) } else { column }
    }

    /// The first of the columns of the warp's half of so many.
    pub(super) fn half_of(&self, b: &mut Builder, columns: u32) -> Operand {
        b.mul(self.half, columns / 2)
    }

    /// An index along an axis, from one of 32 bits.
    pub(super) fn index_along(&self, b: &mut Builder, at: Operand, axis: Axis) -> Index {
        let is_whole = self.schedule.warpgroups && !self.schedule.padded && axis != self.form.states.time;
        if is_whole {
            return Index { at: b.convert(Ty::I64, at), exists: Operand::bool(true) };
        }
        Index::along(b, &self.args, at, axis)
    }
}

/// Whether sums of slices of `f32` take most registers.
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

//! The third sweep, by warps or by warpgroups: its declarations, and the coordinates of its threads.

use super::tiles::Tiles;
use super::{BLOCKS, ChunkwiseBackward, GradientSweep, TIMES, block_constants, is_iterated, steps};
use crate::block::args::Args;
use crate::block::copy::Source;
use crate::block::pair::Index;
use crate::block::rematerialise::Rematerialiser;
use crate::block::thread::{FragmentPlace, Thread};
use crate::build::Builder;
use crate::stage::Stage;
use crate::stage::kind::MatrixRecurrenceBackward;
use crate::target::WARP;
use crate::tile::{Operand, SharedId, SharedKind};
use oplus_dsl::ir::{Axis, AxisSet};
use oplus_dsl::{Elem, Ty};

impl<'s> GradientSweep<'s> {
    /// Declares the arrays of all heads, and finds the place of the thread among eight warps. Partial sums may lie over an array that is
    /// not needed yet.
    pub(super) fn declare(
        b: &mut Builder,
        stage: &'s Stage,
        form: &'s MatrixRecurrenceBackward,
        schedule: &'s ChunkwiseBackward,
        args: Args,
        tiles: Tiles,
        over: Option<SharedId>,
    ) -> Self {
        let Tiles { keys, queries, values, cotangents, states, duals, weights } = tiles;
        let elem = form.elem(stage);
        let heads = schedule.sets_of_rates();
        let of_sums = if elem == Elem::F32 { 2 * heads * TIMES } else { heads * TIMES };
        let rates = [("sums", of_sums), ("gains", heads * TIMES), ("back_gains", heads * TIMES)];
        let rates = rates.map(|(name, len)| b.shared(name, SharedKind::Elem(Elem::F32), len));
        let len = steps::rows_of_partial_sums(form, schedule) * TIMES;
        let partial_sums = over.unwrap_or_else(|| b.shared("parts", SharedKind::Elem(Elem::F32), len));
        b.lengthen(partial_sums, len);
        let energies = b.shared("energies", SharedKind::Elem(Elem::F32), schedule.sets() * schedule.sharing() / WARP);
        let mut args = args;
        let rematerialiser = Rematerialiser::declare(b, block_constants::count(stage, form, schedule, &mut args));
        let thread = Thread::of(b);
        let [half, block] = b.div_rem(thread.warp, BLOCKS);
        let fragment = FragmentPlace::of(b, thread.lane);
        let tile = args.enter_tile(b, stage, form.shared(), (TIMES, 1));
        let (is_tf32, set) = (schedule.weights_elem(stage, form) == Elem::F32, Operand::i32(0));
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

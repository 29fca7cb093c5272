//! Copies of saved states to shared memory.

use super::walk::{Chunk, HeadSlice};
use super::{ChunkwiseBackward, GradientSweep, MOST_DEPTH, TIMES};
use crate::block::copy::WholeCopy;
use crate::block::layout::Tile;
use crate::block::ring::Ring;
use crate::build::Builder;
use crate::tile::{Operand, SharedId, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::Axis;

impl GradientSweep<'_> {
    /// Starts the copies of S before and D after a chunk into a stage; of D alone where S takes its place later.
    pub(super) fn fetch_states(&self, b: &mut Builder, own: &HeadSlice, chunk: &Chunk, stage: Operand) {
        let from = self.saved(b, own, chunk);
        let later = if self.shares_tiles() { 1 } else { 0 };
        for (number, tile) in [&self.states, &self.duals].into_iter().enumerate().skip(later) {
            self.start_saved(b, tile, number, from, stage);
            b.arrive_with_copies(tile.full, stage);
        }
    }

    /// Starts the copies of S before a chunk to the place of D.
    pub(super) fn fetch_before(&self, b: &mut Builder, own: &HeadSlice, chunk: &Chunk) {
        let from = self.saved(b, own, chunk);
        self.start_saved(b, &self.states, 0, from, Operand::i32(0));
        b.arrive_with_copies(self.states.full, Operand::i32(0));
    }

    /// Whether S takes the place of D when all have read that, and cotangents are the second stage of the tile of values.
    pub(super) fn shares_tiles(&self) -> bool {
        self.states.array == self.duals.array
    }

    /// Whether sums over slices leave few registers: beside split products, and beside addresses of single elements.
    pub(super) fn has_few_registers(&self) -> bool {
        let ChunkwiseBackward { depth, wide, vector, overlaid, .. } = *self.schedule;
        let is_deepest = self.form.states.channels && wide && depth == MOST_DEPTH;
        self.shares_tiles() || vector == 1 && (overlaid || is_deepest)
    }

    /// Whether several sums over the width leave fewer still, so that numbers that say which chunk is the block's are rematerialised, too.
    pub(super) fn has_fewest_registers(&self) -> bool {
        self.schedule.lays_sums_over_borders(self.stage, self.form)
    }

    /// The stage of the tile of cotangents, where that of the tile of values is this one.
    pub(super) fn stage_of_cotangents(&self, stage: Operand) -> Operand {
        if self.shares_tiles() { Operand::i32(1) } else { stage }
    }

    /// The index of S and D of a head in memory.
    pub(super) fn saved(&self, b: &mut Builder, own: &HeadSlice, chunk: &Chunk) -> Operand {
        let row = self.recurrence(b, &own.outer);
        let row = match own.slice {
            None => row,
            Some(slice) => {
                let [slice, slices] = [slice, chunk.slices].map(|x| b.convert(Ty::I64, x));
                let before = b.mul(row, slices);
                b.add(before, slice)
            }
        };
        let before = b.mul(row, chunk.count);
        let number = b.add(before, chunk.number);
        b.mul(number, self.schedule.saved_len(self.stage, self.form))
    }

    /// Starts the copies of a panel of S before and D after a chunk, both parts of each, into a stage by a copy engine, and announces
    /// them. By one thread.
    pub(super) fn load_panel(
        &self,
        b: &mut Builder,
        own: &HeadSlice,
        chunk: &Chunk,
        panel: u32,
        full: SharedId,
        stage: Operand,
    ) {
        let first = self.saved(b, own, chunk);
        let (len, of_part) = (self.states.len(), TIMES * self.schedule.depth);
        let mbarrier = b.mbarrier(full, stage);
        let bytes = 4 * len * self.states.elem.bytes().unwrap_or(2) as u32;
        b.push(Stmt::MbarrierExpect(mbarrier, Operand::i32(bytes as i32)));
        let (to_index, count) = (b.mul(stage, len), Operand::i32(len as i32));
        for (number, tile) in [&self.states, &self.duals].into_iter().enumerate() {
            for (part, to) in (0..).zip([Some(tile.array), tile.low].into_iter().flatten()) {
                let from_index = b.add(first, part * of_part + panel * len);
                let from = self.args.scratch[number];
                b.push(Stmt::BulkLoad { to, to_index, from, from_index, count, mbarrier });
            }
        }
    }

    /// Starts the copies of S before and D after a chunk into a stage by a copy engine, and announces them. By one thread.
    pub(super) fn load_states(&self, b: &mut Builder, own: &HeadSlice, chunk: &Chunk, full: SharedId, stage: Operand) {
        let from_index = self.saved(b, own, chunk);
        let mbarrier = b.mbarrier(full, stage);
        let bytes = 2 * self.states.len() * self.states.elem.bytes().unwrap_or(4) as u32;
        b.push(Stmt::MbarrierExpect(mbarrier, Operand::i32(bytes as i32)));
        for (number, tile) in [&self.states, &self.duals].into_iter().enumerate() {
            let (to, from) = (tile.array, self.args.scratch[number]);
            let (to_index, count) = (b.mul(stage, tile.len()), Operand::i32(tile.len() as i32));
            b.push(Stmt::BulkLoad { to, to_index, from, from_index, count, mbarrier });
        }
    }

    /// The number of a recurrence: that of its block in the first sweeps.
    fn recurrence(&self, b: &mut Builder, outer: &[(Axis, Operand)]) -> Operand {
        self.args.number_of(b, self.form.states.outer.minus(self.stage.axis_of_sequences()), outer)
    }

    /// Starts the copies of a saved tile, whose layout in memory is that of shared memory.
    fn start_saved(&self, b: &mut Builder, tile: &Tile, scratch: usize, from: Operand, stage: Operand) {
        let copy = WholeCopy { thread: self.thread.number, threads: self.schedule.threads(), len: tile.len() };
        copy.start(b, tile, stage, self.args.scratch[scratch], from);
    }

    /// The ring of heads, of which every iteration uses one.
    pub(super) fn ring(&self) -> Ring {
        Ring::of(self.schedule.heads())
    }
}

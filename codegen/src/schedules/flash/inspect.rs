//! Warps that only copy look through the tiles that rows see in part, so that no warp that multiplies has to.
//!
//! The copies of such a tile arrive at an mbarrier of their own. The warps that have started them wait there one iteration later,
//! replace infinities and NaNs by 0, set the flags of the tile's stage, one for each warp, and only then arrive where the tile is
//! waited for.

use super::walk::TileLoop;
use super::{FlashKernel, SumsOver};
use crate::block::layout::Tile;
use crate::block::non_finite::{PackedPieces, Pieces};
use crate::block::ring::{Ring, RingStage};
use crate::build::Builder;
use crate::target::WARP;
use crate::tile::{Memory, Operand, Stmt};

impl FlashKernel<'_> {
    /// Whether warps that only copy look through the tiles.
    pub(super) fn inspects(&self) -> bool {
        self.schedule.copiers > 0 && self.schedule.sums == SumsOver::Columns
    }

    /// Mbarriers for tiles that are looked through.
    pub(super) fn landed_stages(&self) -> u32 {
        if self.inspects() { self.hidden(true).len() as u32 * self.schedule.stages } else { 0 }
    }

    /// Flags of all stages of a parameter's ring.
    pub(super) fn inspectors(&self) -> u32 {
        self.schedule.stages * self.schedule.copiers
    }

    /// The stage of the mbarriers at which the copies of an iteration's tile arrive, if that is looked through.
    fn landed_stage(&self, b: &mut Builder, tile_loop: &TileLoop, number: u32, iteration: Operand) -> RingStage {
        let iteration = tile_loop.past.partial.map_or(iteration, |before| b.add(before.into(), iteration));
        let stage = Ring::of(self.schedule.stages).at(b, iteration);
        RingStage { index: b.add(stage.index, number * self.schedule.stages), ..stage }
    }

    /// The number of a ring's parameter among those that are looked through where rows see some columns only.
    fn number_of_hidden(&self, ring: usize) -> Option<u32> {
        let param = self.column_tiles[ring].param;
        self.hidden(true).iter().position(|own| *own == param).map(|number| number as u32)
    }

    /// Arrives with the copies of an iteration's tile in a stage of its ring.
    pub(super) fn arrive_copied(
        &self,
        b: &mut Builder,
        tile_loop: &TileLoop,
        ring: usize,
        stage: Operand,
        iteration: Operand,
    ) {
        let tile = &self.column_tiles[ring];
        let (Some(landed), Some(number)) = (self.landed, self.number_of_hidden(ring)) else {
            return b.arrive_with_copies(tile.full, stage);
        };
        let is_partial = b.lt(iteration, tile_loop.iterations.partial);
        b.if_else(
            is_partial,
            |b| {
                let own = self.landed_stage(b, tile_loop, number, iteration);
                b.arrive_with_copies(landed, own.index);
            },
            |b| b.arrive_with_copies(tile.full, stage),
        );
    }

    /// Looks through an iteration's tiles, if rows see them in part, once they have been copied; and arrives with them.
    pub(super) fn inspect(&self, b: &mut Builder, tile_loop: &TileLoop, rings: &[usize], iteration: Operand) {
        let Some(landed) = self.landed else { return };
        let [exists, is_partial] = [b.ge(iteration, 0), b.lt(iteration, tile_loop.iterations.partial)];
        let looks = b.and(exists, is_partial);
        b.if_(looks, |b| {
            let stage = self.filled(b, tile_loop, iteration).index;
            for ring in rings {
                let Some(number) = self.number_of_hidden(*ring) else { continue };
                let tile = &self.column_tiles[*ring];
                let own = self.landed_stage(b, tile_loop, number, iteration);
                b.wait(landed, own);
                let non_finite = self.clean_tile(b, tile, stage);
                let flag = b.select(non_finite, Operand::i32(1), Operand::i32(0));
                let at = self.first_flag(b, number, stage);
                let at = b.add(at, self.thread.warp);
                let first = b.eq(self.thread.lane, 0);
                b.store(Memory::Shared(self.flags), at, &[flag], Some(first));
                b.arrive(tile.full, stage);
            }
        });
    }

    /// The first flag of a stage.
    fn first_flag(&self, b: &mut Builder, number: u32, stage: Operand) -> Operand {
        let of_stage = b.mul(stage, self.schedule.copiers);
        b.add(of_stage, number * self.inspectors())
    }

    /// Replaces the non-finite elements of the thread's pieces of a tile by 0; gives whether the warp has found any.
    fn clean_tile(&self, b: &mut Builder, tile: &Tile, stage: Operand) -> Operand {
        let start = b.mul(stage, tile.len());
        let (thread, warps) = (self.thread.number, self.schedule.copiers);
        let has_any = PackedPieces { tile, start, thread, warps }.has_non_finite(b);
        b.if_(has_any, |b| {
            // Other lanes have read the thread's pieces, too.
            b.push(Stmt::SyncWarp);
            let index = |b: &mut Builder, number: Operand| {
                let [row, piece] = b.div_rem(number, tile.pieces());
                let place = tile.piece_index(b, row, piece);
                b.add(place, start)
            };
            let (count, step) = (tile.rows * tile.pieces(), warps * WARP);
            Pieces { tile, first: thread, count, step, index: &index }.clear(b);
            self.fence(b);
        });
        has_any
    }

    /// Whether a tile that rows see in part had non-finite elements, parameter by parameter.
    pub(super) fn inspected(&self, b: &mut Builder, params: &[u32], stage: Operand) -> Vec<(u32, Operand)> {
        let of = |(number, param): (usize, &u32)| {
            let first = self.first_flag(b, number as u32, stage);
            let flags = (0..self.schedule.copiers).fold(Operand::i32(0), |all, warp| {
                let at = b.add(first, warp);
                let flag = b.load1(Memory::Shared(self.flags), at);
                b.add(all, flag)
            });
            (*param, b.ne(flags, 0))
        };
        params.iter().enumerate().map(of).collect()
    }
}

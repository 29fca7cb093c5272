//! The two roles of a block's warps: some walk the chunks of a tile of times. Meanwhile four others compute the part of the next tile that
//! does not depend on the state.

use super::{DeltaKernel, ROWS, RuleSweep, TIMES, WARPS, copies_late, deep_stages};
use crate::abi::{Tensor, elem};
use crate::block::layout::{Tile, TileStage};
use crate::block::pair::Values;
use crate::block::prepare::prepare;
use crate::block::ring::{Ring, RingStage};
use crate::block::thread::Thread;
use crate::build::Builder;
use crate::target::WARP;
use crate::tile::{Operand, Stmt};
use oplus_dsl::ir::Binary;
use oplus_dsl::{Elem, Ty};

/// The tiles of times of a recurrence, in the order of a walk.
#[derive(Clone, Copy)]
pub(in crate::schedules) struct Tiles {
    /// Their number, `i32`.
    pub count: Operand,
    /// Whether the walk begins at the last one.
    is_back: bool,
}

/// The place of a tile in shared memory.
pub(in crate::schedules) struct TilePlace {
    /// Its number in the order of the walk, `i32`.
    pub number: Operand,
    /// The stage of copies over the width.
    pub stage: RingStage,
    /// The stage of copies over the depth.
    pub deep: RingStage,
    /// The stage of its products over pairs of times.
    pub pairs: RingStage,
    /// The index of its rates.
    pub rates: Operand,
}

impl Tiles {
    /// The place in time of the tile of a number.
    pub(in crate::schedules) fn place(self, b: &mut Builder, number: Operand) -> Operand {
        if !self.is_back {
            return number;
        }
        let last = b.sub(self.count, Operand::i32(1));
        b.sub(last, number)
    }

    /// The first time of the tile of a number; of none that is before the first tile 0.
    pub(in crate::schedules) fn first_time(self, b: &mut Builder, number: Operand) -> Operand {
        let place = self.place(b, number);
        let place = if self.is_back { b.binary(Binary::Max, place, Operand::i32(0)) } else { place };
        b.mul(place, Operand::i32(TIMES as i32))
    }
}

impl DeltaKernel<'_> {
    /// The tiles of the recurrence.
    pub(in crate::schedules) fn tiles_of_times(&self, b: &mut Builder, is_back: bool) -> Tiles {
        let count = b.div_ceil(self.args.size(self.form.time), TIMES);
        Tiles { count: b.convert(Ty::I32, count), is_back }
    }

    pub(super) fn tile_place(&self, b: &mut Builder, number: Operand) -> TilePlace {
        let stage = Ring::of(self.schedule.stages).at(b, number);
        let deep = deep_stages(self.stage, self.form, self.schedule);
        let is_own = deep > 0 && deep != self.schedule.stages;
        let deep = if is_own { Ring::of(deep).at(b, number) } else { stage };
        let is_walk = self.schedule.sweep == RuleSweep::Walk;
        let pairs = if is_walk { stage } else { Ring::of_power(self.schedule.pairs()).at(b, number) };
        TilePlace { number, stage, deep, pairs, rates: self.rates_from(b, number) }
    }

    /// Whether a tile is over the depth.
    fn is_deep(&self, tile: &Tile) -> bool {
        tile.inner == self.form.depth
    }

    /// Whether the walk reads a tile as it has been copied from a tensor.
    pub(super) fn is_copied(&self, tile: &Tile) -> bool {
        !self.is_deep(tile) || self.channels.is_none()
    }

    /// Waits for the copies of tiles.
    pub(super) fn wait_for<'t>(&self, b: &mut Builder, tiles: impl Iterator<Item = &'t Tile>, place: &TilePlace) {
        tiles.for_each(|tile| b.wait(tile.full, if self.is_deep(tile) { place.deep } else { place.stage }));
    }

    /// Initialises the mbarriers, and writes the rates of the first tile where no other kernel has computed them.
    pub(in crate::schedules) fn start(&self, b: &mut Builder, values: &Values, tiles: Tiles) {
        let first = b.eq(self.thread.number, Operand::i32(0));
        b.if_(first, |b| {
            if let Some(rematerialiser) = self.rematerialiser {
                let mut numbers: Vec<Operand> = self.outer.iter().map(|(_, index)| *index).collect();
                numbers.push(b.convert(Ty::I64, self.part));
                rematerialiser.store(b, &numbers);
            }
            let stages = self.schedule.stages;
            for tile in self.tiles() {
                let stages =
                    if self.is_deep(tile) { deep_stages(self.stage, self.form, self.schedule) } else { stages };
                b.init_mbarriers(tile.full, stages, WARPS * WARP);
            }
            // Threads that copy what has been prepared arrive twice: with their copies, and by themselves.
            let times = if self.schedule.sweep == RuleSweep::Walk { 2 } else { 1 };
            b.init_mbarriers(self.ready, self.schedule.pairs(), times * WARPS * WARP);
            b.init_mbarriers(self.walked, self.schedule.pairs(), self.schedule.with_places() * WARP);
            if let Some(handed) = self.handed {
                handed.start(b, self);
            }
            b.push(Stmt::FenceInit);
        });
        if self.schedule.sweep != RuleSweep::Walk {
            let none = Operand::i32(0);
            let first = tiles.first_time(b, none);
            let rates = self.rates(b, values, first);
            self.store_rates(b, &rates, none);
        }
        b.barrier();
    }

    /// Divides the warps: the first have places of the width and `walk`, the four after them work `ahead`.
    pub(in crate::schedules) fn in_roles(
        &self,
        b: &mut Builder,
        walk: impl FnOnce(&mut Builder),
        ahead: impl FnOnce(&mut Builder, &Self),
    ) {
        let first = self.schedule.with_places();
        let walks = b.lt(self.thread.warp, first);
        b.if_else(walks, walk, |b| {
            let own = self.behind_warps(b, first);
            ahead(b, &own);
        });
    }

    /// The kernel as the warps behind the first ones see it, which count from 0.
    pub(super) fn behind_warps(&self, b: &mut Builder, first: u32) -> Self {
        let number = b.sub(self.thread.number, first * WARP);
        let warp = b.sub(self.thread.warp, first);
        Self { thread: Thread { number, warp, ..self.thread }, ..self.clone() }
    }

    /// Goes through the tiles ahead of the walk: starts copies, computes products over `pairs` of times of each, inverts their systems, and
    /// computes the rates of the tile after it.
    pub(in crate::schedules) fn compute_ahead(
        &self,
        b: &mut Builder,
        values: &Values,
        tiles: Tiles,
        pairs: impl FnOnce(&mut Builder, &TilePlace),
    ) {
        let source = self.source();
        let origins: Vec<Operand> = self.tiles().map(|tile| self.origin(b, tile, &source)).collect();
        let ahead = self.schedule.stages - self.schedule.pairs();
        let copies: Vec<(&Tile, Operand)> = self.tiles().zip(origins).collect();
        let copies_late = copies_late(self.stage, self.form, self.schedule);
        let is_late = copies_late || deep_stages(self.stage, self.form, self.schedule) == 1;
        let (late, early): (Vec<_>, Vec<_>) = copies.iter().partition(|(tile, _)| is_late && self.is_deep(tile));
        for number in 0..ahead as i32 {
            self.fetch(b, &copies, Operand::i32(number), tiles);
        }
        b.for_(Operand::i32(0), tiles.count, Operand::i32(1), |b, number| {
            let place = self.tile_place(b, number);
            // The tile whose stages are taken next has been walked.
            let before = place.pairs.before(b);
            b.wait(self.walked, before);
            let later = b.add(number, ahead);
            self.fetch(b, &early, later, tiles);
            self.wait_for(b, self.tiles(), &place);
            if self.elem() == Elem::F32 {
                self.prepare(b, &place);
            }
            pairs(b, &place);
            if self.copies_half() {
                self.prepare(b, &place);
            }
            // Rates are read while the systems are inverted.
            let next = b.add(number, Operand::i32(1));
            let first = tiles.first_time(b, next);
            let rates = self.rates(b, values, first);
            self.invert(b, &place);
            self.store_rates(b, &rates, next);
            b.arrive(self.ready, place.pairs.index);
            // From here on the four warps see the rates of the next tile.
            b.wait(self.ready, place.pairs);
            if copies_late {
                let place = self.tile_place(b, next);
                let before = place.pairs.before(b);
                b.wait(self.walked, before);
            }
            if is_late {
                // The four warps have read the elements before.
                self.fetch(b, &late, next, tiles);
            }
        });
    }

    /// Whether elements of `f16` are copied to tiles of `bf16`. Single ones have been rounded on their way.
    pub(super) fn copies_half(&self) -> bool {
        let own = elem(self.stage, Tensor::Param(self.keys.param));
        own == Elem::F16 && own != self.keys.elem && self.schedule.vector > 1
    }

    /// Makes factors of the elements of the warp's chunk, where decays do not differ along the depth.
    pub(super) fn prepare(&self, b: &mut Builder, place: &TilePlace) {
        if self.channels.is_some() {
            return;
        }
        let first = b.mul(self.thread.warp, ROWS);
        let deep: Vec<&Tile> = self.tiles().filter(|tile| self.is_deep(tile)).collect();
        let stage = |tile| TileStage { tile, start: b.mul(place.deep.index, tile.len()) };
        let stages: Vec<TileStage> = deep.into_iter().map(stage).collect();
        prepare(b, &stages, self.thread.lane, first);
        b.push(Stmt::SyncWarp);
    }

    /// Goes through the tiles as soon as they are ready.
    pub(in crate::schedules) fn walk(
        &self,
        b: &mut Builder,
        tiles: Tiles,
        step: impl FnOnce(&mut Builder, &TilePlace),
    ) {
        b.for_(Operand::i32(0), tiles.count, Operand::i32(1), |b, number| {
            let place = self.tile_place(b, number);
            // With readers the warps that arrive have waited for the tile's copies, if they compute its products.
            if self.handed.is_none() || self.schedule.sweep == RuleSweep::Walk {
                self.wait_for(b, self.tiles().filter(|tile| self.is_copied(tile)), &place);
            }
            b.wait(self.ready, place.pairs);
            step(b, &place);
            b.arrive(self.walked, place.pairs.index);
        });
    }

    /// Starts the copies of the tile of a number, if there is one.
    pub(super) fn fetch(&self, b: &mut Builder, copies: &[(&Tile, Operand)], number: Operand, tiles: Tiles) {
        let exists = b.lt(number, tiles.count);
        b.if_(exists, |b| {
            let first = tiles.first_time(b, number);
            let place = self.tile_place(b, number);
            let source = self.source();
            for (tile, origin) in copies {
                let is_deep = self.is_deep(tile);
                let stage = if is_deep { place.deep } else { place.stage };
                // Times behind the last one are copied as zeros.
                let first = if self.has_no_values && !is_deep {
                    b.convert(Ty::I32, self.args.size(self.form.time))
                } else {
                    first
                };
                tile.fill(b, &source, *origin, first, stage.index);
            }
        });
    }
}

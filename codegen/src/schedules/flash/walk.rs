//! The walk of a block over its tiles of columns.

use super::grouped_query::{Cursor, Iteration, Iterations, Origin};
use super::parameters::GROUP;
use super::products::Starts;
use super::sums::{BlockSums, PayloadSums, Sums};
use super::tf32::LeafTile;
use super::visible::{Range, Tiles};
use super::weigh::{Scores, Weights};
use super::{FlashKernel, Grid, ThreadTile};
use crate::abi::Tensor;
use crate::block::copy::Source;
use crate::block::layout::{Lanes, Tile};
use crate::block::pair::Values;
use crate::block::ring::{Ring, RingStage};
use crate::build::Builder;
use crate::schedules::Unit;
use crate::target::WARP;
use crate::tile::{Operand, Reg, Stmt};
use oplus_dsl::{Elem, Ty};

/// The lanes of all factors that are read from tiles.
type AllLanes = (Vec<(Lanes, Lanes)>, Vec<Vec<Lanes>>);
/// Weights as left factors: for every 16 rows, those of every step of columns.
pub(super) type Packed = Vec<Vec<[Operand; 4]>>;

/// The loop over the tiles of columns of a block's rows.
pub(super) struct TileLoop<'w> {
    pub source: &'w Source<'w>,
    pub thread_tile: ThreadTile,
    pub ranges: &'w [Range],
    pub iterations: Iterations,
    /// The cursors of the walk and of its copies.
    here: Cursor,
    pub ahead: Cursor,
    /// The offset of each column tile's parameter, then of each vector's.
    pub origins: &'w [Origin],
    pub past: Past,
}

/// How many tiles of columns and of rows a persistent block has computed before these rows, in registers; none for other blocks.
#[derive(Clone, Copy, Default)]
pub(super) struct Past {
    pub tiles: Option<Reg>,
    /// The tiles of columns among them that rows saw in part.
    pub partial: Option<Reg>,
    pub rows: Option<Reg>,
}

/// Values that stay constant from tile to tile.
pub(super) struct Walk<'w, 's> {
    pub tile_loop: &'w TileLoop<'w>,
    pub source: &'w Source<'w>,
    pub values: &'w Values<'s>,
    /// The lanes of both factors of every contraction, and those of the leaf of every payload; none where there are no registers
    /// for them.
    pub lanes: Option<&'w AllLanes>,
    pub sums: &'w Sums,
}

impl FlashKernel<'_> {
    pub(super) fn body(&self, b: &mut Builder) {
        self.start(b);
        if self.across.is_some() {
            return self.across_roles(b);
        }
        if self.schedule.copiers > 0 {
            return self.roles(b);
        }
        self.in_tile_loop(b, Past::default(), |b, tile_loop, values| {
            for iteration in 0..self.schedule.stages as i32 {
                self.fetch(b, tile_loop, Operand::i32(iteration));
            }
            self.walk(b, tile_loop, values, |b, walk| {
                let Iterations { partial, count, .. } = tile_loop.iterations;
                let (zero, one) = (Operand::i32(0), Operand::i32(1));
                b.for_(zero, partial, one, |b, iteration| self.iteration(b, walk, iteration, true));
                b.for_(partial, count, one, |b, iteration| self.iteration(b, walk, iteration, false));
            });
        });
    }

    /// Finds the tiles that the block's rows see, for the loop over them in `body`.
    pub(super) fn in_tile_loop(&self, b: &mut Builder, past: Past, body: impl FnOnce(&mut Builder, &TileLoop, Values)) {
        self.on_tiles(b, past, |b, values, ranges| self.tiles(b, values, ranges), body);
    }

    /// Sets up the loop over the tiles that `tiles` finds from the ranges of the thread's rows.
    pub(super) fn on_tiles(
        &self,
        b: &mut Builder,
        past: Past,
        tiles: impl FnOnce(&mut Builder, &Values, &[Range]) -> Tiles,
        body: impl FnOnce(&mut Builder, &TileLoop, Values),
    ) {
        let source = self.source_of_rows();
        if self.schedule.copiers == 0 {
            self.fill_rows(b, &source, Operand::i32(0));
        }
        let thread_tile = self.thread_tile();
        let mut values = self.row_values(b, thread_tile);
        let ranges = self.ranges(b, &mut values, &thread_tile);
        let tiles = tiles(b, &values, &ranges);
        let iterations = self.iterations(b, tiles);
        let origins = &self.origins(b, &source, &iterations)[..];
        let [here, ahead] = [0; 2].map(|_| iterations.cursor(b));
        let tile_loop =
            TileLoop { source: &source, thread_tile, ranges: &ranges, iterations, here, ahead, origins, past };
        body(b, &tile_loop, values);
    }

    /// The source of all copies at the block's rows.
    pub(super) fn source_of_rows(&self) -> Source<'_> {
        Source {
            args: &self.args,
            outer: &self.outer,
            threads: self.schedule.copying(),
            thread: self.thread.number,
            vector: self.schedule.vector,
            padded: self.schedule.padded,
            fenced: self.schedule.unit == Unit::Warpgroup,
            rolled: self.is_scarce().then_some(1),
        }
    }

    /// Starts the copies of the block's rows into a stage.
    pub(super) fn fill_rows(&self, b: &mut Builder, source: &Source, stage: Operand) {
        for tile in &self.row_tiles {
            let origin = tile.origin(b, source);
            if self.schedule.copiers > 0 {
                tile.start_copies_in_steps(b, source, origin.into(), self.first_row, stage);
                tile.arrive(b, source, stage);
            } else {
                tile.fill(b, source, origin, self.first_row, stage);
            }
        }
    }

    /// The stage of the block's rows: persistent blocks copy the next ones while they walk.
    pub(super) fn rows_stage(&self, b: &mut Builder, past: Past) -> RingStage {
        past.rows.map_or(RingStage::FIRST, |before| Ring::of(self.schedule.row_stages()).at(b, before.into()))
    }

    /// The index at which the block's rows begin in the array of a tile.
    fn rows_start(&self, b: &mut Builder, tile_loop: &TileLoop, tile: &Tile) -> Operand {
        if !self.schedule.persistent {
            return Operand::i32(0);
        }
        let stage = self.rows_stage(b, tile_loop.past).index;
        b.mul(stage, tile.len())
    }

    /// Walks all tiles by `tiles`, and stores the outputs.
    pub(super) fn walk<'s>(
        &self,
        b: &mut Builder,
        tile_loop: &TileLoop,
        mut values: Values<'s>,
        tiles: impl FnOnce(&mut Builder, &Walk<'_, 's>),
    ) {
        let thread_tile = tile_loop.thread_tile;
        values.fast = self.elem() != Elem::F32;
        self.hoist(b, &mut values, thread_tile);
        let sums = self.sums(b, thread_tile);
        let lanes = (!self.has_no_lanes()).then(|| (self.contracted_lanes(b), self.weighted_lanes(b)));
        let filled = self.rows_stage(b, tile_loop.past);
        for tile in &self.row_tiles {
            b.wait(tile.full, filled);
        }
        self.fence(b);
        tiles(b, &Walk { tile_loop, source: tile_loop.source, values: &values, lanes: lanes.as_ref(), sums: &sums });
        if let Some(gauge) = &self.form.gauge {
            self.settle(b, gauge, &mut values, &sums);
        }
        values.fast = false;
        let mut kernel = self.rematerialised(b);
        kernel.free_rows = (self.schedule.copiers > 0).then_some(Operand::i32(0));
        if self.rematerialiser.is_some() {
            values.replace_outer(&kernel.outer);
            kernel.set_rows(b, &mut values, thread_tile);
        }
        kernel.finals(b, values, thread_tile, &sums);
    }

    /// Initialises the mbarriers, by one thread.
    fn start(&self, b: &mut Builder) {
        let first = b.eq(self.thread.number, 0);
        b.if_(first, |b| {
            if let Some(rematerialiser) = self.rematerialiser {
                let first_row = b.convert(Ty::I64, self.first_row);
                let numbers: Vec<Operand> = self.outer.iter().map(|(_, index)| *index).chain([first_row]).collect();
                rematerialiser.store(b, &numbers);
            }
            let row_stages = self.schedule.row_stages();
            let rows = self.row_tiles.iter().map(|t| (t.full, row_stages));
            let columns = self.column_tiles.iter().map(|t| (t.full, self.schedule.stages));
            let full = rows.chain(columns).map(|(array, stages)| (array, stages, self.schedule.copying()));
            let rings = if self.schedule.copiers > 0 { self.column_tiles.len() as u32 } else { 1 };
            let empty = (self.empty, self.schedule.stages * rings, self.schedule.walkers());
            let rows_empty = self.schedule.persistent.then(|| (self.rows_empty, row_stages, self.schedule.walkers()));
            let turns = self.schedule.turns.then(|| (self.turns, self.schedule.groups(), GROUP * WARP));
            let landed = self.landed.map(|array| (array, self.landed_stages(), self.schedule.copying()));
            let others = landed.into_iter().chain(self.assignment_mbarriers());
            for (array, stages, arrivals) in full.chain([empty]).chain(turns).chain(rows_empty).chain(others) {
                b.init_mbarriers(array, stages, arrivals);
            }
            self.start_across(b);
            b.push(Stmt::FenceInit);
        });
        b.barrier();
    }

    /// The origins of the parameters that are copied for tiles of columns.
    fn origins(&self, b: &mut Builder, source: &Source, iterations: &Iterations) -> Vec<Origin> {
        let tiles = self.column_tiles.iter().map(|t| t.param);
        let params = tiles.chain(self.vectors.iter().map(|v| v.param));
        let origin = |param: u32| {
            let first = self.args.offset(b, Tensor::Param(param), source.outer);
            iterations.origin(b, first, |axis| self.args.stride(Tensor::Param(param), axis))
        };
        params.map(origin).collect()
    }

    /// Starts the copies of an iteration's tile, if there is one, and moves the cursor on.
    fn fetch(&self, b: &mut Builder, tile_loop: &TileLoop, iteration: Operand) {
        let TileLoop { source, ref iterations, ahead, origins, .. } = *tile_loop;
        let exists = b.lt(iteration, iterations.count);
        b.if_(exists, |b| {
            let next = iterations.iteration_at(b, ahead, iteration);
            let first = b.mul(next.tile, self.schedule.columns);
            let stage = self.ring().stage(b, iteration);
            let (of_tiles, of_vectors) = origins.split_at(self.column_tiles.len());
            for (vector, origin) in self.vectors.iter().zip(of_vectors) {
                vector.fill(b, source, self.form.column, origin.offset, first, stage);
            }
            for (tile, origin) in self.column_tiles.iter().zip(of_tiles) {
                tile.fill(b, source, origin.offset, first, stage);
            }
            iterations.advance(b, ahead, origins);
        });
    }

    /// The ring of tiles of columns, of which every iteration uses one.
    pub(super) fn ring(&self) -> Ring {
        Ring::of(self.schedule.stages)
    }

    /// One tile of columns.
    fn iteration(&self, b: &mut Builder, walk: &Walk, iteration: Operand, partial: bool) {
        let tile_loop = walk.tile_loop;
        let Iteration { tile, grouped } = tile_loop.iterations.iteration_at(b, tile_loop.here, iteration);
        let mut values = walk.values.clone();
        let mut outer = walk.source.outer.to_vec();
        if let Some((axis, index)) = grouped {
            values.set_outer(axis, index);
            outer.push((axis, index));
        }
        let source = Source { outer: &outer, ..*walk.source };
        self.walk_tile(b, &Walk { source: &source, values: &values, ..*walk }, iteration, tile, partial);
        tile_loop.iterations.advance(b, tile_loop.here, &[]);
    }

    /// Computes the tile of an iteration.
    fn walk_tile(&self, b: &mut Builder, walk: &Walk, iteration: Operand, tile: Operand, partial: bool) {
        let filled = self.filled(b, walk.tile_loop, iteration);
        let stage = filled.index;
        let first = b.mul(tile, self.schedule.columns);
        let mut waited: Vec<u32> = vec![];
        self.wait_for(b, &self.contracted(), filled, &mut waited);
        let products = self.start_contractions(b, walk, stage);
        self.refill(b, walk, iteration);
        let weights = self.weights(b, walk, &products, stage, first, partial);
        if self.form.gauge.is_some() {
            self.shrink(b, walk.sums, &weights);
        }
        // All weights are packed first: no factor may change while products are under way.
        let packed = self.packed(b, &weights);
        let hidden = self.hidden(partial);
        self.wait_for(b, &hidden, filled, &mut waited);
        let non_finite = self.take_out(b, &hidden, stage);
        self.start_payloads(b, walk, &packed, &weights.shrink, filled, &mut waited);
        self.finish_sums(b, walk.sums, &[]);
        self.put_back(b, walk, first, &non_finite);
        b.arrive(self.empty, stage);
    }

    /// The stage of an iteration's tiles.
    pub(super) fn filled(&self, b: &mut Builder, tile_loop: &TileLoop, iteration: Operand) -> RingStage {
        let number = tile_loop.past.tiles.map_or(iteration, |before| b.add(before.into(), iteration));
        self.ring().at(b, number)
    }

    /// The parameters of the columns' tiles that are contracted.
    pub(super) fn contracted(&self) -> Vec<u32> {
        self.form.contractions.iter().map(|c| c.right).collect()
    }

    /// Waits for tiles of columns that have not been `waited` for.
    pub(super) fn wait_for(&self, b: &mut Builder, params: &[u32], filled: RingStage, waited: &mut Vec<u32>) {
        let many = waited.len();
        for param in params {
            if !waited.contains(param) {
                waited.push(*param);
                b.wait(self.column_tile(*param).full, filled);
            }
        }
        if waited.len() > many {
            self.fence(b);
        }
    }

    /// Starts all contractions of a tile.
    pub(super) fn start_contractions(&self, b: &mut Builder, walk: &Walk, stage: Operand) -> Vec<Grid> {
        let mut products: Vec<Grid> = vec![];
        let lanes =
            walk.lanes.map_or_else(|| self.rematerialised(b).contracted_lanes(b), |(contracted, _)| contracted.clone());
        for (contraction, (left, right)) in self.form.contractions.iter().zip(&lanes) {
            let right_start = b.mul(stage, self.column_tile(contraction.right).len());
            let left_start = self.rows_start(b, walk.tile_loop, self.row_tile(contraction.left));
            let starts = Starts { left: left_start, right: right_start };
            products.push(self.contract(b, contraction, left, right, starts));
        }
        products
    }

    /// The weights of a tile in a stage, whose first column is given, once its contractions have ended.
    pub(super) fn weights(
        &self,
        b: &mut Builder,
        walk: &Walk,
        products: &[Grid],
        stage: Operand,
        first: Operand,
        partial: bool,
    ) -> Weights {
        let mut values = walk.values.clone();
        self.set_columns(b, &mut values, walk.tile_loop.thread_tile, first);
        self.set_numbers(b, &mut values, stage);
        let seen = partial.then(|| self.seen(b, walk.tile_loop.ranges, first));
        for number in 0..products.len() {
            if self.schedule.copiers == 0 {
                self.finish(b, products, number);
            }
            self.know(b, &mut values, &products[number], number);
        }
        match &self.form.gauge {
            Some(gauge) => {
                let scores = Scores { gauge, products, seen: seen.as_deref() };
                self.gauged(b, scores, &mut values, walk.sums)
            }
            None => self.plain(b, &mut values, walk.sums, seen.as_deref()),
        }
    }

    /// The weights of every payload with a leaf, as left factors.
    pub(super) fn packed(&self, b: &mut Builder, weights: &Weights) -> Vec<Option<Packed>> {
        let payloads = self.form.payloads.iter().zip(&weights.grids);
        payloads.map(|(p, grid)| p.leaf.map(|_| self.pack(b, grid))).collect()
    }

    /// Starts the products of all payloads, whose tiles are waited for.
    pub(super) fn start_payloads(
        &self,
        b: &mut Builder,
        walk: &Walk,
        packed: &[Option<Packed>],
        shrink: &[Operand],
        filled: RingStage,
        waited: &mut Vec<u32>,
    ) {
        let lanes =
            walk.lanes.map_or_else(|| self.rematerialised(b).weighted_lanes(b), |(_, weighted)| weighted.clone());
        for (k, (payload, lanes)) in self.form.payloads.iter().zip(&lanes).enumerate() {
            let (leaf, sums) = (payload.leaf.zip(packed[k].as_ref()), &walk.sums.payloads[k]);
            if let (Some(((param, _), packed)), PayloadSums::Blocks(sums)) = (leaf, sums) {
                self.wait_for(b, &[param], filled, waited);
                let tile = self.column_tile(param);
                let start = b.mul(filled.index, tile.len());
                match sums {
                    BlockSums::Registers(sums) => self.accumulate(b, tile, lanes, packed, sums, start),
                    BlockSums::Shared(sums) => {
                        let leaf = LeafTile { tile, lanes, start };
                        self.accumulate_split(b, leaf, packed, sums, shrink);
                    }
                }
            }
        }
    }

    /// Starts the copies into the stage that an earlier iteration has left, once all warps have left it; with many stages
    /// that is a much earlier iteration, so that warps need not keep step.
    fn refill(&self, b: &mut Builder, walk: &Walk, iteration: Operand) {
        let stages = Operand::i32(self.schedule.stages as i32);
        let before = b.sub(iteration, self.schedule.stages / 2);
        let next = b.add(before, stages);
        let [left, exists] = [b.ge(before, 0), b.lt(next, walk.tile_loop.iterations.count)];
        let fills = b.and(left, exists);
        b.if_(fills, |b| {
            let emptied = self.ring().at(b, before);
            b.wait(self.empty, emptied);
            self.fetch(b, walk.tile_loop, next);
        });
    }

    /// Makes copied tiles visible to warpgroups.
    pub(super) fn fence(&self, b: &mut Builder) {
        if self.schedule.unit == Unit::Warpgroup {
            b.push(Stmt::FenceAsync);
        }
    }
}

//! The third sweep: a block goes through the heads of a chunk.

use super::partials::Partials;
use super::rates::Decays;
use super::{ChunkwiseBackwardKernel, GradientSweep, TIMES};
use crate::block::args::index_of;
use crate::block::halves::{HalfPlace, HalfViews};
use crate::block::layout::{Lanes, Tile};
use crate::block::matmul::{Blocks, block_values, multiply};
use crate::block::pair::Values;
use crate::block::ring::RingStage;
use crate::block::sequence::SequenceTile;
use crate::build::{Builder, zero};
use crate::schedules::chunkwise::decay::Rates;
use crate::schedules::chunkwise::{COLUMNS, divided, origin_at, slices_of, zeros};
use crate::stage::kind::Cotangent;
use crate::tile::{Operand, Reg, Stmt};
use oplus_dsl::ir::{Axis, Binary};
use oplus_dsl::{Elem, Ty};

/// The lanes by which a warp reads tiles of one shape.
pub(super) struct OperandViews {
    pub halves: HalfViews,
    /// Of `f32`, the warp's block of rows as a left factor over the rows of another: two neighbours of a row.
    pub neighbours: Option<Lanes>,
}

/// The lanes of tiles over the width, or over times, and of tiles over the depth. They take many registers: each iteration
/// computes its own.
pub(super) struct AllViews {
    pub wide: OperandViews,
    pub deep: OperandViews,
    /// The lanes of weights and of states, where weights are of another type than the factors.
    of_other_type: Option<[OperandViews; 2]>,
}

impl AllViews {
    /// The lanes of weights.
    pub(super) fn weights(&self) -> &OperandViews {
        self.of_other_type.as_ref().map_or(&self.wide, |[weights, _]| weights)
    }

    /// The lanes of S and D.
    pub(super) fn states(&self) -> &OperandViews {
        self.of_other_type.as_ref().map_or(&self.deep, |[_, states]| states)
    }
}

/// Sums over heads, in registers, beside those of key'.
pub(super) struct Sums {
    /// E, transposed: the warp's times j, and the times i of its half.
    pub pairs: Vec<[Reg; 4]>,
    /// query', at the warp's times and the places of the depth of its half; none if they are not needed, or in shared memory.
    pub queries: Vec<[Reg; 4]>,
}

/// The constants of a block over all its heads.
pub(super) struct Chunk {
    /// The indices of the shared axes.
    pub shared: Vec<(Axis, Operand)>,
    /// The chunk's number among those that are saved, and how many there are, `i64`.
    pub number: Operand,
    pub count: Operand,
    /// Its first time, `i32`.
    pub first: Operand,
    /// The number of heads, each slice of a wide one counted, `i32`.
    pub heads: Operand,
    /// The number of slices of the width, `i32`: 1 unless it is wide.
    pub slices: Operand,
}

/// The outer indices and the slice of the width of an iteration.
pub(super) struct HeadSlice {
    /// The indices along all outer axes.
    pub outer: Vec<(Axis, Operand)>,
    /// The slice of the width, `i32`, if that is wide.
    pub slice: Option<Operand>,
}

/// A head of a chunk.
pub(super) struct Head<'a> {
    pub views: &'a AllViews,
    /// The stage of its tiles.
    pub stage: Operand,
    pub decays: &'a Decays,
    pub sums: &'a Sums,
}

impl ChunkwiseBackwardKernel<'_> {
    pub(super) fn body(&self, b: &mut Builder) {
        let none = Operand::i32(0);
        let (chunk, _) = self.begin(b);
        for tile in [&self.keys, &self.queries] {
            b.wait(tile.full, RingStage::FIRST);
        }
        self.score(b);
        let sums = self.sums(b);
        if self.is_iterated() {
            b.for_(none, chunk.heads, 1, |b, iteration| {
                self.rematerialised(b).as_ref().unwrap_or(self).iteration(b, &chunk, &sums, iteration);
            });
        } else {
            self.rematerialised(b).as_ref().unwrap_or(self).iteration(b, &chunk, &sums, none);
        }
        self.rematerialised(b).as_ref().unwrap_or(self).finish(b, &chunk, &sums);
    }

    /// Starts the copies of a chunk and of its first head, whose rates are written.
    pub(super) fn begin(&self, b: &mut Builder) -> (Chunk, HeadSlice) {
        self.start(b);
        let chunk = self.chunk(b);
        let none = Operand::i32(0);
        let source = self.source(&chunk.shared);
        for tile in [&self.keys, &self.queries] {
            let origin = tile.origin(b, &source);
            tile.fill(b, &source, origin, chunk.first, none);
        }
        self.fetch(b, &chunk, none);
        let head = self.head(b, &chunk, none);
        let rates = self.rates(b, &head.outer, chunk.first);
        self.store_rates(b, &rates, none);
        (chunk, head)
    }

    fn sums(&self, b: &mut Builder) -> Sums {
        let mut blocks = |count: u32| (0..count).map(|_| [0; 4].map(|_| b.var(zero(Ty::F32)))).collect();
        let (pairs, queries) = (blocks(TIMES / 2 / COLUMNS), blocks(self.query_blocks.registers));
        Sums { pairs, queries }
    }

    /// Blocks of a half of the depth.
    pub(super) fn deep_blocks(&self) -> u32 {
        self.schedule.depth / 2 / COLUMNS
    }

    /// Computes G, if it is kept, and sets the sums in shared memory to 0.
    fn score(&self, b: &mut Builder) {
        if let Some(array) = self.scores {
            let views = self.views(b, &self.keys);
            for (block, scores) in (0..).zip(&self.scores_of(b, &views)) {
                self.store_own(b, array, block, scores);
            }
        }
        let queries = self.query_sums.map(|array| (array, self.query_blocks.shared));
        for (array, blocks) in [(self.key_sums, self.deep_blocks())].into_iter().chain(queries) {
            (0..blocks).for_each(|block| self.store_own(b, array, block, &zeros()));
        }
    }

    /// G at the warp's times j and the times i of its half.
    pub(super) fn scores_of(&self, b: &mut Builder, views: &OperandViews) -> Blocks {
        let left = views.halves.left(b, &self.keys, Operand::i32(0));
        let right = views.halves.right(b, &self.queries, Operand::i32(0));
        let mut scores: Blocks = vec![zeros(); (TIMES / 2 / COLUMNS) as usize];
        multiply(b, &mut scores, left, right);
        scores
    }

    /// Initialises the mbarriers and the rematerialised numbers, by one thread.
    pub(super) fn start(&self, b: &mut Builder) {
        let first = b.eq(self.thread.number, 0);
        b.if_(first, |b| {
            let numbers = self.shared_constants(b);
            self.rematerialiser.store(b, &numbers);
            let tiles = [&self.keys, &self.queries, &self.values, &self.cotangents, &self.states, &self.duals];
            let stages = self.heads_in_flight();
            for (tile, stages) in tiles.into_iter().zip([1, 1, stages, stages, stages, stages]) {
                b.init_mbarriers(tile.full, stages, self.schedule.threads());
            }
            b.push(Stmt::FenceInit);
        });
        b.barrier();
    }

    pub(super) fn all_views(&self, b: &mut Builder) -> AllViews {
        let [wide, deep] = [&self.values, &self.keys].map(|tile| self.views(b, tile));
        let has_own = self.weights.elem != self.keys.elem;
        let of_other_type = has_own.then(|| [&self.weights, &self.states].map(|tile| self.views(b, tile)));
        AllViews { wide, deep, of_other_type }
    }

    fn views(&self, b: &mut Builder, tile: &Tile) -> OperandViews {
        let is_f32 = tile.elem == Elem::F32;
        let place = HalfPlace { lane: self.rematerialiser.of(b, self.thread.lane), block: self.block, half: self.half };
        let elements = |b: &mut Builder, piece| self.elements(b, tile, piece);
        let halves = HalfViews::of(b, tile, place, is_f32.then_some(&elements));
        OperandViews { halves, neighbours: is_f32.then(|| self.neighbours(b, tile)) }
    }

    /// Starts the copies of a head, if there is one.
    pub(super) fn fetch(&self, b: &mut Builder, chunk: &Chunk, iteration: Operand) {
        let exists = b.lt(iteration, chunk.heads);
        b.if_(exists, |b| {
            let head = self.head(b, chunk, iteration);
            let stage = self.ring().at(b, iteration).index;
            self.fetch_values(b, &head, chunk, stage);
            self.fetch_states(b, &head, chunk, stage);
            self.write_undone(b, &head, chunk, stage);
        });
    }

    /// Starts the copies of the values and cotangents of a head into a stage.
    pub(super) fn fetch_values(&self, b: &mut Builder, head: &HeadSlice, chunk: &Chunk, stage: Operand) {
        let source = self.source(&head.outer);
        for (tile, to) in [(&self.values, stage), (&self.cotangents, self.stage_of_cotangents(stage))] {
            let place = head.slice.map(|slice| b.mul(slice, TIMES));
            let origin = origin_at(b, tile, &source, place);
            tile.start_copies(b, &source, origin, chunk.first, to);
            tile.arrive(b, &source, stage);
        }
    }

    /// Computes one head.
    fn iteration(&self, b: &mut Builder, chunk: &Chunk, sums: &Sums, iteration: Operand) {
        let filled = self.ring().at(b, iteration);
        let stage = filled.index;
        // From here on all threads see the rates, and none reads the head before.
        b.barrier();
        let next = b.add(iteration, 1);
        if self.heads_in_flight() > 1 {
            self.fetch(b, chunk, next);
        }
        let early = self.reads_early.then(|| self.reads(b, chunk, iteration));
        for tile in [&self.values, &self.cotangents, &self.states, &self.duals] {
            b.wait(tile.full, filled);
        }
        let (found, decays) = if self.is_in_phases() {
            self.in_phases(b, sums, iteration, stage)
        } else {
            self.at_once(b, sums, iteration, stage)
        };
        let (rates, (rows, steps)) = early.unwrap_or_else(|| {
            let iteration = self.rematerialiser.of(b, iteration);
            let first = if self.is_crowded { self.rematerialiser.of(b, chunk.first) } else { chunk.first };
            let chunk = Chunk { first, shared: chunk.shared.clone(), ..*chunk };
            self.reads(b, &chunk, iteration)
        });
        // Rematerialised here.
        let slice = self.schedule.wide.then(|| {
            let iteration = self.rematerialiser.of(b, iteration);
            b.binary(Binary::Rem, iteration, chunk.slices)
        });
        let place = slice.map(|slice| b.mul(slice, TIMES));
        self.store_values(b, &rows, stage, place, &found);
        self.store_rates(b, &rates, next);
        // From here on no thread reads the tiles of this head.
        b.barrier();
        if self.heads_in_flight() == 1 && self.is_iterated() {
            self.fetch(b, chunk, next);
        }
        self.store_steps(b, &steps, &decays, slice.map(|slice| (slice, chunk)));
    }

    /// Computes all sums of a head at once, value' and the decays.
    fn at_once(&self, b: &mut Builder, sums: &Sums, iteration: Operand, stage: Operand) -> (Blocks, Decays) {
        let decays = self.decays(b, iteration);
        let mut partials = Partials::default();
        let views = self.all_views(b);
        let head = Head { views: &views, stage, decays: &decays, sums };
        let weights = self.weigh(b, &head, &mut partials);
        self.store_weights(b, &weights);
        let mut found = self.through_duals(b, &head, &mut partials);
        self.add_keys(b, &head);
        self.add_queries(b, &head, &mut partials);
        self.store_partials(b, &partials);
        self.share_energy(b, stage);
        // The weights of all warps are complete.
        b.barrier();
        self.through_pairs(b, &head, &mut found);
        (found, decays)
    }

    /// Reads the rates of the next head, and the parameters that outputs of this one need.
    fn reads<'a>(&'a self, b: &mut Builder, chunk: &Chunk, iteration: Operand) -> (Rates, (Values<'a>, Values<'a>)) {
        let next = b.add(iteration, 1);
        let last = b.sub(chunk.heads, 1);
        let known = b.binary(Binary::Min, next, last);
        let following = self.head(b, chunk, known);
        let rates = self.rates(b, &following.outer, chunk.first);
        let own = self.head(b, chunk, iteration);
        (rates, self.early(b, &own, chunk.first))
    }

    /// Multiplies the sums over heads, and stores them.
    fn finish(&self, b: &mut Builder, chunk: &Chunk, sums: &Sums) {
        if !self.needs(Cotangent::Keys) && !self.needs(Cotangent::Queries) {
            return;
        }
        b.barrier();
        let pairs = block_values(&sums.pairs);
        self.store_weights(b, &pairs);
        b.barrier();
        let views = self.all_views(b);
        let (time, width) = (self.form.states.time, self.form.states.width);
        let values = Values::new(self.stage, &self.args, [time, width], chunk.shared.clone());
        let mut kinds = [Cotangent::Keys, Cotangent::Queries];
        if self.is_tf32 {
            // The sums of query' are in registers.
            kinds.reverse();
        }
        for kind in kinds.into_iter().filter(|kind| self.needs(*kind)) {
            let found = match kind {
                Cotangent::Keys => self.finish_keys(b, &views),
                _ => self.finish_queries(b, &views, &sums.queries),
            };
            self.store_depth(b, &values, chunk.first, kind, &found);
        }
    }
}

impl GradientSweep<'_> {
    /// Whether an output is of a kind.
    pub(super) fn needs(&self, kind: Cotangent) -> bool {
        self.form.outputs.contains(&kind)
    }

    /// The chunk of the block.
    pub(super) fn chunk(&self, b: &mut Builder) -> Chunk {
        if let Some(SequenceTile { outer, place, count, first, .. }) = &self.tile {
            return self.chunk_at(b, outer.clone(), (*place, *count), *first);
        }
        let chunks = b.div_ceil(self.args.size(self.form.states.time), TIMES);
        let block = b.special(crate::tile::Special::Block);
        let block = b.convert(Ty::I64, block);
        let [point, number] = b.div_rem(block, chunks);
        let shared = self.args.indices(b, point, self.shared());
        let first = b.mul(number, TIMES);
        self.chunk_at(b, shared, (number, chunks), first)
    }

    /// The code of a block, which has nothing to do where a sequence has no times left for it.
    pub(super) fn where_chunk_exists(&self, b: &mut Builder, body: impl FnOnce(&mut Builder)) {
        let exists = self.tile.as_ref().map_or(Operand::bool(true), |tile| tile.exists);
        b.if_(exists, body);
    }

    /// The chunk of a number, of so many, at a point of the shared axes, from its first time on.
    fn chunk_at(
        &self,
        b: &mut Builder,
        shared: Vec<(Axis, Operand)>,
        (number, count): (Operand, Operand),
        first: Operand,
    ) -> Chunk {
        let first = b.convert(Ty::I32, first);
        let heads = self.args.rows(b, self.form.heads);
        let heads = b.convert(Ty::I32, heads);
        let slices = if self.schedule.wide {
            let slices = slices_of(b, &self.args, &self.form.states, TIMES, self.schedule.padded);
            b.convert(Ty::I32, slices)
        } else {
            Operand::i32(1)
        };
        let heads = if self.schedule.wide { b.mul(heads, slices) } else { heads };
        Chunk { shared, number, count, first, heads, slices }
    }

    /// The numbers that say which chunk is the block's, to be [rematerialised](Self::rematerialised_chunk).
    pub(super) fn numbers_of_chunk(&self, b: &mut Builder) -> Vec<Operand> {
        let chunk = self.chunk(b);
        self.shared().iter().map(|axis| index_of(&chunk.shared, axis)).chain([chunk.number]).collect()
    }

    /// The chunk of the block, rematerialised.
    pub(super) fn rematerialised_chunk(&self, b: &mut Builder) -> Chunk {
        let of_sequence = self.chunk_of_sequence(b);
        if self.tile.is_some() && of_sequence.is_none() {
            let chunk = self.chunk(b);
            let slices = if self.schedule.wide { self.rematerialiser.of(b, chunk.slices) } else { chunk.slices };
            return Chunk { slices, ..chunk };
        }
        let axes: Vec<Axis> = self.shared().iter().collect();
        let shared = axes.iter().enumerate().map(|(k, axis)| (*axis, self.rematerialiser.read(b, k))).collect();
        let number = self.rematerialiser.read(b, axes.len());
        let [first, count] = of_sequence.unwrap_or_else(|| {
            let count = b.div_ceil(self.args.size(self.form.states.time), TIMES);
            [b.mul(number, TIMES), count]
        });
        let chunk = self.chunk_at(b, shared, (number, count), first);
        let slices = if self.schedule.wide { self.rematerialiser.of(b, chunk.slices) } else { chunk.slices };
        Chunk { slices, ..chunk }
    }

    /// The outer indices of a head, and the slice of the width.
    pub(super) fn head(&self, b: &mut Builder, chunk: &Chunk, iteration: Operand) -> HeadSlice {
        let (head, slice) = match self.schedule.wide {
            false => (iteration, None),
            true => {
                let (head, slice) = divided(b, iteration, chunk.slices);
                (head, Some(slice))
            }
        };
        let head = b.convert(Ty::I64, head);
        let own = self.args.indices(b, head, self.form.heads);
        HeadSlice { outer: chunk.shared.iter().copied().chain(own).collect(), slice }
    }

    /// Reads the parameters that outputs need, at the thread's times among rows and at its lane's times.
    pub(super) fn early(&self, b: &mut Builder, own: &HeadSlice, first: Operand) -> (Values<'_>, Values<'_>) {
        let (time, width) = (self.form.states.time, self.form.states.width);
        let mut rows = Values::new(self.stage, &self.args, [time, width], own.outer.clone());
        let mut steps = rows.clone();
        self.set_rows(b, &mut rows, first);
        for (k, place) in (0..).zip(self.own_times(b, first)) {
            steps.set_row(k, place);
        }
        for row in 0..2 {
            rows.read_row(b, row);
            steps.read_row(b, row);
        }
        (rows, steps)
    }
}

//! The tiles of the third sweep, and their copies.

use super::gradients::{Gradients, Place};
use super::{ChunkDeltaBackward, TIMES};
use crate::block::copy::Source;
use crate::block::layout::{Tile, TileOf, TileShape};
use crate::block::ring::RingStage;
use crate::build::Builder;
use crate::stage::Stage;
use crate::stage::kind::DeltaRuleBackward;
use crate::tile::{Operand, SharedKind, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, Binary};

/// The tiles of 64 times.
#[derive(Clone)]
pub(super) struct Tiles {
    /// Keys, queries, and the vectors that the state is read by, where they are not the keys: of the whole depth.
    pub keys: Tile,
    pub queries: Tile,
    pub columns: Option<Tile>,
    /// The cotangents of what is read: of a part of the width.
    pub cotangents: Tile,
    /// e and p, saved by walks: a row for every time.
    pub errors: Tile,
    pub products: Tile,
    /// The state before the times and the cotangent of the one after: a row for every place of the width.
    pub states: Tile,
    pub duals: Tile,
    /// Weights of pairs of times, a row for each later one.
    pub weights: [Tile; 4],
}

impl Tiles {
    pub(super) fn declare(
        b: &mut Builder,
        stage: &Stage,
        form: &DeltaRuleBackward,
        schedule: &ChunkDeltaBackward,
    ) -> Tiles {
        let (rule, depth) = (&form.states, schedule.depth);
        let mut tile = |param: u32, inner: Axis, depth: u32| {
            let shape = TileShape { rows: TIMES, depth, stages: 1 };
            Tile::declare(b, stage, TileOf { param, along: rule.time, inner }, shape)
        };
        let mut keys = tile(rule.row.param, rule.depth, depth);
        let mut queries = tile(form.query.param, rule.depth, depth);
        let mut columns = (rule.column.param != rule.row.param).then(|| tile(rule.column.param, rule.depth, depth));
        let mut cotangents = tile(form.cotangents.value.param, rule.width, TIMES);
        let elem = keys.elem;
        let [mut errors, mut products] = ["errors", "products"].map(|name| Tile::bare(b, name, elem, TIMES, TIMES));
        let [mut states, mut duals] = ["states", "duals"].map(|name| Tile::bare(b, name, elem, TIMES, depth));
        let weights =
            ["weights_0", "weights_1", "weights_2", "weights_3"].map(|n| Tile::bare(b, n, elem, TIMES, TIMES));
        let parts = [&mut cotangents, &mut errors, &mut products, &mut states, &mut duals];
        for tile in [&mut keys, &mut queries].into_iter().chain(&mut columns).chain(parts) {
            tile.full = b.shared(format!("{}_full", tile.name), SharedKind::Mbarrier, 1);
        }
        Tiles { keys, queries, columns, cotangents, errors, products, states, duals, weights }
    }

    /// The vectors that the state is read by.
    pub(super) fn columns(&self) -> &Tile {
        self.columns.as_ref().unwrap_or(&self.keys)
    }

    /// The tiles over the depth that are copied from tensors.
    fn deep(&self) -> impl Iterator<Item = &Tile> {
        [&self.keys, &self.queries].into_iter().chain(&self.columns)
    }

    /// The tiles of a part of the width.
    fn of_part(&self) -> [&Tile; 5] {
        [&self.cotangents, &self.errors, &self.products, &self.states, &self.duals]
    }
}

impl Gradients<'_> {
    /// Initialises the mbarriers and the rematerialised number, by one thread.
    pub(super) fn start(&self, b: &mut Builder) {
        let first = b.eq(self.thread, Operand::i32(0));
        b.if_(first, |b| {
            self.rematerialiser.store(b, &[]);
            for tile in self.tiles.deep().chain(self.tiles.of_part()) {
                b.init_mbarriers(tile.full, 1, self.schedule.threads());
            }
            b.push(Stmt::FenceInit);
        });
        b.barrier();
    }

    fn source<'a>(&'a self, place: &'a Place) -> Source<'a> {
        Source {
            args: &self.args,
            outer: &place.outer,
            threads: self.schedule.threads(),
            thread: self.thread,
            vector: self.schedule.vector,
            padded: self.schedule.padded,
            fenced: false,
            rolled: false,
        }
    }

    /// Starts the copies of the tiles over the depth.
    pub(super) fn fetch_deep(&self, b: &mut Builder, place: &Place) {
        let source = self.source(place);
        for tile in self.tiles.deep() {
            let origin = tile.origin(b, &source);
            tile.fill(b, &source, origin, place.first, Operand::i32(0));
        }
    }

    /// Starts the copies of a part of the width.
    pub(super) fn fetch_part(&self, b: &mut Builder, place: &Place, part: Operand) {
        let source = self.source(place);
        let (tile, width) = (&self.tiles.cotangents, self.form.states.width);
        let origin = tile.origin(b, &source);
        let part = b.convert(Ty::I64, part);
        let first = b.mul(part, Operand::i64(i64::from(TIMES)));
        let by = b.mul(first, self.args.stride(crate::abi::Tensor::Param(tile.param), width));
        let origin = b.add(origin, by);
        tile.fill(b, &source, origin, place.first, Operand::i32(0));
        let row = b.mul(place.point, place.parts);
        let row = b.add(row, part);
        let number = b.mul(row, place.count);
        let number = b.add(number, place.number);
        let Self { tiles, .. } = self;
        for (scratch, tile) in [&tiles.states, &tiles.duals, &tiles.errors, &tiles.products].into_iter().enumerate() {
            self.fill_saved(b, tile, scratch, number);
        }
    }

    /// Starts the copies of a saved tile, whose layout in memory is that of shared memory.
    fn fill_saved(&self, b: &mut Builder, tile: &Tile, scratch: usize, number: Operand) {
        let piece = tile.piece();
        let own = b.mul(self.thread, Operand::i32(piece as i32));
        let first = b.mul(number, Operand::i64(i64::from(tile.len())));
        let wide = b.convert(Ty::I64, own);
        let from = b.add(first, wide);
        for by in (0..tile.len()).step_by((self.schedule.threads() * piece) as usize) {
            let copy = |b: &mut Builder| {
                let to_index = b.add(own, Operand::i32(by as i32));
                let from_index = b.add(from, Operand::i64(i64::from(by)));
                let (to, from) = (tile.array, self.args.scratch[scratch]);
                b.push(Stmt::CopyAsync { to, to_index, from, from_index, elements: piece, guard: None });
            };
            copy(b);
        }
        b.arrive_with_copies(tile.full, Operand::i32(0));
    }

    /// Waits for the tiles over the depth.
    pub(super) fn wait_deep(&self, b: &mut Builder) {
        self.tiles.deep().for_each(|tile| b.wait(tile.full, RingStage::FIRST));
    }

    /// Waits for the tiles of a part of the width.
    pub(super) fn wait_part(&self, b: &mut Builder, part: Operand) {
        let parity = b.binary(Binary::And, part, Operand::i32(1));
        for tile in self.tiles.of_part() {
            b.wait(tile.full, RingStage { index: Operand::i32(0), parity });
        }
    }
}

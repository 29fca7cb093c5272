//! Rules in two kernels: the first prepares all tiles of times at once, and the second walks them.
//!
//! What the walk needs of a tile beside the state depends on no other tile, and is the same for every part of the width: the factors
//! over the depth, the inverses of the systems, the weights of pairs of times, and the rates. A block of the first kernel computes it for one
//! tile and stores it in the layout of shared memory. The four warps of the second kernel that go ahead copy it. Factors over the depth
//! are stored only where decays differ along it. Elsewhere these four warps copy the elements of the tensors and turn them into factors,
//! which takes less time than to store factors and to read them again.

use oplus_dsl::ir::{Axis, Binary};
use oplus_dsl::{Elem, Ty};

use super::ahead::TilePlace;
use super::channels::{ChannelTiles, System};
use super::stored::{Stored, StoredIn};
use super::{ChunkDelta, DeltaKernel, ROWS, TIMES, WARPS};
use crate::block::args::Args;
use crate::block::layout::Tile;
use crate::block::pair::Values;
use crate::block::ring::RingStage;
use crate::build::Builder;
use crate::stage::Stage;
use crate::stage::kind::DeltaRule;
use crate::target::WARP;
use crate::tile::{Operand, Special, Stmt};

/// The tile of a block that prepares one.
#[derive(Clone, Copy)]
pub(super) struct OwnTile {
    /// Its number among all that are prepared, `i64`.
    place: Operand,
    /// The first time in its recurrence, `i64`, and whether the recurrence has it.
    first: Operand,
    exists: Operand,
}

/// The tile of a block that prepares one, when its vectors are there.
pub(in crate::schedules) struct PreparedTile {
    /// Its place in shared memory.
    pub at: TilePlace,
    /// Its number among all that are prepared, `i64`.
    pub number: Operand,
}

/// What the walk needs of a tile, in numbers.
pub(super) struct TileLens {
    /// Factors over the depth.
    pub deep: u32,
    /// Inverses and weights.
    pub pairs: u32,
    /// Decays over chunks, and rates.
    pub numbers: u32,
}

impl TileLens {
    pub(super) fn of(form: &DeltaRule, schedule: &ChunkDelta) -> TileLens {
        let (is_queried, has_two_keys) = (u32::from(form.readout.is_some()), u32::from(form.has_two_keys()));
        let reads = u32::from(form.reads);
        let has_columns = reads * u32::from(form.channels.is_some() || form.column.param != form.key);
        let ends = if form.channels.is_some() { WARPS * schedule.depth } else { 0 };
        TileLens {
            deep: (1 + has_columns + is_queried + has_two_keys) * TIMES * schedule.depth,
            pairs: (reads + is_queried) * (1 + has_two_keys) * TIMES * ROWS,
            numbers: ends + super::rates::kinds(form).len() as u32 * TIMES,
        }
    }
}

/// How many numbers are stored for a tile: factors and weights, and decays and rates.
fn lens(form: &DeltaRule, schedule: &ChunkDelta) -> [u64; 2] {
    let TileLens { deep, pairs, numbers } = TileLens::of(form, schedule);
    let deep = if form.channels.is_some() { deep } else { 0 };
    [deep + pairs, numbers].map(u64::from)
}

/// How many numbers are stored for all tiles; `None` when 63 bits cannot count them.
pub(super) fn scratch(
    stage: &Stage,
    form: &DeltaRule,
    schedule: &ChunkDelta,
    size: impl Fn(Axis) -> i64,
) -> Option<Vec<u64>> {
    of_all_tiles(stage, form, lens(form, schedule), size)
}

/// How many numbers are stored for all tiles, from those of a tile; `None` when 63 bits cannot count them.
pub(in crate::schedules) fn of_all_tiles(
    stage: &Stage,
    form: &DeltaRule,
    lens: [u64; 2],
    size: impl Fn(Axis) -> i64,
) -> Option<Vec<u64>> {
    let outer = form.outer.minus(stage.axis_of_sequences());
    let rows = outer.iter().try_fold(1_i64, |n, axis| n.checked_mul(size(axis)))?;
    let tiles = rows.checked_mul(stage.tiles_of_times(form.time, TIMES, &size) as i64)?;
    let len = |len: u64| tiles.checked_mul(len as i64).map(|n| n as u64);
    lens.into_iter().map(len).collect()
}

/// The tile of a block, and the indices along the outer axes of its recurrence.
pub(super) fn own_tile(
    b: &mut Builder,
    stage: &Stage,
    args: &mut Args,
    form: &DeltaRule,
) -> (OwnTile, Vec<(Axis, Operand)>) {
    if let Some(tile) = args.enter_tile(b, stage, form.outer, (TIMES, 1)) {
        let before = b.mul(tile.row, tile.count);
        let place = b.add(before, tile.place);
        return (OwnTile { place, first: tile.first, exists: tile.exists }, tile.outer);
    }
    let count = b.div_ceil(args.size(form.time), TIMES);
    let block = b.special(Special::Block);
    let place = b.convert(Ty::I64, block);
    let [point, number] = b.div_rem(place, count);
    let first = b.mul(number, i64::from(TIMES));
    (OwnTile { place, first, exists: Operand::bool(true) }, args.indices(b, point, form.outer))
}

impl DeltaKernel<'_> {
    /// Goes to the block's tile: computes its rates, also those that the kernel `beside` has of its own, and waits for its vectors.
    pub(in crate::schedules) fn in_own_tile(
        &self,
        b: &mut Builder,
        beside: Option<&Self>,
        then: impl FnOnce(&mut Builder, &Values, &PreparedTile),
    ) {
        let Some(own) = self.own_tile else { return };
        b.if_(own.exists, |b| {
            let is_first = b.eq(self.thread.number, Operand::i32(0));
            b.if_(is_first, |b| {
                self.deep_tiles().for_each(|tile| b.init_mbarriers(tile.full, 1, WARPS * WARP));
                b.push(Stmt::FenceInit);
            });
            b.barrier();
            let first = b.convert(Ty::I32, own.first);
            let source = self.source();
            for tile in self.deep_tiles() {
                let origin = tile.origin(b, &source);
                tile.fill(b, &source, origin, first, Operand::i32(0));
            }
            let values = self.values_at();
            for kernel in [self].into_iter().chain(beside) {
                let rates = kernel.rates(b, &values, first);
                kernel.store_rates(b, &rates, Operand::i32(0));
            }
            b.barrier();
            self.deep_tiles().for_each(|tile| b.wait(tile.full, RingStage::FIRST));
            let number = b.binary(Binary::Div, first, TIMES);
            let (stage, rates) = (RingStage::FIRST, Operand::i32(0));
            let at = TilePlace { number, stage, deep: stage, pairs: stage, rates };
            then(b, &values, &PreparedTile { at, number: own.place });
        });
    }

    /// Computes what the walk needs of the block's tile, and stores it.
    pub(super) fn prepare_tile(&self, b: &mut Builder) {
        self.in_own_tile(b, None, |b, values, tile| {
            self.compute_pairs(b, values, &tile.at);
            self.invert(b, &tile.at);
            b.barrier();
            self.stored().store(b, self.stored_in(), self.thread.number, tile.number);
        });
    }

    /// Computes factors over the depth, and products over pairs of times.
    fn compute_pairs(&self, b: &mut Builder, values: &Values, place: &TilePlace) {
        if let Some(channels) = &self.channels {
            let tiles = self.tiles_of_times(b, false);
            return self.channel_pairs(b, values, tiles, channels, place, System::OfRows);
        }
        let lanes = self.lanes(b);
        if self.elem() == Elem::F32 {
            self.prepare(b, place);
        }
        self.pairs(b, &lanes, place);
    }

    /// The values of the program at the block's recurrence.
    pub(in crate::schedules) fn values_at(&self) -> Values<'_> {
        Values::new(self.stage, &self.args, [self.form.time, self.form.width], self.outer.clone())
    }

    /// The layout of a prepared tile of the rule.
    pub(super) fn stored(&self) -> Stored<'_> {
        let (depth, mut stored) = (self.schedule.depth, Stored::default());
        let factors: Vec<&Tile> = match &self.channels {
            Some(ChannelTiles { keys, columns, queries, rows, .. }) => {
                [keys].into_iter().chain(columns).chain(queries).chain(rows).collect()
            }
            None => vec![],
        };
        factors.into_iter().for_each(|tile| stored.factors(Some(tile), depth));
        self.inverses.iter().for_each(|tile| stored.pairs(Some(tile)));
        let [read, queried] = [0, 1].map(|k: usize| self.of_values.as_ref().map(|tiles| &tiles[k]));
        read.into_iter().for_each(|tile| stored.pairs(Some(tile)));
        if self.queries.is_some() {
            [&self.weights].into_iter().chain(queried).for_each(|tile| stored.pairs(Some(tile)));
        }
        let ends = self.channels.as_ref().map(|channels| channels.ends);
        ends.into_iter().for_each(|ends| stored.array(Some(ends), WARPS * depth));
        self.rates.iter().for_each(|array| stored.array(Some(*array), TIMES));
        stored
    }

    /// The memory in which the tiles of the rule are prepared.
    pub(super) fn stored_in(&self) -> StoredIn {
        StoredIn([self.args.scratch[0], self.args.scratch[1]])
    }
}

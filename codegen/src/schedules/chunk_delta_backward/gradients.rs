//! The third sweep: a block has 64 times of a recurrence, and goes through the parts of its width.

use super::common::{Place, Third};
use super::tiles::{Tiles, is_large};
use super::{BLOCKS, ChunkDeltaBackward, TIMES, WARPS};
use crate::block::args::Args;
use crate::block::halves::{HalfPlace, HalfViews};
use crate::block::layout::{Tile, TileStage};
use crate::block::matmul::Blocks;
use crate::block::pair::{Index, Values};
use crate::block::rematerialise::Rematerialiser;
use crate::block::ring::RingStage;
use crate::block::sequence::SequenceTile;
use crate::block::thread::{FragmentPlace, Thread};
use crate::build::{Builder, zero};
use crate::stage::Stage;
use crate::stage::kind::DeltaRuleBackward;
use crate::tile::{Operand, SharedId, SharedKind, Stmt};
use oplus_dsl::ir::Axis;
use oplus_dsl::{Elem, Ty};

/// How many kinds of rates there are.
pub(super) const KINDS: usize = 5;
/// The first row of parts of sums over the depth. The rows before it are sums that the energy follows from.
pub(super) const TOTALS: u32 = 10 + BLOCKS;

/// The only stage of a tile.
pub(super) const ONLY: Operand = Operand::i32(0);

/// A stage with its arguments, tiles and thread coordinates. Immutable while code is emitted.
///
/// Warps are four blocks of 16 times by two halves: of the depth, and of the pairs' other time.
#[derive(Clone)]
pub(super) struct Gradients<'s> {
    pub stage: &'s Stage,
    pub form: &'s DeltaRuleBackward,
    pub schedule: &'s ChunkDeltaBackward,
    pub args: Args,
    /// The block's times, where they are of one of several sequences.
    pub tile: Option<SequenceTile>,
    pub tiles: Tiles,
    /// Whether sums over the parts of the width stay in registers, and are not computed when they are needed.
    pub keeps_sums: bool,
    /// The rates of each kind at all times.
    pub rates: [SharedId; KINDS],
    /// Sums over rows' parts, a row of times for each of them.
    pub parts: SharedId,
    /// The warps' shares of ⟨S, D⟩.
    pub energies: SharedId,
    /// A rematerialised thread: places in tiles would take the registers of sums.
    pub rematerialiser: Rematerialiser,
    pub thread: Thread,
    /// The warp's block of 16 times, and its half.
    pub block: Operand,
    pub half: Operand,
    pub fragment: FragmentPlace,
}

/// The thread's numbers at two neighbouring blocks of columns.
pub(super) type Sixteen = [[Operand; 4]; 2];

/// A part of the width.
#[derive(Clone, Copy)]
pub(super) struct Part {
    /// Its number, `i32`.
    pub number: Operand,
    /// The stage of its tiles.
    pub stage: Operand,
}

/// The sums over the parts of the width so far, at the warp's times.
pub(super) struct Sums {
    /// c·S, p·S and e·D, at the places of the depth of the warp's half. Of a single part these products, and the two that
    /// follow, are computed when they are needed.
    pub deep: [Blocks; 3],
    /// c·e and p·e, at the other times of the warp's half.
    pub given: Blocks,
    pub moved: Blocks,
    /// The thread's share of ⟨S, D⟩.
    pub energy: Operand,
}

impl Sums {
    pub(super) fn all(&self) -> impl Iterator<Item = &Operand> {
        let pairs = [&self.given, &self.moved];
        self.deep.iter().chain(pairs).flatten().flatten().chain([&self.energy])
    }

    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut Operand> {
        let Sums { deep, given, moved, energy } = self;
        deep.iter_mut().chain([given, moved]).flatten().flatten().chain([energy])
    }

    /// The sums at the 16 places of the depth of a number.
    pub(super) fn of_pair(&self, pair: u32) -> [Sixteen; 3] {
        [0, 1, 2].map(|k: usize| [0, 1].map(|block| self.deep[k][2 * pair as usize + block]))
    }
}

impl<'s> Gradients<'s> {
    pub(super) fn declare(
        b: &mut Builder,
        stage: &'s Stage,
        form: &'s DeltaRuleBackward,
        schedule: &'s ChunkDeltaBackward,
        mut args: Args,
    ) -> Gradients<'s> {
        let tile = args.enter_tile(b, stage, form.states.outer, (TIMES, 1));
        let tiles = Tiles::declare(b, stage, form, schedule);
        let mut array = |name: &str, len: u32| b.shared(name, SharedKind::Elem(Elem::F32), len);
        let rates = ["sums", "before", "read", "added", "given"].map(|name| array(name, TIMES));
        let parts = array("parts", (TOTALS + 2 * form.totals.len() as u32) * TIMES);
        let energies = array("energies", WARPS);
        let outer = tile.as_ref().map_or(form.states.outer.len(), |tile| tile.outer.len());
        let rematerialiser =
            Rematerialiser::declare(b, if reads_block_place_from_shared(form, schedule) { outer + 1 } else { 0 });
        let thread = Thread::of(b);
        let [half, block] = b.div_rem(thread.warp, BLOCKS);
        let fragment = FragmentPlace::of(b, thread.lane);
        let keeps_sums = schedule.wide || schedule.overlaid || is_large(stage, form, schedule.depth);
        Gradients {
            stage,
            form,
            schedule,
            args,
            tile,
            tiles,
            keeps_sums,
            rates,
            parts,
            energies,
            rematerialiser,
            thread,
            block,
            half,
            fragment,
        }
    }

    /// The kernel with rematerialised coordinates of the thread.
    pub(super) fn rematerialised(&self, b: &mut Builder) -> Gradients<'s> {
        let thread = self.thread.rematerialised(b, self.rematerialiser);
        let [half, block] = b.div_rem(thread.warp, BLOCKS);
        let fragment = FragmentPlace::of(b, thread.lane);
        Gradients { thread, half, block, fragment, ..self.clone() }
    }

    /// The lanes by which the warp reads tiles of the shape of this one.
    pub(super) fn views(&self, b: &mut Builder, tile: &Tile) -> HalfViews {
        HalfViews::of(b, tile, HalfPlace { lane: self.thread.lane, block: self.block, half: self.half }, None)
    }

    /// The parts that both kernels of the third sweep have.
    pub(super) fn third(&self) -> Third<'_> {
        let Self { stage, form, schedule, args, thread, .. } = self;
        Third { stage, form, schedule, args, thread: *thread }
    }

    pub(super) fn body(&self, b: &mut Builder) {
        self.start(b);
        if self.keeps_sums {
            return self.walk(b);
        }
        let place = self.third().place(b, &self.tile, None, None);
        self.fetch_deep(b, &place);
        let values = self.values(&place);
        self.store_rates(b, &values, &place);
        let part = Part { number: Operand::i32(0), stage: ONLY };
        self.fetch_part(b, &place, part.number, part.stage);
        self.wait_part(b, RingStage::FIRST);
        self.prepare_part(b, part.stage);
        let mut sums = Sums { deep: Default::default(), given: vec![], moved: vec![], energy: zero(Ty::F32) };
        self.part(b, &place, part, &mut sums);
        self.after_parts(b, &place, &sums, RingStage::FIRST);
    }

    /// The values of the stage at a place.
    pub(super) fn values<'a>(&'a self, place: &Place) -> Values<'a> {
        let axes = [self.form.states.time, self.form.states.width];
        Values::new(self.stage, &self.args, axes, place.outer.clone())
    }

    /// The numbers that say which times are the block's, to be [rematerialised](Self::rematerialised_place).
    pub(super) fn numbers_of_place(&self, b: &mut Builder) -> Vec<Operand> {
        if !reads_block_place_from_shared(self.form, self.schedule) {
            return vec![];
        }
        let Place { outer, first, .. } = self.third().place(b, &self.tile, None, None);
        let first = b.convert(Ty::I64, first);
        outer.into_iter().map(|(_, index)| index).chain([first]).collect()
    }

    /// The place of the block, rematerialised where its numbers are in shared memory.
    pub(super) fn rematerialised_place(&self, b: &mut Builder, place: &Place) -> Place {
        if !reads_block_place_from_shared(self.form, self.schedule) {
            return place.clone();
        }
        let outer = self.rematerialiser.outer(b, &place.outer);
        let first = self.rematerialiser.read(b, outer.len());
        Place { outer, first: b.convert(Ty::I32, first), ..place.clone() }
    }

    /// Stores the outputs that need all parts of the width. The tiles over the depth are those of `at`.
    pub(super) fn after_parts(&self, b: &mut Builder, place: &Place, sums: &Sums, at: RingStage) {
        self.wait_deep(b, at);
        self.prepare(b, &self.tiles.deep().map(TileStage::only).collect::<Vec<_>>());
        // From here on all threads see the rates.
        b.barrier();
        self.share_energy(b, sums.energy);
        self.store_weights(b, sums);
        b.barrier();
        self.deep(b, place, sums);
        b.barrier();
        self.rematerialised(b).store_steps(b, place);
    }

    /// Keeps the assembler from reading factors before it needs them.
    pub(super) fn fence(&self, b: &mut Builder) {
        if self.keeps_sums {
            b.push(Stmt::SyncWarp);
        } else {
            b.barrier();
        }
    }

    /// The thread's first time of the 16 of its warp.
    pub(super) fn first_row(&self, b: &mut Builder) -> Operand {
        self.fragment.row(b, self.block)
    }

    /// The first of the columns of the warp's half of so many.
    pub(super) fn half_of(&self, b: &mut Builder, columns: u32) -> Operand {
        b.mul(self.half, Operand::i32((columns / 2) as i32))
    }

    /// An index along an axis, from one of 32 bits.
    pub(super) fn index_along(&self, b: &mut Builder, at: Operand, axis: Axis) -> Index {
        Index::along(b, &self.args, at, axis)
    }
}

/// Whether the numbers that say which times are the block's are read from shared memory where they are needed: where addresses of single
/// elements take the registers, or where two blocks share a multiprocessor and decays take some.
fn reads_block_place_from_shared(form: &DeltaRuleBackward, schedule: &ChunkDeltaBackward) -> bool {
    schedule.vector == 1 || schedule.blocks > 1 && form.states.decays()
}

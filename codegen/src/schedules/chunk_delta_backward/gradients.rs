//! The third sweep: a block has 64 times of a recurrence, and goes through the parts of its width.

use super::common::{Place, Third};
use super::tiles::{Tiles, is_large};
use super::{BLOCKS, ChunkDeltaBackward, TIMES, WARPS};
use crate::block::args::Args;
use crate::block::halves::{HalfPlace, HalfViews};
use crate::block::layout::Tile;
use crate::block::matmul::{Blocks, COLUMNS, zeros};
use crate::block::pair::{Index, Values};
use crate::block::rematerialise::Rematerialiser;
use crate::block::sequence::SequenceTile;
use crate::block::thread::{FragmentPlace, Thread};
use crate::build::{Builder, zero};
use crate::stage::Stage;
use crate::stage::kind::DeltaRuleBackward;
use crate::tile::{Operand, Reg, SharedId, SharedKind};
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
    fn all(&self) -> impl Iterator<Item = &Operand> {
        let pairs = [&self.given, &self.moved];
        self.deep.iter().chain(pairs).flatten().flatten().chain([&self.energy])
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Operand> {
        let Sums { deep, given, moved, energy } = self;
        deep.iter_mut().chain([given, moved]).flatten().flatten().chain([energy])
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
        let rematerialiser = Rematerialiser::declare(b, 0);
        let thread = Thread::of(b);
        let [half, block] = b.div_rem(thread.warp, BLOCKS);
        let fragment = FragmentPlace::of(b, thread.lane);
        let keeps_sums = schedule.wide || is_large(stage, form, schedule.depth);
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
        let place = self.third().place(b, &self.tile, None);
        self.fetch_deep(b, &place);
        let axes = [self.form.states.time, self.form.states.width];
        let values = Values::new(self.stage, &self.args, axes, place.outer.clone());
        self.store_rates(b, &values, &place);
        let sums = self.no_sums();
        let sums = if self.keeps_sums {
            self.parts(b, &values, &place, sums)
        } else {
            let none = Operand::i32(0);
            self.fetch_part(b, &place, none);
            self.wait_part(b, none);
            self.prepare_part(b);
            self.part(b, &values, &place, none, sums)
        };
        self.wait_deep(b);
        self.prepare(b, &self.tiles.deep().collect::<Vec<_>>());
        // From here on all threads see the rates.
        b.barrier();
        self.share_energy(b, sums.energy);
        self.store_weights(b, &sums);
        b.barrier();
        self.deep(b, &values, &place, &sums);
        b.barrier();
        self.store_steps(b, &values, &place);
    }

    /// Goes through the parts of the width.
    fn parts(&self, b: &mut Builder, values: &Values, place: &Place, mut sums: Sums) -> Sums {
        let regs: Vec<Reg> = sums.all().copied().collect::<Vec<_>>().into_iter().map(|sum| b.var(sum)).collect();
        let parts = b.convert(Ty::I32, place.parts);
        b.for_(Operand::i32(0), parts, Operand::i32(1), |b, part| {
            self.fetch_part(b, place, part);
            self.wait_part(b, part);
            self.prepare_part(b);
            let mut own = self.no_sums();
            own.all_mut().zip(&regs).for_each(|(sum, reg)| *sum = Operand::Reg(*reg));
            let own = self.part(b, values, place, part, own);
            own.all().zip(&regs).for_each(|(sum, reg)| b.assign(*reg, *sum));
            // From here on no thread reads the tiles of this part.
            b.barrier();
        });
        sums.all_mut().zip(&regs).for_each(|(sum, reg)| *sum = Operand::Reg(*reg));
        sums
    }

    /// The sums over no part.
    fn no_sums(&self) -> Sums {
        let lengths = if self.keeps_sums { [self.schedule.depth, TIMES] } else { [0; 2] };
        let [deep, pairs] = lengths.map(|n| vec![zeros(); (n / 2 / COLUMNS) as usize]);
        let deep = [deep.clone(), deep.clone(), deep];
        Sums { deep, given: pairs.clone(), moved: pairs, energy: zero(Ty::F32) }
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

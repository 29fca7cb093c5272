//! The third sweep: a block has 64 times of a recurrence, and goes through the parts of its width.

use super::common::Third;
use super::tiles::{Tiles, is_large};
use super::{BLOCKS, ChunkDeltaBackward, TIMES, WARPS};
use crate::block::args::Args;
use crate::block::matmul::{Blocks, COLUMNS, ROWS, zeros};
use crate::block::pair::{Index, Values};
use crate::block::rematerialise::Rematerialiser;
use crate::block::sequence::SequenceTile;
use crate::build::{Builder, zero};
use crate::stage::Stage;
use crate::stage::kind::DeltaRuleBackward;
use crate::target::WARP;
use crate::tile::{Operand, Reg, SharedId, SharedKind, Special};
use oplus_dsl::ir::{Axis, Binary};
use oplus_dsl::{Elem, Ty};

/// How many kinds of rates there are.
pub(super) const KINDS: usize = 5;
/// The first row of parts of sums over the depth. The rows before it are sums that the energy follows from.
pub(super) const TOTALS: u32 = 10 + BLOCKS;

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
    pub thread: Operand,
    pub warp: Operand,
    pub lane: Operand,
    /// The warp's block of 16 times, and its half.
    pub block: Operand,
    pub half: Operand,
    /// lane / 4 and lane mod 4.
    pub group: Operand,
    pub member: Operand,
}

/// The place of a block.
pub(super) struct Place {
    /// The indices of the outer axes.
    pub outer: Vec<(Axis, Operand)>,
    /// The number of the recurrence, `i64`.
    pub point: Operand,
    /// The number of its times among the 64 each, and how many there are, `i64`.
    pub number: Operand,
    pub count: Operand,
    /// The parts of the width, `i64`.
    pub parts: Operand,
    /// The first time, `i32`.
    pub first: Operand,
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
        let [thread, warp, lane] = [Special::Thread, Special::Warp, Special::Lane].map(|s| b.special(s));
        let [half, block] = [Binary::Div, Binary::Rem].map(|op| b.binary(op, warp, Operand::i32(BLOCKS as i32)));
        let [group, member] = [Binary::Div, Binary::Rem].map(|op| b.binary(op, lane, Operand::i32(4)));
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
            warp,
            lane,
            block,
            half,
            group,
            member,
        }
    }

    /// The kernel with rematerialised coordinates of the thread.
    pub(super) fn again(&self, b: &mut Builder) -> Gradients<'s> {
        let thread = self.rematerialiser.of(b, self.thread);
        let [warp, lane] = [Binary::Div, Binary::Rem].map(|op| b.binary(op, thread, Operand::i32(WARP as i32)));
        let [half, block] = [Binary::Div, Binary::Rem].map(|op| b.binary(op, warp, Operand::i32(BLOCKS as i32)));
        let [group, member] = [Binary::Div, Binary::Rem].map(|op| b.binary(op, lane, Operand::i32(4)));
        Gradients { thread, warp, lane, half, block, group, member, ..self.clone() }
    }

    /// The parts that both kernels of the third sweep have.
    pub(super) fn third(&self) -> Third<'_> {
        let Self { stage, form, schedule, args, thread, .. } = self;
        Third { stage, form, schedule, args, thread: *thread }
    }

    pub(super) fn body(&self, b: &mut Builder) {
        self.start(b);
        let place = self.place(b);
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

    fn place(&self, b: &mut Builder) -> Place {
        let (rule, times) = (&self.form.states, i64::from(TIMES));
        if let Some(SequenceTile { outer, row, place, count, first, .. }) = self.tile.clone() {
            let size = self.args.size(rule.width);
            let parts = if self.schedule.wide { b.div_ceil(size, TIMES) } else { Operand::i64(1) };
            return Place { outer, point: row, number: place, count, parts, first: b.convert(Ty::I32, first) };
        }
        let mut count = |axis: Axis| {
            let up = b.add(self.args.size(axis), Operand::i64(times - 1));
            b.binary(Binary::Div, up, Operand::i64(times))
        };
        let count_of_times = count(rule.time);
        let parts = if self.schedule.wide { count(rule.width) } else { Operand::i64(1) };
        let block = b.special(Special::Block);
        let block = b.convert(Ty::I64, block);
        let [point, number] = [Binary::Div, Binary::Rem].map(|op| b.binary(op, block, count_of_times));
        let outer = self.args.indices(b, point, rule.outer);
        let first = b.mul(number, Operand::i64(times));
        let first = b.convert(Ty::I32, first);
        Place { outer, point, number, count: count_of_times, parts, first }
    }

    /// The thread's first time of the 16 of its warp.
    pub(super) fn first_row(&self, b: &mut Builder) -> Operand {
        let of_block = b.mul(self.block, Operand::i32(ROWS as i32));
        b.add(of_block, self.group)
    }

    /// The thread's first column of a block of eight.
    pub(super) fn first_column(&self, b: &mut Builder) -> Operand {
        b.mul(self.member, Operand::i32(2))
    }

    /// The first of the columns of the warp's half of so many.
    pub(super) fn half_of(&self, b: &mut Builder, columns: u32) -> Operand {
        b.mul(self.half, Operand::i32((columns / 2) as i32))
    }

    /// An index along an axis, from one of 32 bits.
    pub(super) fn index_along(&self, b: &mut Builder, at: Operand, axis: Axis) -> Index {
        let at = b.convert(Ty::I64, at);
        let exists = b.lt(at, self.args.size(axis));
        Index { at, exists }
    }
}

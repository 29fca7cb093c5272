//! The third sweep by warpgroups: three multiply, each for gradients of its own, and one copies.
//!
//! | warpgroup | products of a head | keeps over heads |
//! |---|---|---|
//! | queries | Sᵀ·cotangent, ⟨S, D⟩ | query' |
//! | keys | Dᵀ·value, D·key, weights·cotangent; stores value' | key' |
//! | pairs | M; writes the weights of G | E |
//! | copies | none: tiles, decays and gains, outputs over time | |
//!
//! A ring of heads lies between them: the fourth warpgroup fills a stage when the others have left it, and no role waits for another
//! at the same head, except for the weights of pairs, which go from one to another through shared memory. Of the fourth, two warps copy
//! tiles, one evaluates decays and gains, and one adds the partial sums of a head and stores its outputs over time, for which it
//! waits until the others have written them. When all heads are done, the sums of E go
//! through shared memory to both warpgroups whose sums they complete.

mod copies;
mod energy;
mod keys;
mod pairs;
mod parts;
mod queries;
mod range;
mod values;

use super::parameters::{GROUP, ROLES};
use super::rates::Decays;
use super::tiles::Tiles;
use super::walk::Chunk;
use super::{ChunkwiseBackward, GradientSweep, TIMES, unit};
use crate::block::args::Args;
use crate::block::fragment::COLUMNS;
use crate::block::pair::Values;
use crate::block::ring::RingStage;
use crate::block::thread::{FragmentPlace, Thread};
use crate::build::{Builder, zero};
use crate::schedules::Unit;
use crate::schedules::chunkwise::COPIERS;
use crate::stage::Stage;
use crate::stage::kind::{Cotangent, MatrixRecurrenceBackward};
use crate::target::{Isa, REGISTERS, WARP};
use crate::tile::{Operand, Reg, SharedId, SharedKind, Stmt};
use oplus_dsl::ir::Binary;
use oplus_dsl::{Elem, Ty};
use parts::PanelRing;
use range::HalfRange;
use std::ops::Deref;

/// Registers of each thread of a role.
struct Registers {
    queries: u32,
    keys: u32,
    pairs: u32,
    copies: u32,
}

impl Registers {
    /// As many as there are: the sums of query' and of key' take half as many where the depth is half as long.
    fn of(depth: u32) -> Registers {
        match depth {
            0..=64 => Registers { queries: 128, keys: 160, pairs: 168, copies: 56 },
            _ => Registers { queries: 136, keys: 168, pairs: 152, copies: 56 },
        }
    }
}

/// Registers of each thread at a block's start.
const AT_START: u32 = REGISTERS / ((ROLES + 1) * GROUP);

/// The number of the barrier of the warpgroup of pairs.
const PAIRS: u32 = 1;

/// Whether warpgroups can take the third sweep of a stage.
pub(super) fn can_take(stage: &Stage, form: &MatrixRecurrenceBackward, vector: u32, isa: Isa) -> bool {
    unit(&form.states, form.elem(stage), isa, COPIERS) == Unit::Warpgroup && vector > 1
}

/// The third sweep by warpgroups.
#[derive(Clone)]
pub(super) struct WarpgroupSweep<'s> {
    sweep: GradientSweep<'s>,
    /// G, transposed, in elements of each thread's own.
    scores: SharedId,
    /// The mbarriers that say that keys and queries are there; and of each stage that its tiles and rates are there, that all have left
    /// it, and that its partial sums are complete.
    begun: SharedId,
    full: SharedId,
    free: SharedId,
    summed: SharedId,
    /// The mbarriers that say that the weights of a head are there, and that they have been read.
    weights_full: SharedId,
    weights_free: SharedId,
    /// The mbarrier that says that E, summed over heads, is in their place.
    pairs_summed: SharedId,
    /// Of f16, the numbers by which factors keep its range.
    range: Option<HalfRange>,
    /// Of f32, whose factors are in two [`parts`], the ring of panels of S and D.
    panel_ring: Option<PanelRing>,
}

impl<'s> Deref for WarpgroupSweep<'s> {
    type Target = GradientSweep<'s>;

    fn deref(&self) -> &GradientSweep<'s> {
        &self.sweep
    }
}

impl<'s> WarpgroupSweep<'s> {
    pub(super) fn declare(
        b: &mut Builder,
        stage: &'s Stage,
        form: &'s MatrixRecurrenceBackward,
        schedule: &'s ChunkwiseBackward,
        args: Args,
    ) -> Self {
        let tiles = Tiles::declare(b, stage, form, schedule);
        let scores = b.shared("scores", SharedKind::Elem(Elem::F32), TIMES * TIMES);
        let mut sweep = GradientSweep::declare(b, stage, form, schedule, args, tiles, None);
        let [begun, weights_full, weights_free, pairs_summed] =
            ["begun", "weights_full", "weights_free", "pairs_summed"]
                .map(|name| b.shared(name, SharedKind::Mbarrier, 1));
        let [full, free, summed] =
            ["full", "free", "summed"].map(|name| b.shared(name, SharedKind::Mbarrier, schedule.heads()));
        for (tiles, own) in
            [([&mut sweep.keys, &mut sweep.queries], begun), ([&mut sweep.values, &mut sweep.cotangents], full)]
        {
            tiles.into_iter().for_each(|tile| tile.full = own);
        }
        let panel_ring = schedule.are_split(stage, form).then(|| PanelRing::declare(b, schedule.heads()));
        let range = (form.elem(stage) == Elem::F16).then(|| HalfRange::declare(b, schedule.heads()));
        WarpgroupSweep {
            sweep,
            scores,
            begun,
            full,
            free,
            summed,
            weights_full,
            weights_free,
            pairs_summed,
            range,
            panel_ring,
        }
    }

    /// The kernel's code.
    pub(super) fn body(&self, b: &mut Builder) {
        self.start(b);
        let multiplies = b.lt(self.thread.warp, ROLES * GROUP / WARP);
        b.if_else(
            multiplies,
            |b| self.multiply_role(b),
            |b| {
                limit(b, self.registers().copies);
                match self.panel_ring {
                    Some(_) => self.copy_role_of_parts(b),
                    None => self.copy_role(b),
                }
            },
        );
    }

    /// Initialises the mbarriers and the rematerialised numbers, by one thread.
    fn start(&self, b: &mut Builder) {
        let multiplying = ROLES * GROUP;
        let storing = if self.has_steps() { WARP } else { 0 };
        let first = b.eq(self.thread.number, 0);
        b.if_(first, |b| {
            let numbers = self.shared_constants(b);
            self.rematerialiser.store(b, &numbers);
            match self.panel_ring {
                Some(ring) => {
                    b.init_mbarriers(self.begun, 1, 2 * GROUP);
                    b.init_mbarriers(self.full, self.schedule.heads(), GROUP);
                    ring.init(b, multiplying);
                }
                None => {
                    b.init_mbarriers(self.begun, 1, self.schedule.copying());
                    // Besides those that copy, the warp that writes rates arrives, and one of its threads announces states.
                    b.init_mbarriers(self.full, self.schedule.heads(), self.schedule.copying() + WARP + 1);
                }
            }
            b.init_mbarriers(self.free, self.schedule.heads(), multiplying + storing);
            b.init_mbarriers(self.summed, self.schedule.heads(), multiplying);
            if let Some(range) = self.range {
                range.init(b);
            }
            for array in [self.weights_full, self.weights_free, self.pairs_summed] {
                b.init_mbarriers(array, 1, GROUP);
            }
            b.push(Stmt::FenceInit);
        });
        b.barrier();
    }

    /// Whether there are outputs over time.
    fn has_steps(&self) -> bool {
        self.form.outputs.iter().any(|kind| kind.is_over_time())
    }

    /// The kernel as warpgroup number `group` sees it, whose four warps have 16 times each.
    fn of_group(&self, b: &mut Builder, group: u32) -> Self {
        let Thread { number, warp, lane } = self.thread;
        let (number, warp) = (b.sub(number, group * GROUP), b.sub(warp, group * (GROUP / WARP)));
        let thread = Thread { number, warp, lane };
        let (half, fragment) = (Operand::i32(0), FragmentPlace::of(b, lane));
        let sweep = GradientSweep { thread, block: warp, half, fragment, ..self.sweep.clone() };
        WarpgroupSweep { sweep, ..self.clone() }
    }

    /// The kernel at the head of a stage. Coordinates of the thread are rematerialised: addresses that are constant from head to head
    /// would take more registers than there are.
    fn at_stage(&self, b: &mut Builder, stage: Operand) -> Self {
        let thread = self.thread.rematerialised(b, self.rematerialiser);
        let fragment = FragmentPlace::of(b, thread.lane);
        let args = self.args_of_sequence(b);
        let sweep = GradientSweep { args, thread, block: thread.warp, fragment, set: stage, ..self.sweep.clone() };
        WarpgroupSweep { sweep, ..self.clone() }
    }

    /// Multiplies, in one of the three roles.
    fn multiply_role(&self, b: &mut Builder) {
        let Registers { queries, keys, pairs, .. } = self.registers();
        let group = b.binary(Binary::Div, self.thread.number, GROUP);
        let is_first = b.eq(group, 0);
        b.if_else(
            is_first,
            |b| self.role(b, 0, queries).queries_role(b),
            |b| {
                let is_second = b.eq(group, 1);
                b.if_else(is_second, |b| self.role(b, 1, keys).keys_role(b), |b| self.role(b, 2, pairs).pairs_role(b));
            },
        );
    }

    /// Registers of each thread of a role.
    fn registers(&self) -> Registers {
        match self.panel_ring {
            Some(_) => Registers::of_parts(self.schedule),
            None => Registers::of(self.schedule.depth),
        }
    }

    /// Begins the role of a warpgroup, whose threads have so many registers.
    fn role(&self, b: &mut Builder, group: u32, registers: u32) -> Self {
        limit(b, registers);
        if self.panel_ring.is_some() && registers == AT_START {
            // The assembler allocates registers by itself for what such a statement begins.
            b.push(Stmt::SetMaxRegisters { count: registers, more: false });
        }
        self.of_group(b, group)
    }

    /// Goes through the heads, each of which a role finds in shared memory and leaves when its own part is done.
    fn each_head(&self, b: &mut Builder, chunk: &Chunk, body: impl FnOnce(&Self, &mut Builder, &InFlight)) {
        b.wait(self.begun, RingStage::FIRST);
        b.for_(Operand::i32(0), chunk.heads, 1, |b, iteration| {
            let filled = self.ring().at(b, iteration);
            b.wait(self.full, filled);
            // Makes the copied tiles visible to warpgroups.
            b.push(Stmt::FenceAsync);
            let kernel = self.at_stage(b, filled.index);
            let decays = kernel.decays(b, iteration);
            body(&kernel, b, &InFlight { iteration, stage: filled.index, decays });
            if self.has_steps() {
                b.arrive(self.summed, filled.index);
            }
            b.arrive(self.free, filled.index);
        });
    }

    /// Registers for sums of a warp's 16 times and so many columns, at 0.
    fn sums(b: &mut Builder, columns: u32) -> Vec<[Reg; 4]> {
        (0..columns / COLUMNS).map(|_| [0; 4].map(|_| b.var(zero(Ty::F32)))).collect()
    }

    /// Waits until E, summed over heads, is in the place of weights.
    fn wait_pairs(&self, b: &mut Builder) {
        b.wait(self.pairs_summed, RingStage::FIRST);
    }

    /// Stores completed sums over heads.
    fn store_sums(&self, b: &mut Builder, chunk: &Chunk, kind: Cotangent, sums: &[[Reg; 4]]) {
        let (time, width) = (self.form.states.time, self.form.states.width);
        let values = Values::new(self.stage, &self.args, [time, width], chunk.shared.clone());
        self.store_depth(b, &values, chunk.first, kind, &crate::block::matmul::block_values(sums));
    }
}

/// Gives registers up, or takes those that others have given up.
fn limit(b: &mut Builder, count: u32) {
    if count != AT_START {
        b.push(Stmt::SetMaxRegisters { count, more: count > AT_START });
    }
}

/// The head that a role is at.
struct InFlight {
    iteration: Operand,
    stage: Operand,
    decays: Decays,
}

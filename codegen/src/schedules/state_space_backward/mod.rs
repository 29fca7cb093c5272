//! State space, backward: a scan along T rematerialised from saved states, a scan of cotangents against it, and the sums of both.
//!
//! Lanes, rows, states and tiles are as in the [state-space schedule](super::state_space). Time is walked against the
//! direction of the states, in sub-tiles of eight steps. Each starts from a saved state: a lane takes one of its states
//! eight steps on, then walks back at once, so that only that state's decays and products live in registers.
//!
//! ```text
//! ends   where time is cut: the elements that segments combine to ────▶ ends of segments
//! save   in the direction of the states: every eighth state ──────────▶ saved states
//! carry  where time is cut: what each segment does to its cotangent ──▶ carries of segments
//! walk   copy warps  fill                                    ─ full ─▶
//!        walk warps  per sub-tile and state: 8 steps on, 8 back; sums over states; outputs over the tile  ─ done ─▶
//!                    sums over the rows of the warp          ─ filled ─▶
//!        copy warps  sums over the warps of the block ───────────────▶ block sums, drain, fill again
//! sum    the sums of all blocks and the totals of all segments, in their order
//! ```
//!
//! Every sum has a fixed order: over the states of a lane, its lanes, the rows of a lane, a warp, a block, all blocks.

mod block_sums;
mod candidates;
mod chain;
mod copy;
mod cost;
mod finish;
mod lane;
mod masks;
mod parameters;
mod pieces;
mod registers;
mod row_sums;
mod save;
mod saved_states;
mod scratch;
mod segment_carries;
mod segments;
mod strategy;
mod subtile;
mod sum;
mod terms;
mod tiles;
mod walk;
mod zero;

pub use parameters::{Pass, StateSpaceBackward};
pub use registers::has_registers;
pub use scratch::{before, passes, scratch, sum_threads};

use super::state_space::frame::{Axes, Frame};
use super::state_space::layout::{LaneWalk, Layout, Layouts};
use super::state_space::tiles::{Tile, Values};
use super::state_space::{SUBTILE, StateSpaceKernel, TileAt, has_flags};
use super::{LowerError, Strategy};
use crate::block::args::Args;
use crate::block::carry::Monoid;
use crate::block::rematerialise::Rematerialiser;
use crate::build::Builder;
use crate::schedules::StateSpace;
use crate::stage::Stage;
use crate::stage::kind::BackwardScan;
use crate::target::WARP;
use crate::tile::{Kernel, Operand, SharedId, Special, Stmt};
use masks::Masks;
use oplus_dsl::Ty;
use row_sums::{HALF, RowSums};
use saved_states::NextStates;
use scratch::{SEGMENT_CARRIES, Scratch};
use tiles::Tiles;

/// Whether the walk of a stage that the schedule takes can be cut into segments of time.
pub fn can_segment(stage: &Stage) -> bool {
    stage.kind().walk_back().is_ok_and(BackwardScan::is_linear)
}

/// The tile kernel of a stage under one pass of the schedule.
pub fn lower(stage: &Stage, schedule: &StateSpaceBackward, symbol: &str) -> Result<Kernel, LowerError> {
    let refused = || LowerError::parameters(schedule);
    let form =
        stage.kind().walk_back().map_err(|refusal| LowerError::Kind { schedule: StateSpaceBackward::NAME, refusal })?;
    if !is_possible(schedule) || schedule.segmented && !form.is_linear() {
        return Err(refused());
    }
    let mut b = Builder::new(symbol, schedule.threads());
    b.blocks_per_sm(schedule.blocks);
    b.chain_addresses();
    if schedule.pass == Pass::Sum {
        sum::body(&mut b, stage, form, schedule);
        return Ok(b.finish());
    }
    let states = states_schedule(schedule);
    let stage = stage.rewritten(form.program.clone());
    let kernel = StateSpaceBackwardKernel::declare(&mut b, &stage, form, schedule, &states).ok_or_else(refused)?;
    kernel.body(&mut b);
    Ok(b.finish())
}

fn is_possible(schedule: &StateSpaceBackward) -> bool {
    let StateSpaceBackward { warps, copy_warps, states, rows, lanes, steps, stages, vector, .. } = *schedule;
    let powers = [lanes, steps, copy_warps, vector, states].iter().all(|n| n.is_power_of_two());
    let fours = warps.is_multiple_of(4) && copy_warps.is_multiple_of(4);
    let bounds = schedule.registers == 0 || fours && (24..=256).contains(&schedule.copy_registers());
    let teams = schedule.teams();
    let shared = teams <= copy_warps && stages.is_multiple_of(teams) && steps <= schedule.team_threads();
    let whole = steps >= 2 * SUBTILE && vector <= SUBTILE;
    powers
        && shared
        && whole
        && bounds
        && schedule.saved_ahead <= HALF
        && matches!(rows, 1 | 2)
        && rows <= lanes
        && lanes <= WARP
        && warps > 0
        && stages > 0
}

/// The shared memory of the kernel.
pub fn shared_bytes(stage: &Stage, schedule: &StateSpaceBackward) -> u32 {
    let (Ok(form), true) = (stage.kind().walk_back(), is_possible(schedule)) else { return 0 };
    Builder::shared_bytes_of(|b| {
        if schedule.pass != Pass::Sum {
            let stage = stage.rewritten(form.program.clone());
            StateSpaceBackwardKernel::declare(b, &stage, form, schedule, &states_schedule(schedule));
        }
    })
}

/// The numbers that this schedule shares with the forward one.
fn states_schedule(schedule: &StateSpaceBackward) -> StateSpace {
    let StateSpaceBackward { warps, copy_warps, states, lanes, padded, steps, stages, vector, blocks, .. } = *schedule;
    let (teams, unroll, save, segmented, ends) = (schedule.teams(), 1, false, schedule.segmented, false);
    StateSpace {
        warps,
        copy_warps,
        teams,
        states,
        lanes,
        padded,
        steps,
        stages,
        unroll,
        vector,
        blocks,
        save,
        segmented,
        ends,
    }
}

/// A stage with its arguments, tiles and sums, for the passes that walk time. Immutable while code is emitted.
struct StateSpaceBackwardKernel<'s> {
    base: StateSpaceKernel<'s>,
    schedule: &'s StateSpaceBackward,
    form: &'s BackwardScan,
    tiles: Tiles,
    masks: Masks,
    /// The array of each body output: a tile, or one of its own.
    outputs: Vec<SharedId>,
    row_sums: Option<RowSums>,
    scratch: Scratch,
    next_states: Option<NextStates>,
}

impl<'s> StateSpaceBackwardKernel<'s> {
    fn declare(
        b: &mut Builder,
        stage: &'s Stage,
        form: &'s BackwardScan,
        schedule: &'s StateSpaceBackward,
        states: &'s StateSpace,
    ) -> Option<Self> {
        let args = Args::declare(b, stage, schedule.abi(stage));
        let walks = schedule.pass == Pass::Walk;
        let (walked, finished) = match schedule.pass {
            Pass::Ends => (stage.scan()?.elements.to_vec(), vec![]),
            Pass::Save => (vec![form.after], vec![]),
            Pass::Carry => (vec![form.decay, form.gain], vec![]),
            Pass::Walk | Pass::Sum => (form.walked(), form.finished()),
        };
        let tiles = Tiles::of(form, &walked, &finished);
        let reverse = is_walked_back(form, schedule);
        let lane_walk = LaneWalk { rows: schedule.rows, reverse };
        let layouts = Layouts::of(stage, states, &tiles.tiles, schedule.block_rows(), &lane_walk);
        let array = |b: &mut Builder, name: String, ty: Ty, layout: Layout| {
            b.shared_values(name, ty, schedule.stages * layout.len())
        };
        let mut arrays = vec![];
        for (i, tile) in tiles.tiles.iter().enumerate() {
            let ty = stage.program.node(tile.value).ty;
            arrays.push(array(b, format!("tile_{i}"), ty, layouts.tile(tile)));
        }
        let mut free = (0..arrays.len()).filter(|i| {
            let tile = &tiles.tiles[*i];
            tile.rows && !tile.states && stage.program.node(tile.value).ty == Ty::F32
        });
        let bodies = if walks { form.bodies().collect() } else { vec![] };
        let mut outputs = vec![];
        for k in bodies {
            let own = |b: &mut Builder| array(b, format!("output_{k}"), Ty::F32, layouts.row_tile());
            outputs.push(free.next().map_or_else(|| own(b), |i| arrays[i]));
        }
        let row_sums = if walks { RowSums::declare(b, form, schedule) } else { None };
        let base =
            base(b, stage, form, schedule, states, Memories { args, tiles: tiles.tiles.clone(), arrays, layouts })?;
        let scratch = Scratch::find(b, &base, form, schedule);
        let next_states = (schedule.saved_ahead > 0).then(|| NextStates::declare(b, schedule));
        let masks = Masks::of(form, &tiles, schedule);
        Some(StateSpaceBackwardKernel { base, schedule, form, tiles, masks, outputs, row_sums, scratch, next_states })
    }

    fn body(&self, b: &mut Builder) {
        self.start(b);
        let walks = b.lt(self.base.frame.warp, self.schedule.warps);
        b.if_else(
            walks,
            |b| {
                self.registers(b, self.schedule.registers, true);
                match self.schedule.pass {
                    Pass::Ends => self.segment_carries_role(b),
                    Pass::Save => self.save_role(b),
                    Pass::Carry => self.carry_role(b),
                    _ => self.walk_role(b),
                }
            },
            |b| {
                self.registers(b, self.schedule.copy_registers(), false);
                self.copy_role(b);
            },
        );
    }

    fn registers(&self, b: &mut Builder, count: u32, more: bool) {
        if self.schedule.registers > 0 {
            b.push(Stmt::SetMaxRegisters { count, more });
        }
    }

    /// Initialises the mbarriers, by one thread.
    fn start(&self, b: &mut Builder) {
        let thread = b.special(Special::Thread);
        let first = b.eq(thread, 0);
        let filled = self.schedule.team_threads() * self.base.arrivals_per_thread();
        let rings = [(self.base.frame.full, filled), (self.base.frame.done, self.schedule.warps * WARP)];
        b.if_(first, |b| {
            rings.into_iter().for_each(|(array, arrivals)| b.init_mbarriers(array, self.schedule.stages, arrivals));
            if let Some(sums) = &self.row_sums {
                b.init_mbarriers(sums.filled, 2, self.schedule.warps * WARP);
                b.init_mbarriers(sums.taken, 2, self.schedule.copy_warps * WARP);
            }
            if let Some(next) = self.next_states {
                next.init(b, self.schedule);
            }
            self.base.store_bounds(b);
            b.push(Stmt::FenceInit);
        });
        b.barrier();
    }

    /// Goes through the tiles of the block's segment, with their numbers there: waits for each, and reports when it has been walked.
    fn each_tile(&self, b: &mut Builder, mut walk: impl FnMut(&mut Builder, &TileAt, Operand)) {
        self.base.each_tile(b, |b, stage, number| {
            let tile = TileAt { stage, time: self.base.time_again(b, number) };
            walk(b, &tile, number);
        });
    }

    /// The numbers below n, in the direction of the states.
    fn in_order(&self, n: u32) -> Vec<u32> {
        if self.form.reverse { (0..n).rev().collect() } else { (0..n).collect() }
    }
}

/// Whether a pass goes through time backwards.
fn is_walked_back(form: &BackwardScan, schedule: &StateSpaceBackward) -> bool {
    form.reverse == matches!(schedule.pass, Pass::Ends | Pass::Save)
}

/// The tensors of a kernel, its tiles and their arrays.
struct Memories {
    args: Args,
    tiles: Vec<Tile>,
    arrays: Vec<SharedId>,
    layouts: Layouts,
}

/// The part of the kernel that the forward schedule shares: tensors, tiles of time, rows of the block.
fn base<'s>(
    b: &mut Builder,
    stage: &'s Stage,
    form: &'s BackwardScan,
    schedule: &StateSpaceBackward,
    states: &'s StateSpace,
    Memories { args, tiles, arrays, layouts }: Memories,
) -> Option<StateSpaceKernel<'s>> {
    let mut scan = stage.scan()?;
    scan.reverse = is_walked_back(form, schedule);
    let operator = stage.program.operator(scan.operator);
    let used = |k: usize| schedule.pass == Pass::Ends || k == form.field as usize;
    let monoid = Monoid::new(operator, &(0..operator.fields.len()).map(used).collect::<Vec<_>>());
    let axes = Axes { time: scan.axis, state: form.state, row: form.row };
    let block_rows = schedule.block_rows();
    // Carries back would spill with indices of 32 bits, as `ptxas` orders their loads otherwise.
    let narrow = schedule.pass != Pass::Carry;
    let frame = Frame::declare(b, &args, stage, axes, states, block_rows, narrow);
    let segment_carries = args.scratch.get(SEGMENT_CARRIES).copied();
    let is_scarce = schedule.pass == Pass::Save && schedule.segmented && has_flags(stage);
    let bounds = is_scarce.then(|| Rematerialiser::declare(b, 2));
    let values = Values { row: form.row, state: form.state, tiles, constants: vec![], sums: vec![], over: vec![] };
    Some(StateSpaceKernel {
        stage,
        scan,
        schedule: states,
        block_rows,
        layouts,
        monoid,
        args,
        values,
        tiles: arrays,
        sums: vec![],
        frame,
        segment_carries,
        bounds,
    })
}

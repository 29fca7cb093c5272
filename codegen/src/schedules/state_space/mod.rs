//! State space: a scan along T whose states are summed away over N, in one kernel.
//!
//! There is no scan across lanes. A lane holds K neighbouring states of one row, walks time step by step and sums over its
//! states; S lanes share a row and finish the sum by shuffles. A block has `32·warps/S` rows and goes from one end of time
//! to the other, tile after tile:
//!
//! ```text
//! copy warps   fill: tiles of inputs to shared memory, f32, time contiguous     ─ full ─▶
//! walk warps   chunks of 4 steps: load, update K states, sum over N, store sums ─ done ─▶
//! copy warps   drain: outputs as maps of the sums, converted, coalesced; then fill the stage again
//! ```
//!
//! A tile's rows are padded by 4 elements, or by 8 where rows of `f32` are copied as they are (`layout.rs`), so that 16-byte accesses of
//! neighbouring rows meet different banks. State n is row (n mod K)·S + n / K, so that the S lanes of a row read neighbouring rows. Bit 0 of
//! a lane's number names its row, and the next bits its states: the loads of lanes that read the same 16 bytes are then merged in pairs.
//!
//! Where rows are few, time is cut into segments with blocks of their own (`segments.rs`).
//!
//! Rows, states and steps that do not exist are zeros in the tiles and are not written; where they could change a final
//! state or a sum they are left out.

pub(crate) mod anchors;
mod candidates;
pub(crate) mod copy;
mod cost;
mod drain;
pub(crate) mod frame;
pub(crate) mod global;
pub(crate) mod lane;
pub(crate) mod layout;
pub(crate) mod output_constants;
mod parameters;
pub(crate) mod pieces;
pub(crate) mod saved;
pub(crate) mod segments;
mod sources;
mod strategy;
pub(crate) mod tiles;
mod walk;
mod walked_tiles;
mod work;

pub use parameters::StateSpace;
pub use saved::saved_len;
pub use segments::{can_segment, ends_len, with_ends};
pub(crate) use strategy::States;
pub use work::{Work, work};

use super::{LowerError, Strategy};
use crate::block::args::Args;
use crate::block::carry::Monoid;
use crate::block::reads::used_fields;
use crate::block::rematerialise::Rematerialiser;
use crate::block::ring::Ring;
use crate::build::{Builder, zero};
use crate::stage::{Scan, Stage};
use crate::target::WARP;
use crate::tile::{Kernel, Mbarrier, Memory, Operand, ParamId, SharedId, Special, Stmt};
use frame::{Axes, Frame};
use layout::{LaneWalk, Layout, Layouts};
use oplus_dsl::{Elem, Ty};
use tiles::Values;

/// Steps of a sub-tile: before every so many steps a state is saved.
pub const SUBTILE: u32 = 8;

/// Steps of a chunk: 16 bytes.
pub const CHUNK: u32 = 4;

/// The tile kernel of a stage under a state-space schedule.
pub fn lower(stage: &Stage, schedule: &StateSpace, symbol: &str) -> Result<Kernel, LowerError> {
    let parameters = LowerError::parameters(schedule);
    let stage = hoisted(stage)?;
    if !is_possible(schedule) || schedule.segmented && !can_segment(&stage) {
        return Err(parameters);
    }
    let mut b = Builder::new(symbol, schedule.threads());
    b.blocks_per_sm(schedule.blocks);
    b.chain_addresses();
    let kernel = StateSpaceKernel::declare(&mut b, &stage, schedule).ok_or(parameters.clone())?;
    if schedule.save && kernel.monoid.state_types() != [Ty::F32] {
        return Err(parameters);
    }
    kernel.body(&mut b);
    Ok(b.finish())
}

fn is_possible(schedule: &StateSpace) -> bool {
    let StateSpace { warps, copy_warps, teams, states, lanes, steps, stages, unroll, vector, .. } = *schedule;
    let powers = [lanes, steps, copy_warps, teams, vector].iter().all(|n| n.is_power_of_two());
    let shared = powers && teams <= copy_warps && stages.is_multiple_of(teams) && steps <= schedule.team_threads();
    let iterations = steps.is_multiple_of(CHUNK * unroll.max(1)) && ![warps, states, stages, unroll].contains(&0);
    let kernel = schedule.segmented && !schedule.save || !schedule.ends;
    kernel && shared && iterations && lanes <= WARP && vector <= 8
}

/// Whether the states of a stage can be saved: they are one `f32` each.
pub fn can_save(stage: &Stage) -> bool {
    let Some(scan) = stage.scan() else { return false };
    let monoid = Monoid::new(stage.program.operator(scan.operator), &used_fields(stage, &scan));
    stage.kind().walk().is_ok() && monoid.state_types() == [Ty::F32]
}

/// Whether flags of steps are read: packed sequences have them.
pub(crate) fn has_flags(stage: &Stage) -> bool {
    stage.program.params.iter().any(|param| param.elem == Elem::Bool)
}

/// The shared memory of the kernel.
pub fn shared_bytes(stage: &Stage, schedule: &StateSpace) -> u32 {
    let Ok(stage) = hoisted(stage) else { return 0 };
    Builder::shared_bytes_of(|b| drop(StateSpaceKernel::declare(b, &stage, schedule)))
}

/// The stage with work taken out of the inner loop.
fn hoisted(stage: &Stage) -> Result<Stage, LowerError> {
    let walk = stage.kind().walk().map_err(|refusal| LowerError::Kind { schedule: StateSpace::NAME, refusal })?;
    Ok(stage.rewritten(walk.program.clone()))
}

/// A stage with its arguments, tiles and thread coordinates. Immutable while code is emitted.
pub(crate) struct StateSpaceKernel<'s> {
    pub(crate) stage: &'s Stage,
    pub(crate) scan: Scan<'s>,
    pub(crate) schedule: &'s StateSpace,
    /// Rows of a block.
    pub(crate) block_rows: u32,
    pub(crate) layouts: Layouts,
    pub(crate) monoid: Monoid<'s>,
    pub(crate) args: Args,
    pub(crate) values: Values,
    /// The array of each tile value, and of each sum.
    pub(crate) tiles: Vec<SharedId>,
    pub(crate) sums: Vec<SharedId>,
    pub(crate) frame: Frame,
    /// The elements that segments combine to.
    pub(crate) segment_carries: Option<ParamId>,
    /// The first tile of the block's segment and how many there are, in shared memory, where registers are scarce.
    pub(crate) bounds: Option<Rematerialiser>,
}

/// A tile of time.
#[derive(Clone, Copy)]
pub(crate) struct Time {
    /// Its first step, `i64`.
    pub(crate) first: Operand,
    /// Its steps, `i32`.
    pub(crate) steps: Operand,
    /// Whether all steps of the tile and all rows of the block are known to exist.
    pub(crate) is_whole: bool,
}

/// A tile of time in a stage of the ring.
pub(crate) struct TileAt {
    pub(crate) stage: Operand,
    pub(crate) time: Time,
}

impl<'s> StateSpaceKernel<'s> {
    fn declare(b: &mut Builder, stage: &'s Stage, schedule: &'s StateSpace) -> Option<Self> {
        let (scan, state) = (stage.scan()?, stage.state_axis()?);
        let args = Args::declare(b, stage, schedule.abi(stage));
        let operator = stage.program.operator(scan.operator);
        let used = if schedule.ends { vec![true; operator.fields.len()] } else { used_fields(stage, &scan) };
        let monoid = Monoid::new(operator, &used);
        let of = if schedule.ends { Values::of_scan } else { Values::of };
        let values = of(stage, &scan, state);
        let block_rows = schedule.rows();
        let layouts =
            Layouts::of(stage, schedule, &values.tiles, block_rows, &LaneWalk { rows: 1, reverse: scan.reverse });
        let array = |b: &mut Builder, name: String, ty: Ty, layout: Layout| {
            b.shared_values(name, ty, schedule.stages * layout.len())
        };
        let mut tiles = vec![];
        for (i, tile) in values.tiles.iter().enumerate() {
            let ty = stage.program.node(tile.value).ty;
            tiles.push(array(b, format!("tile_{i}"), ty, layouts.tile(tile)));
        }
        let own = |b: &mut Builder, i: usize| array(b, format!("sum_{i}"), Ty::F32, layouts.row_tile());
        let sums =
            (0..values.sums.len()).map(|i| values.over[i].map_or_else(|| own(b, i), |tile| tiles[tile])).collect();
        let axes = Axes { time: scan.axis, state, row: values.row };
        let frame = Frame::declare(b, &args, stage, axes, schedule, block_rows, true);
        let segment_carries = args.scratch.get(usize::from(schedule.save)).copied();
        Some(StateSpaceKernel {
            stage,
            scan,
            schedule,
            block_rows,
            layouts,
            monoid,
            args,
            values,
            tiles,
            sums,
            frame,
            segment_carries,
            bounds: None,
        })
    }

    fn body(&self, b: &mut Builder) {
        self.start(b);
        let walks = b.lt(self.frame.warp, self.schedule.warps);
        b.if_else(walks, |b| self.walk_role(b), |b| self.copy_role(b));
    }

    /// Initialises the mbarriers, by one thread, and clears the columns that the walk reads ahead of a tile's end.
    fn start(&self, b: &mut Builder) {
        let thread = b.special(Special::Thread);
        let first = b.eq(thread, 0);
        let arrivals = self.schedule.team_threads() * self.arrivals_per_thread();
        b.if_(first, |b| {
            for i in 0..self.schedule.stages {
                let index = Operand::i32(i as i32);
                b.push(Stmt::MbarrierInit(Mbarrier { array: self.frame.full, index }, arrivals));
                b.push(Stmt::MbarrierInit(Mbarrier { array: self.frame.done, index }, self.schedule.warps * WARP));
            }
            b.push(Stmt::FenceInit);
        });
        for (tile, array) in self.values.tiles.iter().zip(&self.tiles).filter(|(tile, _)| !tile.states) {
            let layout = self.layouts.tile(tile);
            let column = if self.scan.reverse { layout.lead - CHUNK } else { self.schedule.steps };
            let rows = Operand::i32((layout.height * self.schedule.stages) as i32);
            b.for_(thread, rows, self.schedule.threads(), |b, row| {
                let at = b.mul(row, layout.pitch as i32);
                let at = b.add(at, column);
                let nothing = zero(b.elem(Memory::Shared(*array)).value());
                b.store(Memory::Shared(*array), at, &[nothing; CHUNK as usize], None);
            });
        }
        b.barrier();
    }

    /// Whether steps that do not exist must leave the states as they are, because states are read after them.
    fn is_exact(&self) -> bool {
        self.scan.reverse || self.stage.has_finals() && !self.schedule.ends
    }

    /// Emits the statements for a tile: for one of which all rows and steps exist, and for any other.
    pub(crate) fn for_tile(&self, b: &mut Builder, time: Time, body: impl Fn(&mut Builder, &Time)) {
        if self.values.row.is_none() {
            return body(b, &time);
        }
        let whole = Time { is_whole: true, ..time };
        let rows = b.eq(self.frame.block.rows, self.block_rows as i32);
        let steps = b.eq(time.steps, self.schedule.steps as i32);
        let is_whole = b.and(rows, steps);
        b.if_else(is_whole, |b| body(b, &whole), |b| body(b, &time));
    }

    /// Whether one of the lane's states exists, from its first one on.
    pub(crate) fn state_exists(&self, b: &mut Builder, first: Operand, k: u32) -> Operand {
        let own = b.add(first, k);
        if self.schedule.padded { b.lt(own, self.frame.state_count) } else { Operand::bool(true) }
    }

    pub(crate) fn ring(&self) -> Ring {
        let stages = self.schedule.stages;
        if stages.is_power_of_two() { Ring::of_power(stages) } else { Ring::of(stages) }
    }

    /// The element of column `column` of a row of a tile in a stage, from the first.
    pub(crate) fn element(
        &self,
        b: &mut Builder,
        layout: Layout,
        stage: Operand,
        row: Operand,
        column: Operand,
    ) -> Operand {
        let before = b.mul(stage, layout.len() as i32);
        let above = b.mul(row, layout.pitch as i32);
        let at = b.add(before, above);
        let at = b.add(at, layout.lead as i32);
        b.add(at, column)
    }
}

//! The schedules that a stage may run under: a small set that covers every size, stride and alignment.
//!
//! A kernel's schedules have numbers chosen from its element types, its fields and how many tensors it reads; the
//! planner only picks among them. Per stage there are vector schedules for contiguous, aligned tensors, and scalar ones
//! that run anything. Vector schedules are for the stage with merged axes (where there are such), scalar ones for both.

use crate::stage::collapse;
use super::cost::bytes_per_point;
use super::registers::{Pressure, register_limit, smaller};
use super::{chunkwise, chunkwise_backward, flash, state_space, state_space_backward};
use crate::abi::{Tensor, axes, elem, tensors};
use crate::block::carry::words;
use crate::block::pressure::{temporaries, words_per_element};
use crate::schedule::{Columns, Fold, Form, Loader, LookBack, Map, Rows, Schedule, WARP};
use crate::schedules::chunkwise::with_ends;
use crate::schedules::chunkwise_backward::sweeps;
use crate::schedules::state_space::with_ends as with_ends_of_states;
use crate::schedules::state_space_backward::passes;
use crate::stage::Stage;
use crate::target::Isa;
use oplus_dsl::Elem;
use oplus_dsl::ir::Axis;
use std::collections::BTreeSet;

/// Bytes of shared memory that a persistent block's ring may take: all but what the messages need, or what every
/// device of the instruction set has.
fn ring_bytes(isa: Isa) -> u32 {
    match isa {
        Isa::Sm80 => 88 << 10,
        Isa::Sm90a => 200 << 10,
    }
}

/// Registers of a thread for rows in flight, if it takes all that there are.
const DEEP: u32 = 84;

/// Every stage and schedule that a plan of this stage may use on an instruction set.
pub fn variants(stage: &Stage, isa: Isa) -> Vec<(Stage, Schedule)> {
    let with = |stage: &Stage, schedules: Vec<Schedule>| {
        let launched: BTreeSet<String> = BTreeSet::new();
        let all = schedules.into_iter().flat_map(|s| kernels(stage, &s, isa));
        all.scan(launched, |seen, s| Some(seen.insert(s.to_string()).then_some(s)))
            .flatten()
            .map(|s| (stage.clone(), s))
            .collect::<Vec<_>>()
    };
    match collapse(stage) {
        None => with(stage, all_schedules(stage, isa)),
        Some(merged) => {
            let mut all = with(&merged.stage, all_schedules(&merged.stage, isa));
            all.extend(with(stage, scalar_schedules(stage, isa)));
            all
        }
    }
}

/// The kernels that a stage is run by under a schedule, in order: one, but for stages with two scans, and those of which only ends are found first.
pub(super) fn kernels(stage: &Stage, schedule: &Schedule, isa: Isa) -> Vec<Schedule> {
    match schedule {
        Schedule::StateSpace(s) => with_ends_of_states(s).into_iter().map(Schedule::StateSpace).collect(),
        Schedule::StateSpaceBackward(s) => passes(stage, s).into_iter().map(Schedule::StateSpaceBackward).collect(),
        Schedule::Chunkwise(s) => with_ends(stage, s).into_iter().map(Schedule::Chunkwise).collect(),
        Schedule::ChunkwiseBackward(s) => sweeps(stage, s, isa).into_iter().map(Schedule::ChunkwiseBackward).collect(),
        _ => vec![*schedule],
    }
}

/// The schedules of a stage in its simplest form.
pub(super) fn all_schedules(stage: &Stage, isa: Isa) -> Vec<Schedule> {
    if stage.is_paired() {
        return flash::schedules(stage, isa);
    }
    let mut all = vector_schedules(stage, isa);
    all.extend(scalar_schedules(stage, isa));
    all
}

/// The schedules that assume nothing of strides and addresses.
pub(super) fn scalar_schedules(stage: &Stage, isa: Isa) -> Vec<Schedule> {
    if stage.is_paired() {
        return flash::schedules(stage, Isa::Sm80);
    }
    if stage.two_way().is_some() {
        let walked = stage.kind().walk_back().map_or_else(|_| vec![], |_| state_space_backward::scalar_schedules());
        return [walked, chunkwise_backward::schedules(stage, isa)].concat();
    }
    if stage.part_axis.is_some() {
        let lane = lane_axis(stage).filter(|_| stage.kind().parted().is_ok());
        return lane.map(|lane| Schedule::Columns(Shape::of(stage).walk(lane, 1))).into_iter().collect();
    }
    if stage.state_axis().is_some() {
        let walked = stage.kind().walk().map_or_else(|_| vec![], |_| state_space::scalar_schedules(stage));
        return [walked, chunkwise::schedules(stage, isa)].concat();
    }
    if stage.axis().is_none() {
        return vec![Schedule::Map(map(stage, 1))];
    }
    let shape = Shape::of(stage);
    let mut all = vec![Schedule::Rows(shape.short_rows(1)), Schedule::Rows(shape.long_rows(1))];
    all.push(Schedule::LookBack(shape.look_back_registers(1)));
    all.extend(lane_axis(stage).map(|lane| Schedule::Columns(shape.walk(lane, 1))));
    if is_strided(stage) && shape.has_rings() {
        all.extend(lane_axis(stage).map(|lane| Schedule::Columns(shape.ring(lane, 8, 1, Isa::Sm80))));
    }
    all
}

/// The schedules that combine one element after the other, from one end to the other, and assume nothing of strides and
/// addresses; all of them give the same bits.
pub(super) fn ordered_schedules(stage: &Stage) -> Vec<Schedule> {
    if stage.axis().is_none() {
        return vec![Schedule::Map(map(stage, 1))];
    }
    let walk = |lane| Schedule::Columns(Columns { steps: 1, ..Shape::of(stage).walk(lane, 1) });
    let alone = Rows { warps: 4, row_warps: 1, lanes: 1, rows: 1, vector: 1, vectors: 1 };
    lane_axis(stage).map(walk).into_iter().chain([Schedule::Rows(alone)]).collect()
}

/// A stage and schedule that any call may take, whatever its sizes, strides and addresses, on every device; `None` where
/// there is none, as for sums that are kept with what they sum.
pub fn general_variant(stage: &Stage) -> Option<(Stage, Schedule)> {
    let is_fused = stage.is_paired() || stage.two_way().is_some() || stage.state_axis().is_some();
    let schedule = match stage.axis() {
        None => Schedule::Map(map(stage, 1)),
        Some(_) => Schedule::Rows(Shape::of(stage).short_rows(1)),
    };
    (!is_fused && stage.part_axis.is_none()).then(|| (stage.clone(), schedule))
}

/// Every stage and schedule that an ordered plan of this stage may use.
pub fn ordered_variants(stage: &Stage) -> Vec<(Stage, Schedule)> {
    ordered_schedules(stage).into_iter().map(|schedule| (stage.clone(), schedule)).collect()
}

fn vector_schedules(stage: &Stage, isa: Isa) -> Vec<Schedule> {
    let Some(axis) = stage.axis() else {
        let lane = Axis(map(stage, 1).lane);
        return vector(stage, lane).map(|v| Schedule::Map(map(stage, v))).into_iter().collect();
    };
    if stage.two_way().is_some() {
        let access = vector(stage, axis).filter(|_| stage.kind().walk_back().is_ok());
        return access.map(|v| state_space_backward::vector_schedules(stage, v, isa)).unwrap_or_default();
    }
    if stage.state_axis().is_some() {
        let access = vector(stage, axis).filter(|_| stage.kind().walk().is_ok());
        return access.map(|v| state_space::vector_schedules(stage, v)).unwrap_or_default();
    }
    let shape = Shape::of(stage);
    if stage.part_axis.is_some() {
        let lane = lane_axis(stage).filter(|_| stage.kind().parted().is_ok());
        let vector = |lane| Some((lane, vector(stage, lane)?.min(4)));
        let all = |(lane, v)| {
            let some = [Some(shape.walk(lane, v)), Some(shape.narrow_walk(lane, v)), shape.deep_walk(stage, lane, v)];
            some.into_iter().flatten().map(Schedule::Columns)
        };
        return lane.and_then(vector).map(all).into_iter().flatten().collect();
    }
    match lane_axis(stage).filter(|_| is_strided(stage)) {
        None => vector(stage, axis).map(|v| shape.along(v, isa)).unwrap_or_default(),
        Some(lane) => {
            // The scan axis is contiguous, too, where the lane axis has size 1.
            let along = vector(stage, axis).map(|v| shape.alone(v, isa));
            vector(stage, lane).map(|v| shape.across(stage, lane, v, isa)).into_iter().flatten().chain(along).collect()
        }
    }
}

/// Whether an outer axis, not the scan axis, is the last one, and so the one that is contiguous.
fn is_strided(stage: &Stage) -> bool {
    lane_axis(stage).is_some_and(|lane| Some(lane) > stage.axis())
}

/// The last outer axis.
fn lane_axis(stage: &Stage) -> Option<Axis> {
    stage.outer_axes().iter().last()
}

/// Elements per access along an axis: 16 bytes of the elements that make up most of the bytes; `None` for one.
fn vector(stage: &Stage, axis: Axis) -> Option<u32> {
    let along = |t: &Tensor| axes(stage, *t).contains(&axis);
    let sizes: Vec<usize> = tensors(stage).filter(along).filter_map(|t| elem(stage, t).bytes()).collect();
    let weight = |size: usize| size * sizes.iter().filter(|s| **s == size).count();
    let size = sizes.iter().copied().max_by_key(|s| (weight(*s), *s))?;
    Some((16 / size as u32).clamp(1, 8)).filter(|v| *v > 1)
}

fn map(stage: &Stage, vector: u32) -> Map {
    let lane = stage.outer_axes().iter().last().map_or(0, |a| a.0);
    let params = stage.program.params.len().max(1) as u32;
    let vectors = if vector == 1 { 4 } else { (8 / params).clamp(1, 4) };
    Map { lane, warps: 8, vector, vectors }
}

/// Registers that a row of time of one column takes in a thread, and those that all its columns share.
fn words_of_lanes(stage: &Stage, lane: Axis) -> (u32, u32) {
    let params = (0..stage.program.params.len() as u32).map(Tensor::Param);
    let timed = params.filter(|t| stage.axis().is_some_and(|time| axes(stage, *t).contains(&time)));
    let words = |t: &Tensor| words(&[elem(stage, *t).value()]);
    let (own, shared): (Vec<_>, Vec<_>) = timed.partition(|t| axes(stage, *t).contains(&lane));
    (own.iter().map(words).sum(), shared.iter().map(words).sum())
}

/// What the numbers of a scan's schedules depend on.
struct Shape {
    /// Registers per element.
    words: u32,
    /// Bytes read per point.
    read: u32,
    /// Registers of intermediate values.
    temporaries: u32,
    /// Whether it computes in f64: every value then takes two registers, and functions take many.
    wide: bool,
    /// What its registers depend on under schedules by look-back.
    pressure: Pressure,
}

impl Shape {
    fn of(stage: &Stage) -> Shape {
        let (words, read) = (words_per_element(stage), bytes_per_point(stage, true).max(1));
        let wide = stage.program.params.iter().any(|p| p.elem == Elem::F64);
        let temporaries = temporaries(stage);
        Shape { words, read, temporaries, wide, pressure: Pressure::of(stage, words, temporaries) }
    }

    /// Elements per thread that take about this many registers.
    fn items(&self, registers: u32) -> u32 {
        let share = match self.wide {
            true if self.temporaries > 0 => 4,
            true if self.words > 6 => 2,
            _ => 1,
        };
        let items = (registers / share / self.words).max(1);
        1 << items.ilog2()
    }

    /// Whether a ring's tile of columns fits registers: not while functions of f64 are computed.
    fn has_rings(&self) -> bool {
        !self.wide || self.temporaries == 0
    }

    /// Messages that a lane polls together: each takes two registers per register of a state.
    fn window(&self, most: u32) -> u32 {
        if self.wide { most.min((16 / self.words).max(1)) } else { most }
    }

    /// Schedules for a contiguous scan axis.
    fn along(&self, vector: u32, isa: Isa) -> Vec<Schedule> {
        let rows = [self.long_rows(vector), self.middle_rows(vector), self.short_rows(vector), self.tiny_rows(vector)];
        let mut look_back = match isa {
            Isa::Sm80 => vec![self.look_back_registers(vector)],
            Isa::Sm90a => vec![self.look_back(vector), self.look_back_rows(vector)],
        };
        look_back.dedup();
        rows.map(Schedule::Rows).into_iter().chain(look_back.into_iter().map(Schedule::LookBack)).collect()
    }

    /// The schedule for a single contiguous row.
    fn alone(&self, vector: u32, isa: Isa) -> Schedule {
        Schedule::LookBack(match isa {
            Isa::Sm80 => self.look_back_registers(vector),
            Isa::Sm90a => self.look_back_rows(vector),
        })
    }

    /// Schedules for a contiguous axis that is not the scan axis.
    fn across(&self, stage: &Stage, lane: Axis, vector: u32, isa: Isa) -> Vec<Schedule> {
        let vector = vector.min(4);
        let rings = [8, 1].into_iter().filter(|_| self.has_rings()).map(|lanes| self.ring(lane, lanes, vector, isa));
        let walks = [Some(self.walk(lane, vector)), self.deep_walk(stage, lane, vector)];
        walks.into_iter().flatten().chain(rings).map(Schedule::Columns).collect()
    }

    /// One row per block, 4096 elements at once.
    fn long_rows(&self, vector: u32) -> Rows {
        let registers = match vector {
            8 => 64,
            _ if self.wide && self.words < 4 => 24,
            _ if self.temporaries > 0 && self.words > 2 => 32,
            _ => 48,
        };
        let vectors = (self.items(registers) / vector).clamp(1, if vector == 1 { 4 } else { 8 });
        let tile = if vector == 1 { 1024 } else { 4096 };
        let warps = (tile / (WARP * vector * vectors)).clamp(1, 8);
        Rows { warps, row_warps: warps, lanes: WARP, rows: 1, vector, vectors }
    }

    /// One row per block, 1024 elements at once.
    fn middle_rows(&self, vector: u32) -> Rows {
        let vectors = (self.items(8) / vector).clamp(1, 2);
        let warps = (1024 / (WARP * vector * vectors)).clamp(1, 8);
        Rows { warps, row_warps: warps, lanes: WARP, rows: 1, vector, vectors }
    }

    /// 256 elements at once, several rows per warp.
    fn short_rows(&self, vector: u32) -> Rows {
        let most = if vector == 1 { 2 } else { 4 };
        let vectors = (256 / (WARP * vector)).min(self.items(32) / vector).clamp(1, most);
        let rows = (self.items(32) / (vector * vectors)).clamp(1, most);
        Rows { warps: 4, row_warps: 1, lanes: WARP, rows, vector, vectors }
    }

    /// Eight lanes per row.
    fn tiny_rows(&self, vector: u32) -> Rows {
        let rows = (self.items(16) / vector).clamp(1, 4);
        Rows { warps: 4, row_warps: 1, lanes: 8, rows, vector, vectors: 1 }
    }

    /// Few very long rows: large tiles, 48 to 64 KB, a ring that fills shared memory.
    fn look_back(&self, vector: u32) -> LookBack {
        let items = self.items(if self.words > 2 || self.wide { 48 } else { 64 }).min(32);
        let (scan_warps, reduce_warps, items) = match (self.words, self.read) {
            _ if self.temporaries > 16 => (8, 4, items),
            (1, 0..4) => (16, 4, items),
            (1, _) if self.temporaries == 0 => (6, 6, 64),
            (1, _) => (12, 4, items),
            (3.., _) if self.temporaries == 0 && !self.wide => (8, 8, items),
            _ => (8, 4, items),
        };
        self.ring_of(scan_warps, reduce_warps, vector, items.max(vector), 6)
    }

    /// Many rows of a few tiles: tiles of about 32 KB, more of them in flight.
    fn look_back_rows(&self, vector: u32) -> LookBack {
        let (scan_warps, reduce_warps, items) = match (self.words, self.read) {
            (1, 4..) if self.temporaries == 0 => (4, 4, 64),
            (2, 8..) if self.temporaries == 0 => (4, 4, 32),
            (3.., _) if self.temporaries == 0 && !self.wide => (8, 8, self.items(48).min(32)),
            _ => (
                8,
                4,
                self.items(if self.wide { 48 } else { 64 }).min((32 << 10) / (8 * WARP * self.read)).clamp(1, 32),
            ),
        };
        let items = 1 << items.ilog2();
        self.ring_of(scan_warps, reduce_warps, vector, items.max(vector), 3)
    }

    fn ring_of(&self, scan_warps: u32, reduce_warps: u32, vector: u32, items: u32, window: u32) -> LookBack {
        let vectors = (items / vector).max(1);
        let (fold, loader) = (Fold::Blocks, Loader::Bulk);
        let window = self.window(window);
        self.sized(LookBack { scan_warps, reduce_warps, vector, vectors, stages: 2, window, fold, loader })
    }

    /// A schedule by look-back, or the next smaller one for which registers and shared memory suffice; the smallest where none
    /// does. A ring has as many stages as there is room for.
    fn sized(&self, preferred: LookBack) -> LookBack {
        let registers = |s: &LookBack| self.pressure.registers(s) <= register_limit(s.warps());
        let ring = |s: &LookBack| s.loader == Loader::Registers || 2 * s.tile() * self.read <= ring_bytes(Isa::Sm90a);
        let chosen = if self.pressure.is_small() || registers(&preferred) {
            preferred
        } else {
            let all = smaller(preferred);
            let fits = all.iter().find(|s| registers(s) && ring(s));
            *fits.or(all.last()).unwrap_or(&preferred)
        };
        let stages = match chosen.loader {
            Loader::Bulk => (ring_bytes(Isa::Sm90a) / (chosen.tile() * self.read)).clamp(2, 7),
            Loader::Registers => chosen.stages,
        };
        LookBack { stages, ..chosen }
    }

    /// Tiles read straight from global memory.
    fn look_back_registers(&self, vector: u32) -> LookBack {
        let vectors = (self.items(32).min(if vector == 1 { 8 } else { 16 }) / vector).max(1);
        let (fold, loader) = (Fold::Blocks, Loader::Registers);
        let window = self.window(6);
        self.sized(LookBack { scan_warps: 8, reduce_warps: 4, vector, vectors, stages: 4, window, fold, loader })
    }

    /// Fewer columns per thread, and so more threads where columns are few.
    fn narrow_walk(&self, lane: Axis, vector: u32) -> Columns {
        let walk = self.walk(lane, vector);
        Columns { vector: vector.div_ceil(2), steps: 2 * walk.steps, ..walk }
    }

    /// The same with as many rows in flight as registers hold: for columns too few to hide memory's latency. Only for columns
    /// that share a parameter, as those of matrix states do, and so are more than rings are made for.
    fn deep_walk(&self, stage: &Stage, lane: Axis, vector: u32) -> Option<Columns> {
        let (own, shared) = words_of_lanes(stage, lane);
        let vector = vector.div_ceil(2);
        let most = DEEP / (own * vector + shared).max(1);
        // Sums over columns are halved step by step.
        let steps = if stage.part_axis.is_some() { 1 << most.max(1).ilog2() } else { most / 4 * 4 };
        (shared > 0 && vector > 1 && most >= 4).then(|| Columns { vector, steps, ..self.walk(lane, vector) })
    }

    /// A thread per `vector` columns.
    fn walk(&self, lane: Axis, vector: u32) -> Columns {
        Columns {
            lane: lane.0,
            form: Form::Walk,
            warps: if self.words == 1 { 4 } else { 2 },
            reduce_warps: 0,
            lanes: WARP,
            vector,
            steps: self.items(16).min(8),
            stages: 1,
            group: 0,
            window: 0,
        }
    }

    /// Tiles of `lanes·vector` columns, up to 64 KB of input, in as many stages as shared memory has room for.
    fn ring(&self, lane: Axis, lanes: u32, vector: u32, isa: Isa) -> Columns {
        let steps = match (self.words, isa) {
            (1, _) => 15,
            (2, Isa::Sm90a) => 8,
            (2, Isa::Sm80) => 5,
            (5.., _) if self.wide => 2,
            _ => 4,
        };
        let rows = 8 * (WARP / lanes) * steps;
        let stages = (ring_bytes(isa) / (rows * lanes * vector * self.read)).clamp(2, 6);
        Columns {
            lane: lane.0,
            form: Form::Ring,
            warps: 8,
            // With 16 warps in all a thread may have 128 registers, with more of them 96.
            reduce_warps: if self.words == 1 && isa == Isa::Sm90a { 4 } else { 3 },
            lanes,
            vector,
            steps,
            stages,
            group: if self.words == 1 { 12 } else { 8 },
            window: if self.words == 1 { 3 } else { 2 },
        }
    }
}

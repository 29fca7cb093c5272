//! The parameters that a plan may choose.

use oplus_dsl::ir::Axis;

use super::{Columns, Form};
use crate::abi::{Tensor, axes, elem};
use crate::block::carry::words;
use crate::schedules::shape::{Shape, is_strided, last_outer_axis, ring_bytes, vector};
use crate::schedules::strategy::Access;
use crate::stage::Stage;
use crate::target::{Isa, WARP};

/// Registers of a thread for rows in flight, if it takes all that there are.
const DEEP: u32 = 84;

/// The candidates of a stage.
pub(super) fn of(stage: &Stage, isa: Isa, access: Access) -> Vec<Columns> {
    let Some(lane) = last_outer_axis(stage) else { return vec![] };
    let sizes = Sizes { shape: Shape::of(stage), lane };
    match access {
        Access::Vectors if stage.is_uneven() => vec![],
        Access::Singles | Access::Unmerged if stage.is_uneven() => sizes.uneven(),
        Access::Vectors => {
            let access = vector(stage, lane).filter(|_| stage.partial_axis.is_some() || is_strided(stage));
            access.map(|vector| sizes.with_vectors(stage, vector.min(4), isa)).unwrap_or_default()
        }
        Access::Singles | Access::Unmerged => {
            let is_ring = stage.partial_axis.is_none() && is_strided(stage) && sizes.has_rings();
            let ring = is_ring.then(|| sizes.ring(8, 1, Isa::Sm80));
            [Some(sizes.walk(1)), ring].into_iter().flatten().collect()
        }
    }
}

/// The parameters with which one element is combined after the other.
pub(super) fn ordered(stage: &Stage) -> Vec<Columns> {
    let walk = |lane| Columns { steps: 1, ..Sizes { shape: Shape::of(stage), lane }.walk(1) };
    last_outer_axis(stage).map(walk).into_iter().collect()
}

/// The facts of a stage that the parameters depend on.
struct Sizes {
    shape: Shape,
    lane: Axis,
}

impl Sizes {
    /// Walks and rings; where there are partial sums over columns, walks alone.
    fn with_vectors(&self, stage: &Stage, vector: u32, isa: Isa) -> Vec<Columns> {
        let (walk, deep) = (self.walk(vector), self.deep_walk(stage, vector));
        if stage.partial_axis.is_some() {
            return [Some(walk), Some(self.narrow_walk(vector)), deep].into_iter().flatten().collect();
        }
        let rings = [8, 1].into_iter().filter(|_| self.has_rings()).map(|lanes| self.ring(lanes, vector, isa));
        let narrow = self.narrow_axes(stage, vector);
        [Some(walk), deep].into_iter().flatten().chain(rings).chain(narrow).collect()
    }

    /// Whether a ring's tile of columns fits registers: not while functions of f64 are computed.
    fn has_rings(&self) -> bool {
        !self.shape.wide || self.shape.temporaries == 0
    }

    /// A thread per `vector` columns.
    fn walk(&self, vector: u32) -> Columns {
        Columns {
            lane: self.lane.0,
            form: Form::Walk,
            warps: if self.shape.words == 1 { 4 } else { 2 },
            reduce_warps: 0,
            lanes: WARP,
            vector,
            steps: self.shape.items(16).min(8),
            stages: 1,
            group: 0,
            window: 0,
            points: 1,
        }
    }

    /// Reductions of narrow axes: threads of one block that would have no column take other points.
    fn narrow_axes(&self, stage: &Stage, vector: u32) -> Vec<Columns> {
        let walk = self.walk(vector);
        let points = if stage.is_reduction() { &[2, 4, 8][..] } else { &[] };
        points.iter().map(|points| Columns { points: *points, ..walk }).collect()
    }

    /// Walks of stages whose final outputs have different outer axes: they have few columns, and a thread for each.
    fn uneven(&self) -> Vec<Columns> {
        let walk = self.walk(1);
        [8, 16].into_iter().map(|steps| Columns { steps, ..walk }).collect()
    }

    /// Fewer columns per thread, and so more threads where columns are few.
    fn narrow_walk(&self, vector: u32) -> Columns {
        let walk = self.walk(vector);
        Columns { vector: vector.div_ceil(2), steps: 2 * walk.steps, ..walk }
    }

    /// Fewer columns per thread, with as many rows in flight as registers hold: for columns too few to hide memory's latency.
    /// Only for columns that share a parameter, as those of matrix states do, and so are more than rings are made for.
    fn deep_walk(&self, stage: &Stage, vector: u32) -> Option<Columns> {
        let (own, shared) = words_of_lanes(stage, self.lane);
        let vector = vector.div_ceil(2);
        let most = DEEP / (own * vector + shared).max(1);
        // Sums over columns are halved step by step.
        let steps = if stage.partial_axis.is_some() { 1 << most.max(1).ilog2() } else { most / 4 * 4 };
        (shared > 0 && vector > 1 && most >= 4).then(|| Columns { vector, steps, ..self.walk(vector) })
    }

    /// Tiles of `lanes·vector` columns, up to 64 KB of input, in as many stages as shared memory has room for.
    fn ring(&self, lanes: u32, vector: u32, isa: Isa) -> Columns {
        let Shape { words, read, wide, .. } = self.shape;
        let steps = match (words, isa) {
            (1, _) => 15,
            (2, Isa::Sm90a) => 8,
            (2, Isa::Sm80) => 5,
            (5.., _) if wide => 2,
            _ => 4,
        };
        let rows = 8 * (WARP / lanes) * steps;
        let stages = (ring_bytes(isa) / (rows * lanes * vector * read)).clamp(2, 6);
        Columns {
            lane: self.lane.0,
            form: Form::Ring,
            warps: 8,
            // With 16 warps in all a thread may have 128 registers, with more of them 96.
            reduce_warps: if words == 1 && isa == Isa::Sm90a { 4 } else { 3 },
            lanes,
            vector,
            steps,
            stages,
            group: if words == 1 { 12 } else { 8 },
            window: if words == 1 { 3 } else { 2 },
            points: 1,
        }
    }
}

/// Registers that a row of time of one column takes in a thread, and those that all its columns share.
fn words_of_lanes(stage: &Stage, lane: Axis) -> (u32, u32) {
    let params = (0..stage.program.params.len() as u32).map(Tensor::Param);
    let timed = params.filter(|t| stage.axis().is_some_and(|time| axes(stage, *t).contains(&time)));
    let words = |t: &Tensor| words(&[elem(stage, *t).value()]);
    let (own, shared): (Vec<_>, Vec<_>) = timed.partition(|t| axes(stage, *t).contains(&lane));
    (own.iter().map(words).sum(), shared.iter().map(words).sum())
}

//! The schedule of maps, as the rest of the compiler knows it.

use oplus_dsl::ir::{Axis, AxisSet};

use super::Map;
use crate::schedules::cost::{Cost, Memory};
use crate::schedules::error::LowerError;
use crate::schedules::picture::{Carry, Picture, Tile};
use crate::schedules::problem::Problem;
use crate::schedules::shape::{last_outer_axis, vector};
use crate::schedules::strategy::{Access, Strategy};
use crate::stage::{Kind, Refusal, Stage};
use crate::target::{Isa, WARP};
use crate::tile::Kernel;
use crate::words::counted;

impl Strategy for Map {
    fn takes(kind: &Kind) -> Result<(), Refusal> {
        if matches!(kind, Kind::Map) { Ok(()) } else { Err(Refusal::Scanned) }
    }

    fn candidates(stage: &Stage, _isa: Isa, access: Access) -> Vec<Map> {
        let single = with_vector(stage, 1);
        match access {
            Access::Vectors => vector(stage, Axis(single.lane)).map(|v| with_vector(stage, v)).into_iter().collect(),
            Access::Singles | Access::Unmerged => vec![single],
        }
    }

    fn ordered(stage: &Stage) -> Vec<Map> {
        vec![with_vector(stage, 1)]
    }

    fn general(stage: &Stage) -> Option<Map> {
        Some(with_vector(stage, 1))
    }

    fn name(&self) -> &'static str {
        Map::NAME
    }

    fn vector(&self) -> u32 {
        self.vector
    }

    fn isa(&self, _isa: Isa) -> Isa {
        Isa::Sm80
    }

    fn vector_axes(&self, _stage: &Stage) -> AxisSet {
        AxisSet::of(Axis(self.lane))
    }

    fn lower(&self, stage: &Stage, _isa: Isa, symbol: &str) -> Result<Kernel, LowerError> {
        super::lower(stage, self, symbol)
    }

    fn shared_bytes(&self, _stage: &Stage, _isa: Isa) -> u32 {
        0
    }

    fn threads(&self) -> u32 {
        self.warps * WARP
    }

    fn takes_displaced_vectors(&self) -> bool {
        true
    }

    fn has_grid_stride(&self) -> bool {
        true
    }

    fn blocks(&self, problem: &Problem<'_>) -> u64 {
        let lane = Axis(self.lane);
        let written = problem.stage.outer_axes().contains(lane);
        let width = if written { problem.size(lane) as u64 } else { 1 };
        let chunks = width.div_ceil(u64::from(self.vector)).saturating_mul(problem.rows() / width.max(1));
        chunks.div_ceil(u64::from(self.warps * WARP * self.vectors))
    }

    fn lane_axis(&self, _stage: &Stage) -> Option<Axis> {
        Some(Axis(self.lane))
    }

    fn cost(&self, problem: &Problem<'_>, memory: &Memory) -> Cost {
        Cost { micros: memory.micros(), why: counted(self.blocks(problem), "block") }
    }

    fn words(&self, stage: &Stage, sizes: &[i64]) -> String {
        let points: i64 = stage.outer_axes().iter().map(|a| sizes[a.0 as usize]).product();
        let axis = stage.program.axis_name(Axis(self.lane));
        format!("{}; a thread takes {} × {} along {axis}", counted(points, "point"), self.vectors, self.vector)
    }

    fn picture(&self, _stage: &Stage) -> Picture {
        let tile = Tile { warps: self.warps, stretches: self.vectors, lanes: WARP, elements: self.vector };
        let along = Some(Axis(self.lane));
        let length = u64::from(self.tile());
        Picture { along, within: vec![], length, across: 1, tile: Some(tile), carry: Carry::None }
    }
}

fn with_vector(stage: &Stage, vector: u32) -> Map {
    let lane = last_outer_axis(stage).map_or(0, |a| a.0);
    let params = stage.program.params.len().max(1) as u32;
    let vectors = if vector == 1 { 4 } else { (8 / params).clamp(1, 4) };
    Map { lane, warps: 8, vector, vectors }
}

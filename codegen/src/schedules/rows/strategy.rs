//! The schedule of rows, as the rest of the compiler knows it.

use oplus_dsl::ir::Axis;

use super::{Rows, blocks_per_sm, candidates};
use crate::schedules::constants::Constants;
use crate::schedules::cost::{Cost, Memory, of_blocks};
use crate::schedules::error::LowerError;
use crate::schedules::picture::{Carry, Picture, Tile};
use crate::schedules::problem::Problem;
use crate::schedules::shape::rows_and_length;
use crate::schedules::strategy::{Access, Strategy};
use crate::stage::{Kind, Refusal, Stage};
use crate::target::{Isa, WARP};
use crate::tile::Kernel;
use crate::words::counted;

impl Strategy for Rows {
    fn takes(kind: &Kind) -> Result<(), Refusal> {
        kind.scan()
    }

    fn candidates(stage: &Stage, _isa: Isa, access: Access) -> Vec<Rows> {
        candidates::of(stage, access)
    }

    fn ordered(_stage: &Stage) -> Vec<Rows> {
        vec![Rows { warps: 4, row_warps: 1, lanes: 1, rows: 1, vector: 1, vectors: 1 }]
    }

    fn general(stage: &Stage) -> Option<Rows> {
        Some(candidates::general(stage))
    }

    fn name(&self) -> &'static str {
        Rows::NAME
    }

    fn vector(&self) -> u32 {
        self.vector
    }

    fn isa(&self, _isa: Isa) -> Isa {
        Isa::Sm80
    }

    fn lower(&self, stage: &Stage, _isa: Isa, symbol: &str) -> Result<Kernel, LowerError> {
        super::lower(stage, self, symbol)
    }

    fn shared_bytes(&self, stage: &Stage, _isa: Isa) -> u32 {
        super::shared_bytes(stage, self)
    }

    fn threads(&self) -> u32 {
        self.warps * WARP
    }

    fn takes_empty_scans(&self) -> bool {
        true
    }

    fn has_grid_stride(&self) -> bool {
        true
    }

    fn blocks(&self, problem: &Problem<'_>) -> u64 {
        problem.rows().div_ceil(u64::from(self.block_rows()))
    }

    fn lane_axis(&self, stage: &Stage) -> Option<Axis> {
        stage.axis()
    }

    /// In an iteration all blocks of a multiprocessor load, scan and store a tile.
    fn cost(&self, problem: &Problem<'_>, memory: &Memory) -> Cost {
        let Constants { rows_iteration, rows_element, rows_iteration_price, .. } = *problem.constants;
        let blocks = self.blocks(problem) as f64;
        let of_one = memory.share_of_one(blocks);
        let resident = f64::from(blocks_per_sm(problem.stage, self)).min(of_one);
        let row_tiles = problem.length().div_ceil(u64::from(self.tile())) as f64;
        let iterations = (of_one / resident.max(1.0)).ceil() * row_tiles;
        let tile = memory.moved / (blocks * row_tiles).max(1.0) / memory.one;
        let elements = f64::from(self.rows * self.vectors * self.vector);
        let time = (of_one * row_tiles * tile).max(iterations * (rows_iteration + rows_element * elements + tile));
        Cost { micros: time + rows_iteration_price * iterations, why: of_blocks(iterations, "iteration", resident) }
    }

    fn words(&self, stage: &Stage, sizes: &[i64]) -> String {
        let (rows, length) = rows_and_length(stage, sizes);
        format!("{} of {length}; {}", counted(rows, "row"), team(self))
    }

    fn picture(&self, stage: &Stage) -> Picture {
        let Rows { row_warps, lanes, vector, vectors, .. } = *self;
        let tile = Tile { warps: row_warps, stretches: vectors, lanes, elements: vector };
        let (length, across) = (u64::from(self.tile()), u64::from(self.block_rows()));
        Picture { along: stage.axis(), within: vec![], length, across, tile: Some(tile), carry: Carry::Kept }
    }
}

fn team(schedule: &Rows) -> String {
    let Rows { row_warps, lanes, rows, vector, vectors, .. } = *schedule;
    let warps = if row_warps > 1 { format!("{row_warps} warps × ") } else { String::new() };
    let rows = if rows > 1 { format!(", {rows} rows at once") } else { String::new() };
    format!("tiles of {} = {warps}{vectors} × {} × {vector}{rows}", schedule.tile(), counted(lanes, "lane"))
}

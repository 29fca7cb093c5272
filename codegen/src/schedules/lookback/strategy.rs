//! The schedule of look-back, as the rest of the compiler knows it.

use oplus_dsl::ir::Axis;

use super::{Form, Loader, LookBack, candidates};
use crate::schedules::constants::Constants;
use crate::schedules::cost::{Cost, Memory, Tiles};
use crate::schedules::error::LowerError;
use crate::schedules::misfit::Misfit;
use crate::schedules::picture::{Carry, Picture, Tile};
use crate::schedules::problem::Problem;
use crate::schedules::shape::rows_and_length;
use crate::schedules::strategy::{Access, Strategy};
use crate::stage::{Kind, Refusal, Stage};
use crate::target::{Isa, WARP};
use crate::tile::Kernel;
use crate::words::counted;

impl Strategy for LookBack {
    fn takes(kind: &Kind) -> Result<(), Refusal> {
        kind.scan()
    }

    fn candidates(stage: &Stage, isa: Isa, access: Access) -> Vec<LookBack> {
        candidates::of(stage, isa, access)
    }

    fn name(&self) -> &'static str {
        LookBack::NAME
    }

    fn vector(&self) -> u32 {
        self.vector
    }

    fn looks_back(&self) -> bool {
        true
    }

    fn lower(&self, stage: &Stage, _isa: Isa, symbol: &str) -> Result<Kernel, LowerError> {
        super::lower(stage, self, symbol, Form::Fast)
    }

    fn lower_fast_tier(&self, stage: &Stage, symbol: &str) -> Result<Option<Kernel>, LowerError> {
        super::lower(stage, self, symbol, Form::Short).map(Some)
    }

    fn shared_bytes(&self, stage: &Stage, _isa: Isa) -> u32 {
        super::shared_bytes(stage, self)
    }

    fn threads(&self) -> u32 {
        self.warps() * WARP
    }

    fn alignment(&self, bytes: i64) -> i64 {
        match self.loader {
            Loader::Bulk => 16,
            Loader::Registers => (i64::from(self.vector) * bytes).min(16),
        }
    }

    fn fits(&self, problem: &Problem<'_>) -> Result<(), Misfit> {
        let isa = problem.target.isa;
        if self.loader == Loader::Bulk && !isa.has_bulk_copies() {
            return Err(Misfit::NoBulkCopies { isa: isa.name() });
        }
        Misfit::count(problem.rows(), "rows")
    }

    fn blocks(&self, _problem: &Problem<'_>) -> u64 {
        1
    }

    fn tiles(&self, problem: &Problem<'_>) -> Option<u64> {
        Some(problem.rows().saturating_mul(problem.length().div_ceil(u64::from(self.tile()))))
    }

    fn message_words(&self, problem: &Problem<'_>) -> u64 {
        super::message_words(problem.stage, self.tiles(problem).unwrap_or(0))
    }

    fn share_of_bandwidth(&self, constants: &Constants) -> f64 {
        match self.loader {
            Loader::Registers => constants.lookback_registers,
            Loader::Bulk => constants.lookback_bulk,
        }
    }

    fn lane_axis(&self, stage: &Stage) -> Option<Axis> {
        stage.axis()
    }

    fn cost(&self, problem: &Problem<'_>, memory: &Memory) -> Cost {
        let (rows, count) = (problem.rows(), self.tiles(problem).unwrap_or(0));
        let polls = polls(self, problem, memory);
        let polled = if polls > 1.0 { format!(", {polls} polls for each") } else { String::new() };
        let (points, elements) = (rows.saturating_mul(problem.length()), u64::from(self.tile()));
        let Constants { lookback_start: start, lookback_poll, .. } = *problem.constants;
        let more = (lookback_poll * (polls - 1.0), polled);
        Tiles { count, elements, points, rows, start, more }.cost(memory, problem.constants)
    }

    fn words(&self, stage: &Stage, sizes: &[i64]) -> String {
        let (rows, length) = rows_and_length(stage, sizes);
        let LookBack { scan_warps, vectors, vector, stages, .. } = *self;
        format!(
            "{} of {length}; tiles of {} = {} × {vectors} × {WARP} lanes × {vector}, {stages} in flight",
            counted(rows, "row"),
            self.tile(),
            counted(scan_warps, "warp")
        )
    }

    fn picture(&self, stage: &Stage) -> Picture {
        let LookBack { scan_warps, vectors, vector, .. } = *self;
        let tile = Tile { warps: scan_warps, stretches: vectors, lanes: WARP, elements: vector };
        let length = u64::from(self.tile());
        Picture { along: stage.axis(), within: vec![], length, across: 1, tile: Some(tile), carry: Carry::LookBack }
    }
}

/// Polls of the look-ahead for one tile: it folds the aggregates of other blocks' tiles that belong to the same row.
fn polls(schedule: &LookBack, problem: &Problem<'_>, memory: &Memory) -> f64 {
    let before = problem.length().div_ceil(u64::from(schedule.tile())) as f64;
    (before.min(memory.multiprocessors) / f64::from(WARP * schedule.window)).ceil().max(1.0)
}

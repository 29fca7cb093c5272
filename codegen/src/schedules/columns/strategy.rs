//! The schedule of columns, as the rest of the compiler knows it.

use oplus_dsl::ir::{Axis, AxisSet};

use super::{Columns, Form, candidates, ring};
use crate::schedules::constants::Constants;
use crate::schedules::cost::{Cost, Memory, Tiles, of_blocks};
use crate::schedules::error::LowerError;
use crate::schedules::misfit::{Misfit, Wanted};
use crate::schedules::picture::{Carry, Picture};
use crate::schedules::problem::Problem;
use crate::schedules::shape::rows_and_length;
use crate::schedules::strategy::{Access, Strategy};
use crate::stage::{Kind, Refusal, Stage};
use crate::target::Isa;
use crate::tile::Kernel;
use crate::words::counted;

impl Strategy for Columns {
    fn takes(kind: &Kind) -> Result<(), Refusal> {
        match kind {
            Kind::PartialSums(form) => form.as_ref().map(|_| ()).map_err(Refusal::clone),
            Kind::UnevenReduce => Ok(()),
            _ => kind.scan(),
        }
    }

    fn candidates(stage: &Stage, isa: Isa, access: Access) -> Vec<Columns> {
        candidates::of(stage, isa, access)
    }

    fn ordered(stage: &Stage) -> Vec<Columns> {
        candidates::ordered(stage)
    }

    fn name(&self) -> &'static str {
        Columns::NAME
    }

    fn vector(&self) -> u32 {
        self.vector
    }

    fn isa(&self, isa: Isa) -> Isa {
        if self.form == Form::Ring && self.vector > 1 { isa } else { Isa::Sm80 }
    }

    fn vector_axes(&self, _stage: &Stage) -> AxisSet {
        AxisSet::of(Axis(self.lane))
    }

    fn looks_back(&self) -> bool {
        self.form == Form::Ring
    }

    fn lower(&self, stage: &Stage, _isa: Isa, symbol: &str) -> Result<Kernel, LowerError> {
        super::lower(stage, self, symbol)
    }

    fn shared_bytes(&self, stage: &Stage, _isa: Isa) -> u32 {
        super::shared_bytes(stage, self)
    }

    fn threads(&self) -> u32 {
        Columns::threads(self)
    }

    fn fits(&self, problem: &Problem<'_>) -> Result<(), Misfit> {
        let lane = Axis(self.lane);
        let axis = || problem.stage.program.axis_name(lane).to_owned();
        let (size, vector) = (problem.size(lane), i64::from(self.vector));
        if size % vector != 0 {
            return Err(Misfit::Size { axis: axis(), size, wanted: Wanted::MultipleOf(vector) });
        }
        let most = i64::from(self.threads_of_point() * self.vector);
        if self.points > 1 && size > most {
            return Err(Misfit::Size { axis: axis(), size, wanted: Wanted::AtMost(most) });
        }
        if problem.stage.is_uneven() {
            problem.is_without_empty_axes()?;
        }
        let displaced = problem.stage.views.iter().flatten().any(|v| v.axis == lane);
        if self.form == Form::Ring && displaced { Err(Misfit::Displaced { axis: axis() }) } else { Ok(()) }
    }

    fn blocks(&self, problem: &Problem<'_>) -> u64 {
        let width = problem.size(Axis(self.lane)).max(1) as u64;
        let points = problem.rows() / width;
        match self.points {
            1 => points * width.div_ceil(u64::from(Columns::threads(self) * self.vector)),
            several => points.div_ceil(u64::from(several)),
        }
    }

    fn tiles(&self, problem: &Problem<'_>) -> Option<u64> {
        if self.form == Form::Walk {
            return None;
        }
        let width = problem.size(Axis(self.lane)).max(1) as u64;
        let scans = ring::scans(self, problem.rows() / width, width);
        Some(scans.saturating_mul(ring::time_tiles(self, problem.length())))
    }

    fn message_words(&self, problem: &Problem<'_>) -> u64 {
        let Some(tiles) = self.tiles(problem) else { return 0 };
        let time = ring::time_tiles(self, problem.length()).max(1);
        ring::message_words(problem.stage, self, tiles / time, time)
    }

    fn partial_sums(&self, problem: &Problem<'_>) -> Option<u64> {
        Some(super::partial_sums(self, problem.size(Axis(self.lane)) as u64))
    }

    fn share_of_bandwidth(&self, constants: &Constants) -> f64 {
        if self.form == Form::Ring { constants.columns_ring } else { 1.0 }
    }

    fn lane_axis(&self, _stage: &Stage) -> Option<Axis> {
        Some(Axis(self.lane))
    }

    fn cost(&self, problem: &Problem<'_>, memory: &Memory) -> Cost {
        let Some(count) = self.tiles(problem) else { return walk(self, problem, memory) };
        let (rows, elements) = (problem.rows(), u64::from(self.tile_rows() * self.tile_columns()));
        let (points, more) = (rows.saturating_mul(problem.length()), (0.0, String::new()));
        let start = problem.constants.columns_start;
        Tiles { count, elements, points, rows, start, more }.cost(memory, problem.constants)
    }

    fn words(&self, stage: &Stage, sizes: &[i64]) -> String {
        let (columns, length) = rows_and_length(stage, sizes);
        let what =
            format!("{} along {} of {length}", counted(columns, "column"), stage.program.axis_name(Axis(self.lane)));
        match self.form {
            Form::Walk => {
                format!("{what}; a thread walks {} with {} steps in flight", self.vector, self.steps)
            }
            Form::Ring => {
                let (steps, columns) = (self.tile_rows(), self.tile_columns());
                format!("{what}; tiles of {steps} steps × {columns} columns, {} in flight", self.stages)
            }
        }
    }

    fn picture(&self, stage: &Stage) -> Picture {
        let (length, across, carry) = match self.form {
            Form::Walk => (self.steps, Columns::threads(self) * self.vector, Carry::Kept),
            Form::Ring => (self.tile_rows(), self.tile_columns(), Carry::LookBack),
        };
        let [length, across] = [length, across].map(u64::from);
        Picture { along: stage.axis(), within: vec![], length, across, tile: None, carry }
    }
}

/// Threads walk their columns, `steps` rows in flight.
fn walk(schedule: &Columns, problem: &Problem<'_>, memory: &Memory) -> Cost {
    let blocks = schedule.blocks(problem) as f64;
    let of_one = memory.share_of_one(blocks);
    let resident = (1024.0 / f64::from(schedule.threads())).min(of_one);
    let steps = problem.length().div_ceil(u64::from(schedule.steps)) as f64;
    let iterations = (of_one / resident.max(1.0)).ceil() * steps;
    let step = memory.moved / (blocks * steps).max(1.0) / memory.one;
    // A chunk is on its way while the one before is scanned, but waits for its own first rows.
    let moves = of_one * steps * step + iterations * problem.constants.columns_ahead * 2.0 / (1.0 + resident);
    // Blocks with little to do take as long as they take to begin, to read and to write.
    let later = (of_one / resident.max(1.0) - 1.0).max(0.0);
    let micros = moves.max(later * problem.constants.columns_block);
    let work = if problem.stage.is_reduction() { updates(schedule, problem) } else { 0.0 };
    if work > micros {
        return Cost { micros: work, why: "updates of states that are not written".to_owned() };
    }
    Cost { micros, why: of_blocks(iterations, "step", resident) }
}

/// Issue slots of a load, with its address and what waits for it.
const LOAD: f64 = 12.0;

/// Microseconds of the updates of a reduction, whose threads load and compute again what neighbouring states share.
fn updates(schedule: &Columns, problem: &Problem<'_>) -> f64 {
    let (program, lane) = (&problem.stage.program, Axis(schedule.lane));
    let Some(time) = problem.stage.axis() else { return 0.0 };
    let timed = program.params.iter().filter(|param| param.axes.contains(&time));
    let loads: f64 = timed.map(|p| if p.axes.contains(&lane) { 1.0 / f64::from(schedule.vector) } else { 1.0 }).sum();
    let maps = program.nodes.iter().filter(|node| node.op.is_map() && node.axes.contains(time)).count();
    let points = problem.rows().saturating_mul(problem.length()) as f64;
    let lanes = f64::from(problem.target.multiprocessors) * 128.0;
    points * (LOAD * loads + maps as f64) / (lanes * problem.constants.clock)
}

//! The schedule of delta rules in chunks, as the rest of the compiler knows it.

use oplus_dsl::ir::{Axis, AxisSet};

use super::{ChunkDelta, ROWS, TIMES, candidates, cost};
use crate::schedules::chunkwise::fits::counted;
use crate::schedules::cost::{Cost, Memory};
use crate::schedules::error::LowerError;
use crate::schedules::misfit::{Misfit, Wanted};
use crate::schedules::picture::{Carry, Picture};
use crate::schedules::problem::Problem;
use crate::schedules::strategy::{Access, Strategy};
use crate::stage::kind::DeltaRule;
use crate::stage::{Kind, Refusal, Stage};
use crate::target::Isa;
use crate::tile::Kernel;

/// The least depth: errors of rounding average out over the keys' places.
const LEAST: i64 = 16;

impl Strategy for ChunkDelta {
    fn takes(kind: &Kind) -> Result<(), Refusal> {
        kind.delta().map(|_| ())
    }

    fn candidates(stage: &Stage, _isa: Isa, access: Access) -> Vec<ChunkDelta> {
        // Among them are those that copy single elements.
        if access == Access::Vectors { vec![] } else { candidates::of(stage) }
    }

    fn name(&self) -> &'static str {
        ChunkDelta::NAME
    }

    fn vector(&self) -> u32 {
        self.vector
    }

    fn isa(&self, _isa: Isa) -> Isa {
        Isa::Sm80
    }

    fn vector_axes(&self, stage: &Stage) -> AxisSet {
        stage.kind().delta().map(|form| AxisSet::of(form.depth).with(form.width)).unwrap_or_default()
    }

    fn lower(&self, stage: &Stage, _isa: Isa, symbol: &str) -> Result<Kernel, LowerError> {
        super::lower(stage, self, symbol)
    }

    fn shared_bytes(&self, stage: &Stage, _isa: Isa) -> u32 {
        super::shared_bytes(stage, self)
    }

    fn threads(&self) -> u32 {
        ChunkDelta::threads(self)
    }

    fn takes_empty_scans(&self) -> bool {
        true
    }

    fn fits(&self, problem: &Problem<'_>) -> Result<(), Misfit> {
        let form = problem.stage.kind().delta()?;
        fit(problem, form, [self.depth, self.places], self.padded, self.wide, self.vector)?;
        counted(problem.size(form.time), TIMES * self.stages)
    }

    fn blocks(&self, problem: &Problem<'_>) -> u64 {
        let Ok(form) = problem.stage.kind().delta() else { return 0 };
        let parts = (problem.size(form.width) as u64).div_ceil(u64::from(self.places));
        problem.bound.count(form.outer.iter()).saturating_mul(parts)
    }

    fn lane_axis(&self, stage: &Stage) -> Option<Axis> {
        stage.state_axis()
    }

    fn cost(&self, problem: &Problem<'_>, memory: &Memory) -> Cost {
        cost::estimate(self, problem, memory)
    }

    fn words(&self, _stage: &Stage, _sizes: &[i64]) -> String {
        let ChunkDelta { places, stages, .. } = *self;
        format!(
            "a block per {places} places of the width of a recurrence; chunks of {ROWS} times, {TIMES} at once, {stages} tiles in flight"
        )
    }

    fn picture(&self, stage: &Stage) -> Picture {
        let within = stage.kind().delta().map_or(vec![], |form| vec![form.width, form.depth]);
        Picture { along: stage.axis(), within, length: u64::from(TIMES), across: 1, tile: None, carry: Carry::Kept }
    }
}

/// Whether depth and width of a rule fit tiles of this depth and width.
pub(in crate::schedules) fn fit(
    problem: &Problem<'_>,
    form: &DeltaRule,
    [depth, places]: [u32; 2],
    padded: bool,
    wide: bool,
    vector: u32,
) -> Result<(), Misfit> {
    for (axis, places) in [(form.depth, depth), (form.width, places)] {
        let (size, places) = (problem.size(axis), i64::from(places));
        let several = wide && axis == form.width;
        let wanted = match padded {
            true if axis == form.depth && size < LEAST => Wanted::AtLeast(LEAST),
            true if size > places => Wanted::AtMost(places),
            false if several && (size <= places || size % places != 0) => Wanted::SeveralTimes(places),
            false if !several && size != places => Wanted::Exactly(places),
            _ if size % i64::from(vector) != 0 => Wanted::MultipleOf(i64::from(vector)),
            _ => continue,
        };
        return Err(Misfit::Size { axis: problem.stage.program.axis_name(axis).to_owned(), size, wanted });
    }
    Ok(())
}

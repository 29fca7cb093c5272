//! The schedule of delta rules in chunks, as the rest of the compiler knows it.

use oplus_dsl::Elem;
use oplus_dsl::ir::{Axis, AxisSet};

use super::{ChunkDelta, ROWS, RuleSweep, TIMES, candidates, cost, prepared};
use crate::block::prepare::factor_elem;
use crate::schedules::chunkwise::fits::counted;
use crate::schedules::cost::{Cost, Memory};
use crate::schedules::error::LowerError;
use crate::schedules::misfit::{Misfit, Wanted};
use crate::schedules::picture::{Carry, Picture};
use crate::schedules::pieces::Piece;
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

    fn candidates(stage: &Stage, isa: Isa, access: Access) -> Vec<ChunkDelta> {
        // Among them are those that copy single elements.
        if access == Access::Vectors { vec![] } else { candidates::of(stage, isa) }
    }

    fn kernels(&self, stage: &Stage, _isa: Isa) -> Vec<ChunkDelta> {
        ChunkDelta::kernels(self, stage)
    }

    fn scratch(&self, stage: &Stage) -> Vec<(&'static str, Elem)> {
        if self.sweep == RuleSweep::Whole {
            return vec![];
        }
        let own = stage.kind().delta().map_or(Elem::Bf16, |form| stage.program.params[form.key as usize].elem);
        let factors = factor_elem(own, self.vector, self.depth);
        vec![("prepared", factors), ("prepared_rates", Elem::F32)]
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
        if self.sweep != RuleSweep::Whole {
            problem.is_without_empty_axes()?;
            if prepared::scratch(problem.stage, form, self, |axis| problem.size(axis)).is_none() {
                return Err(Misfit::TooManyStates);
            }
            let prepare = ChunkDelta { sweep: RuleSweep::Prepare, ..*self };
            Misfit::count(prepare.blocks(problem), "tiles")?;
        }
        counted(problem.size(form.time), TIMES * self.stages)
    }

    fn scratch_lens(&self, problem: &Problem<'_>, _pieces: &[Piece]) -> Option<Vec<u64>> {
        let form = problem.stage.kind().delta().ok()?;
        match self.sweep {
            RuleSweep::Whole => Some(vec![]),
            _ => prepared::scratch(problem.stage, form, self, |axis| problem.size(axis)),
        }
    }

    fn blocks(&self, problem: &Problem<'_>) -> u64 {
        let Ok(form) = problem.stage.kind().delta() else { return 0 };
        if self.sweep == RuleSweep::Prepare {
            let tiles = problem.stage.tiles_of_times(form.time, TIMES, |axis| problem.size(axis));
            let outer = form.outer.minus(problem.stage.axis_of_sequences());
            return problem.bound.count(outer.iter()).saturating_mul(tiles);
        }
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
        let ChunkDelta { places, stages, sweep, readers, .. } = *self;
        if sweep == RuleSweep::Prepare {
            return format!("a block per {TIMES} times of a recurrence: factors, systems and weights of its chunks");
        }
        let beside = if readers { ", queries by warps of their own" } else { "" };
        format!(
            "a block per {places} places of the width of a recurrence; chunks of {ROWS} times, {TIMES} at once, {stages} tiles in flight{beside}"
        )
    }

    fn picture(&self, stage: &Stage) -> Picture {
        let within = stage.kind().delta().map_or(vec![], |form| vec![form.width, form.depth]);
        let carry = if self.sweep == RuleSweep::Prepare { Carry::None } else { Carry::Kept };
        Picture { along: stage.axis(), within, length: u64::from(TIMES), across: 1, tile: None, carry }
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

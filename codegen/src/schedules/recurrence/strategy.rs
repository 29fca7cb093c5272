//! The schedule of recurrences of matrices, as the rest of the compiler knows it.

use oplus_dsl::ir::{Axis, AxisSet};

use super::cost::estimate;
use super::{Recurrence, candidates};
use crate::abi::{axes, tensors};
use crate::schedules::cost::{Cost, Memory};
use crate::schedules::error::LowerError;
use crate::schedules::misfit::{Misfit, Wanted};
use crate::schedules::picture::{Carry, Picture};
use crate::schedules::problem::Problem;
use crate::schedules::strategy::{Access, Strategy};
use crate::stage::{Kind, Refusal, Stage};
use crate::target::{Isa, WARP};
use crate::tile::Kernel;
use crate::words::counted;

/// Places that the smallest schedules have room for.
const LEAST: i64 = 16;

impl Strategy for Recurrence {
    fn takes(kind: &Kind) -> Result<(), Refusal> {
        if kind.recurrence()?.is_of_sequences {
            return Err(Refusal::Sequences);
        }
        match kind.delta() {
            Ok(form) if form.channels.is_some() => Err(Refusal::RepeatedDecays),
            _ => Ok(()),
        }
    }

    fn candidates(stage: &Stage, _isa: Isa, access: Access) -> Vec<Recurrence> {
        candidates::of(stage, access)
    }

    fn ordered(stage: &Stage) -> Vec<Recurrence> {
        candidates::ordered(stage)
    }

    fn name(&self) -> &'static str {
        Recurrence::NAME
    }

    fn vector(&self) -> u32 {
        self.vector
    }

    fn isa(&self, _isa: Isa) -> Isa {
        Isa::Sm80
    }

    /// The axis of places, and those that are contiguous in its stead where a tensor has it elsewhere, as first and last states may.
    fn vector_axes(&self, stage: &Stage) -> AxisSet {
        let Some(along) = stage.state_axis() else { return AxisSet::EMPTY };
        let last = |tensor| axes(stage, tensor).last().copied().filter(|_| axes(stage, tensor).contains(&along));
        tensors(stage).filter_map(last).chain([along]).collect()
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

    fn takes_empty_scans(&self) -> bool {
        true
    }

    fn fits(&self, problem: &Problem<'_>) -> Result<(), Misfit> {
        let Some(along) = problem.stage.state_axis() else { return Err(Misfit::NoStates) };
        let (size, capacity) = (problem.size(along), i64::from(self.capacity()));
        let wrong =
            |wanted| Err(Misfit::Size { axis: problem.stage.program.axis_name(along).to_owned(), size, wanted });
        match self.padded {
            true if size > capacity => wrong(Wanted::AtMost(capacity)),
            true if capacity > LEAST && 2 * size <= capacity => wrong(Wanted::MoreThan(capacity / 2)),
            false if size != capacity => wrong(Wanted::Exactly(capacity)),
            _ if size % i64::from(self.vector) != 0 => wrong(Wanted::MultipleOf(i64::from(self.vector))),
            _ => Ok(()),
        }
    }

    fn blocks(&self, problem: &Problem<'_>) -> u64 {
        problem.rows().div_ceil(u64::from(self.rows()))
    }

    fn lane_axis(&self, stage: &Stage) -> Option<Axis> {
        stage.state_axis()
    }

    fn cost(&self, problem: &Problem<'_>, memory: &Memory) -> Cost {
        estimate(self, problem, memory)
    }

    fn words(&self, stage: &Stage, sizes: &[i64]) -> String {
        let rows: i64 = stage.outer_axes().iter().map(|a| sizes[a.0 as usize]).product();
        let length = stage.axis().map_or(1, |a| sizes[a.0 as usize]);
        let Recurrence { lanes, states, ahead, .. } = *self;
        format!(
            "{} of the state, {} per block; {} × {} per row; {}, {ahead} loaded ahead",
            counted(rows, "row"),
            self.rows(),
            counted(lanes, "lane"),
            counted(states, "place"),
            counted(length, "step"),
        )
    }

    fn picture(&self, stage: &Stage) -> Picture {
        let [length, across] = [self.ahead, self.rows()].map(u64::from);
        Picture { along: stage.axis(), within: vec![], length, across, tile: None, carry: Carry::Kept }
    }
}

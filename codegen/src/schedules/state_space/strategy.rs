//! The state-space schedule, as the rest of the compiler knows it.

use oplus_dsl::Elem;
use oplus_dsl::ir::Axis;

use super::candidates::{scalar, with_vectors};
use super::cost::{Walk, estimate};
use super::{StateSpace, can_save, can_segment, ends_len, saved_len, with_ends};
use crate::schedules::cost::{Cost, Memory};
use crate::schedules::error::LowerError;
use crate::schedules::misfit::{Misfit, Wanted};
use crate::schedules::picture::{Carry, Picture};
use crate::schedules::pieces::Piece;
use crate::schedules::problem::Problem;
use crate::schedules::segments::Segments;
use crate::schedules::shape::{blocks_of_rows, rows_and_length, vector};
use crate::schedules::strategy::{Access, Strategy};
use crate::stage::{Kind, Refusal, Stage};
use crate::target::Isa;
use crate::tile::Kernel;
use crate::words::counted;

/// The states that the smallest schedules have room for; each larger one has four times as much.
const LEAST_STATES: i64 = 4;

impl Strategy for StateSpace {
    fn takes(kind: &Kind) -> Result<(), Refusal> {
        kind.walk().map(|_| ())
    }

    fn candidates(stage: &Stage, isa: Isa, access: Access) -> Vec<StateSpace> {
        match access {
            Access::Vectors => {
                let access = stage.axis().and_then(|axis| vector(stage, axis));
                access.map(|vector| with_vectors(stage, vector, isa)).unwrap_or_default()
            }
            Access::Singles | Access::Unmerged => scalar(stage),
        }
    }

    fn kernels(&self, _stage: &Stage, _isa: Isa) -> Vec<StateSpace> {
        with_ends(self)
    }

    fn saving(&self, stage: &Stage) -> Option<StateSpace> {
        let unroll = self.unroll_of_saving();
        (!self.ends && can_save(stage)).then_some(StateSpace { save: true, unroll, ..*self })
    }

    fn name(&self) -> &'static str {
        StateSpace::NAME
    }

    fn vector(&self) -> u32 {
        self.vector
    }

    fn scratch(&self, _stage: &Stage) -> Vec<(&'static str, Elem)> {
        let [saved, ends] = [(self.save, "saved_states"), (self.segmented, "segment_ends")];
        [saved, ends].into_iter().filter(|(is_there, _)| *is_there).map(|(_, name)| (name, Elem::F32)).collect()
    }

    fn is_segmented(&self) -> bool {
        self.segmented
    }

    fn lower(&self, stage: &Stage, _isa: Isa, symbol: &str) -> Result<Kernel, LowerError> {
        super::lower(stage, self, symbol)
    }

    fn shared_bytes(&self, stage: &Stage, _isa: Isa) -> u32 {
        super::shared_bytes(stage, self)
    }

    fn threads(&self) -> u32 {
        StateSpace::threads(self)
    }

    fn fits(&self, problem: &Problem<'_>) -> Result<(), Misfit> {
        if self.segmented && !can_segment(problem.stage) {
            return Err(Misfit::StatesOfSegments);
        }
        if self.segmented && self.scratch_lens(problem, &[]).is_none() {
            return Err(Misfit::TooManyStates);
        }
        let StateSpace { padded, vector, steps, stages, .. } = *self;
        States { capacity: self.capacity(), padded, vector, tile: steps, stages }.fit(problem)
    }

    fn blocks(&self, problem: &Problem<'_>) -> u64 {
        blocks_of_rows(problem, self.rows())
    }

    fn segments(&self, problem: &Problem<'_>) -> Segments {
        let tiles = problem.length().div_ceil(u64::from(self.steps)).max(1);
        if !self.segmented {
            return Segments::one(tiles);
        }
        let walk = Walk::of(self, problem);
        Segments::fastest(tiles, walk.most_segments(), |segments| walk.micros(segments))
    }

    fn blocks_along_time(&self, segments: Segments) -> u32 {
        // Nothing waits for the end of the last segment.
        (if self.ends { segments.count.saturating_sub(1) } else { segments.count }) as u32
    }

    fn scratch_lens(&self, problem: &Problem<'_>, _pieces: &[Piece]) -> Option<Vec<u64>> {
        if !self.segmented {
            return Some(vec![]);
        }
        let len = ends_len(problem.stage, self.segments(problem).count, |axis| problem.size(axis))?;
        Some(vec![len])
    }

    fn saved_len(&self, stage: &Stage, size: &dyn Fn(Axis) -> i64) -> Option<u64> {
        saved_len(stage, size)
    }

    fn lane_axis(&self, stage: &Stage) -> Option<Axis> {
        stage.axis()
    }

    fn cost(&self, problem: &Problem<'_>, _memory: &Memory) -> Cost {
        estimate(self, problem)
    }

    fn words(&self, stage: &Stage, sizes: &[i64]) -> String {
        let (rows, length) = rows_and_length(stage, sizes);
        let StateSpace { states, lanes, steps, stages, segmented, ends, .. } = *self;
        let cut = match (segmented, ends) {
            (_, true) => "; what each segment of time does to its states",
            (true, false) => "; in segments of time",
            (false, false) => "",
        };
        format!(
            "{} of {length}, {} per block; {} × {} per row; tiles of {steps} steps, {stages} in flight{cut}",
            counted(rows, "row"),
            self.rows(),
            counted(lanes, "lane"),
            counted(states, "state")
        )
    }

    fn picture(&self, stage: &Stage) -> Picture {
        let [length, across] = [self.steps, self.rows()].map(u64::from);
        Picture { along: stage.axis(), within: vec![], length, across, tile: None, carry: Carry::Kept }
    }
}

/// A state axis of some capacity, filled or padded; time in vectors, tiles and some tiles in flight.
pub(crate) struct States {
    pub capacity: u32,
    pub padded: bool,
    pub vector: u32,
    pub tile: u32,
    pub stages: u32,
}

impl States {
    /// Whether the sizes of a call fit.
    pub(crate) fn fit(&self, problem: &Problem<'_>) -> Result<(), Misfit> {
        let (Some(time), Some(state)) = (problem.stage.axis(), problem.stage.state_axis()) else {
            return Err(Misfit::NoStates);
        };
        let (steps, size) = (problem.size(time), problem.size(state));
        let wrong = |axis: Axis, size, wanted| {
            Err(Misfit::Size { axis: problem.stage.program.axis_name(axis).to_owned(), size, wanted })
        };
        let capacity = i64::from(self.capacity);
        match self.padded {
            true if size > capacity => return wrong(state, size, Wanted::AtMost(capacity)),
            // Lanes walk all states that there is room for, so a schedule with room for a quarter is better where it suffices.
            true if capacity > LEAST_STATES && 4 * size <= capacity => {
                return wrong(state, size, Wanted::MoreThan(capacity / 4));
            }
            false if size != capacity => return wrong(state, size, Wanted::Exactly(capacity)),
            _ => {}
        }
        if steps % i64::from(self.vector) != 0 {
            return wrong(time, steps, Wanted::MultipleOf(i64::from(self.vector)));
        }
        // Tiles and those in flight are counted together.
        let tiles = steps as u64 / u64::from(self.tile) + u64::from(self.stages) + 1;
        Misfit::count(tiles, "tiles")
    }
}

//! The state-space schedule of gradients, as the rest of the compiler knows it.

use oplus_dsl::Elem;
use oplus_dsl::ir::Axis;

use super::candidates::{scalar, with_vectors};
use super::cost::{Work, estimate};
use super::{Pass, StateSpaceBackward, before, can_segment, passes, pieces, scratch, sum_threads};
use crate::schedules::cost::{Cost, Memory};
use crate::schedules::error::LowerError;
use crate::schedules::misfit::Misfit;
use crate::schedules::picture::{Carry, Picture};
use crate::schedules::pieces::Piece;
use crate::schedules::problem::Problem;
use crate::schedules::segments::Segments;
use crate::schedules::shape::{blocks_of_rows, rows_and_length, vector};
use crate::schedules::state_space::{States, saved_len};
use crate::schedules::strategy::{Access, Saving, Strategy};
use crate::stage::{Kind, Refusal, Stage};
use crate::target::Isa;
use crate::tile::Kernel;
use crate::words::counted;

impl Strategy for StateSpaceBackward {
    fn takes(kind: &Kind) -> Result<(), Refusal> {
        kind.walk_back().map(|_| ())
    }

    fn candidates(stage: &Stage, isa: Isa, access: Access) -> Vec<StateSpaceBackward> {
        match access {
            Access::Vectors => {
                let access = stage.axis().and_then(|axis| vector(stage, axis));
                access.map(|vector| with_vectors(stage, vector, isa)).unwrap_or_default()
            }
            Access::Singles | Access::Unmerged => scalar(isa),
        }
    }

    fn kernels(&self, stage: &Stage, _isa: Isa) -> Vec<StateSpaceBackward> {
        passes(stage, self)
    }

    fn name(&self) -> &'static str {
        StateSpaceBackward::NAME
    }

    fn vector(&self) -> u32 {
        self.vector
    }

    fn isa(&self, isa: Isa) -> Isa {
        // Warps that give registers to others are Hopper's.
        if self.vector > 1 || self.registers > 0 { isa } else { Isa::Sm80 }
    }

    fn scratch(&self, _stage: &Stage) -> Vec<(&'static str, Elem)> {
        let whole = ["saved_states", "block_sums", "sums_so_far"];
        let cut = ["segment_carries", "segment_totals", "segment_ends"];
        let cut = cut.into_iter().filter(|_| self.segmented);
        whole.into_iter().chain(cut).map(|name| (name, Elem::F32)).collect()
    }

    fn is_segmented(&self) -> bool {
        self.segmented
    }

    fn has_pieces(&self) -> bool {
        self.pass == Pass::Sum
    }

    fn lower(&self, stage: &Stage, _isa: Isa, symbol: &str) -> Result<Kernel, LowerError> {
        super::lower(stage, self, symbol)
    }

    fn shared_bytes(&self, stage: &Stage, _isa: Isa) -> u32 {
        super::shared_bytes(stage, self)
    }

    fn threads(&self) -> u32 {
        StateSpaceBackward::threads(self)
    }

    fn fits(&self, problem: &Problem<'_>) -> Result<(), Misfit> {
        let stage = problem.stage;
        problem.is_without_empty_axes()?;
        if self.segmented && !can_segment(stage) {
            return Err(Misfit::CotangentsOfSegments);
        }
        let segments = self.segments(problem).count;
        if scratch(stage, self, segments, |axis| problem.size(axis)).is_none() {
            return Err(Misfit::TooManyStates);
        }
        // Of the passes before the walk blocks have fewer rows.
        for pass in [before(self, Pass::Save), StateSpaceBackward { pass: Pass::Sum, ..*self }] {
            Misfit::count(pass.blocks(problem), "blocks")?;
        }
        let StateSpaceBackward { padded, vector, steps, stages, .. } = *self;
        States { capacity: self.capacity(), padded, vector, tile: steps, stages }.fit(problem)
    }

    fn blocks(&self, problem: &Problem<'_>) -> u64 {
        match self.pass {
            Pass::Ends | Pass::Save | Pass::Carry | Pass::Walk => blocks_of_rows(problem, self.block_rows()),
            Pass::Sum => {
                let threads = sum_threads(problem.stage, self, |axis| problem.size(axis));
                threads.unwrap_or(u64::MAX).div_ceil(u64::from(StateSpaceBackward::threads(self)))
            }
        }
    }

    fn segments(&self, problem: &Problem<'_>) -> Segments {
        let tiles = problem.length().div_ceil(u64::from(self.steps)).max(1);
        if !self.segmented {
            return Segments::one(tiles);
        }
        let work = Work::of(self, problem);
        let best = Segments::fastest(tiles, work.most_segments(), |segments| work.of_segments(segments));
        let saves_whole = work.save(Segments::one(tiles)) <= work.save(best);
        Segments { saves_whole, ..best }
    }

    fn own_segments(&self, all: Segments) -> Segments {
        if matches!(self.pass, Pass::Ends | Pass::Save) { all.saving() } else { all }
    }

    fn blocks_along_time(&self, segments: Segments) -> u32 {
        let count = match self.pass {
            // Nothing waits for the carry of one of the segments.
            Pass::Ends | Pass::Carry => segments.count.saturating_sub(1),
            Pass::Save | Pass::Walk => segments.count,
            Pass::Sum => 1,
        };
        count as u32
    }

    fn pieces(&self, problem: &Problem<'_>) -> Vec<Piece> {
        pieces::pieces(self, problem)
    }

    fn scratch_lens(&self, problem: &Problem<'_>, pieces: &[Piece]) -> Option<Vec<u64>> {
        pieces::lens(self, problem, pieces)
    }

    fn saved_states(&self) -> Option<Saving> {
        match self.pass {
            Pass::Ends => Some(Saving::Ends),
            Pass::Save => Some(Saving::States),
            Pass::Walk => Some(Saving::Reader),
            Pass::Carry | Pass::Sum => None,
        }
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
        let StateSpaceBackward { pass, states, rows: own, lanes, steps, stages, segmented, .. } = *self;
        let what = match pass {
            Pass::Ends => "what each segment of time does to its states",
            Pass::Save => "every eighth state saved",
            Pass::Carry => "what each segment of time does to its cotangent",
            Pass::Walk => "every eight steps computed again and walked back",
            Pass::Sum if segmented => return "the sums of all blocks and segments".to_owned(),
            Pass::Sum => return "the sums over rows of all blocks".to_owned(),
        };
        format!(
            "{} of {length}, {} per block; {} × {} × {}; tiles of {steps} steps, {stages} in flight; {what}",
            counted(rows, "row"),
            self.block_rows(),
            counted(lanes, "lane"),
            counted(own, "row"),
            counted(states, "state")
        )
    }

    fn picture(&self, stage: &Stage) -> Picture {
        let [length, across] = [self.steps, self.block_rows()].map(u64::from);
        Picture { along: stage.axis(), within: vec![], length, across, tile: None, carry: Carry::Kept }
    }
}

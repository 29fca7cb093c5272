//! The chunkwise schedule of gradients, as the rest of the compiler knows it.

use oplus_dsl::Elem;
use oplus_dsl::ir::{Axis, AxisSet};

use super::cost::work;
use super::{ChunkwiseBackward, Sweep, TIMES, candidates, cost, scratch, sweeps};
use crate::schedules::chunkwise;
use crate::schedules::chunkwise::fits::{Matrices, counted};
use crate::schedules::chunkwise::work::recurrences;
use crate::schedules::cost::{Cost, Memory};
use crate::schedules::error::LowerError;
use crate::schedules::misfit::Misfit;
use crate::schedules::picture::{Carry, Picture};
use crate::schedules::pieces::Piece;
use crate::schedules::problem::Problem;
use crate::schedules::strategy::{Access, Strategy};
use crate::stage::{Kind, Refusal, Stage};
use crate::target::Isa;
use crate::tile::Kernel;

impl Strategy for ChunkwiseBackward {
    fn takes(kind: &Kind) -> Result<(), Refusal> {
        match kind {
            Kind::Backward(_) => kind.matrices_back().map(|_| ()),
            _ => Err(Refusal::OneDirection),
        }
    }

    fn candidates(stage: &Stage, isa: Isa, access: Access) -> Vec<ChunkwiseBackward> {
        // Among them are those that copy single elements.
        if access == Access::Vectors { vec![] } else { candidates::of(stage, isa) }
    }

    fn kernels(&self, stage: &Stage, isa: Isa) -> Vec<ChunkwiseBackward> {
        sweeps(stage, self, isa)
    }

    fn name(&self) -> &'static str {
        ChunkwiseBackward::NAME
    }

    fn vector(&self) -> u32 {
        self.vector
    }

    fn isa(&self, isa: Isa) -> Isa {
        // Saved states go by copy engines where there are such, and warpgroups walk.
        isa
    }

    fn vector_axes(&self, stage: &Stage) -> AxisSet {
        let form = stage.kind().matrices_back().map(|form| &form.states);
        form.map(|form| AxisSet::of(form.depth).with(form.width)).unwrap_or_default()
    }

    fn scratch(&self, stage: &Stage) -> Vec<(&'static str, Elem)> {
        let state = stage.kind().matrices_back().map_or(Elem::F32, |form| self.saved_elem(stage, form));
        vec![("saved_states", state), ("saved_cotangents", state), ("ends", Elem::F32)]
    }

    fn lower(&self, stage: &Stage, isa: Isa, symbol: &str) -> Result<Kernel, LowerError> {
        super::lower(stage, self, isa, symbol)
    }

    fn shared_bytes(&self, stage: &Stage, isa: Isa) -> u32 {
        super::shared_bytes(stage, self, isa)
    }

    fn threads(&self) -> u32 {
        ChunkwiseBackward::threads(self)
    }

    fn longest_sum(&self, stage: &Stage) -> Option<(Axis, i64)> {
        Some((stage.kind().matrices_back().ok()?.states.depth, i64::from(self.depth)))
    }

    fn faster_parts(&self, stage: &Stage) -> Option<i64> {
        chunkwise::candidates::faster_parts(stage, &stage.kind().matrices_back().ok()?.states, self.depth)
    }

    fn fits(&self, problem: &Problem<'_>) -> Result<(), Misfit> {
        let form = problem.stage.kind().matrices_back()?;
        let ChunkwiseBackward { depth, padded, wide, vector, stages, .. } = *self;
        let tiles = Matrices { depth, width: TIMES, padded, wide, vector };
        [&form.states, &form.cotangents].into_iter().try_for_each(|own| tiles.fit(own, problem))?;
        problem.is_without_empty_axes()?;
        if scratch(problem.stage, form, self, |axis| problem.size(axis)).is_none() {
            return Err(Misfit::TooManyStates);
        }
        Misfit::count(recurrences(&form.states, wide, TIMES, problem.bound), "recurrences")?;
        counted(problem.size(form.states.time), TIMES * stages)
    }

    fn blocks(&self, problem: &Problem<'_>) -> u64 {
        let Ok(form) = problem.stage.kind().matrices_back() else { return 0 };
        match self.sweep {
            Sweep::Gradients => {
                let chunks = problem.stage.tiles_of_times(form.states.time, TIMES, |axis| problem.size(axis));
                let shared = form.shared().minus(problem.stage.axis_of_sequences());
                problem.bound.count(shared.iter()).saturating_mul(chunks)
            }
            _ => recurrences(&form.states, self.wide, TIMES, problem.bound),
        }
    }

    fn blocks_of_recurrence(&self, problem: &Problem<'_>) -> Option<u64> {
        if self.sweep == Sweep::Gradients {
            return None;
        }
        let form = problem.stage.kind().matrices_back().ok()?;
        let segments = work(self, form, problem).segments(problem);
        // Nothing waits for the end of one of the segments.
        Some(if self.sweep.is_ends() { segments - 1 } else { segments })
    }

    fn scratch_lens(&self, problem: &Problem<'_>, _pieces: &[Piece]) -> Option<Vec<u64>> {
        let form = problem.stage.kind().matrices_back().ok()?;
        let [states, cotangents] = scratch(problem.stage, form, self, |axis| problem.size(axis))?;
        let rows = recurrences(&form.states, self.wide, TIMES, problem.bound);
        let segments = work(self, form, problem).segments(problem);
        Some(vec![states, cotangents, chunkwise::scratch(rows, segments, TIMES, self.depth)?])
    }

    fn cost(&self, problem: &Problem<'_>, _memory: &Memory) -> Cost {
        cost::estimate(self, problem)
    }

    fn words(&self, _stage: &Stage, _sizes: &[i64]) -> String {
        let words = match self.sweep {
            Sweep::StateEnds => "a block per segment of a recurrence, only their ends",
            Sweep::States => "a block per segment of a recurrence; the state before every 64 times saved",
            Sweep::CotangentEnds => "a block per segment of a recurrence, backwards, only their ends",
            Sweep::Cotangents => {
                "a block per segment of a recurrence, backwards; the state's cotangent after every 64 times saved"
            }
            Sweep::Gradients => "a block per 64 times and group of heads; head by head",
        };
        words.to_owned()
    }

    fn picture(&self, stage: &Stage) -> Picture {
        let form = stage.kind().matrices_back().map(|form| &form.states);
        let within = form.map_or(vec![], |form| vec![form.width, form.depth]);
        let carry = if self.sweep == Sweep::Gradients { Carry::None } else { Carry::Kept };
        Picture { along: stage.axis(), within, length: u64::from(TIMES), across: 1, tile: None, carry }
    }

    fn goes_back(&self, _: &Stage) -> bool {
        self.sweep == Sweep::Cotangents
    }
}

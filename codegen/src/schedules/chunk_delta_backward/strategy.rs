//! The schedule of gradients of delta rules in chunks, as the rest of the compiler knows it.

use oplus_dsl::Elem;
use oplus_dsl::ir::{Axis, AxisSet};

use super::{ChunkDeltaBackward, DeltaSweep, STAGES, TIMES, candidates, cost, scratch, sweeps};
use crate::block::prepare::factor_elem;
use crate::schedules::chunk_delta::fit;
use crate::schedules::chunkwise::fits::counted;
use crate::schedules::cost::{Cost, Memory};
use crate::schedules::error::LowerError;
use crate::schedules::misfit::Misfit;
use crate::schedules::picture::{Carry, Picture};
use crate::schedules::pieces::Piece;
use crate::schedules::problem::Problem;
use crate::schedules::segments::Segments;
use crate::schedules::strategy::{Access, Strategy};
use crate::stage::{Kind, Refusal, Stage};
use crate::target::Isa;
use crate::tile::Kernel;

impl Strategy for ChunkDeltaBackward {
    fn takes(kind: &Kind) -> Result<(), Refusal> {
        kind.delta_back().map(|_| ())
    }

    fn candidates(stage: &Stage, isa: Isa, access: Access) -> Vec<ChunkDeltaBackward> {
        // Among them are those that copy single elements.
        if access == Access::Vectors { vec![] } else { candidates::of(stage, isa) }
    }

    fn kernels(&self, stage: &Stage, _isa: Isa) -> Vec<ChunkDeltaBackward> {
        sweeps(stage, self)
    }

    fn name(&self) -> &'static str {
        ChunkDeltaBackward::NAME
    }

    fn vector(&self) -> u32 {
        self.vector
    }

    fn isa(&self, _isa: Isa) -> Isa {
        Isa::Sm80
    }

    fn vector_axes(&self, stage: &Stage) -> AxisSet {
        let form = stage.kind().delta_back().map(|form| &form.states);
        form.map(|form| AxisSet::of(form.depth).with(form.width)).unwrap_or_default()
    }

    fn scratch(&self, stage: &Stage) -> Vec<(&'static str, Elem)> {
        let form = stage.kind().delta_back();
        let has_two_keys = form.as_ref().is_ok_and(|form| form.states.has_two_keys());
        let reads = form.as_ref().is_ok_and(|form| form.states.reads);
        let mut names = vec!["saved_states", "saved_cotangents"];
        names.extend(reads.then_some(["saved_errors", "saved_products"]).into_iter().flatten());
        names.extend(has_two_keys.then_some("saved_value_products"));
        let own = form.map_or(Elem::Bf16, |form| stage.program.params[form.states.row.param as usize].elem);
        let saved = factor_elem(own, self.vector, self.depth);
        names.extend(self.prepared.then_some("prepared"));
        let rates = self.prepared.then_some(("prepared_rates", Elem::F32));
        names.into_iter().map(|name| (name, saved)).chain(rates).collect()
    }

    fn lower(&self, stage: &Stage, _isa: Isa, symbol: &str) -> Result<Kernel, LowerError> {
        super::lower(stage, self, symbol)
    }

    fn shared_bytes(&self, stage: &Stage, _isa: Isa) -> u32 {
        super::shared_bytes(stage, self)
    }

    fn threads(&self) -> u32 {
        ChunkDeltaBackward::threads(self)
    }

    fn fits(&self, problem: &Problem<'_>) -> Result<(), Misfit> {
        let form = problem.stage.kind().delta_back()?;
        let ChunkDeltaBackward { depth, padded, wide, vector, .. } = *self;
        fit(problem, &form.states, [depth, TIMES], padded, wide, vector)?;
        problem.is_without_empty_axes()?;
        if scratch(problem.stage, form, self, |axis| problem.size(axis)).is_none() {
            return Err(Misfit::TooManyStates);
        }
        // Persistent blocks count tiles.
        let tiles = ChunkDeltaBackward { persistent: false, ..*self }.blocks(problem);
        Misfit::count(tiles, "tiles")?;
        if self.prepared {
            let prepare = ChunkDeltaBackward { sweep: DeltaSweep::Prepare, ..*self };
            Misfit::count(prepare.blocks(problem), "tiles")?;
        }
        counted(problem.size(form.states.time), TIMES * STAGES)
    }

    fn blocks(&self, problem: &Problem<'_>) -> u64 {
        let Ok(form) = problem.stage.kind().delta_back() else { return 0 };
        let points = problem.bound.count(form.states.outer.iter());
        if self.sweep == DeltaSweep::Prepare {
            let tiles = problem.stage.tiles_of_times(form.states.time, TIMES, |axis| problem.size(axis));
            let outer = form.states.outer.minus(problem.stage.axis_of_sequences());
            return problem.bound.count(outer.iter()).saturating_mul(tiles);
        }
        if let Some(sequences) = problem.stage.sequences().filter(|_| self.is_last()) {
            let tiles = sequences.tiles(|axis| problem.size(axis), TIMES) as u64;
            let parts = if self.sweep == DeltaSweep::Channels { TIMES / super::channels::times(self.depth) } else { 1 };
            let outer = form.states.outer.minus(problem.stage.axis_of_sequences());
            return problem.bound.count(outer.iter()).saturating_mul(tiles).saturating_mul(u64::from(parts));
        }
        let (along, of_one) = match self.sweep {
            DeltaSweep::Gradients => (form.states.time, TIMES),
            DeltaSweep::Channels => (form.states.time, super::channels::times(self.depth)),
            _ => (form.states.width, self.places),
        };
        let all = points.saturating_mul((problem.size(along) as u64).div_ceil(u64::from(of_one)));
        if self.sweep == DeltaSweep::Gradients && self.persistent {
            return all.min(u64::from(problem.target.multiprocessors * self.blocks));
        }
        all
    }

    fn blocks_along_time(&self, _segments: Segments) -> u32 {
        if self.sweep == DeltaSweep::Walks { 2 } else { 1 }
    }

    fn scratch_lens(&self, problem: &Problem<'_>, _pieces: &[Piece]) -> Option<Vec<u64>> {
        let form = problem.stage.kind().delta_back().ok()?;
        scratch(problem.stage, form, self, |axis| problem.size(axis))
    }

    fn lane_axis(&self, stage: &Stage) -> Option<Axis> {
        stage.state_axis()
    }

    fn cost(&self, problem: &Problem<'_>, memory: &Memory) -> Cost {
        cost::estimate(self, problem, memory)
    }

    fn words(&self, _stage: &Stage, _sizes: &[i64]) -> String {
        let places = self.places;
        match self.sweep {
            DeltaSweep::Prepare => {
                format!("a block per {TIMES} times of a recurrence: factors of both walks, their systems and weights")
            }
            DeltaSweep::States => format!(
                "a block per {places} places of the width of a recurrence; the state before every 64 times saved, and what each step moves it by"
            ),
            DeltaSweep::Cotangents => format!(
                "a block per {places} places of the width of a recurrence, backwards; the state's cotangent after every 64 times saved, and its products with keys"
            ),
            DeltaSweep::Walks => format!(
                "two blocks per {places} places of the width of a recurrence: one saves the state before every 64 times, the other, backwards, its cotangent after them"
            ),
            DeltaSweep::Gradients if self.persistent => {
                "a block for each multiprocessor, which goes through tiles of 64 times of recurrences; parts of their width copied ahead".to_owned()
            }
            DeltaSweep::Gradients => "a block per 64 times of a recurrence".to_owned(),
            DeltaSweep::Channels => {
                format!(
                    "a block per {} times of a recurrence, a warp per 16 of them and 32 places of the depth",
                    super::channels::times(self.depth)
                )
            }
        }
    }

    fn picture(&self, stage: &Stage) -> Picture {
        let form = stage.kind().delta_back().map(|form| &form.states);
        let within = form.map_or(vec![], |form| vec![form.width, form.depth]);
        let carry = if self.walks() { Carry::Kept } else { Carry::None };
        Picture { along: stage.axis(), within, length: u64::from(TIMES), across: 1, tile: None, carry }
    }

    fn goes_back(&self, _: &Stage) -> bool {
        self.sweep == DeltaSweep::Cotangents
    }
}

//! The chunkwise schedule, as the rest of the compiler knows it.

use oplus_dsl::Elem;
use oplus_dsl::ir::{Axis, AxisSet};

use super::work::{Work, recurrences};
use super::{Chunkwise, KeyParts, candidates, cost, fits, prepared, scratch, with_ends};
use crate::schedules::Unit;
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

impl Strategy for Chunkwise {
    fn takes(kind: &Kind) -> Result<(), Refusal> {
        match kind {
            Kind::Contracted(_) | Kind::MatrixReduce(_) => kind.matrices().map(|_| ()),
            _ => Err(Refusal::NoContraction),
        }
    }

    fn candidates(stage: &Stage, isa: Isa, access: Access) -> Vec<Chunkwise> {
        // Among them are those that copy single elements.
        if access == Access::Vectors { vec![] } else { candidates::of(stage, isa) }
    }

    fn kernels(&self, stage: &Stage, _isa: Isa) -> Vec<Chunkwise> {
        with_ends(stage, self)
    }

    fn name(&self) -> &'static str {
        Chunkwise::NAME
    }

    fn vector(&self) -> u32 {
        self.vector
    }

    fn isa(&self, isa: Isa) -> Isa {
        // Only warpgroups need more than every device has.
        if self.unit == Unit::Warpgroup { isa } else { Isa::Sm80 }
    }

    fn vector_axes(&self, stage: &Stage) -> AxisSet {
        stage.kind().matrices().map(|form| AxisSet::of(form.depth).with(form.width)).unwrap_or_default()
    }

    fn scratch(&self, _stage: &Stage) -> Vec<(&'static str, Elem)> {
        let ends = ("ends", Elem::F32);
        match self.key_parts {
            KeyParts::Divided => vec![ends],
            _ => vec![("query_parts", Elem::Bf16), ("key_parts", Elem::Bf16), ends],
        }
    }

    fn lower(&self, stage: &Stage, _isa: Isa, symbol: &str) -> Result<Kernel, LowerError> {
        super::lower(stage, self, symbol)
    }

    fn shared_bytes(&self, stage: &Stage, _isa: Isa) -> u32 {
        super::shared_bytes(stage, self)
    }

    fn threads(&self) -> u32 {
        Chunkwise::threads(self)
    }

    fn longest_sum(&self, stage: &Stage) -> Option<(Axis, i64)> {
        Some((stage.kind().matrices().ok()?.depth, i64::from(self.depth)))
    }

    fn faster_parts(&self, stage: &Stage) -> Option<i64> {
        candidates::faster_parts(stage, stage.kind().matrices().ok()?, self.depth)
    }

    fn fits(&self, problem: &Problem<'_>) -> Result<(), Misfit> {
        fits::fits(self, problem)
    }

    fn blocks(&self, problem: &Problem<'_>) -> u64 {
        let form = problem.stage.kind().matrices();
        if let (KeyParts::Prepare, Ok(form)) = (self.key_parts, &form) {
            return prepared::blocks(problem.stage, form, self, |axis| problem.size(axis)).unwrap_or(u64::MAX);
        }
        let rows = form.map_or(0, |form| recurrences(form, self.wide, self.width(), problem.bound));
        rows / u64::from(self.heads)
    }

    fn blocks_of_recurrence(&self, problem: &Problem<'_>) -> Option<u64> {
        if self.key_parts == KeyParts::Prepare {
            return None;
        }
        let form = problem.stage.kind().matrices().ok()?;
        let segments = Work::of(self, form, problem).segments(problem);
        // The last segment's end is what nothing waits for.
        Some(if self.ends { segments - 1 } else { segments })
    }

    fn scratch_lens(&self, problem: &Problem<'_>, _pieces: &[Piece]) -> Option<Vec<u64>> {
        let form = problem.stage.kind().matrices().ok()?;
        let segments = Work::of(self, form, problem).segments(problem);
        let rows = recurrences(form, self.wide, self.width(), problem.bound);
        let ends = scratch(rows, segments, self.width(), self.depth)?;
        if self.key_parts == KeyParts::Divided {
            return Some(vec![ends]);
        }
        let chunks = prepared::blocks(problem.stage, form, self, |axis| problem.size(axis))?;
        let parts = prepared::scratch(self, chunks)?;
        Some(vec![parts, parts, ends])
    }

    fn cost(&self, problem: &Problem<'_>, memory: &Memory) -> Cost {
        cost::estimate(self, problem, memory)
    }

    fn words(&self, _stage: &Stage, _sizes: &[i64]) -> String {
        let ends = if self.ends { ", only their ends" } else { "" };
        if self.key_parts == KeyParts::Prepare {
            return format!("a block per {} times of queries and keys, which it divides in two parts", self.times());
        }
        let (times, stages) = (self.times(), self.stages);
        let recurrences = if self.heads > 1 { "two recurrences with the same keys" } else { "a recurrence" };
        format!("a block per segment of {recurrences}{ends}; chunks of {times} times, {stages} in flight")
    }

    fn picture(&self, stage: &Stage) -> Picture {
        let within = stage.kind().matrices().map_or(vec![], |form| vec![form.width, form.depth]);
        let length = u64::from(self.times());
        let carry = if self.key_parts == KeyParts::Prepare { Carry::None } else { Carry::Kept };
        Picture { along: stage.axis(), within, length, across: 1, tile: None, carry }
    }
}

//! Divided programs that can be called.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use oplus_dsl::ir::Program;
use oplus_dsl::shard::{self, Pick, Ranks};
use oplus_dsl::specialize::keep_outputs;

use super::agree::hash;
use super::segments::Chosen;
use crate::Error;
use crate::execute::Executable;

/// A program, divided along an axis.
pub(crate) struct Plan {
    /// A hash of the program and the axis.
    pub(super) hash: u64,
    pub(super) phases: Vec<Phase>,
    /// The plan for shards in segments, where there is one.
    pub(super) in_segments: Option<Box<Plan>>,
    /// How many segments calls have.
    pub(super) chosen: Chosen,
}

/// The work of a rank between two exchanges.
pub(super) struct Phase {
    pub(super) picks: Vec<Pick>,
    pub(super) folds: Vec<Fold>,
    pub(super) spreads: Vec<Executable>,
    pub(super) program: Option<Executable>,
    pub(super) joins: Vec<Executable>,
    pub(super) messages: Vec<String>,
}

/// A program that combines messages.
pub(super) struct Fold {
    pub(super) executable: Executable,
    pub(super) gathered: Vec<String>,
    pub(super) ranks: Ranks,
}

/// An axis, and which outputs are wanted.
type Division = (String, Vec<bool>);

/// The divided forms of a program.
#[derive(Default)]
pub(crate) struct Plans(RwLock<HashMap<Division, Arc<Plan>>>);

impl Plans {
    /// The program of these outputs, divided along an axis.
    pub(super) fn plan(&self, program: &Program, axis: &str, wanted: &[bool]) -> Result<Arc<Plan>, Error> {
        let key = (axis.to_owned(), wanted.to_vec());
        if let Some(plan) = self.0.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(plan.clone());
        }
        let plan = Arc::new(Plan::of(program, axis, wanted)?);
        let mut plans = self.0.write().unwrap_or_else(PoisonError::into_inner);
        Ok(plans.entry(key).or_insert(plan).clone())
    }
}

/// The program of some of the outputs, divided along an axis.
pub(super) fn sharded(program: &Program, axis: &str, wanted: &[bool]) -> Result<shard::Sharded, Error> {
    shard::shard(&of_outputs(program, wanted), axis).map_err(|e| refusal(program, &e))
}

/// The program of some of the outputs.
fn of_outputs(program: &Program, wanted: &[bool]) -> Program {
    let outputs = program.outputs.iter().zip(wanted).filter(|(_, wanted)| **wanted);
    let names: Vec<&str> = outputs.map(|(output, _)| output.name.as_str()).collect();
    keep_outputs(program, &names)
}

fn refusal(program: &Program, reason: &shard::ShardError) -> Error {
    Error::NotSharded { kernel: program.name.clone(), reason: reason.to_string() }
}

impl Plan {
    fn of(program: &Program, axis: &str, wanted: &[bool]) -> Result<Plan, Error> {
        let program = of_outputs(program, wanted);
        let hash = hash(&format!("{axis}\n{wanted:?}\n{program}"));
        let plan = |sharded: shard::Sharded, in_segments: Option<Box<Plan>>| {
            let phases = sharded.phases.into_iter().map(Phase::of).collect();
            Plan { hash, phases, in_segments, chosen: Chosen::default() }
        };
        let refused = |e: shard::ShardError| refusal(&program, &e);
        let in_segments = shard::shard_in_segments(&program, axis).map_err(refused)?;
        let in_segments = in_segments.map(|sharded| Box::new(plan(sharded, None)));
        Ok(plan(shard::shard(&program, axis).map_err(refused)?, in_segments))
    }

    /// Whether a program of it has a parameter.
    pub(super) fn asks(&self, param: &str) -> bool {
        let folds = |phase: &Phase| phase.folds.iter().any(|fold| fold.executable.program.param(param).is_some());
        let program = |phase: &Phase| phase.program.as_ref().is_some_and(|own| own.program.param(param).is_some());
        self.phases.iter().any(|phase| folds(phase) || program(phase))
    }
}

impl Phase {
    fn of(phase: shard::Phase) -> Phase {
        let fold = |fold: shard::Fold| Fold {
            executable: Executable::new(fold.program),
            gathered: fold.gathered,
            ranks: fold.ranks,
        };
        Phase {
            picks: phase.picks,
            folds: phase.folds.into_iter().map(fold).collect(),
            spreads: phase.spreads.into_iter().map(Executable::new).collect(),
            program: phase.program.map(Executable::new),
            joins: phase.joins.into_iter().map(Executable::new).collect(),
            messages: phase.messages,
        }
    }
}

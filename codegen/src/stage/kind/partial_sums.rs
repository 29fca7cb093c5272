//! Scans with partial sums over columns.

use oplus_dsl::ir::{Axis, Op, Value};

use crate::stage::{Refusal, Stage};

/// A scan whose states are written along a last axis, and its sums over that axis.
#[derive(Clone, Debug, PartialEq)]
pub struct PartialSums {
    /// The sums, each an output of the stage.
    pub sums: Vec<PartialSum>,
}

/// A sum over columns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PartialSum {
    /// The output that has its partial sums.
    pub output: u32,
    /// The value that is summed.
    pub element: Value,
}

impl PartialSums {
    /// The sums of a stage with partial sums: they are over the axis that lies along lanes, and states are written there, too.
    pub(super) fn of(stage: &Stage) -> Result<PartialSums, Refusal> {
        let last = stage.outer_axes().iter().last().filter(|lane| Some(*lane) > stage.axis());
        let lane = last.ok_or(Refusal::PartialSumAxis)?;
        let outputs = 0..stage.program.outputs.len();
        let mut written = outputs.clone().filter(|k| !stage.has_partial_sums(*k) && !stage.is_final(*k));
        if !written.any(|k| stage.program.outputs[k].axes.contains(&lane)) {
            return Err(Refusal::PartialSumAxis);
        }
        let sum = |k: usize| {
            let (_, element) = element(stage, k).filter(|(axis, _)| *axis == lane).ok_or(Refusal::PartialSumAxis)?;
            Ok(PartialSum { output: k as u32, element })
        };
        let sums = outputs.filter(|k| stage.has_partial_sums(*k)).map(sum).collect::<Result<_, Refusal>>()?;
        Ok(PartialSums { sums })
    }
}

/// The sum of an output with partial sums, and its axis.
fn element(stage: &Stage, output: usize) -> Option<(Axis, Value)> {
    match &stage.program.node(stage.summed_tuple(output)?).op {
        Op::Reduce { axis, elements, .. } => {
            let is_summed = |v: Value| matches!(stage.program.node(v).op, Op::Reduce { .. });
            let inner = stage.program.node(elements[0]).op.operands();
            (!inner.into_iter().any(is_summed)).then_some((*axis, elements[0]))
        }
        _ => None,
    }
}

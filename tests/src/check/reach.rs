//! Which kernels a case reaches: those of every schedule that a plan may choose for it, on the device and, where they
//! are others, on the devices before it.

use std::collections::BTreeSet;

use oplus::{Elem, Error};
use oplus_codegen::plan::{Call, PlanError, Planner};
use oplus_codegen::target::{Isa, Target};
use oplus_dsl::ir::Program;
use oplus_dsl::specialize::for_call;

use super::CheckError;
use super::bound::{SLACK, slack};
use super::case::Case;
use super::data::planned;

/// One way to run a call: each of its stages under one schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct Way {
    /// Which, from the fastest on.
    pub rank: usize,
    /// Whether the kernels are those for all devices.
    pub portable: bool,
    /// The schedules of its launches.
    pub schedules: String,
    /// The keys of their kernels.
    pub keys: Vec<String>,
    /// How much deeper than a balanced tree its sums may be.
    pub slack: f64,
}

impl Way {
    /// The one way of a CPU.
    pub fn on_cpu() -> Way {
        Way { rank: 0, portable: false, schedules: String::new(), keys: vec![], slack: SLACK }
    }
}

/// Every way to run a call of a program with the case's element type: on the target, and if the case says so, those ways
/// of other devices that have kernels of their own.
///
/// # Errors
/// Those of the planner.
pub fn ways(case: &Case, program: &Program, call: &Call, target: &Target) -> Result<Vec<Way>, CheckError> {
    let mut ways = ranked(case, program, call, (target, false))?;
    if case.is_portable() && target.isa != Isa::Sm80 {
        let known: BTreeSet<String> = ways.iter().flat_map(|way| way.keys.iter().cloned()).collect();
        let others = ranked(case, program, call, (&Target { isa: Isa::Sm80, ..*target }, true))?;
        ways.extend(others.into_iter().filter(|way| way.keys.iter().any(|key| !known.contains(key))));
    }
    Ok(ways)
}

fn ranked(
    case: &Case,
    program: &Program,
    call: &Call,
    (target, portable): (&Target, bool),
) -> Result<Vec<Way>, CheckError> {
    let failed = |e: PlanError| CheckError::Unexpected(e.to_string());
    let planner = Planner::new(program, target).map_err(failed)?;
    let best = planner.plan(call).map_err(failed)?;
    let count = best.choices.iter().map(|c| c.candidates.len()).max().unwrap_or(0).max(1);
    let sizes: Vec<usize> = call.sizes.iter().map(|n| *n as usize).collect();
    let way = |rank| {
        let steps = planner.plan_ranked(call, rank).map_err(failed)?.steps;
        let schedules: Vec<_> = steps.iter().map(|step| step.schedule).collect();
        Ok(Way {
            rank,
            portable,
            slack: slack(&schedules, &sizes, case.elem),
            schedules: schedules.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
            keys: steps.iter().map(|step| step.key.to_string()).collect(),
        })
    };
    (0..count).map(way).collect()
}

/// The program of a call that wants these outputs and gives the parameters that `gives` names.
pub fn called(program: &Program, elem: Elem, wanted: &[&str], gives: impl Fn(&str) -> bool) -> Program {
    let names = program.params.iter().map(|p| p.name.as_str());
    let absent: Vec<&str> = names.filter(|name| !gives(name)).collect();
    for_call(program, elem, wanted, &absent)
}

/// The keys of all kernels that a case runs on a target, forward and backward.
///
/// # Errors
/// Those of the planner, and of the program.
pub fn keys(case: &Case, target: &Target) -> Result<BTreeSet<String>, CheckError> {
    let mut keys = BTreeSet::new();
    for program in programs(case)? {
        let layout = |axes: &[oplus_dsl::ir::Axis], elem| {
            let sizes = case.axis_sizes(&program);
            planned(&axes.iter().map(|a| sizes[a.0 as usize]).collect::<Vec<_>>(), elem, case.placement)
        };
        let call = Call {
            sizes: case.axis_sizes(&program).into_iter().map(|n| n as i64).collect(),
            params: program.params.iter().map(|p| Some(layout(&p.axes, p.elem))).collect(),
            outputs: program.outputs.iter().map(|o| layout(&o.axes, o.elem)).collect(),
        };
        keys.extend(ways(case, &program, &call, target)?.into_iter().flat_map(|way| way.keys));
    }
    Ok(keys)
}

/// The programs that a case calls: its kernel's, and its gradient's if there is one.
fn programs(case: &Case) -> Result<Vec<Program>, CheckError> {
    let program = case.kernel.program()?;
    let given: Vec<&str> = program.params.iter().filter(|p| case.gives(p)).map(|p| p.name.as_str()).collect();
    let outputs: Vec<&str> = program.outputs.iter().map(|o| o.name.as_str()).collect();
    let forward = called(program, case.elem, &outputs, |name| given.contains(&name));
    let gradient = match case.kernel.gradient_program() {
        Err(Error::NoGradient { .. }) => return Ok(vec![forward]),
        gradient => gradient?,
    };
    let cotangents: Vec<String> = case.cotangents(program).map(|o| format!("{}.bar", o.name)).collect();
    let known = |name: &str| given.contains(&name) || outputs.contains(&name) || cotangents.iter().any(|c| c == name);
    let of_param = |name: &&str| name.strip_suffix(".bar").is_some_and(|param| given.contains(&param));
    let wanted: Vec<&str> = gradient.outputs.iter().map(|o| o.name.as_str()).filter(of_param).collect();
    Ok(vec![forward, called(gradient, case.elem, &wanted, known)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::case::{Extent, standard_cases};
    use rayon::prelude::*;

    /// So a run on one GPU of the newest kind gives every committed kernel its receipt.
    #[test]
    fn every_committed_kernel_is_reached_by_a_case() {
        let cases: Vec<Case> = standard_cases(Extent::Default).into_iter().filter(Case::is_portable).collect();
        let reached: Vec<BTreeSet<String>> = cases.par_iter().map(|case| keys(case, &Target::H200).unwrap()).collect();
        let reached: BTreeSet<&String> = reached.iter().flatten().collect();
        let missed: Vec<&str> = oplus_kernels::keys().filter(|key| !reached.contains(&(*key).to_owned())).collect();
        assert!(missed.is_empty(), "{} of {}: {missed:#?}", missed.len(), oplus_kernels::keys().count());
    }
}

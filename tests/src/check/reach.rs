//! Which kernels a case reaches: those of every schedule that a plan may choose for it, on the device and, where they
//! are others, on the devices before it. From that follows which cases a receipt for every committed kernel takes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use oplus::{Elem, Error};
use oplus_codegen::plan::{Call, Launch, Plan, PlanError, Planner};
use oplus_codegen::target::{Isa, Target};
use oplus_dsl::ir::{Axis, Program};
use oplus_dsl::specialize::for_call;
use rayon::prelude::*;

use super::CheckError;
use super::bound::{Slack, slack};
use super::case::Case;
use super::data::planned;

/// One way to run a call: each of its stages under one schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct Way {
    /// Which, from the fastest on.
    pub rank: usize,
    /// Whether the kernels are those for all devices.
    pub portable: bool,
    /// Whether it takes its kernels because there are no others, as far as it is told.
    pub alone: bool,
    /// Whether the call saves its states.
    pub saves: bool,
    /// The schedules of its launches.
    pub schedules: String,
    /// The keys of their kernels.
    pub keys: Vec<String>,
    /// How much deeper than a balanced tree its sums may be.
    pub slack: Slack,
}

impl Way {
    /// The one way of a CPU.
    pub fn on_cpu() -> Way {
        let (keys, slack) = (vec![], Slack::TREE);
        Way { rank: 0, portable: false, alone: false, saves: false, schedules: String::new(), keys, slack }
    }

    /// The way of a plan.
    fn of(case: &Case, call: &Call, plan: &Plan) -> Way {
        let schedules: Vec<_> = plan.steps.iter().map(|step| step.schedule).collect();
        let sizes: Vec<usize> = call.sizes.iter().map(|n| *n as usize).collect();
        Way {
            slack: slack(&plan.steps, &sizes, case.elem),
            schedules: schedules.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
            keys: plan.steps.iter().map(|step| step.key.to_string()).collect(),
            ..Way::on_cpu()
        }
    }

    /// Whether a committed kernel is among its own.
    pub fn is_committed(&self) -> bool {
        self.keys.iter().any(|key| is_committed(key))
    }
}

fn is_committed(key: &str) -> bool {
    oplus_kernels::contains(key)
}

/// A program made ready for planning on a target, and on the devices before it where these have schedules of their own.
pub struct Planners {
    own: Planner,
    portable: Option<Planner>,
}

impl Planners {
    /// # Errors
    /// The errors of the planner.
    pub fn new(program: &Program, target: &Target) -> Result<Planners, CheckError> {
        let portable = Target { isa: Isa::Sm80, ..*target };
        let portable = (target.isa != Isa::Sm80).then(|| Planner::new(program, &portable)).transpose();
        let own = Planner::new(program, target).map_err(failed)?;
        Ok(Planners { own, portable: portable.map_err(failed)? })
    }

    /// Every way to run a case's call: those of the target, and those of older devices that have kernels of their own; of
    /// these the models' only where they are committed.
    ///
    /// # Errors
    /// The errors of the planner.
    pub fn ways(&self, case: &Case, call: &Call) -> Result<Vec<Way>, CheckError> {
        let mut ways = ranked(case, call, &self.own, false)?;
        let Some(portable) = &self.portable else { return Ok(ways) };
        let known: BTreeSet<String> = ways.iter().flat_map(|way| way.keys.iter().cloned()).collect();
        let is_wanted = |way: &Way| {
            let is_new = way.keys.iter().any(|key| !known.contains(key));
            is_new && (case.is_standard() || way.is_committed())
        };
        ways.extend(ranked(case, call, portable, true)?.into_iter().filter(is_wanted));
        Ok(ways)
    }

    /// Every way to run a case's call with the kernels for all devices.
    ///
    /// # Errors
    /// The errors of the planner.
    pub fn portable_ways(&self, case: &Case, call: &Call) -> Result<Vec<Way>, CheckError> {
        ranked(case, call, self.portable.as_ref().unwrap_or(&self.own), true)
    }

    /// The ways in which a model's call may run among committed kernels, each of which takes one that none before it does.
    ///
    /// # Errors
    /// The errors of the planner.
    pub fn committed_ways(&self, case: &Case, call: &Call) -> Result<Vec<Way>, CheckError> {
        self.own.plan(call).map_err(failed)?;
        let is_there = |launch: &Launch, without: &BTreeSet<String>| {
            let key = launch.key.to_string();
            !without.contains(&key) && is_committed(&key)
        };
        let plain = explore(|without| self.own.plan_among(call, &|launch| is_there(launch, without)).ok());
        let saving = explore(|without| {
            let planned = self.own.plan_saving_among(call, &|launch| is_there(launch, without));
            planned.ok().flatten().map(|(plan, _)| plan)
        });
        let way = |saves| move |plan: &Plan| Way { alone: true, saves, ..Way::of(case, call, plan) };
        Ok(plain.iter().map(way(false)).chain(saving.iter().map(way(true))).collect())
    }
}

fn failed(error: PlanError) -> CheckError {
    CheckError::Unexpected(error.to_string())
}

fn ranked(case: &Case, call: &Call, planner: &Planner, portable: bool) -> Result<Vec<Way>, CheckError> {
    let best = planner.plan(call).map_err(failed)?;
    let count = best.choices.iter().map(|c| c.candidates.len()).max().unwrap_or(0).max(1);
    let way = |rank| {
        let plan = planner.plan_ranked(call, rank).map_err(failed)?;
        Ok(Way { rank, portable, ..Way::of(case, call, &plan) })
    };
    (0..count).map(way).collect()
}

/// Plans found by one that says what a call takes without some kernels: without any of them that an earlier plan has taken,
/// as long as others come in their place.
fn explore(plan: impl Fn(&BTreeSet<String>) -> Option<Plan>) -> Vec<Plan> {
    let (mut seen, mut found, mut queue) = (BTreeSet::new(), vec![], VecDeque::from([BTreeSet::new()]));
    while let Some(without) = queue.pop_front() {
        let Some(plan) = plan(&without) else { continue };
        let keys = keys_of(&plan);
        if keys.is_subset(&seen) {
            continue;
        }
        queue.extend(keys.iter().map(|key| without.iter().chain([key]).cloned().collect()));
        seen.extend(keys);
        found.push(plan);
    }
    found
}

fn keys_of(plan: &Plan) -> BTreeSet<String> {
    plan.steps.iter().map(|step| step.key.to_string()).collect()
}

/// The program of a call that wants these outputs and gives the parameters that `gives` names.
pub fn called(program: &Program, elem: Elem, wanted: &[&str], gives: impl Fn(&str) -> bool) -> Program {
    let names = program.params.iter().map(|p| p.name.as_str());
    let absent: Vec<&str> = names.filter(|name| !gives(name)).collect();
    for_call(program, elem, wanted, &absent)
}

/// The keys of the committed kernels that a case runs, of the programs that it calls.
fn keys(case: &Case, programs: &[(Program, Planners)]) -> Result<BTreeSet<String>, CheckError> {
    let mut keys = BTreeSet::new();
    for (program, planners) in programs {
        let sizes = case.axis_sizes(program);
        if sizes.contains(&0) {
            // Nothing is launched.
            continue;
        }
        let layout = |axes: &[Axis], elem| {
            planned(&axes.iter().map(|a| sizes[a.0 as usize]).collect::<Vec<_>>(), elem, case.placement)
        };
        let call = Call {
            sizes: sizes.iter().map(|n| *n as i64).collect(),
            params: program.params.iter().map(|p| Some(layout(&p.axes, p.elem))).collect(),
            outputs: program.outputs.iter().map(|o| layout(&o.axes, o.elem)).collect(),
        };
        let ways = if case.is_standard() { planners.ways(case, &call) } else { planners.committed_ways(case, &call) };
        keys.extend(ways?.into_iter().flat_map(|way| way.keys).filter(|key| is_committed(key)));
    }
    Ok(keys)
}

/// The most work of the interpreter for a case that is not the only one of a kernel: a few seconds.
const DEAR: u64 = 20_000_000;

/// The places of those cases that together run every committed kernel that any of them runs, `times` times where there are
/// as many: a case is left out where longer ones of its kernel, element type and form run its own as often. Cases that cost
/// the interpreter much are taken for kernels that no other reaches. With the keys of those kernels.
///
/// # Errors
/// The errors of the planner and of the programs.
pub fn covering(cases: &[Case], target: &Target, times: usize) -> Result<(Vec<usize>, BTreeSet<String>), CheckError> {
    let committed = Committed::of_manifest();
    let candidates: Vec<usize> = (0..cases.len()).filter(|i| committed.has(&cases[*i])).collect();
    let alike = |a: &usize, b: &usize| {
        let (a, b) = (&cases[*a], &cases[*b]);
        std::ptr::eq(a.kernel, b.kernel) && (a.elem, a.given) == (b.elem, b.given)
    };
    let groups: Vec<&[usize]> = candidates.chunk_by(alike).collect();
    let of_group = |group| of_group(cases, group, target, times);
    let covered: Vec<_> = groups.into_par_iter().map(of_group).collect::<Result<_, _>>()?;
    let (chosen, counts): (Vec<_>, Vec<_>) = covered.into_iter().unzip();
    Ok((chosen.into_iter().flatten().collect(), counts.into_iter().flat_map(BTreeMap::into_keys).collect()))
}

/// The chosen ones of cases that differ in sizes and layouts only, and how often they run each kernel.
fn of_group(
    cases: &[Case],
    group: &[usize],
    target: &Target,
    times: usize,
) -> Result<(Vec<usize>, BTreeMap<String, usize>), CheckError> {
    let planners = |program: Program| Planners::new(&program, target).map(|planners| (program, planners));
    let programs: Vec<_> = programs(&cases[group[0]])?.into_iter().map(planners).collect::<Result<_, _>>()?;
    let reached = |place: &usize| Ok((*place, cases[*place].cost(), keys(&cases[*place], &programs)?));
    let mut reached: Vec<(usize, u64, BTreeSet<String>)> =
        group.iter().map(reached).collect::<Result<_, CheckError>>()?;
    // Larger cases ask more of a kernel: they come first, unless they cost too much.
    reached.sort_by_key(|(_, cost, _)| (*cost > DEAR, if *cost > DEAR { *cost } else { DEAR - cost }));
    let (mut counts, mut chosen) = (BTreeMap::new(), vec![]);
    for (place, cost, keys) in reached {
        let times = if cost > DEAR { 1 } else { times };
        if keys.iter().any(|key| counts.get(key).is_none_or(|count| *count < times)) {
            keys.into_iter().for_each(|key| *counts.entry(key).or_default() += 1);
            chosen.push(place);
        }
    }
    Ok((chosen, counts))
}

/// The manifest of committed kernels.
const MANIFEST: &str = include_str!("../../../kernels-generated/manifest.toml");

/// The stages that have committed kernels: their names, and the elements of their tensors.
struct Committed(BTreeSet<(&'static str, &'static str)>);

impl Committed {
    fn of_manifest() -> Committed {
        let value = |name| MANIFEST.lines().filter_map(move |line| line.strip_prefix(name)?.strip_prefix(" = "));
        Committed(value("program").map(|name| name.trim_matches('"')).zip(value("elements")).collect())
    }

    /// Whether there are kernels of the case's program and element type. A program whose tensors are all of one type, such as bool,
    /// has kernels of that type alone.
    fn has(&self, case: &Case) -> bool {
        let elem = format!(": {}\"", case.elem);
        let of_one_type = case.kernel.program().is_ok_and(|program| !program.is_generic());
        let is_of_type = |elements: &str| of_one_type || elements.contains(&elem);
        self.0.iter().any(|(stage, elements)| is_of_type(elements) && is_stage_of(stage, case.kernel.name()))
    }
}

/// Whether a stage's name is that of a program, of its gradient, or of a part of one.
fn is_stage_of(stage: &str, program: &str) -> bool {
    let Some(rest) = stage.strip_prefix(program) else { return false };
    let rest = rest.strip_prefix(".bar").unwrap_or(rest);
    rest.is_empty() || rest.strip_prefix('_').is_some_and(|number| number.parse::<u32>().is_ok())
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
    use crate::check::case::committed_cases;

    /// Every committed kernel is run by a case, so that a run on one GPU of the newest kind gives each its receipt.
    #[test]
    fn every_committed_kernel_is_reached_by_a_case() {
        let cases = committed_cases();
        let (chosen, reached) = covering(&cases, &Target::H200, 1).unwrap();
        let missed: Vec<&str> = oplus_kernels::keys().filter(|key| !reached.contains(*key)).collect();
        assert!(missed.is_empty(), "{} of {}: {missed:#?}", missed.len(), oplus_kernels::keys().count());
        assert!(chosen.len() < oplus_kernels::keys().count(), "{} of {} cases", chosen.len(), cases.len());
    }

    #[test]
    fn stages_belong_to_programs() {
        assert!(["ema", "ema.bar", "ema.bar_2", "ema_1"].iter().all(|stage| is_stage_of(stage, "ema")));
        assert!(["ema_constant", "em", "ema.bar_x", "emas"].iter().all(|stage| !is_stage_of(stage, "ema")));
    }
}

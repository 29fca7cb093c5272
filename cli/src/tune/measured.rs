//! Measurements: the lines that `oplus-bench --more` writes.

use crate::explain::contiguous_call;
use crate::programs::named;
use oplus_codegen::plan::{Call, Plan, Planner};
use oplus_codegen::target::{Isa, Target};
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::Program;
use oplus_dsl::specialize::for_call;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::error::Error;

/// A line: the time of one plan of a case.
#[derive(Clone, Debug, Deserialize)]
struct Line {
    case: String,
    /// None where the plan could not run.
    ms: Option<f64>,
    #[serde(default)]
    plan: String,
    #[serde(default)]
    launches: Vec<Launched>,
    isa: String,
    multiprocessors: u32,
    call: Called,
}

/// A launch of a plan.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Launched {
    pub(super) schedule: String,
    /// The estimate when it was measured, microseconds.
    pub(super) micros: Option<f64>,
}

/// The call.
#[derive(Clone, Debug, Deserialize, PartialEq)]
struct Called {
    kernel: String,
    elem: String,
    axes: BTreeMap<String, i64>,
    #[serde(default)]
    without: Vec<String>,
    backward: bool,
}

/// A call and the plans of it that were measured.
pub(super) struct Case {
    pub(super) name: String,
    pub(super) plans: Vec<Measured>,
    call: Called,
    target: Target,
    /// Plans are those of committed kernels.
    pub(super) committed: bool,
}

/// A plan that was measured.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    /// The schedules of its launches.
    pub(super) plan: String,
    pub(super) ms: f64,
    pub(super) launches: Vec<Launched>,
}

impl Case {
    /// The cases of a file in their order. Lines of one plan only, as without `--more`, are passed over; a plan that was measured
    /// several times has the least time.
    pub(super) fn read(text: &str) -> Result<Vec<Case>, Box<dyn Error>> {
        let mut cases: Vec<Case> = vec![];
        for (number, line) in (1..).zip(text.lines()) {
            let value: serde_json::Value = match line.trim() {
                "" => continue,
                line => serde_json::from_str(line).map_err(|e| format!("line {number} is not JSON: {e}"))?,
            };
            if value.get("call").is_none() {
                continue;
            }
            let line: Line = serde_json::from_value(value).map_err(|e| format!("line {number}: {e}"))?;
            if let Some(ms) = line.ms {
                Case::add(&mut cases, line, ms).map_err(|e| format!("line {number}: {e}"))?;
            }
        }
        Ok(cases)
    }

    fn add(cases: &mut Vec<Case>, line: Line, ms: f64) -> Result<(), String> {
        let isa = Isa::ALL.into_iter().find(|isa| isa.name() == line.isa);
        let isa = isa.ok_or_else(|| format!("there is no instruction set {}", line.isa))?;
        let target = Target { isa, multiprocessors: line.multiprocessors, ..Target::H200 };
        let measured = Measured { plan: line.plan, ms, launches: line.launches };
        match cases.iter_mut().find(|case| case.name == line.case && case.target == target) {
            Some(case) if case.call != line.call => return Err(format!("{} is another call above", line.case)),
            Some(case) => match case.plans.iter_mut().find(|known| known.plan == measured.plan) {
                Some(known) => known.ms = known.ms.min(ms),
                None => case.plans.push(measured),
            },
            None => {
                cases.push(Case { name: line.case, plans: vec![measured], call: line.call, target, committed: false });
            }
        }
        Ok(())
    }

    /// The schedules that the planner takes for the call today.
    pub(super) fn chosen(&self) -> Result<String, Box<dyn Error>> {
        let (planner, call) = self.planner()?;
        Ok(taken(&planner.plan(&call)?))
    }

    /// The planner of the case's program, and the call.
    pub(super) fn planner(&self) -> Result<(Planner, Call), Box<dyn Error>> {
        let program = self.call.program()?;
        let sizes: Vec<(String, i64)> = self.call.axes.iter().map(|(axis, size)| (axis.clone(), *size)).collect();
        let planner = if self.committed { Planner::of_committed } else { Planner::new };
        Ok((planner(&program, &self.target)?, contiguous_call(&program, &sizes)?))
    }

    /// The fastest plan that was measured.
    pub(super) fn fastest(&self) -> Option<&Measured> {
        self.plans.iter().min_by(|a, b| a.ms.total_cmp(&b.ms))
    }
}

/// The schedules that a plan takes, as measurements name a plan.
pub(super) fn taken(plan: &Plan) -> String {
    let launched = plan.choices.iter().filter(|choice| choice.step.is_some());
    let taken = launched.filter_map(|choice| choice.candidates.first());
    taken.map(|estimate| estimate.schedule.to_string()).collect::<Vec<_>>().join("; ")
}

impl Called {
    /// The program that such calls run.
    fn program(&self) -> Result<Program, Box<dyn Error>> {
        let found = named(oplus_front::library_programs(), std::slice::from_ref(&self.kernel))?;
        let forward = found.into_iter().next().ok_or("there is no such kernel")?;
        let program = if self.backward { adjoint(&forward)? } else { forward };
        let elem = Elem::from_name(&self.elem).ok_or_else(|| format!("there is no element type {}", self.elem))?;
        let given = |name: &str| self.without.iter().all(|absent| absent != name);
        let wanted = program.outputs.iter().map(|output| output.name.as_str());
        let wanted: Vec<&str> = wanted.filter(|name| given(name.strip_suffix(".bar").unwrap_or(name))).collect();
        let absent = program.params.iter().filter(|param| param.default.is_some() && !given(&param.name));
        let absent: Vec<&str> = absent.map(|param| param.name.as_str()).collect();
        Ok(for_call(&program, elem, &wanted, &absent))
    }
}

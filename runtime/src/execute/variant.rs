//! Programs in the form in which calls of one kind run them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, OnceLock, PoisonError};

use oplus_codegen::plan::{self, IsThere, Plan, Planner};
use oplus_codegen::target::Target;
use oplus_dsl::Elem;
use oplus_dsl::ir::Program;
use oplus_dsl::specialize::for_call;

use super::Hand;
use crate::cpu::{Compiled, CpuError};
use crate::{Device, Error};

/// The facts that select a variant of a program: the call's element type, the parameters given and the outputs wanted.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Signature {
    pub(crate) elem: Elem,
    pub(crate) given: Vec<bool>,
    pub(crate) wanted: Vec<bool>,
    /// Whether everything combines in order, see [`ordered`](crate::ordered).
    pub(crate) ordered: bool,
}

/// A plan, and the form of the states that it saves.
pub(crate) type Planned = (Plan, Option<plan::Residual>);

/// A program as calls of one signature run it: without what they leave out.
pub(crate) struct Variant {
    pub(crate) program: Program,
    ordered: bool,
    planners: Mutex<HashMap<Target, Planner>>,
    compiled: OnceLock<Result<Compiled, Error>>,
}

impl Variant {
    pub(super) fn of(program: &Program, signature: &Signature) -> Result<Variant, Error> {
        let Signature { elem, given, wanted, ordered } = signature;
        let params = program.params.iter().zip(given).map(|(p, given)| (p.name.as_str(), *given));
        let outputs = program.outputs.iter().zip(wanted).map(|(o, wanted)| (o.name.as_str(), *wanted));
        let absent: Vec<&str> = params.filter(|(_, given)| !given).map(|(name, _)| name).collect();
        let wanted: Vec<&str> = outputs.filter(|(_, wanted)| *wanted).map(|(name, _)| name).collect();
        let variant = for_call(program, *elem, &wanted, &absent);
        if let Some(param) = variant.params.iter().find(|p| absent.contains(&p.name.as_str())) {
            let reason = format!("it cannot do without `{}`", param.name);
            return Err(Error::Plan { kernel: program.name.clone(), reason });
        }
        let (planners, compiled) = (Mutex::default(), OnceLock::new());
        Ok(Variant { program: variant, ordered: *ordered, planners, compiled })
    }

    /// The program ready to run on the CPU.
    pub(crate) fn on_cpu(&self) -> Result<&Compiled, Error> {
        let compile = || Compiled::new(&self.program, self.ordered).map_err(|e| self.refusal(e));
        self.compiled.get_or_init(compile).as_ref().map_err(Clone::clone)
    }

    /// The CPU's reason for refusing a call.
    pub(crate) fn refusal(&self, reason: CpuError) -> Error {
        match reason {
            CpuError::OutOfMemory { bytes } => Error::OutOfMemory { bytes, device: Device::Cpu.to_string() },
            _ => Error::Plan { kernel: self.program.name.clone(), reason: reason.to_string() },
        }
    }

    /// The plan of a call on a target, with the schedules of that rank.
    pub(crate) fn plan(&self, call: &plan::Call, target: &Target, rank: usize) -> Result<Plan, Error> {
        self.with_planner(target, |planner| planner.plan_ranked(call, rank))
    }

    /// The fastest plan of a call that saves its states or starts from saved ones if it can; with the form of those that it
    /// saves.
    pub(super) fn plan_with(&self, call: &plan::Call, target: &Target, hand: Hand<'_>) -> Result<Planned, Error> {
        let planned = self.with_planner(target, |planner| match hand {
            Hand::Nothing => Ok(None),
            Hand::Save | Hand::SaveInto(_) => Ok(planner.plan_saving(call)?.map(|(plan, form)| (plan, Some(form)))),
            Hand::Saved(residual) => Ok(planner.plan_saved(call, &residual.form)?.map(|plan| (plan, None))),
        });
        planned?.map_or_else(|| Ok((self.plan(call, target, 0)?, None)), Ok)
    }

    /// The plan of a call, among plans whose kernels are there.
    pub(crate) fn plan_among(
        &self,
        call: &plan::Call,
        target: &Target,
        hand: Hand<'_>,
        is_there: &IsThere<'_>,
    ) -> Result<Planned, Error> {
        self.with_planner(target, |planner| {
            let planned = match hand {
                Hand::Nothing => None,
                Hand::Save | Hand::SaveInto(_) => {
                    planner.plan_saving_among(call, is_there)?.map(|(plan, form)| (plan, Some(form)))
                }
                Hand::Saved(residual) => {
                    planner.plan_saved_among(call, &residual.form, is_there)?.map(|plan| (plan, None))
                }
            };
            planned.map_or_else(|| Ok((planner.plan_among(call, is_there)?, None)), Ok)
        })
    }

    fn with_planner<T>(
        &self,
        target: &Target,
        plan: impl FnOnce(&Planner) -> Result<T, plan::PlanError>,
    ) -> Result<T, Error> {
        let failed = |e: plan::PlanError| Error::Plan { kernel: self.program.name.clone(), reason: e.to_string() };
        let new = if self.ordered { Planner::ordered } else { Planner::new };
        let mut planners = self.planners.lock().unwrap_or_else(PoisonError::into_inner);
        let planner = match planners.entry(*target) {
            Entry::Occupied(planner) => planner.into_mut(),
            Entry::Vacant(place) => place.insert(new(&self.program, target).map_err(failed)?),
        };
        plan(planner).map_err(failed)
    }
}

//! Residuals: states that a call saves for the call of its gradient.
//!
//! The schedule state_space_backward starts from saved states. A call whose gradient will be computed can save them at little cost;
//! the gradient then needs no pass that finds them.

use super::sizes::merged;
use super::{Arg, Call, Choice, Launch, Plan};
use crate::abi::Role;
use crate::key::Key;
use crate::schedules::Saving;
use crate::target::Isa;
use oplus_dsl::ir::{Axis, Program};

/// The form of saved states: `f32`, before every eighth step, over these axes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Residual {
    /// The number of elements.
    pub len: u64,
    /// Names of the outer axes, then of time and of the state axis.
    pub axes: Vec<String>,
}

impl Residual {
    /// The residual of a stage of a program, for a call.
    fn of(program: &Program, launch: &Launch, call: &Call) -> Option<Residual> {
        let stage = &launch.stage;
        let size = |axis: Axis| merged(call, &stage.axes[axis.0 as usize]);
        let axes = stage.outer_axes().iter().chain(stage.axis()).chain(stage.state_axis());
        let whole = axes.flat_map(|axis| stage.axes[axis.0 as usize].iter());
        let axes = whole.map(|axis| program.axis_name(*axis).to_owned()).collect();
        Some(Residual { len: launch.schedule.saved_len(stage, &size)?, axes })
    }
}

/// A plan whose states are saved, if it runs one stage under the schedule state_space.
pub(super) fn saving(program: &Program, mut plan: Plan, call: &Call, isa: Isa) -> Option<(Plan, Residual)> {
    let saving = plan.steps.iter().map(|launch| with_saved(launch, isa));
    let mut found = saving.enumerate().filter_map(|(step, launch)| Some((step, launch?)));
    let (Some((step, launch)), None) = (found.next(), found.next()) else { return None };
    drop(found);
    let residual = Residual::of(program, &launch, call)?;
    plan.steps[step] = launch;
    Some((plan, residual))
}

/// A launch under the schedule state_space that also saves its states; `None` for other launches.
pub(super) fn with_saved(launch: &Launch, isa: Isa) -> Option<Launch> {
    let schedule = launch.schedule.saving(&launch.stage)?;
    let key = Key::of(&launch.stage, &*schedule, isa);
    let symbol = key.symbol(&launch.stage, &*schedule);
    let mut args = launch.args.clone();
    let at = schedule.roles(&launch.stage).into_iter().position(|role| role == Role::Scratch(0))?;
    args.insert(at, Arg::Residual);
    Some(Launch { schedule, key, symbol, args, ..launch.clone() })
}

/// Whether a launch finds states that a call could have saved.
pub(super) fn is_save(launch: &Launch) -> bool {
    matches!(launch.schedule.saved_states(), Some(Saving::States | Saving::Ends))
}

/// A plan whose backward-scan stage starts from states saved by an earlier call; `None` where those have another form.
pub(super) fn saved(program: &Program, mut plan: Plan, call: &Call, residual: &Residual) -> Option<Plan> {
    let saving = |launch: &Launch| launch.schedule.saved_states();
    let walk = plan.steps.iter_mut().find(|launch| saving(launch) == Some(Saving::Reader))?;
    if Residual::of(program, walk, call).as_ref() != Some(residual) {
        return None;
    }
    let at = walk.schedule.roles(&walk.stage).into_iter().position(|role| role == Role::Scratch(0))?;
    let buffer = std::mem::replace(&mut walk.args[at], Arg::Residual);
    if let Arg::Buffer(k) = buffer {
        plan.buffers[k as usize].len = 0;
    }
    // Pieces of the rows save states of their own.
    let steps =
        |plan: &Plan, own| (0..plan.steps.len()).rev().filter(|i| saving(&plan.steps[*i]) == Some(own)).collect();
    let saves: Vec<usize> = steps(&plan, Saving::States);
    let ends: Vec<usize> = steps(&plan, Saving::Ends);
    if saves.len() != 1 {
        return None;
    }
    for step in saves.into_iter().chain(ends) {
        remove(&mut plan, step);
    }
    // Other passes name the buffer, but none reads it.
    Some(plan)
}

/// Takes a launch out of a plan.
fn remove(plan: &mut Plan, step: usize) {
    plan.steps.remove(step);
    plan.choices.retain(|choice| choice.step != Some(step));
    let earlier = |choice: &mut Choice| choice.step = choice.step.map(|own| own - usize::from(own > step));
    plan.choices.iter_mut().for_each(earlier);
}

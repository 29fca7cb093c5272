//! The committed kernels of the standard models.
//!
//! All schedules of all models would be many thousands of kernels. Committed are, of all but those with rarer options, in `f32`,
//! `bf16` and `f16`, for calls that give every parameter and, of a gradient, the first cotangent, or all where one is of a
//! final state:
//!
//! * a *floor* of every model, its gradient and its one-step form: kernels of the plain cut that run with any sizes, strides
//!   and addresses, on every device. With them every call has a plan (`Planner::plan_among`), if a slow one: states and pairs
//!   are stored.
//! * the kernels that the plans of [`SETTINGS`] take on an H200. Other calls take the fastest of those that are there. A
//!   setting is passed over where the kernels chosen before it give a plan within [`TOLERANCE`] of its best, and where a
//!   kernel of its plan [spills].
//!
//! Calls that leave out parameters run as if they gave their defaults. Gradients of other cotangents alone, or of a single
//! step, are baked or compiled when they are needed.

use crate::programs::given_cotangents;
use oplus_codegen::plan::{Call, Launch, Layout, Plan, PlanError, Planner, cuts, general_variant};
use oplus_codegen::schedules::{Pass, Schedule};
use oplus_codegen::stage::CutKind;
use oplus_codegen::target::{Isa, Target};
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::{Axis, Program};
use oplus_dsl::step::step;
use oplus_llvm::library::Variant;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::error::Error;

/// The element types of calls.
const ELEMS: [Elem; 3] = [Elem::F32, Elem::Bf16, Elem::F16];
/// The element types of the calls of [`SETTINGS`] whose schedules multiply in half precision on tensor cores.
const HALVES: [Elem; 2] = [Elem::Bf16, Elem::F16];

/// How much slower than the best plan of all one among committed kernels may be estimated to be.
const TOLERANCE: f64 = 1.3;

/// Calls that kernels are chosen for.
struct Setting {
    /// The models that are called.
    models: &'static [&'static str],
    /// In which types.
    elems: &'static [Elem],
    /// The sizes of axes; others have size 1. Tensors are contiguous and aligned.
    sizes: &'static [(&'static str, i64)],
}

const SELECTIVE: [&str; 2] = ["selective_scan", "mamba"];
const EXACT: [&str; 2] = ["attention", "attention_causal"];
/// Heads of any multiple of 8 up to 128.
const PADDED: [(&str, i64); 8] =
    [("B", 2), ("G", 16), ("R", 2), ("M", 2048), ("N", 2048), ("E", 120), ("F", 120), ("S", 5)];

/// The calls that kernels are chosen for.
const SETTINGS: [Setting; 7] = [
    Setting { models: &SELECTIVE, elems: &ELEMS, sizes: &[("B", 8), ("D", 2048), ("N", 16), ("T", 2048)] },
    Setting { models: &SELECTIVE, elems: &ELEMS, sizes: &[("B", 1), ("D", 1024), ("N", 16), ("T", 65_536)] },
    Setting { models: &SELECTIVE, elems: &ELEMS, sizes: &[("B", 8), ("D", 2048), ("N", 64), ("T", 2048)] },
    Setting {
        models: &["monoid_attention"],
        elems: &[Elem::F32, Elem::Bf16],
        sizes: &[("B", 2), ("H", 16), ("K", 64), ("V", 64), ("T", 2048)],
    },
    Setting {
        models: &EXACT,
        elems: &HALVES,
        sizes: &[("B", 4), ("G", 16), ("M", 2048), ("N", 2048), ("E", 128), ("F", 128)],
    },
    Setting {
        models: &EXACT,
        elems: &ELEMS,
        sizes: &[("B", 4), ("G", 16), ("M", 2048), ("N", 2048), ("E", 64), ("F", 64)],
    },
    Setting {
        models: &["attention", "attention_causal", "attention_window", "attention_packed", "attention_packed_causal"],
        elems: &HALVES,
        sizes: &PADDED,
    },
];

/// The kernels of all models.
pub(crate) fn model_variants() -> Result<Vec<Variant>, Box<dyn Error>> {
    let models = committed();
    let all: Vec<_> = models.iter().flat_map(|model| ELEMS.map(|elem| (model, elem))).collect();
    let each = all.par_iter().map(|(model, elem)| of_model(model, *elem)).collect::<Result<Vec<_>, _>>()?;
    Ok(each.into_iter().flatten().collect())
}

/// The models of which kernels are committed.
fn committed() -> Vec<Program> {
    let options = oplus_front::option_models();
    let mut models = oplus_front::model_programs();
    models.retain(|model| !options.contains(&model.name));
    models
}

/// The kernels of a model, its gradient and its one-step form.
fn of_model(model: &Program, elem: Elem) -> Result<Vec<Variant>, String> {
    let mut chosen = Chosen::default();
    let failed = |e: PlanError| format!("`{}`: {e}", model.name);
    let both = [Some(model.clone()), adjoint(model).ok()].into_iter().flatten();
    for program in both.flat_map(|program| given_cotangents(&program, elem)) {
        chosen.floor(&program).map_err(failed)?;
        let is_called = |s: &&Setting| s.models.contains(&model.name.as_str()) && s.elems.contains(&elem);
        for setting in SETTINGS.iter().filter(is_called) {
            chosen.setting(&program, setting).map_err(failed)?;
        }
    }
    if let Ok(step) = step(model) {
        given_cotangents(&step.program, elem).iter().try_for_each(|program| chosen.floor(program)).map_err(failed)?;
    }
    Ok(chosen.0.into_values().collect())
}

/// Kernels by their keys.
#[derive(Default)]
struct Chosen(BTreeMap<String, Variant>);

impl Chosen {
    fn add(&mut self, variant: Variant) {
        self.0.entry(variant.key().to_string()).or_insert(variant);
    }

    /// Kernels that run any call of a program on any device.
    fn floor(&mut self, program: &Program) -> Result<(), PlanError> {
        let stages = cuts(program)?.get(CutKind::Plain).cloned().map_or(vec![], |cut| cut.stages);
        for (stage, schedule) in stages.iter().filter_map(general_variant) {
            self.add(Variant { stage, schedule, isa: schedule.isa(Isa::Sm80) });
        }
        Ok(())
    }

    /// Kernels for a call, unless there are enough already; and for the same call when it saves its states.
    fn setting(&mut self, program: &Program, setting: &Setting) -> Result<(), PlanError> {
        let (planner, call) = (Planner::new(program, &Target::H200)?, call(program, |axis| setting.size(axis), true));
        let (best, known) = (planner.plan(&call)?, planner.plan_among(&call, &|launch| self.has(launch)));
        self.launches(&best, known.ok());
        if let Some((best, _)) = planner.plan_saving(&call)? {
            let known = planner.plan_saving_among(&call, &|launch| self.has(launch))?;
            self.launches(&best, known.map(|(plan, _)| plan));
        }
        Ok(())
    }

    fn has(&self, launch: &Launch) -> bool {
        self.0.contains_key(&launch.key.to_string())
    }

    /// The kernels of the best plan, unless the known one is about as good or one of them spills.
    fn launches(&mut self, best: &Plan, known: Option<Plan>) {
        let is_enough = known.is_some_and(|known| known.micros() <= TOLERANCE * best.micros());
        if is_enough || best.steps.iter().any(spills) {
            return;
        }
        for Launch { stage, schedule, .. } in &best.steps {
            self.add(Variant { stage: (**stage).clone(), schedule: *schedule, isa: schedule.isa(Target::H200.isa) });
        }
    }
}

/// Whether `ptxas` finds too few registers for a kernel, of those that plans of settings take.
fn spills(launch: &Launch) -> bool {
    match (launch.stage.program.name.as_str(), launch.schedule) {
        ("selective_scan", Schedule::StateSpace(s)) => s.save && s.capacity() == 64 && s.vector == 4,
        ("mamba", Schedule::StateSpace(s)) => s.ends || s.save && s.vector == 4,
        ("mamba.bar", Schedule::StateSpaceBackward(s)) => s.pass == Pass::Carry,
        ("monoid_attention.bar", Schedule::StateSpaceBackward(s)) => s.vector == 1,
        // Gradients of attention in f32.
        (name, Schedule::Flash(s)) => name.contains(".bar") && s.vector == 4,
        _ => false,
    }
}

impl Setting {
    fn size(&self, axis: &str) -> i64 {
        self.sizes.iter().find(|(name, _)| *name == axis).map_or(1, |(_, size)| *size)
    }
}

/// The call of a program with everything that it has, contiguous and aligned or neither.
fn call(program: &Program, size: impl Fn(&str) -> i64, aligned: bool) -> Call {
    let sizes: Vec<i64> = program.axes.iter().map(|axis| size(axis)).collect();
    let gap = i64::from(!aligned);
    let layout = |axes: &[Axis], elem: Elem| {
        let (mut strides, mut stride) = (vec![], 1 + gap);
        for axis in axes.iter().rev() {
            strides.insert(0, stride);
            stride = stride * sizes[axis.0 as usize] + gap;
        }
        Layout { strides, align: if aligned { 16 } else { elem.bytes().unwrap_or(8) as u32 } }
    };
    Call {
        params: program.params.iter().map(|p| Some(layout(&p.axes, p.elem))).collect(),
        outputs: program.outputs.iter().map(|o| layout(&o.axes, o.elem)).collect(),
        sizes: sizes.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Sizes that no setting has: of states and channels, of time and keys, and whether tensors are aligned.
    const OTHERS: [(i64, i64, bool); 8] = [
        (1, 1, true),
        (3, 2, false),
        (16, 100, false),
        (17, 1000, true),
        (64, 4097, true),
        (80, 4096, true),
        (128, 640, false),
        (128, 8192, true),
    ];

    /// The size of an axis of a model's call.
    fn size(program: &Program, axis: &str, (width, time): (i64, i64)) -> i64 {
        let is_attention = program.axes.iter().any(|axis| axis == "E");
        match axis {
            "B" | "R" => 3,
            "G" => 2,
            "H" | "S" => 5,
            "D" => 33,
            "T" | "M" => time,
            "N" if is_attention => time,
            _ => width,
        }
    }

    /// Every call has a plan whose kernels are all committed.
    #[test]
    fn other_calls_than_those_of_the_settings_can_run() {
        let models = committed();
        for (model, elem) in models.iter().flat_map(|model| ELEMS.map(|elem| (model, elem))) {
            let keys: BTreeSet<String> =
                of_model(model, elem).expect("kernels").iter().map(|variant| variant.key().to_string()).collect();
            let forms = [Some(model.clone()), adjoint(model).ok(), step(model).ok().map(|step| step.program)];
            for program in forms.into_iter().flatten().flat_map(|program| given_cotangents(&program, elem)) {
                let planner = Planner::new(&program, &Target::H200).expect("cuts");
                for (width, time, aligned) in OTHERS {
                    let call = call(&program, |axis| size(&program, axis, (width, time)), aligned);
                    let plan = planner.plan_among(&call, &|launch| keys.contains(&launch.key.to_string()));
                    assert!(plan.is_ok_and(|p| !p.steps.is_empty()), "{} {elem} {width} {time}", program.name);
                }
            }
        }
    }

    #[test]
    fn settings_name_models_and_give_their_axes() {
        let models = oplus_front::model_programs();
        for Setting { models: names, sizes, .. } in &SETTINGS {
            let given =
                |axis: &String| ["B", "G", "R"].contains(&axis.as_str()) || sizes.iter().any(|(a, _)| a == axis);
            for name in *names {
                let model = models.iter().find(|model| model.name == *name).expect("a model of that name");
                assert!(model.axes.iter().all(given), "{name} has axes {:?}", model.axes);
            }
        }
    }
}

//! The committed kernels of the standard models.
//!
//! All schedules of all models would be many thousands of kernels. Committed are, of all but those with rarer options, in `f32`,
//! `bf16` and `f16`, for calls that give every parameter and, of a gradient, the first cotangent, or all where one is of a
//! final state:
//!
//! * the *fallback kernels* of every model, its gradient and its one-step form: kernels of the plain cut that run with any sizes,
//!   strides and addresses, on every device. With them every call has a plan (`Planner::plan_among`), if a slow one: states and pairs
//!   are stored.
//! * the kernels that the plans of [`SETTINGS`] take on an H200. Other calls take the fastest of those that are there. A
//!   setting is passed over where the kernels chosen before it give a plan within [`TOLERANCE`] of its best, and where a
//!   kernel of its plan spills, as the committed table of [`crate::pressure`] says. Gradients of attention in f32 are left out.
//!
//! Calls that leave out parameters run as if they gave their defaults. Gradients of other cotangents alone, or of a single
//! step, are baked or compiled when they are needed.

use crate::library::Variant;
use crate::pressure::{Pressure, Shape};
use crate::programs::given_cotangents;
use oplus_codegen::plan::{Call, Launch, Layout, Plan, PlanError, Planner, cuts, general_variant};
use oplus_codegen::schedules::Schedule;
use oplus_codegen::stage::CutKind;
use oplus_codegen::target::{Isa, Target};
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::{Axis, Program};
use oplus_dsl::step::step;
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
    let pressure = Pressure::committed()?;
    let each = all.par_iter().map(|(model, elem)| of_model(model, *elem, &pressure)).collect::<Result<Vec<_>, _>>()?;
    Ok(each.into_iter().flatten().collect())
}

/// The kernels of the best plans of all [`SETTINGS`], whether or not they are committed.
pub(crate) fn settings_variants() -> Result<Vec<Variant>, Box<dyn Error>> {
    let models = committed();
    let all: Vec<_> = models.iter().flat_map(|model| ELEMS.map(|elem| (model, elem))).collect();
    let each = all.par_iter().map(|(model, elem)| of_settings(model, *elem)).collect::<Result<Vec<_>, _>>()?;
    let unique = each.into_iter().flatten().map(|variant| (variant.key().to_string(), variant));
    Ok(unique.collect::<BTreeMap<_, _>>().into_values().collect())
}

/// The kernels of the best plans of a model and its gradient.
fn of_settings(model: &Program, elem: Elem) -> Result<Vec<Variant>, String> {
    let failed = |e: PlanError| format!("`{}`: {e}", model.name);
    let both = [Some(model.clone()), adjoint(model).ok()].into_iter().flatten();
    let mut variants = vec![];
    for program in both.flat_map(|program| given_cotangents(&program, elem)) {
        for setting in SETTINGS.iter().filter(|setting| setting.calls(model, elem)) {
            let plans = setting.plans(&program).map_err(failed)?;
            variants.extend(plans.iter().flat_map(|plan| &plan.steps).map(variant_of));
        }
    }
    Ok(variants)
}

/// Ranks of schedules after which there are none slower.
const RANKS: usize = 16;

/// The kernels of all plans of all [`SETTINGS`]: of every way to cut a model and its gradient, the slower schedules as well.
pub(crate) fn ranked_variants() -> Result<Vec<Variant>, Box<dyn Error>> {
    let models = committed();
    let all: Vec<_> = models.iter().flat_map(|model| ELEMS.map(|elem| (model, elem))).collect();
    let each = all.par_iter().map(|(model, elem)| of_ranks(model, *elem)).collect::<Result<Vec<_>, _>>()?;
    Ok(each.into_iter().flatten().collect())
}

/// The kernels of all plans of a model and its gradient.
fn of_ranks(model: &Program, elem: Elem) -> Result<Vec<Variant>, String> {
    let failed = |e: PlanError| format!("`{}`: {e}", model.name);
    let both = [Some(model.clone()), adjoint(model).ok()].into_iter().flatten();
    let mut variants = BTreeMap::new();
    for program in both.flat_map(|program| given_cotangents(&program, elem)) {
        let planner = Planner::of_committed(&program, &Target::H200).map_err(failed)?;
        for setting in SETTINGS.iter().filter(|setting| setting.calls(model, elem)) {
            let call = call(&program, |axis| setting.size(axis), true);
            let ranked = CutKind::ALL.into_iter().flat_map(|how| (0..RANKS).map(move |rank| (how, rank)));
            // A cut may have no schedule for a call.
            let plans = ranked.filter_map(|(how, rank)| planner.plan_of(how, &call, rank).ok().flatten());
            let launches = plans.flat_map(|plan| plan.steps);
            variants.extend(launches.map(|launch| (launch.key.to_string(), variant_of(&launch))));
        }
    }
    Ok(variants.into_values().collect())
}

fn variant_of(launch: &Launch) -> Variant {
    let Launch { stage, schedule, .. } = launch;
    Variant { stage: (**stage).clone(), schedule: *schedule, isa: schedule.isa(Target::H200.isa) }
}

/// The models of which kernels are committed.
fn committed() -> Vec<Program> {
    let options = oplus_front::option_models();
    let mut models = oplus_front::model_programs();
    models.retain(|model| !options.contains(&model.name));
    models
}

/// The kernels of a model, its gradient and its one-step form.
fn of_model(model: &Program, elem: Elem, pressure: &Pressure) -> Result<Vec<Variant>, String> {
    let mut chosen = Chosen { kernels: BTreeMap::new(), pressure };
    let failed = |e: PlanError| format!("`{}`: {e}", model.name);
    let both = [Some(model.clone()), adjoint(model).ok()].into_iter().flatten();
    for program in both.flat_map(|program| given_cotangents(&program, elem)) {
        chosen.fallback(&program).map_err(failed)?;
        for setting in SETTINGS.iter().filter(|setting| setting.calls(model, elem)) {
            chosen.setting(&program, setting).map_err(failed)?;
        }
    }
    if let Ok(step) = step(model) {
        given_cotangents(&step.program, elem)
            .iter()
            .try_for_each(|program| chosen.fallback(program))
            .map_err(failed)?;
    }
    Ok(chosen.kernels.into_values().collect())
}

/// The kernels chosen so far.
struct Chosen<'p> {
    /// By their keys.
    kernels: BTreeMap<String, Variant>,
    pressure: &'p Pressure,
}

impl Chosen<'_> {
    fn add(&mut self, variant: Variant) {
        self.kernels.entry(variant.key().to_string()).or_insert(variant);
    }

    /// Kernels that run any call of a program on any device.
    fn fallback(&mut self, program: &Program) -> Result<(), PlanError> {
        let stages = cuts(program)?.get(CutKind::Plain).cloned().map_or(vec![], |cut| cut.stages);
        for (stage, schedule) in stages.iter().filter_map(general_variant) {
            self.add(Variant { stage, schedule, isa: schedule.isa(Isa::Sm80) });
        }
        Ok(())
    }

    /// Kernels for a call, unless there are enough already; and for the same call when it saves its states.
    fn setting(&mut self, program: &Program, setting: &Setting) -> Result<(), PlanError> {
        let (planner, call) =
            (Planner::of_committed(program, &Target::H200)?, call(program, |axis| setting.size(axis), true));
        let (best, known) = (planner.plan(&call)?, planner.plan_among(&call, &|launch| self.has(launch)));
        self.launches(&best, known.ok());
        if let Some((best, _)) = planner.plan_saving(&call)? {
            let known = planner.plan_saving_among(&call, &|launch| self.has(launch))?;
            self.launches(&best, known.map(|(plan, _)| plan));
        }
        Ok(())
    }

    fn has(&self, launch: &Launch) -> bool {
        self.kernels.contains_key(&launch.key.to_string())
    }

    /// The kernels of the best plan, unless the known one is about as good, or one of them spills or is left out.
    fn launches(&mut self, best: &Plan, known: Option<Plan>) {
        let is_enough = known.is_some_and(|known| known.micros() <= TOLERANCE * best.micros());
        if !is_enough && !best.steps.iter().any(|launch| self.spills(launch) || is_left_out(launch)) {
            best.steps.iter().for_each(|launch| self.add(variant_of(launch)));
        }
    }

    /// Whether the table says that a launch's kernel spills. A kernel that it does not know is taken: `generate` refuses it if it spills.
    fn spills(&self, launch: &Launch) -> bool {
        let shape = Shape::of(&launch.stage, &launch.schedule, Target::H200.isa);
        self.pressure.of(&shape).is_some_and(|registers| registers.spilled > 0)
    }
}

/// Whether a kernel is not committed although it could be: gradients of attention in f32, which are compiled when they are needed.
fn is_left_out(launch: &Launch) -> bool {
    let is_gradient = launch.stage.program.name.contains(".bar");
    is_gradient && matches!(launch.schedule, Schedule::Flash(s) if s.vector == 4)
}

impl Setting {
    /// Whether it calls a model in an element type.
    fn calls(&self, model: &Program, elem: Elem) -> bool {
        self.models.contains(&model.name.as_str()) && self.elems.contains(&elem)
    }

    /// The best plan of the call, and that of a call that saves its states.
    fn plans(&self, program: &Program) -> Result<Vec<Plan>, PlanError> {
        let (planner, call) =
            (Planner::of_committed(program, &Target::H200)?, call(program, |axis| self.size(axis), true));
        let saving = planner.plan_saving(&call)?.map(|(plan, _)| plan);
        Ok([planner.plan(&call)?].into_iter().chain(saving).collect())
    }

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
    use crate::pressure::Registers;
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
    fn size(program: &Program, axis: &str, width: i64, time: i64) -> i64 {
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
        let (models, pressure) = (committed(), Pressure::committed().expect("a table"));
        for (model, elem) in models.iter().flat_map(|model| ELEMS.map(|elem| (model, elem))) {
            let keys: BTreeSet<String> = of_model(model, elem, &pressure)
                .expect("kernels")
                .iter()
                .map(|variant| variant.key().to_string())
                .collect();
            let forms = [Some(model.clone()), adjoint(model).ok(), step(model).ok().map(|step| step.program)];
            for program in forms.into_iter().flatten().flat_map(|program| given_cotangents(&program, elem)) {
                let planner = Planner::of_committed(&program, &Target::H200).expect("cuts");
                for (width, time, aligned) in OTHERS {
                    let call = call(&program, |axis| size(&program, axis, width, time), aligned);
                    let plan = planner.plan_among(&call, &|launch| keys.contains(&launch.key.to_string()));
                    assert!(plan.is_ok_and(|p| !p.steps.is_empty()), "{} {elem} {width} {time}", program.name);
                }
            }
        }
    }

    /// A kernel that the table lacks has another schedule than when it was written: `oplus survey --models --table` writes it again.
    #[test]
    fn the_table_of_registers_knows_every_kernel_of_the_settings() {
        let (pressure, variants) = (Pressure::committed().expect("a table"), settings_variants().expect("plans"));
        let shapes = variants.iter().map(|v| Shape::of(&v.stage, &v.schedule, v.isa)).collect::<Vec<_>>();
        let missing: Vec<&Shape> = shapes.iter().filter(|shape| pressure.of(shape).is_none()).collect();
        assert!(missing.is_empty() && shapes.len() > 200, "{missing:#?}");
        let spills = |shape: &&Shape| pressure.of(shape).is_some_and(|registers| registers.spilled > 0);
        let spilling: Vec<&Shape> = shapes.iter().filter(spills).collect();
        assert!(spilling.is_empty(), "a user without `jit` goes without these: {spilling:#?}");
    }

    #[test]
    fn kernels_that_spill_are_left_out() {
        let models = committed();
        let model = models.iter().find(|model| model.name == "selective_scan").expect("a model of that name");
        let count = |pressure: &Pressure| {
            let kernels = of_model(model, Elem::F32, pressure).expect("kernels");
            let walks = |s: &Schedule| matches!(s, Schedule::StateSpace(_) | Schedule::StateSpaceBackward(_));
            kernels.iter().filter(|variant| walks(&variant.schedule)).count()
        };
        let mut spilling = Pressure::default();
        for variant in of_settings(model, Elem::F32).expect("plans") {
            let shape = Shape::of(&variant.stage, &variant.schedule, variant.isa);
            spilling.insert(shape, Registers { count: 80, spilled: 8 });
        }
        assert!(count(&Pressure::default()) > 20);
        assert_eq!(count(&spilling), 0);
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

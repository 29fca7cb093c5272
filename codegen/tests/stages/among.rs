//! Plans among kernels that are there, when not all are.

use std::cell::RefCell;
use std::collections::BTreeSet;

use oplus_codegen::key::Key;
use oplus_codegen::plan::{Launch, Plan, PlanError, Planner, general_variant};
use oplus_codegen::schedules::{Misfit, Pass, Schedule, StateSpaceBackward};
use oplus_codegen::stage::CutKind;
use oplus_codegen::target::{Isa, Target};
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::Program;

use super::plan::call;
use super::programs;
use super::run::program;

fn planner(program: &Program) -> Planner {
    Planner::new(program, &Target::H200).expect("cuts")
}

fn keys(plan: &Plan) -> BTreeSet<Key> {
    plan.steps.iter().map(|launch| launch.key).collect()
}

fn mamba() -> Program {
    let models = oplus_front::model_programs();
    models.into_iter().find(|program| program.name == "mamba").expect("a standard model").instantiate(Elem::F32)
}

/// Sizes of B, G, D, N and T for a program of these axes.
fn sizes(program: &Program) -> Vec<i64> {
    let size = |axis: &String| match axis.as_str() {
        "B" => 2,
        "G" => 1,
        "D" => 512,
        "N" => 16,
        _ => 1024,
    };
    program.axes.iter().map(size).collect()
}

#[test]
fn schedules_are_taken_in_the_order_of_their_estimates() {
    let program = program(programs::AFFINE);
    let (planner, call) = (planner(&program), call(&program, &[64, 4096]));
    let count = planner.plan(&call).expect("plans").choices[0].candidates.len();
    let mut gone = BTreeSet::new();
    for rank in 0..count {
        let plan = planner.plan_among(&call, &|launch| !gone.contains(&launch.key)).expect("plans");
        let ranked = planner.plan_ranked(&call, rank).expect("plans");
        assert_eq!((plan.steps, plan.choices[0].candidates.len()), (ranked.steps.clone(), count - rank));
        let not_there = plan.choices[0].refused.iter().filter(|(_, why)| *why == Misfit::NotThere).count();
        assert_eq!(not_there, rank);
        gone.extend(keys(&ranked));
    }
    let none = planner.plan_among(&call, &|launch| !gone.contains(&launch.key));
    assert!(matches!(none, Err(PlanError::NoSchedule { .. })), "{none:?}");
}

#[test]
fn all_kernels_of_a_schedule_must_be_there() {
    let program = adjoint(&mamba()).expect("differentiable");
    let (planner, call) = (planner(&program), call(&program, &sizes(&program)));
    let best = planner.plan(&call).expect("plans");
    assert!(
        best.steps
            .iter()
            .any(|l| matches!(l.schedule, Schedule::StateSpaceBackward(StateSpaceBackward { pass: Pass::Save, .. })))
    );
    for missing in keys(&best) {
        let plan = planner.plan_among(&call, &|launch| launch.key != missing).expect("plans");
        assert!(!keys(&plan).contains(&missing) && plan.micros() >= best.micros());
    }
    let same = planner.plan_among(&call, &|launch| keys(&best).contains(&launch.key)).expect("plans");
    assert_eq!(same.steps, best.steps);
}

/// One kernel for each stage of the plain cut is enough for any call.
#[test]
fn general_kernels_run_every_call() {
    let wide = programs::CUMSUM.replace("[B, L]", "[B, H, L]").replace("axes B, L", "axes B, H, L");
    for program in [program(&wide), program(programs::DECAY_BACKWARD), adjoint(&mamba()).expect("differentiable")] {
        let planner = planner(&program);
        let plain = planner.cut(CutKind::Plain).expect("a cut");
        let general: BTreeSet<Key> = plain
            .stages
            .iter()
            .filter_map(general_variant)
            .map(|(stage, schedule)| Key::of(&stage, &*schedule, Isa::Sm80))
            .collect();
        assert_eq!(general.len(), plain.stages.len(), "{program}");
        for n in [0, 1, 3, 100, 5000] {
            let sizes: Vec<i64> = (0..program.axes.len()).map(|axis| if axis == 2 { n } else { 3 }).collect();
            let plan = planner.plan_among(&call(&program, &sizes), &|launch| general.contains(&launch.key));
            assert!(keys(&plan.expect("plans")).is_subset(&general), "{program} {n}");
        }
    }
}

#[test]
fn saved_states_are_planned_among_kernels_that_save() {
    let (forward, backward) = (mamba(), adjoint(&mamba()).expect("differentiable"));
    let (planner, backward_planner) = (planner(&forward), planner(&backward));
    let (call, backward_call) = (call(&forward, &sizes(&forward)), call(&backward, &sizes(&backward)));
    let (best, _) = planner.plan_saving(&call).expect("plans").expect("states");
    let asked = RefCell::new(BTreeSet::new());
    let is_other = |launch: &Launch| {
        asked.borrow_mut().insert(launch.schedule.to_string());
        !keys(&best).contains(&launch.key)
    };
    let (plan, form) = planner.plan_saving_among(&call, &is_other).expect("plans").expect("states");
    assert!(keys(&plan).is_disjoint(&keys(&best)));
    let saves = |schedule: &String| ["save=true", "ends=true"].iter().any(|field| schedule.contains(field));
    assert!(asked.borrow().iter().all(saves), "{asked:?}");
    let is_walk = |launch: &Launch| {
        !matches!(launch.schedule, Schedule::StateSpaceBackward(StateSpaceBackward { pass: Pass::Save, .. }))
    };
    let saved = backward_planner.plan_saved_among(&backward_call, &form, &is_walk).expect("plans").expect("starts");
    assert_eq!(Some(saved.steps), backward_planner.plan_saved(&backward_call, &form).expect("plans").map(|p| p.steps));
    assert_eq!(planner.plan_saving_among(&call, &|_| false), Ok(None));
}

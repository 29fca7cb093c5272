//! Devices whose blocks have less shared memory than Hopper's: plans keep the schedules that store few states, with smaller tiles.

use oplus_codegen::plan::{Plan, Planner};
use oplus_codegen::schedules::{ChunkDelta, ChunkDeltaBackward, RuleSweep, Schedule, StateSpaceBackward};
use oplus_codegen::simulate::Order;
use oplus_codegen::target::Target;
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::interpret::Array;
use oplus_dsl::ir::Program;
use oplus_dsl::testing::relative_error;

use crate::chunk_delta::{inputs, model_of, simulated_on, sizes};
use crate::device::{Placement, SMALL, call, goes_by_chunks};
use crate::oracle::Case;

/// Selective scans with all that a Mamba block adds, and attention with decays for each key.
const SCANS: [&str; 7] = [
    "selective_scan",
    "selective_scan_gated",
    "selective_scan_softplus",
    "mamba",
    "mamba_packed",
    "selective_scan_constant_b",
    "gated_linear_attention",
];

fn gradient(name: &str, elem: Elem) -> Program {
    let models = oplus_front::model_programs();
    let program = models.into_iter().find(|program| program.name == name).expect("a model");
    adjoint(&program).expect("differentiable").instantiate(elem)
}

fn planned(program: &Program, target: &Target, size: impl Fn(&str) -> usize) -> (Vec<usize>, Plan) {
    let sizes: Vec<usize> = program.axes.iter().map(|axis| size(axis)).collect();
    let planner = Planner::new(program, target).expect("cuts");
    let plan = planner.plan(&call(program, &sizes, Placement::Contiguous)).expect("a plan");
    (sizes, plan)
}

fn walks(plan: &Plan) -> Vec<StateSpaceBackward> {
    let walk = |schedule| match schedule {
        Schedule::StateSpaceBackward(walk) => Some(walk),
        _ => None,
    };
    plan.steps.iter().filter_map(|step| walk(step.schedule)).collect()
}

/// Otherwise the states of all times would be stored, which takes some thirty times as long.
#[test]
fn gradients_of_scans_save_few_states() {
    for (name, elem) in SCANS.into_iter().flat_map(|name| [Elem::F32, Elem::Bf16].map(|elem| (name, elem))) {
        let program = gradient(name, elem);
        for (target, states) in [Target::A100, SMALL].into_iter().flat_map(|target| [4, 16, 64].map(|n| (target, n))) {
            let size = |axis: &str| match axis {
                "B" => 8,
                "T" => 2048,
                "D" => 512,
                "V" => 64,
                "N" | "K" => states,
                "S" => 9,
                "S.ends" => 10,
                _ => 1,
            };
            let (_, plan) = planned(&program, &target, size);
            let chunks = plan.steps.iter().any(|step| goes_by_chunks(&step.schedule));
            assert!(chunks || !walks(&plan).is_empty(), "{name} {elem} {states} states, {} bytes", target.shared_bytes);
        }
    }
}

#[test]
fn small_tiles_give_what_the_program_means() {
    for (k, name) in (0..).zip(["selective_scan", "mamba", "mamba_packed"]) {
        let program = gradient(name, Elem::F32);
        for (time, rows, states) in [(1, 1, 16), (19, 5, 13), (17, 33, 16), (9, 9, 64)] {
            let size = |axis: &str| match axis {
                "T" => time,
                "D" => rows,
                "N" => states,
                "S" => 3,
                "S.ends" => 4,
                _ => 1,
            };
            let (sizes, plan) = planned(&program, &SMALL, size);
            let taken = walks(&plan);
            assert!(!taken.is_empty() && taken.iter().all(|walk| walk.steps == 16), "{name} {states}: {taken:?}");
            let order = Order::Random(k);
            Case { program: &program, sizes: &sizes, placement: Placement::Contiguous, order }.check_plan(&SMALL);
        }
    }
}

/// Walks of delta rules over prepared tiles have fewer of them in flight, and give the bits of those that have more.
#[test]
fn prepared_tiles_of_delta_rules() {
    for (name, elem) in [("delta_rule", Elem::F32), ("gated_delta_rule", Elem::F32), ("rwkv7", Elem::Bf16)] {
        let program = &model_of(name, elem);
        let lengths = [1, 2, 200, 64, 64];
        let given = inputs(program, &sizes(program, lengths));
        let of = |target: &Target, order: Order, is_taken: &dyn Fn(&ChunkDelta) -> bool| {
            let is_taken = |schedule: &Schedule| matches!(schedule, Schedule::ChunkDelta(own) if own.sweep == RuleSweep::Walk && own.vector > 1 && is_taken(own));
            let found = simulated_on(target, program, (lengths, &given), (Placement::Contiguous, order), is_taken);
            found.iter().map(|array: &Array| format!("{array:?}")).collect::<Vec<_>>()
        };
        let wanted = of(&Target::H200, Order::Ascending, &|own| own.stages > 1);
        assert!(of(&SMALL, Order::Random(2), &|own| own.stages == 1) == wanted, "{name} {elem}");
    }
}

/// Gradients of delta rules have fewer tiles in flight, and weights of pairs where other tiles were. Where both keep sums over parts of the width
/// in registers they give the same bits as on Hopper.
#[test]
fn gradients_of_delta_rules() {
    for (name, elem, target, keys, width) in [
        ("delta_rule", Elem::Bf16, SMALL, 128, 128),
        ("gated_delta_rule", Elem::Bf16, SMALL, 128, 64),
        ("gated_delta_rule", Elem::F16, SMALL, 128, 128),
        ("delta_rule", Elem::F32, Target::A100, 64, 128),
        ("gated_delta_rule", Elem::F32, Target::A100, 64, 64),
    ] {
        let program = &adjoint(&model_of(name, elem)).expect("differentiable");
        let lengths = [1, 2, 150, keys, width];
        let given = inputs(program, &sizes(program, lengths));
        let of = |target: &Target, order: Order, overlaid: bool| {
            let is_own = |own: &ChunkDeltaBackward| {
                (own.overlaid, own.persistent, own.depth as usize) == (overlaid, false, keys) && own.vector > 1
            };
            let is_taken = |schedule: &Schedule| matches!(schedule, Schedule::ChunkDeltaBackward(own) if is_own(own));
            simulated_on(target, program, (lengths, &given), (Placement::Contiguous, order), is_taken)
        };
        let [wanted, found] = [of(&Target::H200, Order::Ascending, false), of(&target, Order::Random(3), true)];
        for ((wanted, found), output) in wanted.iter().zip(&found).zip(&program.outputs) {
            let error = relative_error(wanted, found);
            let most = if width > 64 { 0.0 } else { 2e-3 };
            assert!(error <= most, "{name} {elem} {keys} keys: `{}` is off by {error}", output.name);
        }
    }
}

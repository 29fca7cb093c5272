//! What calls of the selective scan allocate beside their inputs and outputs.
//!
//! With R rows of a block, S steps of a tile and C places for N states (C is 4, 16, 64 or 256), in numbers of `f32`:
//!
//! * forward: nothing; a recorded call the states before every eighth step, B·G·D·⌈T/8⌉·C;
//! * backward: these states, unless the call has saved them; the sums over the rows of every block of the gradients of
//!   b and c, 2·B·G·⌈D/R⌉·C·⌈T/S⌉·S; and the gradients of what batches share, before they are added: a, skip and
//!   delta_bias, B·G·D·(N + 2); and a few numbers for each row and segment where time is divided.
//!
//! For up to 16 states in `f32`, or 32 in 16 bits, that is less than twice its inputs and gradients.

use oplus_codegen::plan::{Plan, Planner};
use oplus_codegen::schedule::{Pass, Schedule, TwoWay};
use oplus_codegen::target::Target;
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::{Axis, Program};

use super::plan::call;

/// Batches, groups, channels, states and steps.
type Sizes = [i64; 5];

const SIZES: [Sizes; 5] =
    [[8, 1, 2048, 16, 2048], [8, 1, 1024, 4, 2048], [1, 1, 4096, 16, 65_536], [2, 4, 96, 64, 1000], [3, 2, 7, 5, 37]];

fn model(name: &str, elem: Elem) -> Program {
    let models = oplus_front::model_programs();
    models.into_iter().find(|program| program.name == name).expect("a standard model").instantiate(elem)
}

/// The sizes of a program's axes, in its own order.
fn own(program: &Program, [b, g, d, n, t]: Sizes) -> Vec<i64> {
    let size = |axis: &String| match axis.as_str() {
        "B" => b,
        "G" => g,
        "D" => d,
        "N" => n,
        _ => t,
    };
    program.axes.iter().map(size).collect()
}

fn planner(program: &Program) -> Planner {
    Planner::new(program, &Target::H200).expect("cuts")
}

/// Bytes of all buffers of a plan.
fn bytes(plan: &Plan) -> i64 {
    plan.buffers.iter().map(|buffer| buffer.len as i64 * buffer.elem.bytes().unwrap_or(8) as i64).sum()
}

/// Bytes of a program's parameters and outputs.
fn tensors(program: &Program, sizes: &[i64]) -> i64 {
    let len = |axes: &[Axis]| axes.iter().map(|axis| sizes[axis.0 as usize]).product::<i64>();
    let of = |axes: &[Axis], elem: Elem| len(axes) * elem.bytes().unwrap_or(8) as i64;
    let params = program.params.iter().map(|p| of(&p.axes, p.elem));
    params.chain(program.outputs.iter().map(|o| of(&o.axes, o.elem))).sum()
}

/// The two-way schedule of a plan.
fn two_way(plan: &Plan) -> TwoWay {
    let walk = |schedule: Schedule| match schedule {
        Schedule::TwoWay(s) if s.pass == Pass::Walk => Some(s),
        _ => None,
    };
    plan.steps.iter().find_map(|launch| walk(launch.schedule)).expect("a gradient that walks both ways")
}

#[test]
fn the_selective_scan_allocates_nothing_forward_but_states_to_be_saved() {
    for (name, elem) in [("selective_scan", Elem::F32), ("mamba", Elem::F32), ("mamba", Elem::Bf16)] {
        for sizes @ [b, g, d, n, t] in SIZES {
            let program = model(name, elem);
            let (planner, call) = (planner(&program), call(&program, &own(&program, sizes)));
            let plan = planner.plan(&call).expect("plans");
            assert_eq!((plan.steps.len(), bytes(&plan)), (1, 0), "{name} {sizes:?}");
            let (plan, saved) = planner.plan_saving(&call).expect("plans").expect("states");
            let capacity = i64::from(saved.capacity);
            assert_eq!(saved.len as i64, b * g * d * ((t + 7) / 8) * capacity, "{name} {sizes:?}");
            assert!(bytes(&plan) == 0 && capacity >= n && [4, 16, 64, 256].contains(&capacity), "{name} {sizes:?}");
        }
    }
}

#[test]
fn its_gradient_allocates_saved_states_and_sums_of_blocks() {
    for (name, elem) in [("selective_scan", Elem::F32), ("mamba", Elem::F32), ("mamba", Elem::Bf16)] {
        for sizes @ [b, g, d, n, t] in SIZES {
            let program = adjoint(&model(name, elem)).expect("differentiable");
            let (planner, own) = (planner(&program), own(&program, sizes));
            let call = call(&program, &own);
            let plan = planner.plan(&call).expect("plans");
            let schedule = two_way(&plan);
            let [rows, steps, capacity] = [schedule.block_rows(), schedule.steps, schedule.capacity()].map(i64::from);
            let up = |n: i64, by: i64| (n + by - 1) / by;
            let saved = 4 * b * g * d * up(t, 8) * capacity;
            let sums = 4 * 2 * b * g * up(d, rows) * capacity * up(t, steps) * steps;
            let shared = 4 * b * g * d * (n + 2);
            let what = format!("{name} {elem} {sizes:?} under {schedule}");
            let handed = bytes(&plan) - (saved + sums + shared);
            assert!(if schedule.segmented { handed >= 0 } else { handed == 0 }, "{what}: {handed}");
            // Twice the inputs and gradients at most; with more states than these, tensors without them are small beside.
            if n * elem.bytes().unwrap_or(4) as i64 <= 64 {
                assert!(bytes(&plan) <= 2 * tensors(&program, &own), "{what}: {}", bytes(&plan));
            }
        }
    }
}

//! The memory that calls of the selective scan allocate beside their inputs and outputs.
//!
//! With R rows of a block, ⌈x⌉ₙ for x rounded up to a multiple of n, in numbers of `f32`:
//!
//! * forward: nothing, or where rows are so few that time is cut into S segments, two numbers for each state and segment but the
//!   last, 2·(S − 1)·B·G·D·⌈N⌉₄; a recorded call the states before every eighth step, B·G·D·⌈T/8⌉·⌈N⌉₄;
//! * backward: these states, unless the call has saved them; the sums over the rows of every block of the gradients of
//!   b and c, 2·B·G·⌈D/R⌉·⌈N⌉₄·⌈T⌉₄; and the gradients of what batches share, before they are added: a, skip and
//!   delta_bias, B·G·D·(N + 2); and a few numbers for each row and segment where time is divided. Where that would be more
//!   than twice its inputs and gradients, the first two have room for some of the rows only, a piece, and one more sum:
//!   B·G·P·⌈T/8⌉·⌈N⌉₄ + 2·B·G·(P/R + 1)·⌈N⌉₄·⌈T⌉₄ with P rows of a piece.

use oplus_codegen::plan::{Plan, Planner};
use oplus_codegen::schedules::{Pass, Schedule, StateSpaceBackward};
use oplus_codegen::target::Target;
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::{Axis, Program};

use super::plan::call;

/// Batches, groups, channels, states and steps.
type Sizes = [i64; 5];

const SIZES: [Sizes; 11] = [
    [8, 1, 2048, 16, 2048],
    [8, 1, 1024, 4, 2048],
    [1, 1, 4096, 16, 65_536],
    [2, 4, 96, 64, 1000],
    [3, 2, 7, 5, 37],
    [8, 1, 2048, 64, 2048],
    [1, 1, 1000, 256, 4096],
    [2, 1, 64, 256, 1000],
    [4, 1, 300, 17, 500],
    [1, 1, 1, 17, 64],
    [1, 1, 64, 16, 1 << 20],
];

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

/// Bytes of a program's parameters and outputs.
fn tensors(program: &Program, sizes: &[i64]) -> i64 {
    let len = |axes: &[Axis]| axes.iter().map(|axis| sizes[axis.0 as usize]).product::<i64>();
    let of = |axes: &[Axis], elem: Elem| len(axes) * elem.bytes().unwrap_or(8) as i64;
    let params = program.params.iter().map(|p| of(&p.axes, p.elem));
    params.chain(program.outputs.iter().map(|o| of(&o.axes, o.elem))).sum()
}

/// The backward state-space schedule of a plan, and in how many pieces it takes the rows.
fn backward_scan(plan: &Plan) -> (StateSpaceBackward, i64) {
    let walk = |schedule: Schedule| match schedule {
        Schedule::StateSpaceBackward(s) if s.pass == Pass::Walk => Some(s),
        _ => None,
    };
    let mut walks = plan.steps.iter().filter_map(|launch| walk(launch.schedule));
    let first = walks.next().expect("a gradient that walks both ways");
    (first, 1 + walks.count() as i64)
}

/// n/by, rounded up.
fn up(n: i64, by: i64) -> i64 {
    (n + by - 1) / by
}

#[test]
fn the_selective_scan_allocates_nothing_forward_but_ends_of_segments_and_states_to_be_saved() {
    for (name, elem) in [("selective_scan", Elem::F32), ("mamba", Elem::F32), ("mamba", Elem::Bf16)] {
        for sizes @ [b, g, d, n, t] in SIZES {
            let program = model(name, elem);
            let (planner, call) = (planner(&program), call(&program, &own(&program, sizes)));
            let plan = planner.plan(&call).expect("plans");
            let segments =
                |plan: &Plan| plan.steps.iter().map(|launch| i64::from(launch.grid[1])).max().expect("a launch");
            let ends = |plan: &Plan| 4 * 2 * (segments(plan) - 1) * b * g * d * 4 * up(n, 4);
            assert!(segments(&plan) > 1 || t < 1 << 20, "{name} {sizes:?}");
            let launches = if segments(&plan) > 1 { 2 } else { 1 };
            assert_eq!((plan.steps.len(), plan.buffer_bytes() as i64), (launches, ends(&plan)), "{name} {sizes:?}");
            let (plan, saved) = planner.plan_saving(&call).expect("plans").expect("states");
            assert_eq!(saved.len as i64, b * g * d * up(t, 8) * 4 * up(n, 4), "{name} {sizes:?}");
            assert_eq!(plan.buffer_bytes() as i64, ends(&plan), "{name} {sizes:?}");
        }
    }
}

#[test]
fn its_gradient_allocates_saved_states_and_sums_of_blocks() {
    for (name, elem) in
        [("selective_scan", Elem::F32), ("mamba", Elem::F32), ("selective_scan", Elem::Bf16), ("mamba", Elem::Bf16)]
    {
        for sizes @ [b, g, d, n, t] in SIZES {
            let program = adjoint(&model(name, elem)).expect("differentiable");
            let (planner, own) = (planner(&program), own(&program, sizes));
            let plan = planner.plan(&call(&program, &own)).expect("plans");
            let (schedule, pieces) = backward_scan(&plan);
            let rows = i64::from(schedule.block_rows());
            let (states, steps, blocks) = (4 * up(n, 4), 4 * up(t, 4), up(up(d, rows), pieces));
            let saved = 4 * b * g * d.min(rows * blocks) * up(t, 8) * states;
            let sums = 4 * 2 * b * g * (blocks + i64::from(pieces > 1)) * states * steps;
            let shared = 4 * b * g * d * (n + 2);
            let what = format!("{name} {elem} {sizes:?} in {pieces} pieces under {schedule}");
            let handed = plan.buffer_bytes() as i64 - (saved + sums + shared);
            assert!(if schedule.segmented { handed >= 0 } else { handed == 0 }, "{what}: {handed}");
            assert!(
                plan.buffer_bytes() as i64 <= 2 * tensors(&program, &own),
                "{what}: {}",
                plan.buffer_bytes() as i64
            );
        }
    }
}

#[test]
fn states_are_saved_in_segments_only_where_rows_are_few() {
    let program = adjoint(&model("selective_scan", Elem::F32)).expect("differentiable");
    let passes = |sizes: Sizes| {
        let plan = planner(&program).plan(&call(&program, &own(&program, sizes))).expect("plans");
        let pass =
            |schedule: Schedule| if let Schedule::StateSpaceBackward(s) = schedule { Some(s.pass) } else { None };
        let of = |own: Pass| plan.steps.iter().find(|step| pass(step.schedule) == Some(own)).map(|step| step.grid[1]);
        [Pass::Ends, Pass::Save, Pass::Carry, Pass::Walk].map(of)
    };
    let few = passes([1, 1, 64, 16, 1 << 20]);
    let segments = few[1].expect("states are saved");
    assert!(segments > 32, "{few:?}");
    assert_eq!(few, [Some(segments - 1), Some(segments), Some(segments - 1), Some(segments)]);
    // Rows enough for that pass, but not for the walk, whose blocks have more of them.
    assert_eq!(passes([8, 1, 1024, 4, 2048]), [None, Some(1), Some(1), Some(2)]);
}

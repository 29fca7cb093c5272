//! Plans that run in pieces of outer axes, since what they store in between would take too much memory.

use oplus_codegen::plan::{Arg, Plan, Planner};
use oplus_codegen::simulate::Order;
use oplus_codegen::target::Target;
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::{Axis, Program};

use crate::device::{Placement, call};
use crate::oracle::Case;

/// A program of the table of memory, or a standard model.
fn program(name: &str, elem: Elem) -> Program {
    let items = oplus_front::compile(include_str!("../stages/large.scan")).unwrap_or_else(|e| panic!("{e}"));
    let own: Vec<Program> =
        items.iter().filter_map(|item| item.kernel()).map(|kernel| kernel.program.clone()).collect();
    let mut all = own.into_iter().chain(oplus_front::model_programs());
    all.find(|program| program.name == name).expect("a program").instantiate(elem)
}

/// Sizes of axes in a test.
fn sizes(program: &Program, own: &[(&str, usize)]) -> Vec<usize> {
    let size = |axis: &String| own.iter().find(|(name, _)| name == axis).map_or(2, |(_, n)| *n);
    program.axes.iter().map(size).collect()
}

/// The plan of a program, and how many launches of it are those of another piece.
fn plan(program: &Program, sizes: &[usize], placement: Placement) -> (Plan, usize) {
    let mut planner = Planner::new(program, &Target::H200).expect("cuts");
    planner.set_spare(0);
    let plan = planner.plan(&call(program, sizes, placement)).expect("plans");
    let is_again = |k: usize| {
        let own = &plan.steps[k];
        plan.steps[..k].iter().any(|before| before.stage == own.stage && before.schedule == own.schedule)
    };
    let again = (0..plan.steps.len()).filter(|k| is_again(*k)).count();
    (plan, again)
}

/// Bytes of what a call reads and writes.
fn bytes(program: &Program, sizes: &[usize]) -> u64 {
    let of = |axes: &[Axis], elem: Elem| {
        let len: usize = axes.iter().map(|axis| sizes[axis.0 as usize]).product();
        (len * elem.bytes().unwrap_or(8)) as u64
    };
    let params = program.params.iter().map(|p| of(&p.axes, p.elem));
    params.chain(program.outputs.iter().map(|o| of(&o.axes, o.elem))).sum()
}

#[test]
fn pieces_give_what_the_program_gives_in_less_memory() {
    let axes =
        [("B", 3), ("H", 2), ("M", 33), ("N", 35), ("T", 34), ("K", 16), ("V", 21), ("E", 4), ("F", 5), ("C", 6)];
    let mut divided = vec![];
    for name in ["stick_breaking", "rwkv6", "trapezoid", "rotary_relative", "t5", "mla"] {
        let forward = program(name, Elem::F32);
        for program in [adjoint(&forward).expect("a gradient"), forward] {
            let sizes = sizes(&program, &axes);
            for placement in [Placement::Contiguous, Placement::Padded] {
                let (plan, again) = plan(&program, &sizes, placement);
                if again == 0 {
                    continue;
                }
                assert!(plan.bytes() <= 5 * bytes(&program, &sizes), "{}: {}", program.name, plan.bytes());
                Case { program: &program, sizes: &sizes, placement, order: Order::Random(7) }
                    .check_in_pieces(&Target::H200);
                divided.push(program.name.clone());
            }
        }
    }
    for name in ["stick_breaking", "stick_breaking.bar", "rwkv6.bar", "trapezoid", "trapezoid.bar"] {
        assert!(divided.iter().filter(|own| *own == name).count() == 2, "{name} is not among {divided:?}");
    }
}

#[test]
fn pieces_of_sums_over_pieces_come_after_all() {
    // The gradient of u is a sum over batches of what every piece stores.
    let program = adjoint(&program("rwkv6", Elem::F32)).expect("a gradient");
    let sizes = sizes(&program, &[("B", 3), ("H", 3), ("T", 37), ("K", 16), ("V", 19)]);
    let (plan, again) = plan(&program, &sizes, Placement::Contiguous);
    assert!(again > 0, "{program}");
    Case { program: &program, sizes: &sizes, placement: Placement::Contiguous, order: Order::Descending }
        .check_in_pieces(&Target::H200);
    // Launches of later pieces read and write elsewhere in tensors of the call, not in temporary ones.
    let moved = plan.steps.iter().flat_map(|launch| launch.offsets.iter().map(move |(place, _)| launch.args[*place]));
    let moved: Vec<Arg> = moved.collect();
    assert!(moved.iter().any(|arg| matches!(arg, Arg::Param(_))), "{moved:?}");
}

#[test]
fn small_calls_are_whole() {
    let program = program("stick_breaking", Elem::F32);
    let sizes = sizes(&program, &[("B", 8), ("H", 4), ("M", 128), ("N", 128), ("E", 4), ("F", 4)]);
    let planner = Planner::new(&program, &Target::H200).expect("cuts");
    let plan = planner.plan(&call(&program, &sizes, Placement::Contiguous)).expect("plans");
    assert!(plan.bytes() > 4 * bytes(&program, &sizes));
    assert_eq!(plan.steps.len(), plan.distinct().len());
}

#[test]
fn plans_with_room_are_whole() {
    for name in ["attention", "ssd", "mamba", "gated_delta_rule"] {
        let forward = program(name, Elem::Bf16);
        for program in [adjoint(&forward).expect("a gradient"), forward] {
            let own =
                [("B", 4), ("H", 4), ("G", 2), ("T", 256), ("M", 256), ("N", 64), ("K", 64), ("V", 64), ("P", 64)];
            let sizes = sizes(&program, &own);
            let (plan, _) = plan(&program, &sizes, Placement::Contiguous);
            assert!(plan.bytes() <= 4 * bytes(&program, &sizes), "{}", program.name);
        }
    }
}

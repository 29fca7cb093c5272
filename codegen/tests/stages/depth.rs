//! Programs of thousands of operations: they are planned and lowered on a small stack, or refused in words.

use std::thread;

use oplus_codegen::plan::{PlanError, Planner, plan};
use oplus_codegen::schedules::lower;
use oplus_codegen::stage::{CutError, MAX_NESTED, MAX_OPERATIONS};
use oplus_codegen::target::Target;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::Program;
use oplus_dsl::simplify::simplify;
use oplus_dsl::testing::Deep;

use super::plan::call;

/// Runs a test on a thread whose stack would not hold a recursion over the program.
fn on_small_stack(test: impl FnOnce() + Send + 'static) {
    let thread = thread::Builder::new().stack_size(1 << 20).spawn(test).expect("a thread");
    thread.join().expect("no panic");
}

/// Plans a program for a GPU, and makes the first kernel of the plan.
fn planned(program: &Program) -> Result<(), PlanError> {
    let plan = plan(program, &call(program, &[1000]), &Target::H200)?;
    let step = &plan.steps[0];
    lower(&step.stage, &step.schedule, Target::H200.isa).expect("a kernel");
    Planner::ordered(program, &Target::H200)?.plan(&call(program, &[1000])).map(drop)
}

#[test]
fn deep_maps_are_planned_forward_and_backward() {
    for deep in [Deep::Chain, Deep::Maps, Deep::Squares, Deep::Conversions, Deep::Wide] {
        on_small_stack(move || {
            let program = deep.program(MAX_OPERATIONS / 8);
            planned(&program).unwrap_or_else(|error| panic!("{deep:?}: {error}"));
            let backward = adjoint(&program).expect("a gradient");
            planned(&backward).unwrap_or_else(|error| panic!("{deep:?}: {error}"));
        });
    }
}

#[test]
fn the_largest_program_is_planned() {
    on_small_stack(|| planned(&Deep::Chain.program(MAX_OPERATIONS - 10)).expect("a plan"));
}

#[test]
fn an_operator_of_thousands_of_operations_is_planned() {
    on_small_stack(|| planned(&Deep::Combine.program(2_000)).expect("a plan"));
}

#[test]
fn what_depends_along_an_axis_is_planned_as_far_as_it_may_nest() {
    on_small_stack(|| {
        planned(&Deep::Shifts.program(MAX_NESTED / 2)).expect("a plan");
        planned(&Deep::Scans.program(40)).expect("a plan");
    });
}

#[test]
fn larger_programs_are_refused_in_words() {
    for deep in Deep::ALL {
        on_small_stack(move || {
            let program = simplify(&deep.program(100_000));
            let error = planned(&program).expect_err("too large");
            assert!(matches!(error, PlanError::Cut(CutError::TooLarge { .. })), "{deep:?}: {error}");
            assert!(error.to_string().contains("`deep` has") && error.to_string().contains("split it"), "{error}");
        });
    }
    for deep in [Deep::Shifts, Deep::Scans, Deep::Totals] {
        on_small_stack(move || {
            let error = planned(&deep.program(MAX_OPERATIONS / 2)).expect_err("too nested");
            assert!(matches!(error, PlanError::Cut(CutError::TooNested { .. })), "{deep:?}: {error}");
        });
    }
}

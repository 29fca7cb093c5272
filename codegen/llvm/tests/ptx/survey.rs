//! Kernels by look-back of operators with many fields fit the registers: a sample of what `oplus survey` reports.

use crate::spills::assemble;
use oplus_codegen::schedules::Schedule;
use oplus_codegen::target::Isa;
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::Program;

const OPERATORS: &str = include_str!("../../../../cli/survey/operators.rs");

fn program(name: &str) -> Program {
    let programs = oplus_front::scan_source_file(OPERATORS).expect("operators");
    programs.into_iter().find(|program| program.name == name).expect("a kernel of the survey")
}

fn check(program: &Program, elem: Elem) {
    for isa in Isa::ALL {
        let looks_back = |s: &Schedule| matches!(s, Schedule::LookBack(_));
        assert!(assemble(&program.instantiate(elem), isa, looks_back) >= 1, "{}", program.name);
    }
}

/// From 7 to 16 fields, and whole numbers of 64 bits.
#[test]
fn look_back_of_operators_with_many_fields_does_not_spill() {
    for name in ["motion_scan", "counts_scan", "words_scan", "matrix3_scan", "series_scan", "matrix4_corner"] {
        check(&program(name), Elem::F32);
    }
    check(&program("oscillators_scan"), Elem::F16);
    check(&program("matrix4_scan"), Elem::Bf16);
    check(&program("matrix3_corner"), Elem::F64);
    check(&program("tropical3_scan"), Elem::F64);
}

/// Gradients read neighbours of many tensors.
#[test]
fn look_back_of_their_gradients_does_not_spill() {
    check(&adjoint(&program("kalman_scan")).expect("differentiable"), Elem::F32);
    check(&adjoint(&program("quaternion_scan")).expect("differentiable"), Elem::F32);
}

/// Flags are of one byte, and 16 of them are more than an access takes.
#[test]
fn look_back_with_flags_in_reverse_is_made() {
    let text = "oplus::scan! { pub fn resets(d: [B, T], x: [B, T], flag: bool[B, T]) -> (h: [B, T]) {
        h = scan(T, segmented(Affine)(d, x), reset = flag, reverse).b; } }";
    let programs = oplus_front::scan_source_file(text).expect("a kernel");
    check(&programs[0], Elem::F32);
    check(&adjoint(&programs[0]).expect("differentiable"), Elem::Bf16);
}

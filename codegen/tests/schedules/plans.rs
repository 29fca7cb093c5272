//! Whole plans of random programs, on both instruction sets.

use oplus_codegen::plan::variants;
use oplus_codegen::schedules::Schedule;
use oplus_codegen::simulate::Order;
use oplus_codegen::stage::cut;
use oplus_codegen::target::Target;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::Program;
use oplus_dsl::testing::{Ingredients, operators, program as random};
use oplus_dsl::{Elem, Ty};

use crate::device::Placement;
use crate::oracle::Case;
use crate::rows::{along, scan};

const SIZES: [[usize; 4]; 4] = [[2, 40, 3, 4], [3, 5, 16, 2], [1, 1, 2, 1], [2, 0, 3, 2]];

fn check(program: &Program, seed: u64) {
    let sizes = &SIZES[seed as usize % 4][..program.axes.len()];
    let placement = [Placement::Padded, Placement::Contiguous, Placement::Strided][seed as usize % 3];
    let target = if seed.is_multiple_of(2) { Target::H200 } else { Target::A100 };
    Case { program, sizes, placement, order: Order::Random(seed) }.check_plan(&target);
}

#[test]
fn plans_of_random_programs() {
    let ingredients = Ingredients { elems: vec![Elem::F32, Elem::Bf16], steps: 5, ..Ingredients::default() };
    for seed in 0..48 {
        check(&random(seed, &ingredients).instantiate(Elem::F32), seed);
    }
}

#[test]
fn plans_of_adjoints_of_random_programs() {
    let ingredients = Ingredients { differentiable: true, steps: 3, ..Ingredients::default() };
    let programs =
        (0..48).filter_map(|seed| Some((seed, adjoint(&random(seed, &ingredients).instantiate(Elem::F64)).ok()?)));
    let mut checked = 0;
    for (seed, program) in programs {
        check(&program, seed);
        checked += 1;
    }
    assert!(checked > 24, "{checked}");
}

/// Every schedule that a plan may choose, each where it fits.
fn check_variants(program: &Program, sizes: &[usize], target: &Target) -> usize {
    let stages = cut(program).expect("cuts").stages;
    let [stage] = &stages[..] else { panic!("{program} has {} stages", stages.len()) };
    let mut checked = 0;
    for (own, schedule) in variants(stage, target.isa) {
        let case = Case { program, sizes, placement: Placement::Padded, order: Order::Random(5) };
        checked += usize::from(own == *stage && case.check_if_it_fits(schedule, target));
    }
    checked
}

#[test]
fn every_variant_of_a_contiguous_scan() {
    for (operator, reverse) in [(operators::sum(Ty::F32), false), (operators::affine(Ty::F32), true)] {
        let program = scan(&operator, reverse, None);
        for (target, least) in [(Target::H200, 8), (Target::A100, 7)] {
            assert!(check_variants(&program, &[3, 5000], &target) >= least);
        }
    }
}

/// Products of 4×4 matrices: look-back with a short window, in few warps.
#[test]
fn every_variant_of_an_operator_with_many_fields() {
    let programs = oplus_front::scan_source_file(include_str!("../../../cli/survey/operators.rs")).expect("operators");
    let program = programs.into_iter().find(|p| p.name == "matrix4_corner").expect("a kernel of the survey");
    let program = program.instantiate(Elem::F64);
    for target in [Target::H200, Target::A100] {
        let stages = cut(&program).expect("cuts").stages;
        let short = |s: &Schedule| matches!(s, Schedule::LookBack(s) if s.scan_warps == 4 && s.window < 4);
        assert!(variants(&stages[0], target.isa).iter().any(|(_, s)| short(s)));
        assert!(check_variants(&program, &[2, 700], &target) >= 4);
    }
}

#[test]
fn every_variant_of_a_strided_scan() {
    let program = along(&operators::affine(Ty::F32), true, None, &["L", "C"]);
    for target in [Target::H200, Target::A100] {
        assert!(check_variants(&program, &[300, 36], &target) >= 7);
    }
}

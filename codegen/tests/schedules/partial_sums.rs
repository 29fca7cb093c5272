//! Partial sums over the columns of a scan.

use oplus_codegen::plan::{Planner, cuts, variants};
use oplus_codegen::schedules::Schedule;
use oplus_codegen::schedules::lower;
use oplus_codegen::simulate::Order;
use oplus_codegen::target::{Isa, Target};

use crate::device::{Placement, call};
use crate::oracle::{Case, program};

/// The adjoint of s[t] = a[t]·s[t−1] + x[t] with one decay for all columns and the gradient of the initial state.
const BACKWARD: &str = concat!(
    "program columns_bar { axes B, T, K, V; param a: f32[B, T]; param s0: f32[B, K, V]; param s: f32[B, T, K, V];
    param s.bar: f32[B, T, K, V];",
    operators!(),
    "%0: f32[B, T] = param a; %1: f32[B, K, V] = param s0; %2: f32[B, T, K, V] = param s;
    %3: f32[B, T, K, V] = param s.bar; %4: f32 = const 1.0; %5: f32[B, T] = shift(T, -1, %0, %4);
    %6: tuple[B, T, K, V] = scan(T, Affine, (%5, %3), reverse); %7: f32[B, T, K, V] = %6.b;
    %8: f32[B, T, K, V] = shift(T, 1, %2, %1); %9: f32[B, T, K, V] = %7 * %8;
    %10: tuple[B, T, K] = reduce(V, Sum, (%9)); %11: f32[B, T, K] = %10.s;
    %12: tuple[B, T] = reduce(K, Sum, (%11)); %13: f32[B, T] = %12.s; %14: f32[B, T] = %13 * %0;
    %15: f32[B, T, K, V] = %0 * %7; %16: f32[B, K, V] = first(T, %15, %1);
    output x.bar: f32[B, T, K, V] = %7; output a.bar: f32[B, T] = %14; output s0.bar: f32[B, K, V] = %16; }"
);

/// Forward, in bf16: every state, and two sums of them over one axis, one with a displaced input.
const FORWARD: &str = concat!(
    "program sums { axes T, D; param a: bf16[T, D]; param x: bf16[T, D]; param w: f32[D];",
    operators!(),
    "%0: f32[T, D] = param a; %1: f32[T, D] = param x; %2: f32[D] = param w; %3: f32 = const 0.5;
    %4: tuple[T, D] = scan(T, Affine, (%0, %1)); %5: f32[T, D] = %4.b; %6: f32[T, D] = %5 * %2;
    %7: tuple[T] = reduce(D, Sum, (%6)); %8: f32[T] = %7.s; %9: f32[T, D] = shift(T, -1, %1, %3);
    %10: f32[T, D] = %9 + %5; %11: tuple[T] = reduce(D, Sum, (%10)); %12: f32[T] = %11.s;
    output y: f32[T] = %8; output h: bf16[T, D] = %5; output z: f32[T] = %12; }"
);

/// Checks plans of several ranks; gives whether one of them has parts.
fn check(text: &str, sizes: &[usize], placement: Placement, seed: u64) -> bool {
    let program = program(text);
    let mut summed = false;
    for (target, rank) in [(Target::H200, 0), (Target::A100, 0), (Target::H200, 1)] {
        let planner = Planner::new(&program, &target).expect("cuts");
        let plan = planner.plan_ranked(&call(&program, sizes, placement), rank).expect("plans");
        summed |= plan.steps.iter().any(|launch| launch.stage.partial_axis.is_some());
        Case { program: &program, sizes, placement, order: Order::Random(seed) }.check_ranked(&target, rank);
    }
    summed
}

#[test]
fn every_length() {
    let mut summed = [0, 0];
    for len in [1, 2, 3, 4, 5, 7, 8, 9, 17, 31] {
        summed[0] += u32::from(check(BACKWARD, &[2, len, 4, 33], Placement::Contiguous, len as u64));
        summed[1] += u32::from(check(FORWARD, &[len, 136], Placement::Contiguous, len as u64));
    }
    assert!(summed.into_iter().all(|count| count > 4), "{summed:?}");
}

#[test]
fn every_schedule_that_plans_may_take_can_be_lowered() {
    let mut deep = 0;
    for text in [BACKWARD.to_owned(), BACKWARD.replace("f32", "f64"), FORWARD.to_owned()] {
        let program = program(&text);
        let stages = cuts(&program).expect("cuts").all().flat_map(|cut| cut.stages).collect::<Vec<_>>();
        for (stage, isa) in stages.iter().flat_map(|stage| Isa::ALL.map(|isa| (stage, isa))) {
            for (stage, schedule) in variants(stage, isa) {
                lower(&stage, &schedule, schedule.isa(isa)).unwrap_or_else(|e| panic!("{schedule}: {e}"));
                deep += u32::from(matches!(schedule, Schedule::Columns(s) if s.steps == 16));
            }
        }
    }
    assert!(deep > 0);
}

#[test]
fn every_width() {
    for [k, v] in [[1, 1], [1, 31], [3, 11], [8, 32], [1, 257], [20, 13], [7, 160]] {
        check(BACKWARD, &[1, 9, k, v], Placement::Contiguous, v as u64);
        check(FORWARD, &[6, k * v], Placement::Contiguous, v as u64);
    }
}

#[test]
fn any_layout() {
    for placement in [Placement::Misaligned, Placement::Padded, Placement::Strided] {
        check(BACKWARD, &[2, 11, 4, 12], placement, 3);
        check(FORWARD, &[11, 72], placement, 5);
    }
}

#[test]
fn nothing_to_sum() {
    for sizes in [[2, 0, 2, 3], [0, 3, 2, 2], [2, 3, 0, 2]] {
        check(BACKWARD, &sizes, Placement::Contiguous, 1);
    }
}

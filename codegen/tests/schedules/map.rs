//! The map schedule.

use oplus_codegen::schedules::{Map, Schedule};
use oplus_codegen::simulate::Order;

use crate::device::Placement;
use crate::oracle::{Case, program};

const MAP: Map = Map { lane: 1, warps: 1, vector: 4, vectors: 2 };

fn check(text: &str, sizes: &[usize], placement: Placement, schedule: Map) {
    let program = program(text);
    Case { program: &program, sizes, placement, order: Order::Descending }.check(Schedule::Map(schedule));
}

const AXPY: &str = "program axpy { axes B, L; param a: f32[B]; param x: bf16[B, L]; param y: f32[L];
    %0: f32[B] = param a; %1: f32[B, L] = param x; %2: f32[L] = param y; %3: f32[B, L] = %0 * %1;
    %4: f32[B, L] = %3 + %2; %5: i64[L] = index(L); %6: f32[L] = convert(f32, %5); %7: f32[B, L] = %4 + %6;
    %8: f32[B, L] = shift(B, 1, %4, %2); %9: f32[B, L] = shift(L, -2, %1, %0); %10: f32[B, L] = %8 - %9;
    output z: f32[B, L] = %7; output w: f16[B, L] = %10; }";

#[test]
fn every_size_and_layout() {
    for sizes in [[1, 1], [3, 4], [5, 1], [2, 131], [3, 256], [1, 1000], [0, 3], [3, 0]] {
        check(AXPY, &sizes, Placement::Padded, MAP);
        check(AXPY, &sizes, Placement::Contiguous, Map { vector: 1, lane: 0, ..MAP });
        check(AXPY, &sizes, Placement::Strided, Map { vector: 1, ..MAP });
        check(AXPY, &sizes, Placement::Misaligned, Map { vector: 1, vectors: 1, ..MAP });
    }
}

#[test]
fn ends_of_an_axis() {
    let text = "program ends { axes B, L; param x: f32[B, L]; param e: f32[B];
        %0: f32[B, L] = param x; %1: f32[B] = param e; %2: f32[B] = first(L, %0, %1); %3: f32[B] = last(L, %0, %1);
        %4: f32[B] = %2 - %3; %5: f32[B, L] = %0 * %2; output d: f32[B] = %4; output y: f32[B, L] = %5; }";
    for len in [1, 2, 33] {
        let program = program(text);
        let plan = Case { program: &program, sizes: &[3, len], placement: Placement::Padded, order: Order::Ascending };
        plan.check_plan(&oplus_codegen::target::Target::H200);
    }
}

#[test]
fn starts_of_segments() {
    let text = "program starts { axes L, S; param offsets: i32[S]; %0: i32[S] = param offsets;
        %1: bool[L] = starts(L, S, %0); output flags: bool[L] = %1; }";
    for sizes in [[0, 3], [1, 1], [97, 5], [64, 0], [10, 40]] {
        check(text, &sizes, Placement::Contiguous, Map { lane: 0, ..MAP });
    }
}

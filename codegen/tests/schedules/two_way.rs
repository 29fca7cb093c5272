//! The two-way schedule: gradients of scans whose states are summed away.

use oplus_codegen::schedule::{Pass, TwoWay};
use oplus_codegen::simulate::Order;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::Program;

use crate::device::Placement;
use crate::oracle::{Case, program};
use crate::states::{GATED, SELECTIVE};

/// The gradient of a program.
fn gradient(text: &str) -> Program {
    adjoint(&program(text)).expect("differentiable")
}

const SMALL: TwoWay = TwoWay {
    pass: Pass::Walk,
    warps: 2,
    copy_warps: 1,
    states: 2,
    rows: 1,
    lanes: 2,
    padded: false,
    steps: 16,
    stages: 2,
    vector: 1,
    blocks: 1,
    registers: 0,
};

fn check(program: &Program, sizes: &[usize], placement: Placement, schedule: TwoWay, seed: u64) {
    Case { program, sizes, placement, order: Order::Random(seed) }.check_two_way(schedule);
}

#[test]
fn every_length() {
    let program = gradient(SELECTIVE);
    for len in [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 37, 48, 67] {
        check(&program, &[2, 3, 4, len], Placement::Contiguous, SMALL, len as u64);
    }
    for len in [4, 12, 16, 20, 36, 64] {
        let schedule = TwoWay { vector: 4, rows: 2, ..SMALL };
        check(&program, &[2, 3, 4, len], Placement::Padded, schedule, len as u64);
    }
}

#[test]
fn every_number_of_rows_and_states() {
    let program = gradient(SELECTIVE);
    for (rows, states, lanes, per_lane, own) in [
        (1, 1, 1, 1, 1),
        (33, 3, 1, 4, 1),
        (7, 4, 4, 1, 2),
        (64, 16, 2, 8, 1),
        (70, 16, 4, 4, 2),
        (2, 17, 8, 4, 2),
        (3, 64, 16, 4, 1),
        (2, 64, 32, 2, 1),
    ] {
        let padded = states != lanes * per_lane;
        let schedule = TwoWay { states: per_lane as u32, lanes: lanes as u32, rows: own, padded, ..SMALL };
        check(&program, &[2, rows, states, 21], Placement::Contiguous, schedule, rows as u64);
        let schedule = TwoWay { vector: 4, copy_warps: 2, steps: 32, stages: 3, ..schedule };
        check(&program, &[1, rows, states, 72], Placement::Contiguous, schedule, rows as u64);
    }
}

#[test]
fn any_layout() {
    let program = gradient(SELECTIVE);
    for placement in [Placement::Misaligned, Placement::Padded, Placement::Strided] {
        check(&program, &[2, 5, 4, 23], placement, SMALL, 3);
    }
}

#[test]
fn gates_groups_and_states_given_and_taken() {
    let program = gradient(GATED);
    for (len, vector) in [(1, 1), (8, 8), (19, 1), (24, 8), (40, 8)] {
        let schedule = TwoWay { vector, padded: true, ..SMALL };
        check(&program, &[2, 2, 5, 3, len], Placement::Contiguous, schedule, len as u64);
        let schedule = TwoWay { vector, rows: 2, lanes: 4, states: 1, padded: false, ..SMALL };
        check(&program, &[1, 2, 5, 4, len], Placement::Contiguous, schedule, len as u64);
    }
}

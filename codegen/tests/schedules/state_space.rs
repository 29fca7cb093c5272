//! The states schedule: scans whose states are summed away.

use oplus_codegen::plan::{Planner, cuts, variants};
use oplus_codegen::schedules::{Pass, Schedule, StateSpace, lower};
use oplus_codegen::simulate::Order;
use oplus_codegen::target::{Isa, Target};
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::Program;
use std::collections::BTreeSet;

use crate::device::{Placement, call};
use crate::oracle::{Case, program};

/// y[t] = Σ_n c[n,t]·h[n,t] + skip·u[t], h[n,t] = exp(−|δ[t]·a[n]|)·h[n,t−1] + |δ[t]|·b[n,t]·u[t].
pub(crate) const SELECTIVE: &str = concat!(
    "program selective { axes B, D, N, L; param u: f32[B, D, L]; param delta: f32[B, D, L]; param a: f32[D, N];
    param b: f32[B, N, L]; param c: f32[B, N, L]; param skip: f32[D];",
    operators!(),
    "%0: f32[B, D, L] = param u; %1: f32[B, D, L] = param delta; %2: f32[D, N] = param a; %3: f32[B, N, L] = param b;
    %4: f32[B, N, L] = param c; %5: f32[D] = param skip; %6: f32[B, D, L] = abs(%1); %7: f32[D, N] = abs(%2);
    %8: f32[D, N] = neg(%7); %9: f32[B, D, N, L] = %6 * %8; %10: f32[B, D, N, L] = exp(%9);
    %11: f32[B, D, N, L] = %6 * %3; %12: f32[B, D, N, L] = %11 * %0;
    %13: tuple[B, D, N, L] = scan(L, Affine, (%10, %12)); %14: f32[B, D, N, L] = %13.b;
    %15: f32[B, D, N, L] = %4 * %14; %16: tuple[B, D, L] = reduce(N, Sum, (%15)); %17: f32[B, D, L] = %16.s;
    %18: f32[B, D, L] = %5 * %0; %19: f32[B, D, L] = %17 + %18; output y: f32[B, D, L] = %19; }"
);

/// A selective scan in bf16 with initial and final state, groups of rows that share b and c, softplus(δ + bias) and a gate.
pub(crate) const GATED: &str = concat!(
    "program gated { axes B, G, E, N, L; param u: bf16[B, G, E, L]; param delta: bf16[B, G, E, L];
    param bias: f32[G, E]; param a: f32[G, E, N]; param b: bf16[B, G, N, L]; param c: bf16[B, G, N, L];
    param z: bf16[B, G, E, L]; param h0: f32[B, G, E, N];",
    operators!(),
    "%0: f32[B, G, E, L] = param u; %1: f32[B, G, E, L] = param delta; %2: f32[G, E] = param bias;
    %3: f32[G, E, N] = param a; %4: f32[B, G, N, L] = param b; %5: f32[B, G, N, L] = param c;
    %6: f32[B, G, E, L] = param z; %7: f32[B, G, E, N] = param h0; %8: f32[G, E, N] = abs(%3); %9: f32[G, E, N] = neg(%8);
    %10: f32[B, G, E, L] = %1 + %2; %11: f32[B, G, E, L] = softplus(%10); %12: f32[B, G, E, N, L] = %11 * %9;
    %13: f32[B, G, E, N, L] = exp(%12); %14: f32[B, G, E, N, L] = %11 * %4; %15: f32[B, G, E, N, L] = %14 * %0;
    %16: f32 = const 1.0;
    %17: tuple[B, G, E, N, L] = scan(L, Affine, (%13, %15), init (%16, %7)); %18: f32[B, G, E, N, L] = %17.b;
    %19: f32[B, G, E, N, L] = %18 * %5; %20: tuple[B, G, E, L] = reduce(N, Sum, (%19));
    %21: f32[B, G, E, L] = %20.s; %22: f32[B, G, E, L] = silu(%6); %23: f32[B, G, E, L] = %21 * %22;
    %24: f32[B, G, E, N] = last(L, %18, %7);
    output y: bf16[B, G, E, L] = %23; output h_last: f32[B, G, E, N] = %24; }"
);

/// The selective scan of packed sequences, with a segment at every offset.
pub(crate) const PACKED: &str = concat!(
    "program packed { axes B, D, N, L, S; param u: f32[B, D, L]; param delta: f32[B, D, L]; param a: f32[D, N];
    param b: f32[B, N, L]; param c: f32[B, N, L]; param skip: f32[D]; param offsets: i32[S];",
    operators!(),
    "operator Segmented(reset: bool, a: f32, b: f32) { identity (false, 1.0, 0.0);
        %0: bool = input l.reset; %1: f32 = input l.a; %2: f32 = input l.b; %3: bool = input r.reset;
        %4: f32 = input r.a; %5: f32 = input r.b; %6: f32 = %1 * %4; %7: f32 = %4 * %2; %8: f32 = %7 + %5;
        %9: bool = %0 | %3; %10: f32 = select(%3, %4, %6); %11: f32 = select(%3, %5, %8); combine (%9, %10, %11); }
    %0: f32[B, D, L] = param u; %1: f32[B, D, L] = param delta; %2: f32[D, N] = param a; %3: f32[B, N, L] = param b;
    %4: f32[B, N, L] = param c; %5: f32[D] = param skip; %6: i32[S] = param offsets; %7: bool[L] = starts(L, S, %6);
    %8: f32[B, D, L] = abs(%1); %9: f32[D, N] = abs(%2);
    %10: f32[D, N] = neg(%9); %11: f32[B, D, N, L] = %8 * %10; %12: f32[B, D, N, L] = exp(%11);
    %13: f32[B, D, N, L] = %8 * %3; %14: f32[B, D, N, L] = %13 * %0;
    %15: tuple[B, D, N, L] = scan(L, Segmented, (%7, %12, %14)); %16: f32[B, D, N, L] = %15.b;
    %17: f32[B, D, N, L] = %4 * %16; %18: tuple[B, D, L] = reduce(N, Sum, (%17)); %19: f32[B, D, L] = %18.s;
    %20: f32[B, D, L] = %5 * %0; %21: f32[B, D, L] = %19 + %20; output y: f32[B, D, L] = %21; }"
);

/// Linear attention with decay against time: o[t,v] = Σ_k q[t,k]·s[t,k,v], time first in memory; and a second sum.
const BACKWARD_ATTENTION: &str = concat!(
    "program attention { axes T, H, K, V; param g: f32[T, H]; param q: f32[T, H, K]; param k: f32[T, H, K];
    param v: f32[T, H, V];",
    operators!(),
    "%0: f32[T, H] = param g; %1: f32[T, H, K] = param q; %2: f32[T, H, K] = param k; %3: f32[T, H, V] = param v;
    %4: f32[T, H] = sigmoid(%0); %5: f32[T, H, K, V] = %2 * %3;
    %6: tuple[T, H, K, V] = scan(T, Affine, (%4, %5), reverse); %7: f32[T, H, K, V] = %6.b;
    %8: f32[T, H, K, V] = %1 * %7; %9: tuple[T, H, V] = reduce(K, Sum, (%8)); %10: f32[T, H, V] = %9.s;
    %11: tuple[T, H, K, V] = scan(T, Affine, (%4, %5), reverse, exclusive); %12: f32[T, H, K, V] = %11.b;
    %13: f32[T, H, K, V] = %12 + %2; %14: f32[T, H, K, V] = sigmoid(%13);
    %15: tuple[T, H, V] = reduce(K, Sum, (%14)); %16: f32[T, H, V] = %15.s; %17: f32[T, H, V] = %10 + %16;
    output o: f32[T, H, V] = %17; }"
);

/// States that have a parameter of their own at every row and step.
const DENSE: &str = concat!(
    "program dense { axes D, L, N; param x: f32[D, L, N]; param w: f32[N];",
    operators!(),
    "%0: f32[D, L, N] = param x; %1: f32[N] = param w; %2: i64[L] = index(L); %3: f32[L] = convert(f32, %2);
    %4: f32 = const 0.01; %5: f32[L] = %3 * %4;
    %6: tuple[D, L, N] = scan(L, Affine, (%1, %0)); %7: f32[D, L, N] = %6.b; %8: f32[D, L, N] = %7 - %5;
    %9: tuple[D, L] = reduce(N, Sum, (%8)); %10: f32[D, L] = %9.s; output y: f32[D, L] = %10; }"
);

/// A small schedule, of which tests change what they are about.
pub(crate) const SMALL: StateSpace = StateSpace {
    warps: 2,
    copy_warps: 1,
    teams: 1,
    states: 2,
    lanes: 2,
    padded: false,
    steps: 16,
    stages: 2,
    unroll: 2,
    vector: 1,
    blocks: 1,
    save: false,
    segmented: false,
    ends: false,
};

fn check(program: &Program, sizes: &[usize], placement: Placement, schedule: StateSpace, seed: u64) {
    let case = Case { program, sizes, placement, order: Order::Random(seed) };
    case.check_states(Schedule::StateSpace(schedule));
}

#[test]
fn every_length() {
    let program = program(SELECTIVE);
    for len in [1, 2, 3, 4, 15, 16, 17, 31, 37, 48, 67] {
        check(&program, &[2, 3, 4, len], Placement::Contiguous, SMALL, len as u64);
    }
    for len in [4, 12, 16, 20, 36, 64] {
        let schedule = StateSpace { vector: 4, ..SMALL };
        check(&program, &[2, 3, 4, len], Placement::Padded, schedule, len as u64);
    }
}

#[test]
fn every_number_of_rows_and_states() {
    let program = program(SELECTIVE);
    for (rows, states, lanes, per_lane) in [
        (1, 1, 1, 1),
        (33, 3, 1, 4),
        (7, 4, 4, 1),
        (64, 16, 2, 8),
        (5, 16, 4, 4),
        (2, 17, 8, 4),
        (3, 64, 16, 4),
        (2, 64, 32, 2),
    ] {
        let padded = states != lanes * per_lane;
        let schedule = StateSpace { states: per_lane as u32, lanes: lanes as u32, padded, ..SMALL };
        check(&program, &[2, rows, states, 21], Placement::Contiguous, schedule, rows as u64);
        let schedule = StateSpace { vector: 4, copy_warps: 2, steps: 32, stages: 3, ..schedule };
        check(&program, &[1, rows, states, 72], Placement::Contiguous, schedule, rows as u64);
    }
}

#[test]
fn teams_that_copy_tiles_in_turn() {
    let (plain, gated) = (program(SELECTIVE), program(GATED));
    for (copy_warps, teams, stages) in [(2, 2, 2), (2, 2, 4), (4, 4, 4), (4, 2, 6)] {
        let schedule = StateSpace { copy_warps, teams, stages, ..SMALL };
        for len in [1, 16, 17, 33, 63, 64, 97, 131] {
            check(&plain, &[2, 3, 4, len], Placement::Contiguous, schedule, len as u64);
        }
        for len in [8, 40, 96, 136] {
            let schedule = StateSpace { vector: 8, ..schedule };
            check(&gated, &[1, 2, 9, 4, len], Placement::Contiguous, schedule, len as u64);
        }
    }
}

#[test]
fn segments_of_time() {
    let (plain, gated) = (program(SELECTIVE), program(GATED));
    let cut = |program: &Program, sizes: &[usize], schedule: StateSpace, tiles| {
        let case = Case { program, sizes, placement: Placement::Contiguous, order: Order::Random(tiles) };
        case.check_segments(schedule, tiles);
    };
    for len in [1, 15, 16, 17, 33, 63, 64, 65, 150] {
        for tiles in [1, 2, 3] {
            cut(&plain, &[2, 3, 4, len], SMALL, tiles);
            cut(&gated, &[1, 2, 5, 3, len], StateSpace { padded: true, ..SMALL }, tiles);
        }
    }
    for len in [8, 40, 96, 136] {
        let schedule = StateSpace { copy_warps: 2, teams: 2, vector: 8, ..SMALL };
        cut(&gated, &[2, 2, 9, 4, len], schedule, 2);
        // A lane has several vectors of states.
        cut(&gated, &[1, 2, 3, 16, len], StateSpace { states: 8, ..schedule }, 1);
    }
    cut(&program(BACKWARD_ATTENTION), &[70, 2, 4, 33], SMALL, 2);
    cut(&program(DENSE), &[5, 50, 3], StateSpace { padded: true, ..SMALL }, 1);
    cut(&program(PACKED), &[2, 5, 3, 90, 7], StateSpace { padded: true, ..SMALL }, 2);
}

#[test]
fn few_rows_and_much_time_are_cut() {
    let program = program(GATED);
    let planner = Planner::new(&program, &Target::H200).expect("cuts");
    let steps = |rows: usize, time: usize| {
        let call = call(&program, &[1, 1, rows, 16, time], Placement::Contiguous);
        let plan = planner.plan(&call).expect("plans");
        let segments = plan.steps.iter().map(|launch| launch.grid[1]).max().unwrap_or(1);
        (segments, plan.steps.len(), plan.buffer_bytes())
    };
    let (segments, launches, bytes) = steps(64, 1 << 20);
    assert!(segments > 32 && launches == 2, "{segments} segments, {launches} launches");
    assert_eq!(bytes, u64::from(segments - 1) * 64 * 16 * 2 * 4);
    assert_eq!(steps(64, 256), (1, 1, 0));
    assert_eq!(steps(1 << 14, 1 << 12), (1, 1, 0));
}

#[test]
fn any_layout() {
    let program = program(SELECTIVE);
    for placement in [Placement::Misaligned, Placement::Padded, Placement::Strided] {
        check(&program, &[2, 5, 4, 23], placement, SMALL, 3);
    }
}

#[test]
fn gates_groups_and_states_given_and_taken() {
    let program = program(GATED);
    for len in [1, 16, 19, 40] {
        check(&program, &[2, 3, 5, 4, len], Placement::Contiguous, SMALL, len as u64);
        check(&program, &[2, 3, 5, 3, len], Placement::Strided, StateSpace { padded: true, ..SMALL }, len as u64);
    }
    for len in [8, 40, 64] {
        check(&program, &[1, 2, 9, 4, len], Placement::Contiguous, StateSpace { vector: 8, ..SMALL }, len as u64);
    }
}

#[test]
fn against_time_and_across_memory() {
    let program = program(BACKWARD_ATTENTION);
    for len in [1, 5, 16, 35] {
        check(&program, &[len, 2, 4, 33], Placement::Contiguous, SMALL, len as u64);
        check(&program, &[len, 1, 7, 3], Placement::Padded, StateSpace { padded: true, lanes: 4, ..SMALL }, len as u64);
    }
}

#[test]
fn a_parameter_with_every_axis() {
    let program = program(DENSE);
    for len in [1, 18, 33] {
        check(&program, &[5, len, 3], Placement::Contiguous, StateSpace { padded: true, ..SMALL }, len as u64);
    }
}

#[test]
fn packed_sequences() {
    let program = program(PACKED);
    for (len, vector) in [(1, 1), (16, 4), (37, 1), (40, 8)] {
        for sequences in [1, 2, 7] {
            let sizes = [2, 5, 3, len, sequences];
            let schedule = StateSpace { vector, padded: true, ..SMALL };
            check(&program, &sizes, Placement::Contiguous, schedule, len as u64);
        }
    }
}

#[test]
fn plans_of_sizes_that_the_schedule_takes_and_does_not() {
    for text in [SELECTIVE, GATED] {
        let program = program(text);
        let axes = program.axes.len();
        for (states, len) in [(16, 64), (4, 33), (5, 40), (16, 0), (0, 8), (300, 3)] {
            let mut sizes = vec![2; axes];
            (sizes[axes - 2], sizes[axes - 1]) = (states, len);
            for target in [Target::H200, Target::A100] {
                let case = Case {
                    program: &program,
                    sizes: &sizes,
                    placement: Placement::Contiguous,
                    order: Order::Random(9),
                };
                case.check_plan(&target);
            }
        }
    }
}

/// Without rows, the lanes that would have the other rows of a block write nothing.
#[test]
fn states_without_rows() {
    let program = program(concat!(
        "program single { axes N, L; param x: f32[L]; param w: f32[N]; param h0: f32[N];",
        operators!(),
        "%0: f32[L] = param x; %1: f32[N] = param w; %2: f32[N] = param h0; %3: f32 = const 1.0;
        %4: f32[N, L] = %0 * %1; %5: tuple[N, L] = scan(L, Affine, (%1, %4), init (%3, %2)); %6: f32[N, L] = %5.b;
        %7: tuple[L] = reduce(N, Sum, (%6)); %8: f32[L] = %7.s; %9: f32[N] = last(L, %6, %2);
        output y: f32[L] = %8; output h: f32[N] = %9; }"
    ));
    [1, 17, 40].into_iter().for_each(|len| check(&program, &[4, len], Placement::Contiguous, SMALL, len as u64));
}

/// Memory delivers sectors of 32 bytes. Rows of `f32`, which are copied as they are, begin at multiples of that. Other elements are unpacked on
/// their way; their rows are an odd multiple of 16 bytes apart, so that neighbours lie in different banks.
#[test]
fn copied_rows_begin_at_sectors() {
    let paddings = |program: &Program, vector: u32| {
        let stages: Vec<_> = cuts(program).expect("cuts").all().flat_map(|cut| cut.stages).collect();
        let all = stages.iter().flat_map(|stage| variants(stage, Isa::Sm90a));
        let chosen = all.filter_map(|(stage, schedule)| match schedule {
            Schedule::StateSpace(own) if own.vector == vector => {
                let kernel = lower(&stage, &schedule, Isa::Sm90a).expect("lowers");
                let tile = kernel.shared.iter().find(|array| array.name == "tile_0").expect("a tile of rows").len;
                assert_eq!(tile % (own.stages * own.rows()), 0);
                Some(tile / (own.stages * own.rows()) - own.steps)
            }
            _ => None,
        });
        chosen.collect::<BTreeSet<u32>>()
    };
    assert_eq!(paddings(&program(SELECTIVE), 4), [8].into());
    assert_eq!(paddings(&program(GATED), 8), [4].into());
}

/// So do rows in gradients, but where a lane walks two rows: its sums would meet in the same banks.
#[test]
fn copied_rows_of_gradients_begin_at_sectors() {
    let gradient = adjoint(&program(SELECTIVE)).expect("differentiable");
    let stages: Vec<_> = cuts(&gradient).expect("cuts").all().flat_map(|cut| cut.stages).collect();
    let mut lane_rows = BTreeSet::new();
    for (stage, schedule) in stages.iter().flat_map(|stage| variants(stage, Isa::Sm90a)) {
        let Schedule::StateSpaceBackward(own) = &schedule else { continue };
        if own.vector != 4 || own.pass != Pass::Walk {
            continue;
        }
        let kernel = lower(&stage, &schedule, Isa::Sm90a).expect("lowers");
        let is_tile = |name: &str| name.starts_with("tile_") || name.starts_with("output_");
        let rows = own.stages * own.block_rows();
        let lens = kernel.shared.iter().filter(|array| is_tile(&array.name)).map(|array| array.len);
        let wanted = rows * (own.steps + if own.rows == 1 { 8 } else { 4 });
        assert!(
            lens.clone().any(|len| len == wanted),
            "{schedule}: {:?} instead of {wanted}",
            lens.collect::<Vec<_>>()
        );
        lane_rows.insert(own.rows);
    }
    assert_eq!(lane_rows, [1, 2].into());
}

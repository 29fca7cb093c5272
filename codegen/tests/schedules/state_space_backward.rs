//! The backward state-space schedule: gradients of scans whose states are summed away.

use oplus_codegen::plan::Planner;
use oplus_codegen::schedules::{Pass, Schedule, StateSpaceBackward};
use oplus_codegen::simulate::Order;
use oplus_codegen::stage::CutKind;
use oplus_codegen::target::Target;
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::Program;
use oplus_dsl::specialize::without_param;
use oplus_dsl::testing::recurrence;

use crate::device::Placement;
use crate::oracle::{Case, program};
use crate::state_space::{GATED, PACKED, SELECTIVE};

/// Attention with decays, o[t,v] = Σ_k q[t,k]·s[t,k,v] and s[t] = exp(g[t])·s[t−1] + k[t]⊗v[t], where a decay of zero
/// forgets: comparisons of what has no states.
const DECAYED: &str = "program decayed { axes H, T, K, V; param q: f32[H, T, K]; param k: f32[H, T, K];
    param v: f32[H, T, V]; param g: f32[H, T]; param s0: f32[H, K, V];
    operator LogDecay(g: f32, x: f32) { identity (0.0, 0.0);
        %0: f32 = input l.g; %1: f32 = input l.x; %2: f32 = input r.g; %3: f32 = input r.x; %4: f32 = %0 + %2;
        %5: f32 = exp(%2); %6: f32 = const 0.0; %7: bool = %5 == %6; %8: f32 = %5 * %1; %9: f32 = select(%7, %6, %8);
        %10: f32 = %9 + %3; combine (%4, %10); }
    operator Sum(s: f32) { identity (0.0); %0: f32 = input l.s; %1: f32 = input r.s; %2: f32 = %0 + %1; combine (%2); }
    %0: f32[H, T, K] = param q; %1: f32[H, T, K] = param k; %2: f32[H, T, V] = param v; %3: f32[H, T] = param g;
    %4: f32[H, K, V] = param s0; %5: f32[H, T, K, V] = %1 * %2; %6: f32 = const 0.0;
    %7: tuple[H, T, K, V] = scan(T, LogDecay, (%3, %5), init (%6, %4)); %8: f32[H, T, K, V] = %7.x;
    %9: f32[H, T, K, V] = %0 * %8; %10: tuple[H, T, V] = reduce(K, Sum, (%9)); %11: f32[H, T, V] = %10.s;
    %12: f32[H, K, V] = last(T, %8, %4); output o: f32[H, T, V] = %11; output s_last: f32[H, K, V] = %12; }";

/// The gradient of a program.
fn gradient(text: &str) -> Program {
    adjoint(&program(text)).expect("differentiable")
}

const SMALL: StateSpaceBackward = StateSpaceBackward {
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
    segmented: false,
    saved_ahead: 0,
};

/// The sub-tiles that plans copy saved states ahead to shared memory.
const AHEAD: [u32; 3] = [0, 1, 2];

fn check(program: &Program, sizes: &[usize], placement: Placement, schedule: StateSpaceBackward, seed: u64) {
    for saved_ahead in AHEAD {
        let schedule = StateSpaceBackward { saved_ahead, ..schedule };
        let case = Case { program, sizes, placement, order: Order::Random(seed) };
        case.check_states(Schedule::StateSpaceBackward(schedule));
    }
}

#[test]
fn every_length() {
    let program = gradient(SELECTIVE);
    for len in [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 37, 48, 67] {
        check(&program, &[2, 3, 4, len], Placement::Contiguous, SMALL, len as u64);
    }
    for len in [4, 12, 16, 20, 36, 64] {
        let schedule = StateSpaceBackward { vector: 4, rows: 2, ..SMALL };
        check(&program, &[2, 3, 4, len], Placement::Padded, schedule, len as u64);
    }
}

/// With as many multiprocessors as would give that many segments of time blocks of their own.
fn check_cut(program: &Program, sizes: &[usize], schedule: StateSpaceBackward, (segments, len): (u32, usize)) {
    let schedule = StateSpaceBackward { segmented: true, ..schedule };
    let case = Case { program, sizes, placement: Placement::Contiguous, order: Order::Random(len as u64) };
    let blocks = sizes[0] as u32 * (sizes[sizes.len() - 3] as u32).div_ceil(schedule.block_rows());
    let target = Target { multiprocessors: segments * blocks, ..Target::H200 };
    let tiles = (len as u32).div_ceil(schedule.steps);
    for saved_ahead in AHEAD {
        let schedule = StateSpaceBackward { saved_ahead, ..schedule };
        let (found, _) = case.check_states_on(Schedule::StateSpaceBackward(schedule), &target);
        assert!(found <= tiles && (found > 1) == (tiles > 1), "{sizes:?} {segments} {found}");
    }
}

#[test]
fn segments_of_time() {
    let program = gradient(SELECTIVE);
    for len in [1, 2, 15, 16, 17, 31, 32, 33, 67, 131, 257] {
        for segments in [2, 5, 9] {
            check_cut(&program, &[2, 3, 4, len], SMALL, (segments, len));
        }
        let schedule = StateSpaceBackward { states: 1, lanes: 4, rows: 2, ..SMALL };
        check_cut(&program, &[1, 37, 4, len], schedule, (3, len));
    }
    for len in [4, 36, 64, 100] {
        let schedule = StateSpaceBackward { vector: 4, rows: 2, padded: true, stages: 3, ..SMALL };
        check_cut(&program, &[2, 5, 3, len], schedule, (2, len));
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
        let schedule = StateSpaceBackward { states: per_lane as u32, lanes: lanes as u32, rows: own, padded, ..SMALL };
        check(&program, &[2, rows, states, 21], Placement::Contiguous, schedule, rows as u64);
        let schedule = StateSpaceBackward { vector: 4, copy_warps: 2, steps: 32, stages: 3, ..schedule };
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
        let schedule = StateSpaceBackward { vector, padded: true, ..SMALL };
        check(&program, &[2, 2, 5, 3, len], Placement::Contiguous, schedule, len as u64);
        let schedule = StateSpaceBackward { vector, rows: 2, lanes: 4, states: 1, padded: false, ..SMALL };
        check(&program, &[1, 2, 5, 4, len], Placement::Contiguous, schedule, len as u64);
    }
}

#[test]
fn initial_states_where_nothing_reads_the_final_ones() {
    let program = without_param(&gradient(GATED), "h_last.bar");
    assert!(program.param("h_last.bar").is_none() && program.param("h0").is_some());
    for (len, vector) in [(1, 1), (40, 8), (67, 1)] {
        let schedule = StateSpaceBackward { vector, padded: true, ..SMALL };
        check(&program, &[1, 2, 5, 3, len], Placement::Contiguous, schedule, len as u64);
        check_cut(&program, &[1, 1, 5, 3, len], schedule, (3, len));
    }
}

/// However far saved states are copied ahead.
#[test]
fn states_copied_ahead_give_the_same_bits() {
    let target = Target { multiprocessors: 6, ..Target::H200 };
    for (text, sizes, states) in [
        (SELECTIVE, &[1, 5, 15, 67][..], 8),
        (SELECTIVE, &[2, 3, 3, 41], 2),
        (GATED, &[1, 2, 3, 13, 40], 8),
        (GATED, &[1, 1, 5, 4, 67], 2),
    ] {
        let program = gradient(text);
        let case = Case { program: &program, sizes, placement: Placement::Contiguous, order: Order::Random(3) };
        for segmented in [false, true] {
            let outputs = |saved_ahead| {
                let schedule = StateSpaceBackward { states, padded: true, segmented, saved_ahead, ..SMALL };
                case.outputs_of_states(Schedule::StateSpaceBackward(schedule), &target)
            };
            let wanted = outputs(0);
            AHEAD.iter().for_each(|ahead| assert_eq!(outputs(*ahead), wanted, "{sizes:?} {segmented} {ahead}"));
        }
    }
}

/// Where threads have fewer registers, lanes walk their states by twos or one by one.
#[test]
fn groups_of_states_give_the_same_bits() {
    let target = Target { multiprocessors: 6, ..Target::H200 };
    for (text, sizes) in [(SELECTIVE, &[1, 5, 7, 43][..]), (PACKED, &[1, 3, 7, 43, 3])] {
        let program = gradient(text);
        let case = Case { program: &program, sizes, placement: Placement::Contiguous, order: Order::Random(3) };
        for segmented in [false, true] {
            let outputs = |registers| {
                let many = StateSpaceBackward { warps: 4, copy_warps: 8, states: 4, padded: true, ..SMALL };
                let schedule = StateSpaceBackward { segmented, registers, ..many };
                case.outputs_of_states(Schedule::StateSpaceBackward(schedule), &target)
            };
            let wanted = outputs(0);
            for registers in [64, 128, 136, 144, 152, 160, 168] {
                assert_eq!(outputs(registers), wanted, "{sizes:?} {segmented} {registers}");
            }
        }
    }
}

/// Many states of many rows: what one pass stores for the next would take more than twice the bytes of the tensors.
#[test]
fn pieces_of_rows() {
    let schedule = StateSpaceBackward { states: 4, lanes: 16, padded: true, ..SMALL };
    for (text, sizes) in [
        (SELECTIVE, &[1, 26, 64, 64][..]),
        (SELECTIVE, &[2, 17, 61, 67]),
        (SELECTIVE, &[1, 22, 33, 100]),
        (GATED, &[1, 2, 23, 64, 68]),
    ] {
        for segmented in [false, true] {
            let program = gradient(text);
            let case = Case { program: &program, sizes, placement: Placement::Padded, order: Order::Random(1) };
            let (schedule, target) =
                (StateSpaceBackward { segmented, ..schedule }, Target { multiprocessors: 9, ..Target::H200 });
            let (segments, pieces) = case.check_states_on(Schedule::StateSpaceBackward(schedule), &target);
            assert!(pieces > 1 && (segments > 1) == segmented, "{sizes:?}: {segments} segments, {pieces} pieces");
        }
    }
}

#[test]
fn segments_with_states_given_and_taken() {
    let program = gradient(GATED);
    for (len, vector) in [(1, 1), (19, 1), (40, 8), (72, 8), (101, 1)] {
        for segments in [2, 5] {
            let schedule = StateSpaceBackward { vector, padded: true, ..SMALL };
            check_cut(&program, &[1, 1, 5, 3, len], schedule, (segments, len));
            let schedule = StateSpaceBackward { vector, rows: 2, lanes: 4, states: 1, ..SMALL };
            check_cut(&program, &[1, 1, 5, 4, len], schedule, (segments, len));
        }
    }
}

#[test]
fn from_states_that_the_call_has_saved() {
    for (text, shapes) in [
        (SELECTIVE, vec![vec![2, 3, 4, 64], vec![1, 5, 3, 37], vec![2, 40, 16, 96], vec![1, 2, 64, 1]]),
        (GATED, vec![vec![2, 2, 5, 4, 40], vec![1, 2, 3, 13, 19]]),
        (PACKED, vec![vec![2, 3, 4, 40, 3], vec![1, 2, 13, 19, 9]]),
    ] {
        let program = program(text);
        for sizes in shapes {
            let placement = Placement::Contiguous;
            let case = Case { program: &program, sizes: &sizes, placement, order: Order::Random(5) };
            assert!(case.check_handing(), "{sizes:?}");
        }
    }
}

#[test]
fn plans_of_any_rank() {
    let program = gradient(DECAYED);
    for (rank, target) in [0, 1, 2, 5, 20].into_iter().flat_map(|rank| [(rank, Target::H200), (rank, Target::A100)]) {
        for sizes in [[2, 37, 4, 3], [1, 8, 1, 16]] {
            let placement = Placement::Contiguous;
            Case { program: &program, sizes: &sizes, placement, order: Order::Random(3) }.check_ranked(&target, rank);
        }
    }
}

#[test]
fn comparisons_of_values_without_states() {
    let program = gradient(DECAYED);
    for sizes in [[2, 37, 4, 3], [1, 16, 5, 3], [2, 1, 1, 1]] {
        check(&program, &sizes, Placement::Contiguous, StateSpaceBackward { padded: true, ..SMALL }, 5);
    }
}

#[test]
fn packed_sequences() {
    let program = gradient(PACKED);
    for (len, vector) in [(1, 1), (8, 8), (21, 1), (24, 4), (40, 8)] {
        for sequences in [1, 2, 7] {
            let schedule = StateSpaceBackward { vector, padded: true, ..SMALL };
            check(&program, &[2, 3, 3, len, sequences], Placement::Contiguous, schedule, len as u64);
        }
        let schedule = StateSpaceBackward { vector, rows: 2, lanes: 4, states: 1, ..SMALL };
        check(&program, &[1, 5, 4, len, 5], Placement::Contiguous, schedule, len as u64);
    }
}

#[test]
fn segments_of_packed_sequences() {
    let program = gradient(PACKED);
    for (len, sequences) in [(1, 1), (33, 2), (67, 7), (67, 1), (100, 12)] {
        let case = Case {
            program: &program,
            sizes: &[2, 3, 3, len, sequences],
            placement: Placement::Contiguous,
            order: Order::Random(3),
        };
        let target = Target { multiprocessors: 6, ..Target::H200 };
        let schedule = StateSpaceBackward { padded: true, segmented: true, ..SMALL };
        let (found, _) = case.check_states_on(Schedule::StateSpaceBackward(schedule), &target);
        assert_eq!(found > 1, len > 16, "{len}");
    }
}

#[test]
fn random_recurrences() {
    let mut taken = 0;
    for seed in 0..60 {
        let program = adjoint(&recurrence(seed, Elem::F32)).expect("differentiable");
        let planner = Planner::new(&program, &Target::H200).expect("cuts");
        if planner.cut(CutKind::BackwardScan).is_some() {
            check(&program, &[2, 3, 4, 19], Placement::Contiguous, SMALL, seed);
            let schedule = StateSpaceBackward { states: 4, lanes: 4, rows: 2, padded: true, ..SMALL };
            check(&program, &[1, 5, 9, 33], Placement::Contiguous, schedule, seed);
            taken += 1;
        }
    }
    assert!(taken > 10, "{taken}");
}

//! As many keys as a block takes, beside products in `tf32`: tiles that are not needed at the same time lie over one another.

use super::*;
use oplus_codegen::plan::{Launch, Planner};
use oplus_codegen::schedules::{ChunkwiseBackward, Schedule};
use oplus_codegen::target::Target;

use super::super::check_on;
use crate::device::call;

const DEEPEST: [Elem; 2] = [Elem::F16, Elem::F32];

/// Checks both targets, whose third sweeps have such tiles.
fn check_overlaid(program: &Program, sizes: &[(&str, usize)], placed: Placement, order: Order) {
    check(program, sizes, (placed, 0), order);
    let sweeps = check_on(&Target::H200, (program, sizes), (placed, 0), Order::Descending, |_, _, own| own);
    let is_overlaid = |own: &ChunkwiseBackward| own.overlaid == (own.sweep == Sweep::Gradients);
    assert!(sweeps.iter().all(is_overlaid), "{sizes:?}");
}

/// An A100 has no room for such tiles.
#[test]
fn plans_take_chunks_on_hopper() {
    for (elem, v) in DEEPEST.into_iter().flat_map(|elem| [48, 64, 80, 128].map(|v| (elem, v))) {
        let program = gradient(elem, &["s0"], &["o"]);
        let size = |name: &String| match name.as_str() {
            "B" => 4,
            "H" => 16,
            "T" => 2048,
            "K" => 128,
            _ => v,
        };
        let sizes: Vec<usize> = program.axes.iter().map(size).collect();
        for (target, takes) in [(Target::H200, true), (Target::A100, false)] {
            let planner = Planner::new(&program, &target).expect("cuts");
            let plan = planner.plan(&call(&program, &sizes, Placement::Contiguous)).expect("a plan");
            let is_overlaid =
                |step: &Launch| matches!(&step.schedule, Schedule::ChunkwiseBackward(own) if own.overlaid);
            assert_eq!(plan.steps.iter().any(is_overlaid), takes, "{elem} {v} {target:?}");
        }
    }
}

#[test]
fn lengths_around_chunks_and_blocks_of_them() {
    for elem in DEEPEST {
        let program = gradient(elem, &[], &["o"]);
        for t in [1, 15, 16, 17, 63, 64, 65, 131] {
            let sizes = [("B", 1), ("H", 1), ("T", t), ("K", 128), ("V", 64)];
            check(&program, &sizes, (Placement::Contiguous, 0), Order::Random(t as u64));
        }
    }
}

#[test]
fn states_and_odd_sizes() {
    for elem in DEEPEST {
        for (outputs, t, k, v, placed) in [
            (&["o"][..], 70, 128, 59, Placement::Contiguous),
            (&["o", "s_last"], 67, 101, 64, Placement::Contiguous),
            (&["s_last", "o"], 97, 120, 56, Placement::Padded),
        ] {
            let program = gradient(elem, &[], outputs);
            let sizes = [("B", 2), ("H", 2), ("T", t), ("K", k), ("V", v)];
            check_overlaid(&program, &sizes, placed, Order::Random(k as u64));
        }
    }
}

#[test]
fn segments() {
    DEEPEST.into_iter().for_each(|elem| check_segments(elem, 128));
}

/// Slices of the width, of which the last may be shorter.
#[test]
fn parts_of_wide_states() {
    for elem in DEEPEST {
        for (outputs, t, k, v) in [
            (&["o"][..], 70, 128, 128),
            (&["o", "s_last"], 131, 128, 192),
            (&["o", "s_last"], 61, 127, 80),
            (&["o"], 65, 96, 67),
        ] {
            let program = gradient(elem, &[], outputs);
            let sizes = [("B", 1), ("H", 2), ("T", t), ("K", k), ("V", v)];
            check_overlaid(&program, &sizes, Placement::Contiguous, Order::Random(v as u64));
        }
    }
}

#[test]
fn gains_and_maps() {
    let params = "a: [B, H, T, K], beta: [B, H, T], gamma: [B, H, T]";
    for elem in DEEPEST {
        let program = written(elem, params, "scan(T, LogDecay(a, k * (beta * v))).x", "gamma * y");
        for v in [64, 128] {
            let sizes = [("B", 1), ("H", 2), ("T", 100), ("K", 128), ("V", v)];
            check_overlaid(&program, &sizes, Placement::Contiguous, Order::Random(5));
        }
    }
}

#[test]
fn packed_sequences() {
    let scan = "scan(T, segmented(LogDecay)(a, k * v), offsets = cu_seqlens).x";
    for elem in DEEPEST {
        let program = written(elem, "a: [B, H, T, K], cu_seqlens: i32[S]", scan, "y");
        for (t, v, sequences) in [(70, 64, 5), (200, 128, 9)] {
            let sizes = [("B", 1), ("H", 2), ("T", t), ("K", 128), ("V", v), ("S", sequences)];
            check_overlaid(&program, &sizes, Placement::Contiguous, Order::Random(t as u64));
        }
    }
}

#[test]
fn decays_that_leave_all_little_or_nothing() {
    for (elem, v) in DEEPEST.into_iter().flat_map(|elem| [64, 128].map(|v| (elem, v))) {
        let program = gradient(elem, &[], &["o", "s_last"]);
        let sizes = [("B", 1), ("H", 1), ("T", 80), ("K", 128), ("V", v)];
        let placed = (Placement::Contiguous, 0);
        let mixed = |name: &str, i: usize, own: f64| match (name, i % 7) {
            ("g", 0) => f64::NEG_INFINITY,
            ("g", 1) => -300.0,
            ("g", 2 | 3) => 0.0,
            ("g", 4) => own / 1000.0,
            ("g", _) => 30.0 * own,
            _ => own,
        };
        check_with(&program, &sizes, placed, Order::Random(2), mixed);
    }
}

/// Decays that do not vary along time, of which the cotangent is a sum over all times.
#[test]
fn decays_of_all_times() {
    let strong = |name: &str, _: usize, own: f64| {
        if name == "a" { -(3.464 * own + 1.732).exp().ln_1p() / 0.1 } else { own }
    };
    for elem in DEEPEST {
        let program = written(elem, "a: f32[H, K]", "scan(T, LogDecay(a, k * v)).x", "y");
        for (t, v) in [(259, 64), (65, 128)] {
            let sizes = [("B", 1), ("H", 1), ("T", t), ("K", 128), ("V", v)];
            check_with(&program, &sizes, (Placement::Contiguous, 0), Order::Random(1), strong);
        }
    }
}

/// What one run gives, another one gives to the bit, in any order of events.
#[test]
fn the_same_bits_in_any_order() {
    use super::super::results;
    for elem in DEEPEST {
        let program = gradient(elem, &[], &["o", "s_last"]);
        let sizes = [("B", 1), ("H", 1), ("T", 75), ("K", 128), ("V", 128)];
        let of = |order| results(&Target::H200, (&program, &sizes), (Placement::Contiguous, 0), order, |_, _, own| own);
        let first = of(Order::Ascending).found;
        for order in [Order::Descending, Order::Random(1), Order::Random(2)] {
            assert!(of(order).found.iter().zip(&first).all(|(own, first)| own.data == first.data), "{elem}");
        }
    }
}

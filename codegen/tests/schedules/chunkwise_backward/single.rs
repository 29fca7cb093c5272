//! Gradients in `f16` and `f32`: products in `tf32`, of `f32` in two parts.

use oplus_codegen::schedules::{ChunkwiseBackward, Sweep};
use oplus_codegen::simulate::Order;
use oplus_codegen::target::Target;
use oplus_dsl::Elem;

use super::{check, check_on, check_with, gradient_of};
use crate::device::Placement;

const ELEMS: [Elem; 2] = [Elem::F16, Elem::F32];

#[test]
fn lengths_around_chunks() {
    for elem in ELEMS {
        let program = gradient_of(("ssd", elem), &["skip", "dt_bias", "h0"], &["y"]);
        for (t, heads) in [(1, 1), (63, 2), (64, 3), (130, 2)] {
            let sizes = [("B", 1), ("T", t), ("G", 1), ("H", heads), ("P", 64), ("N", 32)];
            check(&program, &sizes, (Placement::Contiguous, 0), Order::Random(t as u64));
        }
    }
}

#[test]
fn groups_states_and_odd_sizes() {
    for elem in ELEMS {
        let program = gradient_of(("ssd_softplus", elem), &[], &["y", "h_last"]);
        let sizes = [("B", 2), ("T", 70), ("G", 2), ("H", 3), ("P", 29), ("N", 13)];
        check(&program, &sizes, (Placement::Contiguous, 0), Order::Descending);
        let sizes = [("B", 1), ("T", 129), ("G", 2), ("H", 1), ("P", 56), ("N", 72)];
        check(&program, &sizes, (Placement::Contiguous, 0), Order::Ascending);
    }
}

#[test]
fn decays_that_are_the_same_at_all_times() {
    for (elem, name) in ELEMS.into_iter().flat_map(|elem| ["retention", "linear_attention"].map(|name| (elem, name))) {
        let program = gradient_of((name, elem), &[], &["o", "s_last"]);
        let sizes = [("B", 2), ("H", 2), ("T", 129), ("K", 24), ("V", 56)];
        check(&program, &sizes, (Placement::Contiguous, 0), Order::Random(5));
        let sizes = [("B", 1), ("H", 1), ("T", 1030), ("K", 16), ("V", 24)];
        let sweeps = check(&program, &sizes, (Placement::Contiguous, 0), Order::Descending);
        assert!(sweeps.contains(&Sweep::StateEnds) && sweeps.contains(&Sweep::CotangentEnds));
    }
}

#[test]
fn parts_of_wide_states() {
    for elem in ELEMS {
        let program = gradient_of(("ssd_softplus", elem), &[], &["y", "h_last"]);
        let sizes = [("B", 1), ("T", 70), ("G", 2), ("H", 3), ("P", 128), ("N", 32)];
        check(&program, &sizes, (Placement::Contiguous, 0), Order::Random(2));
    }
}

/// In the largest tiles there is no room for G in `f32`, and by warps none for another head in `f16`.
#[test]
fn most_depth() {
    let without = ["skip", "dt_bias", "h0"];
    for (elem, (p, n)) in ELEMS.into_iter().flat_map(|elem| [(64, 128), (29, 101)].map(|sizes| (elem, sizes))) {
        let program = gradient_of(("ssd", elem), &without, &["y"]);
        let sizes = [("B", 1), ("T", 70), ("G", 1), ("H", 2), ("P", p), ("N", n)];
        let placed = (Placement::Contiguous, 0);
        let sweeps = check_on(&Target::H200, (&program, &sizes), placed, Order::Random(n as u64), |_, _, own| own);
        let by_warpgroups = |schedule: &ChunkwiseBackward| schedule.warpgroups && schedule.sweep == Sweep::Gradients;
        let most = if elem == Elem::F32 { 3 } else { 4 };
        let stages = |schedule| if by_warpgroups(schedule) { most } else { 2 };
        assert!(sweeps.iter().all(|schedule| (schedule.depth, schedule.stages) == (128, stages(schedule))));
    }
}

#[test]
fn gates() {
    for elem in ELEMS {
        let program = gradient_of(("mamba2", elem), &[], &["y", "h_last"]);
        let sizes = [("B", 2), ("T", 70), ("G", 2), ("H", 3), ("P", 56), ("N", 32)];
        check(&program, &sizes, (Placement::Contiguous, 0), Order::Descending);
    }
}

#[test]
fn packed_sequences() {
    for elem in ELEMS {
        let program = gradient_of(("ssd_packed", elem), &[], &["y"]);
        let sizes = [("B", 1), ("T", 130), ("G", 1), ("H", 2), ("P", 29), ("N", 13), ("S", 6)];
        check(&program, &sizes, (Placement::Contiguous, 0), Order::Random(6));
    }
}

/// States of millions, which `f16` has not.
#[test]
fn states_out_of_the_range_of_their_factors() {
    let program = gradient_of(("linear_attention", Elem::F16), &["s0"], &["o"]);
    let sizes = [("B", 1), ("H", 1), ("T", 130), ("K", 32), ("V", 64)];
    let scaled = |name: &str, _, own: f64| match name {
        "k" | "v" => 200.0 + own,
        "q" => own,
        _ => own / 4096.0,
    };
    check_with(&program, &sizes, (Placement::Contiguous, 0), Order::Ascending, scaled);
}

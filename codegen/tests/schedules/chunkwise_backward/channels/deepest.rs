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

/// How the plan of a program takes 65 to 128 keys in chunks.
#[derive(Debug, PartialEq, Eq)]
enum Keys {
    /// All of them in one block, with such tiles.
    Whole,
    /// In two parts of at most 64.
    InParts,
    /// In chunks of 16 times.
    BySixteen,
}

fn planned(program: &Program, sizes: &[usize], target: &Target) -> Option<Keys> {
    let planner = Planner::new(program, target).expect("cuts");
    let call = call(program, sizes, Placement::Contiguous);
    let keys = |step: &Launch| match &step.schedule {
        Schedule::ChunkwiseBackward(own) if own.overlaid => Some(Keys::Whole),
        Schedule::ChunkwiseBackward(own) if own.depth == 64 => Some(Keys::InParts),
        Schedule::ChunkDeltaBackward(_) => Some(Keys::BySixteen),
        _ => None,
    };
    planner.plan(&call).expect("a plan").steps.iter().filter_map(keys).next_back()
}

/// Chunks of 16 times are faster than such tiles, and than two parts of the keys, where their blocks of 64 values are whole.
#[test]
fn plans_take_chunks() {
    for (elem, v) in DEEPEST.into_iter().flat_map(|elem| [48, 64, 128].map(|v| (elem, v))) {
        let program = gradient(elem, &["s0"], &["o"]);
        let size = |name: &String| match name.as_str() {
            "B" => 4,
            "H" => 16,
            "T" => 2048,
            "K" => 128,
            _ => v,
        };
        let sizes: Vec<usize> = program.axes.iter().map(size).collect();
        for target in [Target::H200, Target::A100] {
            assert_eq!(planned(&program, &sizes, &target), Some(Keys::BySixteen), "{elem} {v} {target:?}");
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

/// Decays that do not vary along time, and several sums over the width, which lie over the sums of pairs that reach over blocks of times: beside
/// these `f32` has room for one sum alone.
mod sums_over_width {
    use super::super::super::results;
    use super::*;

    const GAINS: &str = "beta: [B, H, T], gamma: [B, H, T], u: [B, H, T, V]";
    const SUM: &str = "beta * v + gamma * u";

    /// A kernel of addends that each have a gain, with the logarithms of its decays.
    fn of_addends(log: &str, params: &str) -> Program {
        let scan = format!("scan(T, LogDecay({log}, k * ({SUM}))).x");
        written(Elem::F32, &format!("{params}, {GAINS}"), &scan, "y")
    }

    /// Programs whose recurrence begins and ends with a state of the caller.
    fn with_states() -> Program {
        let head = "q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], a: [H, K], s0: [B, H, K, V]";
        let body =
            format!("let s = scan(T, LogDecay(a, k * ({SUM})), init = s0).x; o = sum(K, q * s); s_last = last(T, s);");
        of_text(Elem::F32, &format!("fn f({head}, {GAINS}) -> (o: [B, H, T, V], s_last: [B, H, K, V]) {{ {body} }}"))
    }

    fn check_sums(program: &Program, [t, k, v]: [usize; 3], placed: Placement) {
        let sizes = [("B", 1), ("H", 1 + t % 2), ("T", t), ("K", k), ("V", v), ("S", 4)];
        check_overlaid(program, &sizes, placed, Order::Random((t + v) as u64));
    }

    #[test]
    fn lengths_around_chunks() {
        let (program, with_states) = (of_addends("a", "a: [H, K]"), with_states());
        // At one time without a state before it the terms of a decay's cotangent cancel.
        for t in [1, 64] {
            check_sums(&with_states, [t, 128, 64], Placement::Contiguous);
        }
        for t in [17, 63, 64, 65] {
            check_sums(&program, [t, 128, 64], Placement::Contiguous);
        }
    }

    #[test]
    fn odd_sizes_and_parts_of_wide_states() {
        let program = of_addends("a", "a: [H, K]");
        for (own, placed) in [
            ([70, 128, 56], Placement::Contiguous),
            ([66, 101, 59], Placement::Contiguous),
            ([65, 120, 64], Placement::Padded),
            ([63, 128, 128], Placement::Contiguous),
            ([130, 128, 80], Placement::Contiguous),
            ([65, 97, 67], Placement::Contiguous),
        ] {
            check_sums(&program, own, placed);
        }
        check_sums(&with_states(), [66, 99, 131], Placement::Contiguous);
    }

    /// Of packed sequences, of decays that have a factor that varies, and with a third sum.
    #[test]
    fn other_programs() {
        let scan = format!("scan(T, segmented(LogDecay)(a, k * ({SUM})), offsets = cu_seqlens).x");
        let packed = written(Elem::F32, &format!("a: [H, K], cu_seqlens: i32[S], {GAINS}"), &scan, "y");
        let factors = of_addends("a * dt", "a: [H, K], dt: [B, H, T]");
        let scan = format!("scan(T, LogDecay(a, k * ({SUM} + delta))).x");
        let three = written(Elem::F32, &format!("a: [H, K], delta: [B, H, T], {GAINS}"), &scan, "y");
        for (program, v) in [(&packed, 64), (&packed, 72), (&factors, 128), (&three, 64), (&three, 80)] {
            check_sums(program, [100, 128, v], Placement::Contiguous);
        }
    }

    #[test]
    fn plans_take_chunks() {
        for (log, params) in [("a", "a: [H, K]"), ("a * dt", "a: [H, K], dt: [B, H, T]")] {
            let program = of_addends(log, params);
            for (k, v) in [(128, 64), (128, 128), (96, 64)] {
                let size = |name: &String| match name.as_str() {
                    "B" => 4,
                    "H" => 16,
                    "T" => 2048,
                    "K" => k,
                    _ => v,
                };
                let sizes: Vec<usize> = program.axes.iter().map(size).collect();
                assert_eq!(planned(&program, &sizes, &Target::H200), Some(Keys::BySixteen), "{log} {k} {v}");
            }
        }
    }

    #[test]
    fn no_times() {
        time_invariant::check_no_times(&of_addends("a", "a: [H, K]"), [128, 64]);
    }

    #[test]
    fn the_same_bits_in_any_order() {
        let program = of_addends("a", "a: [H, K]");
        let sizes = [("B", 1), ("H", 1), ("T", 75), ("K", 128), ("V", 128)];
        let of = |order| results(&Target::H200, (&program, &sizes), (Placement::Contiguous, 0), order, |_, _, own| own);
        let first = of(Order::Ascending).found;
        for order in [Order::Descending, Order::Random(1), Order::Random(2)] {
            assert!(of(order).found.iter().zip(&first).all(|(own, first)| own.data == first.data));
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

//! Kernels of decays per channel against the interpreter.

use oplus_codegen::schedules::Chunkwise;
use oplus_codegen::simulate::Order;
use oplus_dsl::Elem;

use crate::harness::{CHUNKS, Case, model, stage, written_in};

#[test]
fn decays_of_channels() {
    let stage = stage(&model("gated_linear_attention", Elem::Bf16, &[]));
    for (t, k, v) in [(1, 16, 32), (2, 16, 32), (31, 13, 29), (33, 16, 32), (101, 16, 32)] {
        let sizes = [("B", 1), ("H", 2), ("T", t), ("K", k), ("V", v)];
        Case::new(&stage, &sizes).check(&CHUNKS, Order::Random(t as u64));
    }
    for (warps, depth) in [(4, 32), (4, 128), (2, 64)] {
        let schedule = Chunkwise { warps, depth, padded: false, vector: 8, ..CHUNKS };
        let sizes = [("B", 1), ("H", 1), ("T", 150), ("K", depth as usize), ("V", schedule.width() as usize)];
        Case::new(&stage, &sizes).check(&schedule, Order::Ascending);
    }
    for (segments, t) in [(2, 33), (3, 160), (4, 150)] {
        let sizes = [("B", 1), ("H", 2), ("T", t), ("K", 13), ("V", 29)];
        Case::new(&stage, &sizes).check_segments(&CHUNKS, segments, Order::Random(t as u64));
    }
}

#[test]
fn decays_of_channels_that_leave_nothing() {
    for elem in [Elem::Bf16, Elem::F16, Elem::F32] {
        let stage = stage(&model("gated_linear_attention", elem, &[]));
        let sizes = [("B", 1), ("H", 1), ("T", 90), ("K", 16), ("V", 32)];
        let mut case = Case::new(&stage, &sizes);
        case.change("g", |i, g| match i % 7 {
            0 => f64::NEG_INFINITY,
            1 => -300.0,
            2 => 0.0,
            _ => 30.0 * g,
        });
        case.check(&CHUNKS, Order::Descending);
    }
}

#[test]
fn neighbours_after_large_decays_of_channels_of_f32() {
    let stage = stage(&model("gated_linear_attention", Elem::F32, &[]));
    let sizes = [("B", 1), ("H", 1), ("T", 130), ("K", 16), ("V", 64)];
    let mut case = Case::new(&stage, &sizes);
    // Sums of logarithms are in the thousands; of the time before nothing is left, or nearly all.
    case.change("g", |i, g| if i % 3 == 0 { 50.0 * g - 50.0 } else { 0.1 * g });
    case.check(&Chunkwise { warps: 4, ..CHUNKS }, Order::Ascending);
}

#[test]
fn decays_of_channels_of_f16_and_f32() {
    for elem in [Elem::F16, Elem::F32] {
        let stage = stage(&model("gated_linear_attention", elem, &[]));
        for (t, k, v) in [(1, 16, 32), (2, 16, 32), (31, 13, 29), (33, 16, 32), (101, 16, 32)] {
            let sizes = [("B", 1), ("H", 2), ("T", t), ("K", k), ("V", v)];
            Case::new(&stage, &sizes).check(&CHUNKS, Order::Random(t as u64));
        }
        let vector = if elem == Elem::F32 { 4 } else { 8 };
        for (warps, depth) in [(4, 32), (4, 64), (2, 64), (2, 128)] {
            let schedule = Chunkwise { warps, depth, padded: false, vector, ..CHUNKS };
            let sizes = [("B", 1), ("H", 1), ("T", 150), ("K", depth as usize), ("V", schedule.width() as usize)];
            Case::new(&stage, &sizes).check(&schedule, Order::Ascending);
        }
        for (segments, t) in [(2, 33), (3, 160), (4, 150)] {
            let sizes = [("B", 1), ("H", 2), ("T", t), ("K", 13), ("V", 29)];
            Case::new(&stage, &sizes).check_segments(&CHUNKS, segments, Order::Random(t as u64));
        }
        let schedule = Chunkwise { depth: 16, padded: false, wide: true, vector, ..CHUNKS };
        let sizes = [("B", 1), ("H", 2), ("T", 70), ("K", 16), ("V", 64)];
        Case::new(&stage, &sizes).check_segments(&schedule, 2, Order::Descending);
    }
}

#[test]
fn states_beyond_the_range_of_f16_with_decays_of_channels() {
    let stage = stage(&model("gated_linear_attention", Elem::F16, &[]));
    let sizes = [("B", 1), ("H", 1), ("T", 70), ("K", 16), ("V", 32)];
    let mut case = Case::new(&stage, &sizes);
    case.change("v", |_, v| 1e4 * v);
    case.change("k", |_, k| 1e3 * k);
    case.change("q", |_, q| 1e-4 * q);
    case.change("s0", |_, s| 1e7 * s);
    case.check(&CHUNKS, Order::Random(1));
}

#[test]
fn decays_of_channels_with_shared_keys_and_without_the_time() {
    let shapes = [("[T, K]", "[H, T, K]"), ("[H, T, K]", "[H, K]"), ("[T, K]", "[K]"), ("[T, K]", "[T, K]")];
    for (factors, decays) in shapes {
        let head = format!("fn f(v: [H, T, V], k: {factors}, q: {factors}, a: {decays}) -> (y: [H, T, V])");
        let text = format!("{head} {{ y = sum(K, q * scan(T, LogDecay(a, k * v)).x); }}");
        for elem in [Elem::Bf16, Elem::F16, Elem::F32] {
            let stage = stage(&written_in(&text, elem));
            for (t, k, v) in [(1, 16, 32), (45, 13, 29), (64, 16, 32)] {
                let sizes = [("H", 3), ("T", t), ("K", k), ("V", v)];
                Case::new(&stage, &sizes).check(&CHUNKS, Order::Random(t as u64));
            }
        }
    }
}

/// Chunks of four warps at the greatest depth, of which shared memory has room for one.
#[test]
fn decays_of_channels_with_one_chunk_in_flight() {
    let stage = stage(&model("gated_linear_attention", Elem::F32, &[]));
    let one = Chunkwise { warps: 4, depth: 128, stages: 1, vector: 4, ..CHUNKS };
    for (t, k, v) in [(0, 128, 64), (1, 128, 64), (63, 100, 48), (64, 128, 64), (65, 124, 64), (197, 128, 64)] {
        let sizes = [("B", 1), ("H", 1), ("T", t), ("K", k), ("V", v)];
        let schedule = Chunkwise { padded: (k, v) != (128, 64), ..one };
        Case::new(&stage, &sizes).check(&schedule, Order::Random(t as u64));
    }
    let sizes = [("B", 1), ("H", 1), ("T", 130), ("K", 128), ("V", 96)];
    let case = Case::new(&stage, &sizes);
    let whole = Chunkwise { wide: true, ..one };
    case.check_segments(&whole, 2, Order::Descending);
    let of = |vector: u32| case.run(&Chunkwise { vector, ..whole }, (2, Order::Random(1)));
    assert_eq!(of(1), of(4));
}

/// Chunks that are not copied ahead, so that more blocks share a multiprocessor, give the bits of those that are.
#[test]
fn decays_of_channels_with_one_chunk_in_flight_for_more_blocks() {
    for (elem, vector) in [(Elem::Bf16, 8), (Elem::F16, 8), (Elem::F32, 4)] {
        let stage = stage(&model("gated_linear_attention", elem, &[]));
        for (t, k, v) in [(0, 64, 64), (1, 64, 64), (65, 64, 64), (130, 56, 40), (65, 128, 64)] {
            if (elem, k) == (Elem::F32, 128) {
                continue;
            }
            let depth = if k > 64 { 128 } else { 64 };
            let case = Case::new(&stage, &[("B", 1), ("H", 1), ("T", t), ("K", k), ("V", v)]);
            let one =
                Chunkwise { warps: 4, depth, stages: 1, vector, padded: (k, v) != (depth as usize, 64), ..CHUNKS };
            case.check(&one, Order::Random(t as u64));
            let of = |stages: u32| case.run(&Chunkwise { stages, ..one }, (1, Order::Random(2)));
            assert_eq!(of(1), of(2), "{elem} {t} {k} {v}");
        }
    }
}

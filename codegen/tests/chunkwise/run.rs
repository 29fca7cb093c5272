//! Kernels against the interpreter.

use oplus_codegen::schedules::chunkwise::KeyParts;
use oplus_codegen::schedules::{Access, Chunkwise, LowerError, Strategy, Unit, chunkwise};
use oplus_codegen::simulate::Order;
use oplus_codegen::target::Isa;
use oplus_dsl::Elem;

use crate::harness::{CHUNKS, Case, model, stage};

#[test]
fn lengths_around_chunks() {
    let stage = stage(&model("ssd", Elem::Bf16, &[]));
    for t in [1, 2, 31, 32, 33, 64, 101] {
        let sizes = [("B", 1), ("T", t), ("G", 1), ("H", 2), ("P", 32), ("N", 16)];
        Case::new(&stage, &sizes).check(&CHUNKS, Order::Random(t as u64));
    }
}

#[test]
fn factors_of_f16_and_f32() {
    for elem in [Elem::F16, Elem::F32] {
        let stage = stage(&model("ssd", elem, &[]));
        for t in [1, 2, 31, 32, 33, 61, 64, 101] {
            let sizes = [("B", 1), ("T", t), ("G", 1), ("H", 2), ("P", 32), ("N", 16)];
            let case = Case::new(&stage, &sizes);
            case.check(&CHUNKS, Order::Random(t as u64));
            case.check_segments(&CHUNKS, 2.min(t.div_ceil(32)), Order::Descending);
        }
        let vector = if elem == Elem::F32 { 4 } else { 8 };
        for (warps, depth, padded, t) in
            [(2, 64, false, 100), (4, 32, true, 65), (4, 64, false, 150), (4, 128, false, 63)]
        {
            let stages = if depth < 128 { 2 + t % 2 } else { 2 };
            let schedule = Chunkwise { warps, depth, padded, stages, vector, ..CHUNKS };
            let less = if padded { vector } else { 0 };
            let (p, n) = (schedule.width() - less, depth - less);
            let sizes = [("B", 1), ("T", t as usize), ("G", 1), ("H", 1), ("P", p as usize), ("N", n as usize)];
            let case = Case::new(&stage, &sizes);
            case.check(&schedule, Order::Ascending);
            case.check_segments(&schedule, 2, Order::Random(3));
        }
    }
}

#[test]
fn states_beyond_the_range_of_f16() {
    let stage = stage(&model("ssd", Elem::F16, &[]));
    let sizes = [("B", 1), ("T", 101), ("G", 1), ("H", 2), ("P", 32), ("N", 16)];
    let mut case = Case::new(&stage, &sizes);
    case.change("x", |_, x| 6e4 * x);
    case.change("b", |_, b| 1e3 * b);
    case.change("c", |_, c| 1e-4 * c);
    case.change("h0", |_, h| 1e7 * h);
    case.check(&CHUNKS, Order::Descending);
    let sizes = [("B", 1), ("T", 101), ("G", 1), ("H", 2), ("P", 64), ("N", 16)];
    let mut case = Case::new(&stage, &sizes);
    case.change("x", |_, x| 1e4 * x);
    case.change("b", |_, b| 1e3 * b);
    case.change("c", |_, c| 1e-4 * c);
    case.change("h0", |_, h| 1e7 * h);
    case.change("dt_bias", |_, bias| bias.abs());
    let by_warpgroups = Chunkwise { warps: 4, unit: Unit::Warpgroup, copiers: 4, vector: 8, ..CHUNKS };
    case.check(&by_warpgroups, Order::Descending);
    let mut case = Case::new(&stage, &sizes);
    case.change("x", |_, x| 2e-2 * x);
    case.change("b", |_, b| 2e-2 * b);
    case.change("c", |_, c| 1e3 * c);
    case.change("h0", |_, h| 1e-5 * h);
    case.check(&by_warpgroups, Order::Ascending);
}

#[test]
fn neighbours_after_large_decays_of_f32() {
    let stage = stage(&model("monoid_attention", Elem::F32, &[]));
    let sizes = [("B", 1), ("H", 2), ("T", 130), ("K", 16), ("V", 64)];
    let mut case = Case::new(&stage, &sizes);
    // Sums of logarithms are in the thousands; of the time before nothing is left, or nearly all.
    case.change("g", |i, g| if i % 3 == 0 { 50.0 * g - 50.0 } else { 0.1 * g });
    case.check(&Chunkwise { warps: 4, ..CHUNKS }, Order::Ascending);
    let divided = Chunkwise { warps: 4, unit: Unit::Warpgroup, copiers: 4, vector: 4, ..CHUNKS };
    case.check(&divided, Order::Ascending);
}

#[test]
fn models_of_f16_and_f32() {
    for elem in [Elem::F16, Elem::F32] {
        for name in ["monoid_attention", "linear_attention", "retention"] {
            let stage = stage(&model(name, elem, &[]));
            let sizes = [("B", 1), ("H", 2), ("T", 70), ("K", 16), ("V", 32)];
            Case::new(&stage, &sizes).check(&CHUNKS, Order::Random(1));
        }
        let stage = stage(&model("ssd_packed", elem, &[]));
        for t in [1, 33, 101] {
            let sizes = [("B", 1), ("T", t), ("G", 1), ("H", 2), ("P", 29), ("N", 13)];
            Case::new(&stage, &sizes).check(&CHUNKS, Order::Random(t as u64));
        }
        let stage = self::stage(&model("mamba2", elem, &[]));
        let schedule = Chunkwise { depth: 16, padded: false, wide: true, vector: 4, ..CHUNKS };
        let sizes = [("B", 1), ("T", 70), ("G", 1), ("H", 2), ("P", 64), ("N", 16)];
        Case::new(&stage, &sizes).check_segments(&schedule, 2, Order::Ascending);
    }
}

#[test]
fn groups_gates_and_odd_sizes() {
    for name in ["ssd_softplus", "mamba2"] {
        for elem in [Elem::Bf16, Elem::F16, Elem::F32] {
            let stage = stage(&model(name, elem, &[]));
            let sizes = [("B", 2), ("T", 70), ("G", 2), ("H", 2), ("P", 29), ("N", 13)];
            Case::new(&stage, &sizes).check(&CHUNKS, Order::Ascending);
        }
    }
}

#[test]
fn vectors_and_whole_widths() {
    let stage = stage(&model("mamba2", Elem::Bf16, &["h0"]));
    for (warps, depth, stages, vector) in [(2, 16, 3, 8), (4, 32, 2, 8), (4, 128, 2, 8), (4, 128, 2, 1)] {
        let schedule = Chunkwise { warps, depth, padded: false, stages, vector, ..CHUNKS };
        let sizes = [("B", 1), ("T", 150), ("G", 1), ("H", 1), ("P", schedule.width() as usize), ("N", depth as usize)];
        Case::new(&stage, &sizes).check(&schedule, Order::Descending);
    }
}

/// What queries read, and groups of blocks of the state, stand apart where single elements are copied, in the order of whole accesses.
#[test]
fn single_elements_give_the_bits_of_whole_accesses() {
    for (elem, vector) in [(Elem::Bf16, 8), (Elem::F16, 8), (Elem::F32, 4)] {
        for (name, depth, wide) in [
            ("ssd_packed", 64, true),
            ("ssd_packed", 128, false),
            ("mamba2", 128, true),
            ("gated_linear_attention", 64, false),
            ("gated_linear_attention", 128, true),
        ] {
            let stage = stage(&model(name, elem, &[]));
            let schedule = Chunkwise { depth, wide, ..CHUNKS };
            let (n, p) = (depth as usize - 8, if wide { 40 } else { 24 });
            let sizes = [("B", 1), ("T", 70), ("G", 1), ("H", 1), ("P", p), ("V", p), ("N", n), ("K", n)];
            let case = Case::new(&stage, &sizes);
            let of = |vector: u32| case.run(&Chunkwise { vector, ..schedule }, (2, Order::Random(1)));
            assert_eq!(of(1), of(vector), "{name} {elem} {depth}");
            case.check(&schedule, Order::Descending);
        }
    }
}

#[test]
fn linear_attention_and_its_relatives() {
    for name in ["monoid_attention", "linear_attention", "retention"] {
        let stage = stage(&model(name, Elem::Bf16, &[]));
        let sizes = [("B", 1), ("H", 2), ("T", 70), ("K", 16), ("V", 32)];
        Case::new(&stage, &sizes).check(&CHUNKS, Order::Random(1));
    }
}

#[test]
fn segments_of_few_long_recurrences() {
    // Of 5 chunks in 4 segments the last has none.
    for (segments, t) in [(2, 33), (2, 160), (3, 160), (4, 150), (5, 129)] {
        let stage = stage(&model("ssd", Elem::Bf16, &[]));
        let sizes = [("B", 1), ("T", t), ("G", 1), ("H", 2), ("P", 32), ("N", 16)];
        Case::new(&stage, &sizes).check_segments(&CHUNKS, segments, Order::Random(t as u64));
    }
    let stage = stage(&model("retention", Elem::Bf16, &["s0"]));
    let sizes = [("B", 1), ("H", 1), ("T", 200), ("K", 13), ("V", 29)];
    Case::new(&stage, &sizes).check_segments(&CHUNKS, 3, Order::Ascending);
}

#[test]
fn parts_of_wide_states() {
    let schedule = Chunkwise { warps: 4, depth: 16, padded: false, wide: true, vector: 8, ..CHUNKS };
    for (name, unit, p) in
        [("mamba2", Unit::Warpgroup, 128), ("ssd", Unit::Warp, 192), ("gated_linear_attention", Unit::Warp, 128)]
    {
        let stage = stage(&model(name, Elem::Bf16, &[]));
        let sizes = [("B", 2), ("T", 130), ("G", 1), ("H", 2), ("P", p), ("V", p), ("N", 16), ("K", 16)];
        let case = Case::new(&stage, &sizes);
        case.check(&Chunkwise { unit, ..schedule }, Order::Random(p as u64));
        case.check_segments(&Chunkwise { unit, ..schedule }, 2, Order::Ascending);
    }
}

#[test]
fn widths_that_end_in_the_middle_of_a_part() {
    let schedule = Chunkwise { depth: 16, wide: true, ..CHUNKS };
    for (name, elem, warps, vector, width, depth) in [
        ("mamba2", Elem::Bf16, 4, 8, 80, 16),
        ("ssd", Elem::Bf16, 4, 1, 65, 13),
        ("ssd_softplus", Elem::Bf16, 4, 8, 184, 8),
        ("linear_attention", Elem::F32, 2, 1, 33, 16),
        ("retention", Elem::F32, 2, 4, 92, 12),
        ("ssd", Elem::F16, 2, 8, 40, 16),
        ("mamba2", Elem::F16, 2, 1, 63, 13),
        ("gated_linear_attention", Elem::Bf16, 4, 1, 67, 13),
        ("gated_linear_attention", Elem::Bf16, 4, 8, 80, 16),
        ("gated_linear_attention", Elem::F32, 2, 4, 44, 16),
        // Whole parts of a shorter depth.
        ("ssd", Elem::Bf16, 4, 8, 128, 8),
    ] {
        let stage = stage(&model(name, elem, &[]));
        let by_warpgroups = elem == Elem::Bf16 && vector > 1 && name != "gated_linear_attention";
        let unit = if by_warpgroups { Unit::Warpgroup } else { Unit::Warp };
        let sizes = [("B", 2), ("T", 70), ("G", 1), ("H", 2), ("P", width), ("V", width), ("N", depth), ("K", depth)];
        let case = Case::new(&stage, &sizes);
        let schedule = Chunkwise { warps, unit, vector, ..schedule };
        case.check(&schedule, Order::Random(width as u64));
        case.check_segments(&schedule, 2, Order::Descending);
    }
}

#[test]
fn packed_sequences() {
    let stage = stage(&model("ssd_packed", Elem::Bf16, &[]));
    for t in [1, 33, 101] {
        let sizes = [("B", 1), ("T", t), ("G", 1), ("H", 2), ("P", 29), ("N", 13)];
        Case::new(&stage, &sizes).check(&CHUNKS, Order::Random(t as u64));
    }
    let sizes = [("B", 2), ("T", 200), ("G", 1), ("H", 1), ("P", 64), ("N", 32)];
    let schedule = Chunkwise { warps: 4, unit: Unit::Warpgroup, depth: 32, padded: false, vector: 8, ..CHUNKS };
    Case::new(&stage, &sizes).check_segments(&schedule, 3, Order::Descending);
}

#[test]
fn products_of_warpgroups() {
    let stage = stage(&model("mamba2", Elem::Bf16, &[]));
    for (depth, vector, padded, t) in [(16, 8, false, 64), (32, 8, true, 150), (64, 1, true, 1), (128, 8, false, 129)] {
        let schedule = Chunkwise { warps: 4, unit: Unit::Warpgroup, depth, padded, vector, ..CHUNKS };
        let (p, n) = if padded { (schedule.width() - vector, depth - vector) } else { (schedule.width(), depth) };
        let sizes = [("B", 1), ("T", t), ("G", 1), ("H", 2), ("P", p as usize), ("N", n as usize)];
        let case = Case::new(&stage, &sizes);
        case.check(&schedule, Order::Random(t as u64));
        case.check_segments(&schedule, 2.min(t), Order::Descending);
    }
}

#[test]
fn warps_that_only_copy() {
    for (name, depth, padded, wide, stages, t) in [
        ("ssd", 16, false, false, 2, 64),
        ("ssd", 32, true, false, 2, 1),
        ("mamba2", 16, false, false, 2, 129),
        ("mamba2", 32, true, true, 3, 191),
        ("ssd_packed", 32, false, false, 2, 200),
        ("retention", 64, true, false, 3, 331),
        ("ssd", 128, false, false, 2, 65),
    ] {
        let stage = stage(&model(name, Elem::Bf16, &[]));
        let of =
            Chunkwise { warps: 4, unit: Unit::Warpgroup, copiers: 4, depth, padded, wide, stages, vector: 8, ..CHUNKS };
        let less = if padded { 8 } else { 0 };
        let (p, n) = (of.width() as usize * if wide { 2 } else { 1 } - less, depth as usize - less);
        let sizes = [("B", 1), ("T", t), ("G", 1), ("H", 3), ("P", p), ("V", p), ("N", n), ("K", n)];
        let case = Case::new(&stage, &sizes);
        for order in [Order::Ascending, Order::Descending, Order::Random(t as u64)] {
            case.check(&of, order);
        }
        case.check_segments(&of, 3.min(t.div_ceil(64)), Order::Random(1));
    }
}

/// Checks warpgroups beside warps that only copy, whose accesses have `vector` elements, on lengths, widths and depths around those of
/// tiles, packed sequences, gates, outputs of another type, and segments.
fn check_copied(elem: Elem, vector: u32) {
    let less = vector as usize;
    for (name, depth, padded, wide, stages, t, p) in [
        ("ssd", 16, true, false, 2, 1, 64),
        ("ssd", 32, true, false, 2, 2, 64 - less),
        ("ssd", 32, false, false, 3, 63, 64),
        ("mamba2", 16, false, false, 2, 129, 64),
        ("mamba2", 32, true, true, 2, 191, 80),
        ("ssd_softplus", 32, true, true, 2, 65, 128 + less),
        ("ssd_packed", 32, false, false, 2, 200, 64),
        ("retention", 64, true, false, 2, 331, 48),
        ("linear_attention", 64, false, true, 2, 127, 128),
        ("ssd", 128, false, false, 2, 67, 64),
    ] {
        let stage = stage(&model(name, elem, &[]));
        let of =
            Chunkwise { warps: 4, unit: Unit::Warpgroup, copiers: 4, depth, padded, wide, stages, vector, ..CHUNKS };
        let n = depth as usize - if padded { less } else { 0 };
        let sizes = [("B", 1), ("T", t), ("G", 1), ("H", 2), ("P", p), ("V", p), ("N", n), ("K", n)];
        let case = Case::new(&stage, &sizes);
        for order in [Order::Ascending, Order::Descending, Order::Random(t as u64)] {
            case.check(&of, order);
        }
        case.check_segments(&of, 3.min(t.div_ceil(64)), Order::Random(1));
    }
}

/// Queries and keys whose parts a kernel prepares give the bits of those that every block divides, and so do warps that read the state beside
/// those that advance it, whatever the order in which threads run.
#[test]
fn prepared_parts_and_readers() {
    for (name, depth, padded, wide, t, h, p) in [
        ("ssd", 16, true, false, 1, 2, 64),
        ("ssd", 32, true, false, 63, 3, 60),
        ("ssd", 64, false, false, 64, 2, 64),
        ("ssd_softplus", 32, true, true, 65, 2, 132),
        ("ssd", 128, false, false, 331, 2, 64),
        ("linear_attention", 64, false, true, 127, 2, 128),
    ] {
        let stage = stage(&model(name, Elem::F32, &[]));
        let own = Chunkwise { warps: 4, unit: Unit::Warpgroup, copiers: 4, depth, padded, wide, vector: 4, ..CHUNKS };
        let prepared = Chunkwise { key_parts: KeyParts::Prepared, ..own };
        let forms = [prepared, Chunkwise { readers: 4, ..prepared }];
        let n = depth as usize - if padded { 4 } else { 0 };
        let sizes = [("B", 2), ("T", t), ("G", 1), ("H", h), ("P", p), ("V", p), ("N", n), ("K", n)];
        let case = Case::new(&stage, &sizes);
        for segments in [1, 3.min(t.div_ceil(64))] {
            let wanted = case.run(&own, (segments, Order::Ascending));
            for order in [Order::Ascending, Order::Descending, Order::Random(t as u64)] {
                for form in &forms {
                    assert_eq!(
                        case.run(form, (segments, order)),
                        wanted,
                        "{form}: {name}, {t} times, {segments} segments"
                    );
                }
            }
        }
        case.check_segments(&prepared, 1, Order::Ascending);
    }
}

/// Where no two blocks have the same keys, nothing is prepared.
#[test]
fn keys_of_their_own_are_not_prepared() {
    let stage = stage(&model("retention", Elem::F32, &[]));
    let schedule = Chunkwise { warps: 4, unit: Unit::Warpgroup, copiers: 4, vector: 4, ..CHUNKS };
    let prepared = Chunkwise { key_parts: KeyParts::Prepared, ..schedule };
    assert!(matches!(chunkwise::lower(&stage, &prepared, "k"), Err(LowerError::Parameters { .. })));
    // Nor do other warps read the state.
    let apart = Chunkwise { readers: 4, ..schedule };
    assert!(matches!(chunkwise::lower(&stage, &apart, "k"), Err(LowerError::Parameters { .. })));
    let candidates = <Chunkwise as Strategy>::candidates(&stage, Isa::Sm90a, Access::Singles);
    assert!(candidates.iter().all(|own| own.wide || (own.key_parts, own.readers) == (KeyParts::Divided, 0)));
}

/// Blocks of two recurrences with the same queries and keys give the bits of blocks of one, whatever the order in which their threads run.
#[test]
fn two_heads_of_a_block() {
    for (name, depth, padded, t, h, p) in [
        ("ssd", 16, false, 1, 2, 64),
        ("ssd", 32, true, 63, 4, 56),
        ("ssd", 64, false, 64, 2, 64),
        ("ssd_softplus", 32, true, 65, 2, 64),
        ("ssd_packed", 32, false, 200, 2, 64),
        ("ssd", 128, false, 331, 2, 64),
    ] {
        let stage = stage(&model(name, Elem::Bf16, &[]));
        let one = Chunkwise { warps: 4, unit: Unit::Warpgroup, copiers: 4, depth, padded, vector: 8, ..CHUNKS };
        let two = Chunkwise { heads: 2, stages: 3, ..one };
        let n = depth as usize - if padded { 8 } else { 0 };
        let sizes = [("B", 2), ("T", t), ("G", 1), ("H", h), ("P", p), ("N", n)];
        let mut case = Case::new(&stage, &sizes);
        for by in [0.1, 40.0] {
            case.change("a", |_, a| by * a);
            for segments in [1, 3.min(t.div_ceil(64))] {
                let alone = case.run(&one, (segments, Order::Ascending));
                for order in [Order::Ascending, Order::Descending, Order::Random(t as u64)] {
                    case.check_segments(&two, segments, order);
                    assert_eq!(case.run(&two, (segments, order)), alone, "{name} {t} {segments} {by}");
                }
            }
        }
    }
}

/// Warps that copy read decays of the next chunk ahead: of segments of several chunks, of one, and of none at the end.
#[test]
fn ends_of_segments_of_any_number_of_chunks() {
    for (name, elem) in [("ssd", Elem::Bf16), ("ssd_packed", Elem::Bf16), ("linear_attention", Elem::F32)] {
        let stage = stage(&model(name, elem, &[]));
        let vector = if elem == Elem::F32 { 4 } else { 8 };
        let of = Chunkwise { warps: 4, unit: Unit::Warpgroup, copiers: 4, depth: 32, padded: false, vector, ..CHUNKS };
        for (segments, chunks) in [(2, 2), (2, 3), (2, 5), (2, 6), (3, 4), (4, 5), (5, 3)] {
            let t = 64 * chunks - 7;
            let sizes = [("B", 1), ("T", t), ("G", 1), ("H", 2), ("P", 64), ("V", 64), ("N", 32), ("K", 32)];
            let mut case = Case::new(&stage, &sizes);
            for by in [0.1, 40.0] {
                case.change("a", |_, a| by * a);
                case.check_segments(&of, segments, Order::Random(t as u64));
            }
        }
    }
}

#[test]
fn recurrences_with_keys_of_their_own_have_blocks_of_their_own() {
    let stage = stage(&model("retention", Elem::Bf16, &[]));
    let two = Chunkwise { warps: 4, unit: Unit::Warpgroup, copiers: 4, depth: 64, vector: 8, heads: 2, ..CHUNKS };
    assert!(chunkwise::lower(&stage, &two, "k").is_err());
}

#[test]
fn warpgroups_that_keep_f16() {
    check_copied(Elem::F16, 8);
}

/// Sums of logarithms that never leave the range in which weights are products, that leave it after some chunks, and within each.
#[test]
fn weights_that_are_products_and_others() {
    for elem in [Elem::Bf16, Elem::F16] {
        let stage = stage(&model("ssd", elem, &[]));
        for (by, t) in [(0.01, 331), (1.0, 448), (3.0, 200), (40.0, 129)] {
            let sizes = [("B", 1), ("T", t), ("G", 1), ("H", 2), ("P", 64), ("N", 16)];
            let mut case = Case::new(&stage, &sizes);
            case.change("a", |_, a| by * a);
            case.change("dt_bias", |_, bias| 0.1 * bias.abs());
            let of = Chunkwise { warps: 4, unit: Unit::Warpgroup, copiers: 4, padded: false, vector: 8, ..CHUNKS };
            case.check(&of, Order::Random(t as u64));
            case.check_segments(&of, 3, Order::Descending);
        }
    }
}

#[test]
fn warps_that_divide_f32() {
    check_copied(Elem::F32, 4);
}

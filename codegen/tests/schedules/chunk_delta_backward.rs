//! Gradients of delta rules in chunks: fla's rule of errors against the interpreter.

use oplus_codegen::plan::{Call, Planner};
use oplus_codegen::schedules::{Access, Schedule};
use oplus_codegen::simulate::Order;
use oplus_codegen::stage::{CutKind, cuts};
use oplus_codegen::target::Target;
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::interpret::Array;
use oplus_dsl::ir::Program;

use crate::chunk_delta::{
    CHANNELS, OTHERS, TWO_KEYS, compare, inputs, model, model_of, simulated, simulated_on, sizes,
};
use crate::chunk_delta::{written, written_of};
use crate::device::{Placement, call};

/// Whether walks of both directions are launches of their own.
fn is_chunked(schedule: &Schedule) -> bool {
    matches!(schedule, Schedule::ChunkDeltaBackward(own) if !own.concurrent)
}

fn is_in_chunks(schedule: &Schedule) -> bool {
    matches!(schedule, Schedule::ChunkDeltaBackward(_))
}

fn gradient(program: &Program) -> Program {
    adjoint(program).expect("differentiable")
}

fn check(program: &Program, lengths: [usize; 5], how: (Placement, Order)) {
    compare(program, lengths, how, is_chunked);
}

#[test]
fn gradients_in_chunks_are_those_of_the_rule() {
    for name in ["delta_rule", "gated_delta_rule"] {
        let program = &gradient(&model(name));
        check(program, [1, 1, 64, 64, 64], (Placement::Contiguous, Order::Ascending));
        check(program, [1, 2, 200, 64, 128], (Placement::Contiguous, Order::Random(1)));
        check(program, [2, 1, 65, 128, 64], (Placement::Contiguous, Order::Descending));
        check(program, [1, 2, 130, 24, 40], (Placement::Padded, Order::Random(3)));
        check(program, [1, 1, 67, 21, 17], (Placement::Strided, Order::Random(4)));
        check(program, [1, 1, 63, 33, 17], (Placement::Misaligned, Order::Random(5)));
    }
}

#[test]
fn gradients_in_chunks_of_other_types_are_those_of_the_rule() {
    for elem in OTHERS {
        for name in ["delta_rule", "gated_delta_rule"] {
            let program = &gradient(&model_of(name, elem));
            check(program, [1, 1, 64, 64, 64], (Placement::Contiguous, Order::Ascending));
            check(program, [1, 2, 200, 64, 128], (Placement::Contiguous, Order::Random(1)));
            check(program, [2, 1, 65, 128, 64], (Placement::Contiguous, Order::Descending));
            check(program, [1, 1, 65, 128, 128], (Placement::Contiguous, Order::Random(2)));
            check(program, [1, 2, 130, 24, 40], (Placement::Padded, Order::Random(3)));
            check(program, [1, 1, 67, 21, 17], (Placement::Strided, Order::Random(4)));
            check(program, [1, 1, 63, 33, 17], (Placement::Misaligned, Order::Random(5)));
        }
        for text in WRITTEN {
            // The gradient of a number for each head is a sum over all its times, in which most cancels.
            let program = &gradient(&written_of(&text.replace("a: f32[H]", "a: f32[T, H]"), elem));
            check(program, [2, 1, 70, 32, 128], (Placement::Contiguous, Order::Descending));
            check(program, [1, 1, 33, 20, 20], (Placement::Strided, Order::Random(2)));
        }
    }
}

#[test]
fn gradients_in_chunks_of_other_types_with_decays_for_each_channel_and_two_keys() {
    for elem in OTHERS {
        let kda = &gradient(&model_of("kda", elem));
        check(kda, [1, 1, 64, 64, 64], (Placement::Contiguous, Order::Ascending));
        check(kda, [1, 2, 200, 64, 128], (Placement::Contiguous, Order::Random(1)));
        check(kda, [1, 1, 47, 32, 64], (Placement::Contiguous, Order::Random(2)));
        check(kda, [1, 2, 130, 24, 40], (Placement::Padded, Order::Random(3)));
        let rwkv7 = gradient(&model_of("rwkv7", elem));
        let channels = CHANNELS.map(|text| gradient(&written_of(&text.replace("a: f32[H]", "a: f32[H, K]"), elem)));
        let two_keys = TWO_KEYS.map(|text| gradient(&written_of(text, elem)));
        for program in [rwkv7].iter().chain(&channels).chain(&two_keys) {
            check(program, [1, 1, 100, 32, 64], (Placement::Contiguous, Order::Random(1)));
        }
        for program in channels.iter().chain(&two_keys) {
            check(program, [1, 1, 67, 21, 17], (Placement::Strided, Order::Random(4)));
        }
    }
}

/// Tiles so large that products over pairs of times wait for the walk of the tile before.
#[test]
fn gradients_in_chunks_of_large_tiles_are_those_of_the_rule() {
    let kda = &gradient(&model_of("kda", Elem::F32));
    check(kda, [1, 1, 130, 128, 128], (Placement::Contiguous, Order::Random(1)));
    check(kda, [1, 1, 65, 128, 64], (Placement::Contiguous, Order::Descending));
    let strong = &gradient(&written_of(CHANNELS[0], Elem::F32));
    check(strong, [1, 1, 129, 128, 64], (Placement::Contiguous, Order::Random(3)));
    for (elem, keys) in [(Elem::F32, 64), (Elem::Bf16, 128), (Elem::F16, 128)] {
        // Of strong decays few terms are left, whose errors do not average out in 16 bits.
        let texts = if elem == Elem::F32 { &TWO_KEYS[..] } else { &TWO_KEYS[..2] };
        let two_keys: Vec<Program> = texts.iter().map(|text| written_of(text, elem)).collect();
        for program in [model_of("rwkv7", elem)].iter().chain(&two_keys) {
            check(&gradient(program), [1, 1, 131, keys, 64], (Placement::Contiguous, Order::Random(4)));
        }
        check(&gradient(&model_of("rwkv7", elem)), [1, 2, 1, keys, 128], (Placement::Contiguous, Order::Ascending));
    }
}

/// Rules that are only read at their end, with decays so weak that many times count.
const LAST: [&str; 4] = [
    "fn last_only(k: [B, H, T, K], v: [B, H, T, V], g: f32[B, H, T], beta: f32[B, H, T], s0: f32[B, H, K, V]) -> (s: f32[B, H, K, V]) {
        s = last(T, scan(T, GatedDeltaRule(0.1 * g, beta, k, v), init = s0));
    }",
    "fn last_plain(k: [B, H, T, K], v: [B, H, T, V], beta: [B, H, T]) -> (s: f32[B, H, V, K]) {
        s = last(T, scan(T, DeltaRule(beta, k, v)));
    }",
    "fn last_channels(k: [B, H, T, K], v: [B, H, T, V], g: f32[B, H, T, K], beta: f32[B, H, T], s0: f32[B, H, K, V]) -> (s: f32[B, H, K, V]) {
        s = last(T, scan(T, ChannelDeltaRule(0.1 * g, beta, k, v), init = s0));
    }",
    "fn last_two_keys(k: [B, H, T, K], v: [B, H, T, V], w: f32[B, H, T, K], a: [B, H, T, K], b: [B, H, T, K]) -> (s: f32[B, H, K, V]) {
        s = last(T, scan(T, DiagonalPlusPair(exp(0.1 * w), a, b, k * v)));
    }",
];

#[test]
fn gradients_in_chunks_of_rules_that_are_only_read_at_their_end() {
    for elem in [Elem::Bf16, Elem::F16, Elem::F32] {
        // The gradient of one decay for all channels is a sum in which most cancels: in f16 its error is 0.0052.
        let texts = if elem == Elem::F16 { &LAST[1..] } else { &LAST[..] };
        for text in texts {
            let program = &gradient(&written_of(text, elem));
            check(program, [1, 2, 131, 64, 64], (Placement::Contiguous, Order::Random(1)));
            check(program, [2, 1, 65, 32, 128], (Placement::Contiguous, Order::Descending));
            // Of few places errors of 16 bits do not average out in sums that cancel, such as gradients of decays.
            if elem == Elem::F32 {
                check(program, [1, 1, 67, 21, 17], (Placement::Strided, Order::Random(2)));
            }
        }
    }
    let program = &gradient(&written_of(LAST[0], Elem::F32));
    for (k, times) in [1, 2, 15, 17, 63, 64].into_iter().enumerate() {
        check(program, [1, 2, times, 32, 64], (Placement::Contiguous, Order::Random(k as u64)));
    }
}

#[test]
fn gradients_of_rules_that_are_only_read_at_their_end_store_no_states_of_all_times() {
    for text in LAST {
        let program = &gradient(&written(text));
        let (planner, call) = planner_and_call(program, [8, 16, 4096, 64, 64]);
        let plan = planner.plan(&call).expect("plans");
        assert!(plan.steps.iter().any(|step| is_in_chunks(&step.schedule)), "{}", program.name);
        let states = 8 * 16 * 4096 * 64 * 64 * 2;
        assert!(plan.buffer_bytes() < states / 3, "{}: {} bytes", program.name, plan.buffer_bytes());
    }
}

/// The readout goes on through a gate: a kernel of the rule alone stores it, and the cotangent is stored behind the gate.
#[test]
fn gradients_behind_gates_are_those_of_the_rule() {
    let gated = "fn gated(q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], z: [B, H, T, V], g: f32[B, H, T], beta: f32[B, H, T]) -> (o: [B, H, T, V]) {
        o = silu(z) * sum(K, q * scan(T, GatedDeltaRule(g, beta, k, v)));
    }";
    let by_channel = "fn gated_channels(q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], z: [B, H, T, V], g: f32[B, H, T, K], beta: f32[B, H, T]) -> (o: [B, H, T, V]) {
        o = sigmoid(z) * sum(K, q * scan(T, ChannelDeltaRule(g, beta, k, v)));
    }";
    for text in [gated, by_channel] {
        let program = &gradient(&written(text));
        check(program, [1, 2, 130, 64, 64], (Placement::Contiguous, Order::Random(1)));
        check(program, [2, 1, 65, 24, 40], (Placement::Padded, Order::Descending));
    }
}

#[test]
fn blocks_of_walks_have_any_part_of_the_width() {
    for name in ["delta_rule", "gated_delta_rule", "kda"] {
        let program = &gradient(&model(name));
        for places in [16, 32] {
            let has_places =
                |schedule: &Schedule| matches!(schedule, Schedule::ChunkDeltaBackward(own) if own.places == places);
            compare(program, [1, 2, 200, 64, 64], (Placement::Contiguous, Order::Random(1)), has_places);
            compare(program, [2, 1, 65, 32, 128], (Placement::Contiguous, Order::Descending), has_places);
        }
    }
}

#[test]
fn walks_at_the_same_time_give_the_bits_of_walks_one_after_the_other() {
    let at_once = |schedule: &Schedule| matches!(schedule, Schedule::ChunkDeltaBackward(own) if own.concurrent);
    let models = ["delta_rule", "gated_delta_rule", "kda", "rwkv7"];
    for (name, elem) in models.iter().flat_map(|name| [Elem::Bf16, Elem::F16, Elem::F32].map(|elem| (*name, elem))) {
        let program = &gradient(&model_of(name, elem));
        for (lengths, order) in [([1, 2, 130, 64, 64], Order::Random(1)), ([1, 1, 65, 64, 64], Order::Descending)] {
            let given = inputs(program, &sizes(program, lengths));
            let of = |order, is_taken: fn(&Schedule) -> bool| {
                simulated(program, (lengths, &given), (Placement::Contiguous, order), is_taken)
            };
            let bits = |all: Vec<Array>| all.iter().map(|own| format!("{own:?}")).collect::<Vec<_>>();
            assert!(bits(of(order, at_once)) == bits(of(Order::Ascending, is_chunked)), "{name} {elem} {lengths:?}");
        }
    }
}

/// Devices with so few multiprocessors that blocks have several tiles, also with parts of the width in an odd number.
#[test]
fn blocks_of_several_tiles_give_the_bits_of_blocks_of_one() {
    let is_persistent = |schedule: &Schedule| matches!(schedule, Schedule::ChunkDeltaBackward(own) if own.persistent);
    let how = |seed: u64| (Placement::Contiguous, Order::Random(seed));
    let cases = [
        ("delta_rule", Elem::Bf16, [2, 1, 129, 128, 192]),
        ("gated_delta_rule", Elem::Bf16, [1, 2, 200, 64, 128]),
        ("gated_delta_rule", Elem::F16, [1, 1, 130, 32, 128]),
    ];
    for (name, elem, lengths) in cases {
        let program = &gradient(&model_of(name, elem));
        check(program, lengths, how(1));
        let given = inputs(program, &sizes(program, lengths));
        let of = |multiprocessors: u32| {
            let target = Target { multiprocessors, ..Target::H200 };
            let found = simulated_on(&target, program, (lengths, &given), how(2), is_persistent);
            found.iter().map(|own| format!("{own:?}")).collect::<Vec<_>>()
        };
        let wanted = of(132);
        for multiprocessors in [1, 2] {
            assert!(of(multiprocessors) == wanted, "{name} {elem} {lengths:?}, {multiprocessors}");
        }
    }
}

#[test]
fn devices_with_little_shared_memory_copy_a_part_of_the_width_after_the_other() {
    for name in ["delta_rule", "gated_delta_rule"] {
        let program = &gradient(&model(name));
        let lengths = [1, 2, 130, 128, 128];
        let given = inputs(program, &sizes(program, lengths));
        let of = |target: &Target, is_persistent: bool| {
            let is_taken = |schedule: &Schedule| matches!(schedule, Schedule::ChunkDeltaBackward(own) if own.persistent == is_persistent);
            let found =
                simulated_on(target, program, (lengths, &given), (Placement::Contiguous, Order::Random(1)), is_taken);
            found.iter().map(|own| format!("{own:?}")).collect::<Vec<_>>()
        };
        assert!(of(&Target::A100, false) == of(&Target::H200, true), "{name}");
    }
}

#[test]
fn the_planner_lets_few_blocks_walk_both_ways_at_the_same_time() {
    let concurrent = |name: &str, [batches, heads, times, keys, values]: [usize; 5]| {
        let (planner, call) = planner_and_call(&gradient(&model(name)), [batches, heads, times, keys, values]);
        let plan = planner.plan(&call).expect("plans");
        let of = |schedule: &Schedule| {
            if let Schedule::ChunkDeltaBackward(own) = schedule { Some(own.concurrent) } else { None }
        };
        // The last one: a kernel that prepares tiles has none of the walks.
        plan.steps.iter().rev().find_map(|step| of(&step.schedule)).expect("takes chunks")
    };
    assert!(concurrent("delta_rule", [1, 16, 65_536, 128, 128]));
    assert!(concurrent("rwkv7", [1, 16, 65_536, 64, 64]));
    assert!(!concurrent("delta_rule", [8, 16, 4096, 64, 64]));
    assert!(!concurrent("kda", [8, 16, 4096, 128, 128]));
}

#[test]
fn gradients_in_chunks_of_any_number_of_times() {
    let program = &gradient(&model("gated_delta_rule"));
    for (k, times) in [1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 131].into_iter().enumerate() {
        check(program, [2, 4, times, 32, 64], (Placement::Contiguous, Order::Random(k as u64)));
    }
}

#[test]
fn gradients_in_chunks_with_decays_for_each_channel() {
    let program = &gradient(&model("kda"));
    check(program, [1, 1, 64, 64, 64], (Placement::Contiguous, Order::Ascending));
    check(program, [1, 2, 200, 64, 128], (Placement::Contiguous, Order::Random(1)));
    check(program, [2, 1, 65, 128, 64], (Placement::Contiguous, Order::Descending));
    check(program, [1, 1, 47, 32, 64], (Placement::Contiguous, Order::Random(2)));
    check(program, [1, 2, 130, 24, 40], (Placement::Padded, Order::Random(3)));
    check(program, [1, 1, 67, 21, 17], (Placement::Strided, Order::Random(4)));
    check(program, [1, 1, 63, 33, 17], (Placement::Misaligned, Order::Random(5)));
    check(program, [1, 1, 100, 128, 128], (Placement::Contiguous, Order::Random(6)));
    for (k, times) in [1, 2, 15, 16, 17, 31, 32, 33, 63, 65, 131].into_iter().enumerate() {
        check(program, [2, 2, times, 64, 64], (Placement::Contiguous, Order::Random(k as u64)));
    }
}

#[test]
fn gradients_in_chunks_with_strong_computed_and_packed_decays_of_channels() {
    for text in CHANNELS {
        // The gradient of a number for each head is a sum of all its times and channels, in which most cancels.
        let program = &gradient(&written(&text.replace("a: f32[H]", "a: f32[H, K]")));
        check(program, [1, 2, 150, 64, 64], (Placement::Contiguous, Order::Random(1)));
        check(program, [1, 1, 70, 128, 64], (Placement::Contiguous, Order::Random(2)));
        check(program, [1, 1, 70, 20, 20], (Placement::Strided, Order::Descending));
    }
}

#[test]
fn gradients_in_chunks_of_rules_with_two_keys() {
    let program = &gradient(&model("rwkv7"));
    check(program, [1, 1, 64, 64, 64], (Placement::Contiguous, Order::Ascending));
    check(program, [1, 2, 200, 64, 128], (Placement::Contiguous, Order::Random(1)));
    check(program, [1, 1, 67, 21, 17], (Placement::Strided, Order::Random(4)));
    for (k, times) in [1, 2, 15, 17, 33, 65].into_iter().enumerate() {
        check(program, [2, 2, times, 64, 64], (Placement::Contiguous, Order::Random(k as u64)));
    }
    for text in TWO_KEYS {
        let program = &gradient(&written(text));
        check(program, [1, 2, 150, 64, 64], (Placement::Contiguous, Order::Random(1)));
        check(program, [1, 1, 70, 20, 20], (Placement::Strided, Order::Descending));
    }
}

/// Rules as users write them: packed sequences, and a scale with decays that are computed.
const WRITTEN: [&str; 3] = [
    "fn packed(q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], beta: [B, H, T], cu: i32[S]) -> (o: [B, H, T, V]) {
        o = sum(K, q * scan(T, segmented(DeltaRule)(beta, k, v), offsets = cu));
    }",
    "fn gated_packed(q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], g: [B, H, T], beta: [B, H, T], cu: i32[S]) -> (o: [B, H, T, V]) {
        o = sum(K, q * scan(T, segmented(GatedDeltaRule)(g, beta, k, v), offsets = cu));
    }",
    "fn scaled(q: [B, T, H, K], k: [B, T, H, K], v: [B, T, H, V], beta: [B, T, H], a: f32[H]) -> (o: [B, T, H, V]) {
        let s = scan(T, GatedDeltaRule(-exp(a) * beta, sigmoid(beta), k, v));
        o = 0.125 * sum(K, s * q);
    }",
];

#[test]
fn gradients_in_chunks_of_rules_as_users_write_them() {
    for text in WRITTEN {
        let program = &gradient(&written(text));
        check(program, [1, 2, 150, 64, 64], (Placement::Contiguous, Order::Random(1)));
        check(program, [2, 1, 70, 32, 128], (Placement::Contiguous, Order::Descending));
        check(program, [1, 1, 33, 20, 20], (Placement::Strided, Order::Random(2)));
    }
}

/// The sizes of a call: batches, heads, times, keys and values.
fn planner_and_call(program: &Program, lengths: [usize; 5]) -> (Planner, Call) {
    let planner = Planner::new(program, &Target::H200).expect("cuts");
    (planner, call(program, &sizes(program, lengths), Placement::Contiguous))
}

#[test]
fn the_planner_takes_chunks_and_stores_no_states_of_all_times() {
    for name in ["delta_rule", "gated_delta_rule", "kda"] {
        let program = &gradient(&model(name));
        for size in [64, 128] {
            let (planner, call) = planner_and_call(program, [8, 16, 4096, size, size]);
            let plan = planner.plan(&call).expect("plans");
            assert!(plan.steps.iter().all(|step| is_in_chunks(&step.schedule)), "{name} {size}");
            let stored: u64 =
                plan.buffers.iter().map(|buffer| buffer.len * buffer.elem.bytes().unwrap_or(8) as u64).sum();
            let given = (8 * 16 * 4096 * size * 2) as u64;
            // e, p and two states for every 64 times, or 16, in the type of the inputs.
            let times = if name == "kda" { 16 } else { 64 };
            // Prepared factors of keys, of vectors that the state is read by and of queries, and numbers of pairs and of times.
            let prepared = if name == "kda" { 4 } else { 0 };
            let most = given * (2 + 2 * size as u64 / times + prepared) + (1 << 20);
            assert!(stored <= most, "{name} {size}: {stored} bytes");
        }
    }
}

/// The reason why a gradient has no stage of both recurrences.
fn refusal(program: &Program) -> String {
    let all = cuts(program).expect("cuts").0;
    let (_, cut) = all.into_iter().find(|(how, _)| *how == CutKind::MatrixBackward).expect("the cut");
    cut.expect_err("no chunks").to_string()
}

#[test]
fn other_gradients_go_state_by_state_and_the_reason_is_told() {
    let numbered = "op Two(z: [K], b: [K], y: [K], v: [V]) -> (s: [V, K]) {
        combine(l, r) (l.s + sum(K, l.s * r.z) * r.b + r.v * r.y);
    }
    fn numbered(q: [T, K], z: [T, K], k: [T, K], y: [T, K], v: [T, V], a: [T]) -> (o: [T, V]) {
        o = sum(K, q * scan(T, Two(z, a * k, y, v)));
    }";
    let found = refusal(&gradient(&written(numbered)));
    assert!(found.contains("vector with a factor"), "{found}");
    let two = "op Two(z: [K], y: [K], a: [], v: [V]) -> (s: [V, K]) {
        combine(l, r) (l.s + r.a * r.y * (r.v + sum(K, l.s * r.z)));
    }
    fn towards(q: [T, K], z: [T, K], y: [T, K], a: [T], v: [T, V]) -> (o: [T, V]) {
        o = sum(K, q * scan(T, Two(z, y, a, v)));
    }";
    let found = refusal(&gradient(&written(two)));
    assert!(found.contains("does not move"), "{found}");
}

#[test]
fn an_empty_time_and_a_short_depth_go_state_by_state() {
    let program = &gradient(&model("delta_rule"));
    for lengths in [[1, 1, 0, 64, 64], [1, 1, 64, 8, 8]] {
        let (planner, call) = planner_and_call(program, lengths);
        let plan = planner.plan(&call).expect("plans");
        assert!(!plan.steps.iter().any(|step| is_chunked(&step.schedule)), "{lengths:?}");
    }
}

#[test]
fn schedules_of_gradients_print_and_parse() {
    let program = gradient(&model("gated_delta_rule"));
    let planner = Planner::new(&program, &Target::H200).expect("cuts");
    let stage = &planner.cut(CutKind::MatrixBackward).expect("a cut").stages[0];
    let all = Schedule::candidates(stage, Target::H200.isa, Access::Singles);
    assert!(all.iter().any(is_chunked));
    for schedule in all.iter().flat_map(|schedule| schedule.kernels(stage, Target::H200.isa)) {
        assert_eq!(schedule.to_string().parse(), Ok(schedule));
    }
}

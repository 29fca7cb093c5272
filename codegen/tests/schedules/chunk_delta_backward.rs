//! Gradients of delta rules in chunks: fla's rule of errors against the interpreter.

use oplus_codegen::schedules::Schedule;
use oplus_codegen::simulate::Order;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::Program;

use crate::chunk_delta::{compare, model, written};
use crate::device::Placement;

fn is_chunked(schedule: &Schedule) -> bool {
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
fn gradients_in_chunks_of_any_number_of_times() {
    let program = &gradient(&model("gated_delta_rule"));
    for (k, times) in [1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 131].into_iter().enumerate() {
        check(program, [2, 4, times, 32, 64], (Placement::Contiguous, Order::Random(k as u64)));
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

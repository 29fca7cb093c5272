//! Gated linear attention in chunks of 16 times, as a delta rule whose steps read nothing of the state.

use oplus_codegen::schedules::{RuleSweep, Schedule};
use oplus_codegen::simulate::Order;
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::interpret::{Array, Data};
use oplus_dsl::ir::Program;

use crate::chunk_delta::{
    check, check_prepared, compare, compare_given, inputs, model_of, simulated, sizes, written_of,
};
use crate::device::Placement;

const TYPES: [Elem; 3] = [Elem::Bf16, Elem::F16, Elem::F32];

/// Programs as users write them: packed sequences, a gain and a gate, a state that is read at the end alone, keys that heads share, decays that
/// leave nothing, and decays that are the same at all times.
const WRITTEN: [&str; 5] = [
    "fn packed(q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], g: [B, H, T, K], cu: i32[S]) -> (o: [B, H, T, V]) {
        o = sum(K, q * scan(T, segmented(LogDecay)(g, k * v), offsets = cu).x);
    }",
    "fn gated(q: [B, T, H, K], k: [B, T, H, K], v: [B, T, H, V], z: [B, T, H, V], g: [B, T, H, K], beta: [B, T, H]) -> (o: [B, T, H, V]) {
        let s = scan(T, LogDecay(-softplus(g), beta * k * v));
        o = silu(z) * 0.125 * sum(K, s.x * q);
    }",
    "fn both(q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], g: [B, H, T, K], s0: f32[B, H, K, V]) -> (o: [B, H, T, V], s: f32[B, H, K, V]) {
        let x = scan(T, LogDecay(g, k * v), init = (s0)).x;
        o = sum(K, q * x);
        s = last(T, x);
    }",
    "fn shared(q: [B, T, K], k: [B, T, K], v: [B, H, T, V], g: [B, H, T, K]) -> (o: [B, H, T, V]) {
        o = sum(K, q * scan(T, LogDecay(60.0 * g, k * v)).x);
    }",
    "fn constant(q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], a: [H, K]) -> (o: [B, H, T, V]) {
        o = sum(K, q * scan(T, LogDecay(-exp(a), k * v)).x);
    }",
];

#[test]
fn chunks_give_what_the_recurrence_means() {
    for elem in TYPES {
        let program = &model_of("gated_linear_attention", elem);
        check(program, [1, 1, 64, 64, 64], (Placement::Contiguous, Order::Ascending));
        check(program, [1, 2, 200, 64, 128], (Placement::Contiguous, Order::Random(1)));
        check(program, [2, 1, 65, 128, 64], (Placement::Contiguous, Order::Descending));
        check(program, [1, 1, 1, 32, 64], (Placement::Contiguous, Order::Random(2)));
        check(program, [1, 2, 130, 24, 40], (Placement::Padded, Order::Random(3)));
        check(program, [1, 1, 67, 21, 3], (Placement::Strided, Order::Random(4)));
        check(program, [1, 1, 63, 33, 17], (Placement::Misaligned, Order::Random(5)));
    }
}

#[test]
fn chunks_of_programs_as_users_write_them() {
    for elem in TYPES {
        for text in WRITTEN {
            let program = &written_of(text, elem);
            check(program, [1, 2, 150, 64, 64], (Placement::Contiguous, Order::Random(1)));
            check(program, [2, 1, 70, 32, 128], (Placement::Contiguous, Order::Descending));
            check(program, [1, 1, 33, 20, 12], (Placement::Strided, Order::Random(2)));
        }
    }
}

#[test]
fn prepared_tiles_give_the_bits_of_those_of_the_block() {
    for elem in TYPES {
        let texts = WRITTEN.map(|text| written_of(text, elem));
        for program in [model_of("gated_linear_attention", elem)].into_iter().chain(texts) {
            for time in [1, 16, 63, 64, 65, 200] {
                check_prepared(&program, [1, 2, time, 64, 64], (Placement::Contiguous, Order::Random(time as u64)));
            }
            check_prepared(&program, [2, 1, 130, 128, 16], (Placement::Contiguous, Order::Descending));
            check_prepared(&program, [1, 2, 129, 24, 40], (Placement::Padded, Order::Random(3)));
        }
    }
}

/// Of some channels nothing is left after a step, and of others nearly all.
#[test]
fn decays_that_leave_nothing() {
    for elem in TYPES {
        let program = model_of("gated_linear_attention", elem);
        let lengths = [1, 2, 150, 32, 64];
        let mut given = inputs(&program, &sizes(&program, lengths));
        let at = program.params.iter().position(|param| param.name == "g").expect("decays");
        let Array { data: Data::Float(logs), .. } = &mut given[at] else { panic!("decays are floats") };
        for (i, log) in logs.iter_mut().enumerate() {
            *log = match i % 7 {
                0 => f64::NEG_INFINITY,
                1 => -300.0,
                2 => 0.0,
                _ => 0.5 * *log,
            };
        }
        for sweep in [RuleSweep::Whole, RuleSweep::Walk] {
            let is_meant = |schedule: &Schedule| matches!(schedule, Schedule::ChunkDelta(own) if own.sweep == sweep);
            compare_given(&program, (lengths, &given), (Placement::Contiguous, Order::Random(3)), is_meant);
        }
    }
}

/// Products of keys and values leave the range of `f16`.
#[test]
fn states_beyond_the_range_of_f16() {
    let program = model_of("gated_linear_attention", Elem::F16);
    let lengths = [1, 1, 70, 64, 64];
    let mut given = inputs(&program, &sizes(&program, lengths));
    let factors = [("v", 1e4), ("k", 1e3), ("q", 1e-4), ("s0", 1e7)];
    for (param, array) in program.params.iter().zip(&mut given) {
        let Some((_, factor)) = factors.iter().find(|(name, _)| *name == param.name) else { continue };
        let Data::Float(data) = &mut array.data else { panic!("`{}` is of floats", param.name) };
        data.iter_mut().for_each(|x| *x = crate::oracle::rounded(*x * factor, param.elem));
    }
    let is_meant = |schedule: &Schedule| matches!(schedule, Schedule::ChunkDelta(_));
    compare_given(&program, (lengths, &given), (Placement::Contiguous, Order::Random(1)), is_meant);
}

fn gradient(program: &Program) -> Program {
    adjoint(program).expect("differentiable")
}

fn is_gradient(schedule: &Schedule) -> bool {
    matches!(schedule, Schedule::ChunkDeltaBackward(_))
}

fn check_gradient(program: &Program, lengths: [usize; 5], how: (Placement, Order)) {
    compare(program, lengths, how, is_gradient);
}

#[test]
fn gradients_in_chunks_are_those_of_the_recurrence() {
    for elem in TYPES {
        let program = &gradient(&model_of("gated_linear_attention", elem));
        check_gradient(program, [1, 1, 64, 64, 64], (Placement::Contiguous, Order::Ascending));
        check_gradient(program, [1, 2, 200, 64, 128], (Placement::Contiguous, Order::Random(1)));
        check_gradient(program, [2, 1, 65, 128, 64], (Placement::Contiguous, Order::Descending));
        check_gradient(program, [1, 1, 130, 128, 128], (Placement::Contiguous, Order::Random(2)));
        check_gradient(program, [1, 2, 130, 24, 40], (Placement::Padded, Order::Random(3)));
        check_gradient(program, [1, 1, 67, 21, 17], (Placement::Strided, Order::Random(4)));
        check_gradient(program, [1, 1, 63, 33, 17], (Placement::Misaligned, Order::Random(5)));
        for (k, times) in [1, 2, 15, 16, 17, 63, 64].into_iter().enumerate() {
            check_gradient(program, [1, 2, times, 32, 64], (Placement::Contiguous, Order::Random(k as u64)));
        }
    }
}

#[test]
fn gradients_in_chunks_of_programs_as_users_write_them() {
    for elem in TYPES {
        for text in [WRITTEN[0], WRITTEN[2], WRITTEN[3], WRITTEN[4]] {
            let program = &gradient(&written_of(text, elem));
            check_gradient(program, [1, 2, 150, 64, 64], (Placement::Contiguous, Order::Random(1)));
            check_gradient(program, [2, 1, 70, 32, 128], (Placement::Contiguous, Order::Descending));
            check_gradient(program, [1, 1, 33, 20, 20], (Placement::Strided, Order::Random(2)));
        }
    }
}

/// Prepared tiles and walks at the same time change no bits of a gradient.
#[test]
fn all_forms_of_a_gradient_have_the_same_bits() {
    for elem in TYPES {
        let program = &gradient(&model_of("gated_linear_attention", elem));
        let lengths = [1, 2, 150, 64, 128];
        let given = inputs(program, &sizes(program, lengths));
        let of = |prepared: bool, concurrent: bool| {
            let is_meant = move |schedule: &Schedule| {
                matches!(schedule, Schedule::ChunkDeltaBackward(own)
                    if (own.prepared, own.concurrent, own.places) == (prepared, concurrent, 64))
            };
            let found = simulated(program, (lengths, &given), (Placement::Contiguous, Order::Random(7)), is_meant);
            let bits =
                |array: &Array| array.as_floats().expect("floats").iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            found.iter().map(bits).collect::<Vec<_>>()
        };
        let plain = of(false, false);
        for (prepared, concurrent) in [(false, true), (true, false), (true, true)] {
            assert!(of(prepared, concurrent) == plain, "{elem} {prepared} {concurrent}");
        }
    }
}

/// The gradient of a factor of decays that does not vary along time is a sum over all times.
#[test]
fn gradients_of_factors_of_decays_that_do_not_vary_along_time() {
    for elem in TYPES {
        for strength in ["0.05", "1.0", "4.0"] {
            let program = &gradient(&written_of(
                &format!(
                    "fn timed(q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], dt: f32[B, H, T], a: f32[H, K]) -> (o: [B, H, T, V]) {{
                        o = sum(K, q * scan(T, LogDecay(-{strength} * exp(a) * exp(dt), k * v)).x);
                    }}"
                ),
                elem,
            ));
            check_gradient(program, [1, 2, 1000, 32, 64], (Placement::Contiguous, Order::Random(1)));
            check_gradient(program, [2, 1, 150, 64, 64], (Placement::Contiguous, Order::Random(2)));
            check_gradient(program, [1, 1, 600, 128, 64], (Placement::Contiguous, Order::Random(2)));
        }
    }
}

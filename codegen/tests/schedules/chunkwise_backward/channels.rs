//! Gradients where decays are those of channels.

mod deepest;

use oplus_codegen::schedules::Sweep;
use oplus_codegen::simulate::Order;
use oplus_codegen::target::Target;
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::Program;

use super::{check, check_on, check_with, gradient_of, results};
use crate::device::Placement;

const ELEMS: [Elem; 3] = [Elem::Bf16, Elem::F16, Elem::F32];

/// The gradient of the model without some of its optional parameters, with these outputs.
fn gradient(elem: Elem, without: &[&str], outputs: &[&str]) -> Program {
    gradient_of(("gated_linear_attention", elem), without, outputs)
}

/// The gradient of a kernel with these parameters beside q, k and v, of this scan and map of what is read of it.
fn written(elem: Elem, params: &str, scan: &str, map: &str) -> Program {
    let head = format!("q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], {params}");
    of_text(elem, &format!("fn f({head}) -> (o: [B, H, T, V]) {{ let y = sum(K, q * {scan}); o = {map}; }}"))
}

/// The gradient of a kernel.
fn of_text(elem: Elem, text: &str) -> Program {
    let programs = oplus_front::programs(text.parse().expect("tokens")).unwrap_or_else(|mistakes| panic!("{mistakes}"));
    adjoint(&programs[0].instantiate(elem)).expect("differentiable")
}

#[test]
fn lengths_around_chunks_and_blocks_of_them() {
    for elem in ELEMS {
        let (program, with_state) = (gradient(elem, &["s0"], &["o"]), gradient(elem, &[], &["o"]));
        for t in [1, 2, 15, 16, 17, 33, 63, 64, 65, 131] {
            // At one time without a state before it the terms of a decay's cotangent cancel, up to rounding errors beside other types
            // than `bf16`.
            let program = if t == 1 && elem != Elem::Bf16 { &with_state } else { &program };
            let sizes = [("B", 1), ("H", 1), ("T", t), ("K", 32), ("V", 64)];
            check(program, &sizes, (Placement::Contiguous, 0), Order::Random(t as u64));
        }
    }
}

#[test]
fn states_and_odd_sizes() {
    // The cotangent of an initial state where nothing reads the final one, and where something does.
    for (elem, outputs, t, k, v) in [
        (Elem::Bf16, &["o"][..], 70, 29, 56),
        (Elem::Bf16, &["o", "s_last"], 129, 61, 59),
        (Elem::Bf16, &["s_last", "o"], 97, 72, 64),
        (Elem::F16, &["o"], 70, 29, 56),
        (Elem::F16, &["s_last", "o"], 129, 61, 59),
        (Elem::F32, &["o"], 129, 29, 56),
        (Elem::F32, &["o", "s_last"], 97, 61, 59),
    ] {
        let program = gradient(elem, &[], outputs);
        let sizes = [("B", 2), ("H", 2), ("T", t), ("K", k), ("V", v)];
        check(&program, &sizes, (Placement::Contiguous, 0), Order::Descending);
    }
    for elem in ELEMS {
        let program = gradient(elem, &[], &["o", "s_last"]);
        let sizes = [("B", 1), ("H", 2), ("T", 67), ("K", 64), ("V", 64)];
        check(&program, &sizes, (Placement::Padded, 0), Order::Ascending);
    }
}

#[test]
fn all_depths() {
    for (elem, k) in ELEMS.into_iter().flat_map(|elem| [32, 64, 128].map(|k| (elem, k))) {
        let program = gradient(elem, &["s0"], &["o", "s_last"]);
        let sizes = [("B", 1), ("H", 2), ("T", 150), ("K", k), ("V", 64)];
        check(&program, &sizes, (Placement::Contiguous, 0), Order::Random(k as u64));
    }
}

#[test]
fn segments() {
    ELEMS.into_iter().for_each(|elem| check_segments(elem, 16));
}

/// Checks a recurrence that is divided in time.
fn check_segments(elem: Elem, keys: usize) {
    let program = gradient(elem, &[], &["o", "s_last"]);
    let sizes = [("B", 1), ("H", 1), ("T", 1030), ("K", keys), ("V", 24)];
    let sweeps = check(&program, &sizes, (Placement::Contiguous, 0), Order::Random(3));
    assert!(sweeps.contains(&Sweep::StateEnds) && sweeps.contains(&Sweep::CotangentEnds), "{elem}");
}

#[test]
fn decays_that_leave_all_little_or_nothing() {
    for elem in ELEMS {
        let program = gradient(elem, &[], &["o", "s_last"]);
        let sizes = [("B", 1), ("H", 1), ("T", 150), ("K", 32), ("V", 64)];
        let placed = (Placement::Contiguous, 0);
        let of_g = |of: fn(usize, f64) -> f64| move |name: &str, i, own| if name == "g" { of(i, own) } else { own };
        check_with(&program, &sizes, placed, Order::Descending, of_g(|_, _| 0.0));
        check_with(&program, &sizes, placed, Order::Random(1), of_g(|_, _| f64::NEG_INFINITY));
        let mixed = |i: usize, g: f64| match i % 7 {
            0 => f64::NEG_INFINITY,
            1 => -300.0,
            2 | 3 => 0.0,
            4 => g / 1000.0,
            _ => 30.0 * g,
        };
        check_with(&program, &sizes, placed, Order::Random(2), of_g(mixed));
    }
}

/// Where there are more recurrences than multiprocessors, walks of `f32` copy no chunk ahead, so that two blocks share one. Their bits are those
/// of walks that do.
#[test]
fn walks_that_copy_no_chunk_ahead() {
    let crowded = Target { multiprocessors: 1, ..Target::H200 };
    let program = gradient(Elem::F32, &[], &["o", "s_last"]);
    for (t, k, v) in [(1, 64, 64), (65, 64, 128), (131, 61, 72)] {
        let (sizes, placed) = ([("B", 1), ("H", 2), ("T", t), ("K", k), ("V", v)], (Placement::Contiguous, 0));
        let all = (&program, &sizes[..]);
        let own = check_on(&crowded, all, placed, Order::Random(t as u64), |_, _, own| own);
        let walks = own.iter().filter(|own| own.sweep != Sweep::Gradients);
        let is_crowded = own[0].vector > 1;
        walks.for_each(|walk| assert_eq!((walk.stages, walk.blocks) == (1, 2), is_crowded, "{walk}"));
        let of = |target| results(target, all, placed, Order::Descending, |_, _, own| own).found;
        assert_eq!(of(&crowded), of(&Target::H200), "{sizes:?}");
    }
}

#[test]
fn gains_and_maps() {
    for elem in ELEMS {
        let params = "a: [B, H, T, K], beta: [B, H, T], gamma: [B, H, T]";
        let program = written(elem, params, "scan(T, LogDecay(a, k * (beta * v))).x", "gamma * y");
        let sizes = [("B", 1), ("H", 2), ("T", 100), ("K", 32), ("V", 48)];
        check(&program, &sizes, (Placement::Contiguous, 0), Order::Random(5));
        let program = written(elem, "gate: [B, H, T, K]", "scan(T, LogDecay(-softplus(gate), k * v)).x", "y");
        check(&program, &sizes, (Placement::Contiguous, 0), Order::Random(6));
    }
}

/// Decays that do not vary along time, of which the cotangent is a sum over all times.
mod time_invariant {
    use oplus_codegen::plan::Planner;
    use oplus_codegen::target::{Isa, Target};
    use oplus_dsl::interpret::Data;

    use super::super::inputs;
    use super::*;
    use crate::device::{Setting, Work, call, goes_by_chunks, run};

    const SCAN: &str = "scan(T, LogDecay(a, k * v)).x";

    /// Logarithms of decays as those of a sigmoid over a number, of random numbers between -1 and 0.
    fn sigmoids(normaliser: f64) -> impl Fn(&str, usize, f64) -> f64 {
        move |name, _, own| if name == "a" { -(3.464 * own + 1.732).exp().ln_1p() / normaliser } else { own }
    }

    fn check_decays(program: &Program, sizes: &[(&str, usize)], placed: Placement, normaliser: f64) {
        check_with(program, sizes, (placed, 0), Order::Random(sizes[2].1 as u64), sigmoids(normaliser));
    }

    #[test]
    fn lengths_around_chunks() {
        for elem in ELEMS {
            let program = written(elem, "a: [H, K]", SCAN, "y");
            // At one time without a state before it the terms of a cotangent cancel, as above.
            let one = (elem == Elem::Bf16).then_some(1);
            for t in one.into_iter().chain([16, 17, 63, 64, 65, 131]) {
                let sizes = [("B", 1), ("H", 1), ("T", t), ("K", 32), ("V", 64)];
                check_decays(&program, &sizes, Placement::Contiguous, 1.0);
            }
        }
    }

    /// Also where the axis of keys is in two.
    #[test]
    fn plans_take_chunks() {
        let program = written(Elem::Bf16, "a: [H, K]", SCAN, "y");
        for (target, k, v) in
            [(Target::H200, 64, 64), (Target::H200, 128, 128), (Target::H200, 256, 64), (Target::A100, 64, 64)]
        {
            let sizes = [("B", 2), ("H", 8), ("T", 1024), ("K", k), ("V", v)];
            let size = |name: &String| sizes.iter().find(|(known, _)| known == name).map_or(1, |(_, n)| *n);
            let sizes: Vec<usize> = program.axes.iter().map(size).collect();
            let planner = Planner::new(&program, &target).expect("cuts");
            let plan = planner.plan(&call(&program, &sizes, Placement::Contiguous)).expect("a plan");
            assert!(plan.steps.iter().any(|step| goes_by_chunks(&step.schedule)), "{k} {v} {target:?}");
        }
    }

    /// Checks that a gradient's plan takes no times, and that the cotangent of `a`, a sum over these, is 0. All axes but T and K have one size.
    pub(super) fn check_no_times(program: &Program, [keys, others]: [usize; 2]) {
        let size = |name: &String| match name.as_str() {
            "T" => 0,
            "K" => keys,
            _ => others,
        };
        let sizes: Vec<usize> = program.axes.iter().map(size).collect();
        let planner = Planner::new(program, &Target::H200).expect("cuts");
        let plan = planner.plan(&call(program, &sizes, Placement::Contiguous)).expect("a plan");
        let setting = Setting { placement: Placement::Contiguous, order: Order::Ascending, isa: Isa::Sm90a };
        let found = run(program, &Work::of(plan), &inputs(program, &sizes), &sizes, setting);
        let decays = program.outputs.iter().position(|output| output.name == "a.bar").expect("a gradient");
        assert_eq!(found[decays].data, Data::Float(vec![0.0; others * keys]));
    }

    #[test]
    fn no_times() {
        check_no_times(&written(Elem::Bf16, "a: [H, K]", SCAN, "y"), [16, 16]);
    }

    /// Of strong decays pairs of neighbouring times are most of the sum.
    #[test]
    fn many_chunks() {
        for (elem, b, h, t, k, v, normaliser) in [
            (Elem::Bf16, 1, 2, 1024, 32, 32, 1.0),
            (Elem::Bf16, 1, 1, 1024, 64, 64, 0.1),
            (Elem::Bf16, 1, 1, 1030, 16, 24, 10.0),
            (Elem::F16, 1, 1, 1030, 64, 64, 0.1),
            (Elem::F32, 1, 1, 1030, 64, 64, 0.1),
        ] {
            let program = written(elem, "a: f32[H, K]", SCAN, "y");
            let sizes = [("B", b), ("H", h), ("T", t), ("K", k), ("V", v)];
            check_decays(&program, &sizes, Placement::Contiguous, normaliser);
        }
    }

    /// Of decays that vary, but have a factor that does not.
    #[test]
    fn factors_of_decays() {
        for (decay, log) in [("dt: [B, H, T]", "a * dt"), ("g: [B, H, T, K]", "a * softplus(g)")] {
            let scan = format!("scan(T, LogDecay({log}, k * v)).x");
            let program = written(Elem::Bf16, &format!("a: f32[H, K], {decay}"), &scan, "y");
            let sizes = [("B", 1), ("H", 1), ("T", 1024), ("K", 32), ("V", 32)];
            check_decays(&program, &sizes, Placement::Contiguous, 0.1);
        }
    }

    #[test]
    fn states_and_odd_sizes() {
        let head = "q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], a: [K], s0: f32[B, H, K, V]";
        let scan = "scan(T, LogDecay(-softplus(a), k * v), init = s0).x";
        let body = format!("let s = {scan}; o = sum(K, q * s); s_last = last(T, s);");
        let outputs = "o: [B, H, T, V], s_last: f32[B, H, K, V]";
        let program = of_text(Elem::Bf16, &format!("fn f({head}) -> ({outputs}) {{ {body} }}"));
        for (t, k, v, placed) in
            [(97, 29, 56, Placement::Contiguous), (131, 61, 59, Placement::Contiguous), (70, 64, 64, Placement::Padded)]
        {
            let sizes = [("B", 2), ("H", 2), ("T", t), ("K", k), ("V", v)];
            check(&program, &sizes, (placed, 0), Order::Descending);
        }
    }

    #[test]
    fn parts_of_wide_states() {
        let program = written(Elem::Bf16, "a: [H, K], beta: [B, H, T]", "scan(T, LogDecay(a, k * (beta * v))).x", "y");
        for (t, k, v) in [(131, 32, 192), (80, 128, 128)] {
            let sizes = [("B", 1), ("H", 2), ("T", t), ("K", k), ("V", v)];
            check_decays(&program, &sizes, Placement::Contiguous, 1.0);
        }
    }

    #[test]
    fn keys_and_queries_that_heads_share() {
        let head = "q: [B, G, T, K], k: [B, T, K], v: [B, G, H, T, V], a: [G, H, K]";
        let body = "o = sum(K, q * scan(T, LogDecay(a, k * v)).x);";
        let program = of_text(Elem::Bf16, &format!("fn f({head}) -> (o: [B, G, H, T, V]) {{ {body} }}"));
        let sizes = [("B", 2), ("G", 2), ("T", 70), ("H", 3), ("K", 32), ("V", 56)];
        check_decays(&program, &sizes, Placement::Contiguous, 1.0);
    }

    #[test]
    fn packed_sequences() {
        let scan = "scan(T, segmented(LogDecay)(a, k * v), offsets = cu_seqlens).x";
        let program = written(Elem::Bf16, "a: [H, K], cu_seqlens: i32[S]", scan, "y");
        for (t, sequences) in [(70, 5), (200, 9)] {
            let sizes = [("B", 1), ("H", 2), ("T", t), ("K", 32), ("V", 64), ("S", sequences)];
            check_decays(&program, &sizes, Placement::Contiguous, 1.0);
        }
    }
}

#[test]
fn keys_and_queries_that_heads_share() {
    for (elem, queries, keys, decays) in [
        (Elem::Bf16, "[B, G, T, K]", "[B, G, T, K]", "[B, G, H, T, K]"),
        (Elem::Bf16, "[B, G, H, T, K]", "[B, T, K]", "[B, G, H, T, K]"),
        (Elem::Bf16, "[B, G, T, K]", "[B, G, T, K]", "[B, G, T, K]"),
        (Elem::F16, "[B, G, T, K]", "[B, G, T, K]", "[B, G, H, T, K]"),
        (Elem::F32, "[B, G, H, T, K]", "[B, T, K]", "[B, G, H, T, K]"),
    ] {
        let head = format!("q: {queries}, k: {keys}, v: [B, G, H, T, V], a: {decays}, s0: f32[B, G, H, K, V]");
        let scan = "scan(T, LogDecay(a, k * v), init = s0).x";
        let outputs = "o: [B, G, H, T, V], s_last: f32[B, G, H, K, V]";
        let body = format!("let s = {scan}; o = sum(K, q * s); s_last = last(T, s);");
        let program = of_text(elem, &format!("fn f({head}) -> ({outputs}) {{ {body} }}"));
        for (g, h, t, k, v) in [(1, 3, 70, 32, 64), (2, 2, 33, 29, 56)] {
            let sizes = [("B", 2), ("G", g), ("H", h), ("T", t), ("K", k), ("V", v)];
            check(&program, &sizes, (Placement::Contiguous, 0), Order::Random(t as u64));
        }
    }
}

#[test]
fn packed_sequences() {
    let scan = "scan(T, segmented(LogDecay)(a, k * v), offsets = cu_seqlens).x";
    for elem in ELEMS {
        let program = written(elem, "a: [B, H, T, K], cu_seqlens: i32[S]", scan, "y");
        for (t, sequences) in [(1, 2), (70, 5), (200, 9)] {
            let sizes = [("B", 1), ("H", 2), ("T", t), ("K", 32), ("V", 64), ("S", sequences)];
            check(&program, &sizes, (Placement::Contiguous, 0), Order::Random(t as u64));
        }
    }
}

#[test]
fn parts_of_wide_states() {
    for (elem, outputs, t, k, v) in [
        (Elem::Bf16, &["o"][..], 70, 32, 128),
        (Elem::Bf16, &["o", "s_last"], 131, 64, 192),
        (Elem::F16, &["o"], 70, 64, 128),
        (Elem::F16, &["o", "s_last"], 131, 32, 152),
        (Elem::F32, &["o", "s_last"], 70, 64, 128),
        (Elem::F32, &["o"], 131, 32, 67),
    ] {
        let program = gradient(elem, &[], outputs);
        let sizes = [("B", 1), ("H", 2), ("T", t), ("K", k), ("V", v)];
        check(&program, &sizes, (Placement::Contiguous, 0), Order::Random(v as u64));
    }
    for (elem, k) in [(Elem::Bf16, 128), (Elem::F16, 64), (Elem::F32, 64)] {
        let scan = "scan(T, LogDecay(a, k * (beta * v))).x";
        let program = written(elem, "a: [B, H, T, K], beta: [B, H, T]", scan, "y");
        let sizes = [("B", 2), ("H", 1), ("T", 80), ("K", k), ("V", 128)];
        check(&program, &sizes, (Placement::Contiguous, 0), Order::Descending);
    }
}

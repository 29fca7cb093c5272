//! Which stages are recurrences of matrices that chunks can compute, and why others are not.

use oplus_codegen::plan::{cuts, variants};
use oplus_codegen::schedules::lower;
use oplus_codegen::stage::kind::{Cotangent, MatrixRecurrence, MatrixRecurrenceBackward};
use oplus_codegen::stage::{Refusal, Stage, cut_matrix_backward};
use oplus_codegen::target::Isa;
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::Program;

use crate::harness::{model, stage, written};

fn of_model(name: &str) -> Result<MatrixRecurrence, Refusal> {
    stage(&model(name, Elem::Bf16, &[])).kind().matrices().cloned()
}

fn of_text(text: &str) -> Result<MatrixRecurrence, Refusal> {
    stage(&written(text)).kind().matrices().cloned()
}

#[test]
fn decays_of_heads_are_recognised() {
    let models = ["ssd", "ssd_softplus", "mamba2", "monoid_attention", "retention", "linear_attention"];
    for name in models {
        let form = of_model(name).unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
        assert_eq!(form.decay.is_some(), name != "linear_attention", "{name}");
        assert!(form.init.is_some() && form.readout.is_some(), "{name}");
    }
}

#[test]
fn decays_leave_nothing_where_packed_sequences_begin() {
    for name in ["ssd_packed", "monoid_attention_packed"] {
        let form = of_model(name).unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
        assert!(form.decay.is_some_and(|decay| decay.reset.is_some()) && !form.channels, "{name}");
    }
    let head = "fn f(v: [H, T, V], k: [H, T, K], q: [H, T, K], a: [H, T], c: [H, T]) -> (y: [H, T, V])";
    let scan = "scan(T, Affine(if c < 0 { 0 } else { exp(a) }, k * v)).b";
    let form = of_text(&format!("{head} {{ y = sum(K, q * {scan}); }}")).expect("a recurrence of matrices");
    assert!(form.decay.is_some_and(|decay| decay.reset.is_some()));
    let nothing = of_text(&format!("{head} {{ y = sum(K, q * scan(T, segmented(Sum)(k * v), reset = c < 0).s); }}"));
    assert_eq!(nothing.map(|_| ()), Err(Refusal::NoExponential));
}

#[test]
fn other_decays_are_refused_with_their_reason() {
    let diagonal = Refusal::Diagonal { axes: "D and N".into() };
    for name in ["selective_scan", "mamba"] {
        assert_eq!(of_model(name).map(|_| ()), Err(diagonal.clone()), "{name}");
    }
}

#[test]
fn decays_of_channels_are_recognised_along_the_axis_that_is_summed_away() {
    let form = of_model("gated_linear_attention").expect("a recurrence of matrices");
    assert!(form.channels && form.decay.is_some() && !of_model("ssd").expect("one, too").channels);
    let text = "fn f(v: [H, T, V], k: [H, T, K], q: [H, T, K], a: [H, T, V]) -> (y: [H, T, V]) {
        y = sum(K, q * scan(T, LogDecay(a, k * v)).x);
    }";
    assert_eq!(of_text(text).map(|_| ()), Err(Refusal::Channels { axis: "V".into() }));
}

/// The form of the gradient's stage with two scans, of the way to cut it that is tried first.
fn back_of_text(text: &str) -> Result<MatrixRecurrenceBackward, Refusal> {
    back_stage(&written(text)).kind().matrices_back().cloned()
}

fn back_stage(program: &Program) -> Stage {
    let gradient = adjoint(program).expect("differentiable");
    let mut stages = cut_matrix_backward(&gradient).expect("cuts").into_iter().flat_map(|cut| cut.stages);
    stages.find(|stage| stage.opposite_scans().is_some()).expect("two scans")
}

/// States beside factors of `f16` are in `f32`, since `f16` does not have their range.
#[test]
fn their_states_have_the_range_of_f32() {
    for name in ["ssd", "retention", "gated_linear_attention"] {
        for (elem, states) in [(Elem::Bf16, Elem::Bf16), (Elem::F16, Elem::F32), (Elem::F32, Elem::F32)] {
            let stage = back_stage(&model(name, elem, &[]));
            assert_eq!(
                stage.kind().matrices_back().map(|form| form.state_elem(&stage)),
                Ok(states),
                "{name} in {elem}"
            );
        }
    }
}

#[test]
fn so_are_their_gradients() {
    let body = "y = sum(K, q * scan(T, LogDecay(a, k * v)).x);";
    let own = "fn f(v: [H, T, V], k: [H, T, K], q: [H, T, K], a: [H, T, K]) -> (y: [H, T, V])";
    let form = back_of_text(&format!("{own} {{ {body} }}")).expect("a gradient of a recurrence of matrices");
    assert!(form.states.channels && form.cotangents.channels && form.outputs.contains(&Cotangent::Channels));
    // Keys and queries that heads share have cotangents of each head, which are summed afterwards.
    for decay in ["[H, T, K]", "[T, K]"] {
        let head = format!("fn f(v: [H, T, V], k: [T, K], q: [T, K], a: {decay}) -> (y: [H, T, V])");
        let form = back_of_text(&format!("{head} {{ {body} }}")).unwrap_or_else(|e| panic!("{head}: {e}"));
        assert!(form.heads.is_empty() && form.outputs.contains(&Cotangent::Channels), "{head}");
        assert!(form.outputs.contains(&Cotangent::Keys) && form.outputs.contains(&Cotangent::Queries), "{head}");
    }
}

/// Decays per channel that do not vary along time, or have a factor that does not, have cotangents at all times, which are summed
/// afterwards.
#[test]
fn so_are_sums_over_time_of_cotangents_of_decays() {
    let packed = "scan(T, segmented(LogDecay)(a, k * v), offsets = c).x";
    for (decay, scan, is_summed) in [
        ("a: [H, T, K]", "scan(T, LogDecay(a, k * v)).x", false),
        ("a: [H, K]", "scan(T, LogDecay(a, k * v)).x", true),
        ("a: [K]", "scan(T, LogDecay(-softplus(a), k * v)).x", true),
        ("a: [K], g: [H, T]", "scan(T, LogDecay(-softplus(a) * g, k * v)).x", true),
        ("a: [H, T, K], c: i32[S]", packed, false),
        ("a: [H, K], c: i32[S]", packed, true),
    ] {
        let head = format!("fn f(v: [H, T, V], k: [H, T, K], q: [H, T, K], {decay}) -> (y: [H, T, V])");
        let stage = back_stage(&written(&format!("{head} {{ y = sum(K, q * {scan}); }}")));
        let form = stage.kind().matrices_back().unwrap_or_else(|e| panic!("{decay}: {e}"));
        assert!(form.states.channels && form.outputs.contains(&Cotangent::Channels), "{decay}");
        assert_eq!(form.sums_channels_over_time(&stage), is_summed, "{decay}");
    }
}

#[test]
fn arbitrary_text_is_recognised() {
    let text = "
        op Fading(w, s) {
            identity (0, 0);
            combine(left, right) (left.w + right.w, right.s + left.s * exp(right.w));
        }
        fn f(v: [H, T, V], k: [H, T, K], q: [H, T, K], w: [H, T], beta: [H, T]) -> (y: [H, T, V]) {
            let s = scan(T, Fading(-softplus(w), k * (beta * v))).s;
            y = tanh(beta * sum(K, s * (w * q)));
        }";
    let form = of_text(text).expect("a recurrence of matrices");
    let readout = form.readout.expect("a readout");
    assert_eq!((form.gain.len(), readout.factors.len(), form.init), (1, 1, None));
}

#[test]
fn what_is_no_recurrence_of_matrices_says_why() {
    let refused = |body: &str| {
        let head = "fn f(v: [H, T, V], k: [H, T, K], q: [H, T, K], a: [H, T]) -> (y: [H, T, V])";
        of_text(&format!("{head} {{ {body} }}")).map(|_| ()).expect_err("refused")
    };
    let outer = Refusal::NotOuter { depth: "K".into(), width: "V".into() };
    assert_eq!(refused("y = sum(K, q * scan(T, LogDecay(a, k + v)).x);"), outer);
    assert_eq!(refused("y = sum(K, q * scan(T, LogDecay(a, k * v), reverse).x);"), Refusal::Reverse);
    assert_eq!(refused("y = sum(K, q * scan(T, Affine(a, k * v)).b);"), Refusal::NoExponential);
    assert_eq!(refused("y = sum(K, exp(scan(T, Sum(k * v))));"), Refusal::NotQuery { axis: "K".into() });
    let maxima = Refusal::NotAffine { operator: "Max".into() };
    assert_eq!(refused("y = sum(K, q * scan(T, Max(k * v)));"), maxima);
    assert_eq!(refused("y = sum(K, q * scan(T, LogDecay(a, k * v), exclusive).x);"), Refusal::Exclusive);
}

#[test]
fn factors_of_64_bits_are_refused() {
    let of = |name, elem| stage(&model(name, elem, &[])).kind().matrices().map(|_| ());
    for name in ["ssd", "gated_linear_attention"] {
        assert_eq!([Elem::F16, Elem::F32].map(|elem| of(name, elem)), [Ok(()), Ok(())]);
        assert!(of(name, Elem::F64).is_err());
    }
}

/// The last states of packed sequences are states of all times, which chunks do not make.
#[test]
fn last_states_of_packed_sequences_are_refused() {
    for (name, init) in [
        ("ssd_packed_states", "h0"),
        ("monoid_attention_packed_states", "s0"),
        ("gated_linear_attention_packed_states", "s0"),
    ] {
        let program = model(name, Elem::Bf16, &[init]);
        let refused = stage(&program).kind().matrices().map(|_| ()).expect_err("refused");
        assert!(matches!(&refused, Refusal::Output { .. }), "{name}: {refused}");
        for isa in Isa::ALL {
            let stages = cuts(&program).expect("cuts").all().flat_map(|cut| cut.stages);
            for (stage, schedule) in stages.flat_map(|stage| variants(&stage, isa)) {
                assert!(lower(&stage, &schedule, schedule.isa(isa)).is_ok(), "{name} {schedule}");
            }
        }
    }
}

//! The scans that adjoints are made of: those promised and no others.

use oplus_dsl::Ty;
use oplus_dsl::adjoint::{AdjointError, adjoint, differentiable_params};
use oplus_dsl::forward::{TangentError, tangent};
use oplus_dsl::ir::{Op, Operator, Program};
use oplus_dsl::parse::parse;
use oplus_dsl::specialize::{keep_outputs, without_param};
use oplus_dsl::testing::operators as standard;
use oplus_dsl::verify::verify;

use crate::operators;
use crate::programs::{self, EXCLUSIVE, FORWARD, REVERSE};

/// Operator and flags of every scan, in words.
fn scans(program: &Program) -> Vec<String> {
    let scan = |op: &Op| match op {
        Op::Scan { operator, reverse, exclusive, .. } => {
            let fields: Vec<&str> = program.operator(*operator).fields.iter().map(|f| f.name.as_str()).collect();
            let flags = [(*reverse, " reverse"), (*exclusive, " exclusive")];
            let flags: String = flags.into_iter().filter(|(set, _)| *set).map(|(_, word)| word).collect();
            Some(format!("{}({}){flags}", program.operator(*operator).name, fields.join(", ")))
        }
        _ => None,
    };
    program.nodes.iter().filter_map(|node| scan(&node.op)).collect()
}

/// The operators of every reduction.
fn reductions(program: &Program) -> Vec<&str> {
    let reduction = |op: &Op| match op {
        Op::Reduce { operator, .. } => Some(program.operator(*operator).name.as_str()),
        _ => None,
    };
    program.nodes.iter().filter_map(|node| reduction(&node.op)).collect()
}

fn params(program: &Program) -> Vec<&str> {
    program.params.iter().map(|p| p.name.as_str()).collect()
}

fn outputs(program: &Program) -> Vec<&str> {
    program.outputs.iter().map(|o| o.name.as_str()).collect()
}

fn adjoint_of(program: &Program) -> Program {
    adjoint(program).unwrap()
}

/// The scans in the adjoint of a scan by an operator of which all states come back.
fn adjoint_scans(operator: Operator) -> Vec<String> {
    let adjoint = adjoint_of(&programs::states(operator, FORWARD, false));
    scans(&adjoint)
}

#[test]
fn the_affine_adjoint_is_one_scalar_affine_scan() {
    let bar = adjoint_of(&programs::affine(FORWARD));
    assert_eq!(scans(&bar), ["Affine(a, b) reverse"]);
    assert_eq!(params(&bar), ["a", "h0", "h", "h.bar", "h_last.bar"], "the states are read, b is not needed");
    assert_eq!(outputs(&bar), ["a.bar", "b.bar", "h0.bar"]);
    assert_eq!(scans(&adjoint_of(&programs::affine(REVERSE))), ["Affine(a, b)"]);
    assert_eq!(scans(&adjoint_of(&programs::affine(EXCLUSIVE))), ["Affine(a, b) reverse exclusive"]);
}

#[test]
fn states_that_are_no_outputs_are_computed_again() {
    let bar = adjoint_of(&programs::selective_scan());
    assert_eq!(scans(&bar), ["Affine(a, b)", "Affine(a, b) exclusive", "Affine(a, b) reverse"]);
    assert_eq!(params(&bar), ["u", "delta", "a", "b", "c", "skip", "h0", "y.bar", "h_last.bar"]);
}

#[test]
fn a_sum_comes_back_as_a_sum_or_a_broadcast() {
    assert_eq!(adjoint_scans(standard::sum(Ty::F64)), ["Sum(s) reverse"]);
    let total = adjoint_of(&programs::totals(standard::sum(Ty::F64)));
    assert!(scans(&total).is_empty() && reductions(&total).is_empty());
    assert_eq!(params(&total), ["s_out.bar"]);
}

#[test]
fn a_decay_without_payload_axes_stays_without() {
    let bar = adjoint_of(&programs::log_decay_total());
    assert_eq!(scans(&bar), ["LogDecay(g, x) exclusive", "Product(p) reverse exclusive"]);
    let time = bar.axis("L").unwrap();
    let product = bar.nodes.iter().find(|node| match node.op {
        Op::Scan { operator, .. } => bar.operator(operator).name == "Product",
        _ => false,
    });
    assert!(product.unwrap().axes == oplus_dsl::ir::AxisSet::of(time));
}

#[test]
fn gauged_reductions_need_no_scan() {
    let bar = adjoint_of(&programs::attention());
    assert!(scans(&bar).is_empty());
    assert!(!reductions(&bar).contains(&"Softmax"), "nothing is merged again: y and lse are read");
    assert_eq!(params(&bar), ["s", "v", "y", "lse", "y.bar", "lse.bar"]);
}

#[test]
fn payloads_of_one_weight_share_a_scan() {
    let bar = adjoint_of(&programs::attention_scan(FORWARD));
    assert_eq!(
        scans(&bar).iter().filter(|scan| scan.ends_with("reverse")).collect::<Vec<_>>(),
        ["Affine(a, b0, b1) reverse"]
    );
}

#[test]
fn log_sum_exp_and_choices_need_no_scan() {
    for operator in [standard::log_sum_exp(Ty::F64), standard::max(Ty::F64), operators::min()] {
        assert!(scans(&adjoint_of(&programs::totals(operator))).is_empty());
    }
    assert!(scans(&adjoint_of(&programs::argmax())).is_empty());
    assert_eq!(reductions(&adjoint_of(&programs::argmax())), ["ArgMaxWinner"]);
}

#[test]
fn recognition_does_not_depend_on_the_type() {
    let programs = [programs::attention(), programs::totals(standard::log_sum_exp(Ty::F64)), programs::argmax()];
    for program in programs {
        for ty in ["f32", "call"] {
            let other = parse(&program.to_string().replace("f64", ty)).unwrap();
            assert!(scans(&adjoint_of(&other)).is_empty(), "{other}");
        }
    }
}

#[test]
fn products_use_prefixes_and_suffixes() {
    let bar = adjoint_of(&programs::totals(standard::product(Ty::F64)));
    assert_eq!(scans(&bar), ["Product(p) exclusive", "Product(p) reverse exclusive"]);
}

#[test]
fn matrices_carry_only_their_pattern() {
    let reverse = |operator| {
        let scans = adjoint_scans(operator);
        scans.into_iter().filter(|scan| scan.ends_with(" reverse")).collect::<Vec<_>>()
    };
    let complex = reverse(standard::complex_affine(Ty::F64));
    assert_eq!(complex, ["Affine2(a00, a01, b0_0, b0_1, b1_0, b1_1) reverse"]);
    assert_eq!(reverse(operators::quaternion()), ["Affine4(a00, a01, a02, a03, b0, b1, b2, b3) reverse"]);
    let matrix = ["Affine2(a00, a01, a10, a11, b0_0, b0_1, b1_0, b1_1) reverse"];
    assert_eq!(reverse(standard::matrix(Ty::F64)), matrix, "rows share the matrix");
    assert_eq!(reverse(operators::heisenberg()), ["Sum(s) reverse"; 3], "couplings without a cycle need no matrix");
}

#[test]
fn segments_keep_the_structure() {
    assert_eq!(scans(&adjoint_of(&programs::segmented_affine())), ["Affine(a, b) reverse"]);
    assert_eq!(adjoint_scans(standard::affine(Ty::F64)), ["Affine(a, b0, b1) reverse"], "a and b have one coefficient");
}

#[test]
fn absent_cotangents_drop_their_part() {
    let bar = adjoint_of(&programs::affine(FORWARD));
    let only_last = without_param(&bar, "h.bar");
    assert_eq!(params(&only_last), ["a", "h0", "h", "h_last.bar"]);
    let without_last = without_param(&bar, "h_last.bar");
    let init = |program: &Program| {
        program.nodes.iter().find_map(|node| match &node.op {
            Op::Scan { init, .. } => Some(init.len()),
            _ => None,
        })
    };
    assert_eq!((init(&bar), init(&without_last)), (Some(2), Some(0)));
    let nothing = without_param(&without_last, "h.bar");
    assert!(scans(&nothing).is_empty(), "{nothing}");
    let only_b = keep_outputs(&without_last, &["b.bar"]);
    assert_eq!((scans(&only_b).len(), outputs(&only_b)), (1, vec!["b.bar"]));
}

#[test]
fn an_absent_initial_state_is_the_identity() {
    let mut program = programs::affine(FORWARD);
    program.params[2].default = Some(oplus_dsl::ir::Literal::Float(0.0));
    let without = without_param(&program, "h0");
    assert_eq!(params(&without), ["a", "b"]);
    let init = without.nodes.iter().find_map(|node| match &node.op {
        Op::Scan { init, .. } => Some(init.len()),
        _ => None,
    });
    assert_eq!(init, Some(0));
    assert_eq!(without_param(&without, "a"), without, "a required parameter stays");
    assert_eq!(without_param(&without, "nothing"), without);
}

#[test]
fn integers_have_no_gradient() {
    assert_eq!(differentiable_params(&programs::affine(FORWARD)).unwrap(), ["a", "b", "h0"]);
    assert_eq!(differentiable_params(&programs::segmented_affine()).unwrap(), ["a", "b"]);
    let reason = |text: &str| match adjoint(&parse(text).unwrap()) {
        Err(AdjointError::NothingToDifferentiate { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    let text = "program p { axes T; param x: IN[T]; %0: IN[T] = param x; %1: OUT[T] = OP; output y: OUT[T] = %1; }";
    let case = |input: &str, output: &str, op: &str| {
        reason(&text.replace("IN", input).replace("OUT", output).replace("OP", op))
    };
    assert_eq!(case("i32", "f32", "convert(f32, %0)"), "no parameter is floating-point");
    assert_eq!(case("f32", "bool", "%0 < %0"), "no output is floating-point");
    assert!(case("f32", "f32", "floor(%0)").contains("constant between jumps"));
}

#[test]
fn matrices_that_do_not_fit_are_refused() {
    let fitting = adjoint(&programs::states(operators::mixed_products::<4>(), FORWARD, false)).unwrap();
    assert_eq!(verify(&fitting), Ok(()));
    let error = adjoint(&programs::states(operators::mixed_products::<6>(), FORWARD, false)).unwrap_err();
    assert_eq!(error, AdjointError::TooManyFields { operator: "Mixed6".to_owned(), coupled: 6 });
    let tangent_error = tangent(&programs::states(operators::mixed_products::<17>(), FORWARD, false)).unwrap_err();
    assert_eq!(tangent_error, TangentError::TooManyFields { operator: "Mixed17".to_owned(), fields: 34 });
}

#[test]
fn marks_are_repeated_where_a_name_is_taken() {
    let second = adjoint_of(&adjoint_of(&programs::affine(FORWARD)));
    let third = adjoint_of(&second);
    assert_eq!(verify(&third), Ok(()));
    assert!(params(&third).contains(&"a.bar.bar.bar"), "a.bar.bar is the cotangent of the second derivative's a.bar");
    let twice = tangent(&tangent(&programs::affine(FORWARD)).unwrap()).unwrap();
    assert_eq!(verify(&twice), Ok(()));
    assert_eq!(
        params(&twice)[6..],
        ["a.dot.dot", "b.dot.dot", "h0.dot.dot", "a.dot.dot.dot", "b.dot.dot.dot", "h0.dot.dot.dot"]
    );
}

#[test]
fn invalid_programs_are_refused() {
    let mut program = programs::affine(FORWARD);
    program.nodes[0].ty = Ty::F32;
    let error = adjoint(&program).unwrap_err();
    assert!(matches!(error, AdjointError::Invalid { .. }));
    assert!(error.to_string().starts_with("`affine` is not a valid program: node %0"), "{error}");
}

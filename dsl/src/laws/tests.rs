use crate::elem::Ty;
use crate::ir::{Binary, Field, Op, Unary};
use crate::testing::{operator, operators};

use super::*;

mod domains;
mod literals;

const T: Ty = Ty::Call;
const ZERO: Literal = Literal::Float(0.0);
const ONE: Literal = Literal::Float(1.0);

/// The laws that the operator breaks, and in which fields.
fn broken(operator: &Operator) -> Vec<(Law, String)> {
    let errors = check(operator).err().unwrap_or_default();
    let broken = |error| match error {
        LawError::Broken(Counterexample { law, field, .. }) => (law, field),
        LawError::Undecided { law, field, .. } => (law, field),
        error => panic!("{error}"),
    };
    errors.into_iter().map(broken).collect()
}

/// The operator breaks these laws, and no other field does.
fn check_broken(operator: &Operator, expected: &[(Law, &str)]) {
    let expected: Vec<(Law, String)> = expected.iter().map(|(law, field)| (*law, (*field).to_owned())).collect();
    assert_eq!(broken(operator), expected, "{operator}");
}

#[test]
fn lawful_operators_pass() {
    for ty in [Ty::Call, Ty::F32, Ty::F64] {
        for operator in operators::all(ty) {
            assert_eq!(check(&operator).err(), None, "{operator}");
        }
    }
}

#[test]
fn algebra_proves_what_it_can_express() {
    let everywhere = [Law::LeftIdentity, Law::RightIdentity, Law::Associativity];
    let float = [operators::sum(T), operators::affine(T), operators::log_decay(T), operators::matrix(T)];
    for operator in float.into_iter().chain([operators::sum(Ty::I32), operators::product(Ty::U64)]) {
        let evidence = check(&operator).expect("a lawful operator");
        assert_eq!((evidence.proved, evidence.sampled), (everywhere.to_vec(), vec![]), "{operator}");
    }
    let evidence = check(&operators::max(T)).expect("a lawful operator");
    assert_eq!((evidence.proved, evidence.sampled), (vec![], everywhere.to_vec()));
    let evidence = check(&operators::softmax(T)).expect("a lawful operator");
    assert_eq!(evidence.sampled, [&everywhere[..], &[Law::Gauge]].concat());
    let evidence = check(&operators::automaton()).expect("a lawful operator");
    assert_eq!(evidence.sampled, [&everywhere[..], &[Law::Closure]].concat());
    assert!(evidence.samples > 100, "{}", evidence.samples);
}

#[test]
fn subtraction_is_refused() {
    let minus = operator("Minus", [("s", T, ZERO)], |[l], [r]| [l - r]);
    check_broken(&minus, &[(Law::LeftIdentity, "s"), (Law::Associativity, "s")]);
    let mean = operator("Mean", [("s", T, ZERO)], |[l], [r]| [(l + r) / l.number(2.0)]);
    check_broken(&mean, &[(Law::LeftIdentity, "s"), (Law::RightIdentity, "s"), (Law::Associativity, "s")]);
}

#[test]
fn a_wrong_field_is_named_and_right_ones_are_not() {
    let fields = [("a", T, ONE), ("b", T, ZERO)];
    let swapped = operator("Affine", fields, |[la, lb], [ra, rb]| [la * ra, la * lb + rb]);
    check_broken(&swapped, &[(Law::RightIdentity, "b"), (Law::Associativity, "b")]);
    let identity = [("a", T, ZERO), ("b", T, ZERO)];
    let vanishing = operator("Affine", identity, |[la, lb], [ra, rb]| [la * ra, ra * lb + rb]);
    check_broken(&vanishing, &[(Law::LeftIdentity, "a"), (Law::RightIdentity, "a"), (Law::RightIdentity, "b")]);
    let opposite = operator("Opposite", fields, |[la, lb], [ra, rb]| [la * ra, la * rb + lb]);
    assert_eq!(check(&opposite).map(|e| e.sampled), Ok(vec![]), "the opposite of a monoid is one");
}

#[test]
fn a_decay_on_the_wrong_side_is_refused() {
    let fields = [("g", T, ZERO), ("x", T, ZERO)];
    let wrong = operator("LogDecay", fields, |[lg, lx], [rg, rx]| [lg + rg, lg.exp() * lx + rx]);
    check_broken(&wrong, &[(Law::RightIdentity, "x"), (Law::Associativity, "x")]);
}

#[test]
fn a_wrong_identity_of_the_maximum_is_refused() {
    let max = operator("Max", [("m", T, ZERO)], |[l], [r]| [l.max(r)]);
    check_broken(&max, &[(Law::LeftIdentity, "m"), (Law::RightIdentity, "m")]);
}

#[test]
fn two_identities_must_not_make_nan() {
    let nothing = Literal::Float(f64::NEG_INFINITY);
    let unguarded = operator("Softmax", [("m", T, nothing), ("d", T, ZERO)], |[lm, ld], [rm, rd]| {
        let m = lm.max(rm);
        [m, ld * (lm - m).exp() + rd * (rm - m).exp()]
    });
    check_broken(&unguarded, &[(Law::LeftIdentity, "d")]);
    let message = check(&unguarded).unwrap_err()[0].to_string();
    let expected = "the combination of `Softmax` gives NaN in field `d`: with x = (m: -inf, d: 0.0), \
                    identity ⊕ x gives nan instead of 0.0";
    assert_eq!(message, expected);
}

#[test]
fn integers_and_bools_are_compared_exactly() {
    let xor_shift = operator("Mix", [("h", Ty::U32, Literal::Int(0))], |[l], [r]| [l * l.number(31.0) + r]);
    check_broken(&xor_shift, &[(Law::RightIdentity, "h"), (Law::Associativity, "h")]);
    let implies = operator("Implies", [("p", Ty::Bool, Literal::Bool(true))], |[l], [r]| [l.unary(Unary::Not) | r]);
    check_broken(&implies, &[(Law::RightIdentity, "p"), (Law::Associativity, "p")]);
}

#[test]
fn saturating_sums_of_both_signs_are_refused() {
    let saturating = operator("Saturating", [("s", T, ZERO)], |[l], [r]| {
        let (low, high) = (l.number(-2.0), l.number(2.0));
        [(l + r).max(low).binary(Binary::Min, high)]
    });
    assert!(broken(&saturating).contains(&(Law::Associativity, "s".to_owned())));
}

#[test]
fn a_reset_that_is_forgotten_is_refused() {
    let fields = [("reset", Ty::Bool, Literal::Bool(false)), ("s", T, ZERO)];
    let forgetful = operator("Reset", fields, |[_, ls], [rr, rs]| [rr, rr.select(rs, ls + rs)]);
    check_broken(&forgetful, &[(Law::RightIdentity, "reset"), (Law::Associativity, "s")]);
}

#[test]
fn functions_composed_in_the_wrong_place_are_refused() {
    let fields = [0, 1].map(|k| (["f0", "f1"][k as usize], Ty::I32, Literal::Int(k)));
    let wrong = operator("Automaton", fields, |[l0, l1], [r0, r1]| {
        let zero = l0.number(0.0);
        [l0.is(zero).select(r0, r1), l1.is(zero).select(r1, r0)]
    });
    assert!(!broken(&wrong).is_empty());
}

#[test]
fn a_gauge_must_be_one() {
    assert_eq!(check_gauge(&operators::softmax(T)), Ok(()));
    let unscaled =
        operator("Wrong", [("m", T, Literal::Float(f64::NEG_INFINITY)), ("d", T, ZERO)], |[lm, ld], [rm, rd]| {
            [lm.max(rm), ld + rd]
        });
    assert_eq!(check_gauge(&unscaled), Ok(()));
    let wrong = Operator { gauge: Some(0), ..unscaled };
    check_broken(&wrong, &[(Law::Gauge, "d")]);
    assert_eq!(check_gauge(&wrong).unwrap_err().len(), 1);
}

#[test]
fn what_is_nan_everywhere_is_not_taken_for_lawful() {
    let nan = operator("Nan", [("s", T, ZERO)], |[l], [r]| [(l + r) * l.number(f64::NAN)]);
    assert!(matches!(check(&nan).unwrap_err()[0], LawError::Broken(_)), "0 ⊕ 0 is NaN");
    let logarithm = operator("Log", [("s", T, Literal::Float(1.0))], |[l], [r]| {
        let hidden = l.is(r).select(l, (-(l * l + r * r)).unary(Unary::Ln));
        [hidden]
    });
    let errors = check(&logarithm).unwrap_err();
    assert!(errors.iter().any(|e| matches!(e, LawError::Undecided { law: Law::Associativity, .. })), "{errors:?}");
}

#[test]
fn ill_formed_operators_are_refused_without_panic() {
    let mut operator = operators::affine(T);
    operator.combine.pop();
    operator.fields.push(Field { name: "a".to_owned(), ty: Ty::Tuple });
    let errors = check(&operator).unwrap_err();
    assert!(errors.iter().all(|e| matches!(e, LawError::Invalid(_))), "{errors:?}");
}

#[test]
fn counter_examples_read_well() {
    let minus = operator("Minus", [("s", T, ZERO)], |[l], [r]| [l - r]);
    let messages: Vec<String> = check(&minus).unwrap_err().iter().map(ToString::to_string).collect();
    let identity =
        "the identity of `Minus` is wrong in field `s`: with x = (s: 2.0), identity ⊕ x gives -2.0 instead of 2.0";
    let associativity = "`Minus` is not associative in field `s`: with x = (s: 2.0), y = (s: 3.0), z = (s: 2.0), \
                         (x ⊕ y) ⊕ z gives -3.0, but x ⊕ (y ⊕ z) gives 1.0";
    assert_eq!(messages, [identity, associativity]);
}

#[test]
fn every_changed_sign_is_noticed() {
    let all = [
        operators::sum(T),
        operators::affine(T),
        operators::log_decay(T),
        operators::log_sum_exp(T),
        operators::softmax(T),
        operators::complex_affine(T),
        operators::matrix(T),
        operators::counts(),
    ];
    let mut changed = 0;
    for operator in &all {
        for i in 0..operator.body.len() {
            let mut wrong = operator.clone();
            match &mut wrong.body[i].op {
                Op::Binary(op @ Binary::Add, ..) => *op = Binary::Sub,
                Op::Binary(op @ Binary::Sub, ..) => *op = Binary::Add,
                Op::Binary(op @ Binary::Max, ..) => *op = Binary::Min,
                Op::Binary(_, a, b) if operator.name.ends_with("Affine") && a != b => *a = *b,
                _ => continue,
            }
            changed += 1;
            assert!(check(&wrong).is_err(), "{wrong}");
        }
    }
    assert!(changed > 30, "{changed}");
}

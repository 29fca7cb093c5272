//! Operators that keep the laws at small numbers, and break them near a literal, a limit of a type, or an identity.

use crate::ir::Binary;
use crate::testing::operator;

use super::*;

fn is_refused(operator: &Operator) {
    assert!(!broken(operator).is_empty(), "{operator}");
}

/// min(l + r, limit) of one field.
fn capped(ty: Ty, limit: f64) -> Operator {
    operator("Capped", [("m", ty, Literal::zero(ty))], |[l], [r]| [(l + r).binary(Binary::Min, l.number(limit))])
}

#[test]
fn a_cap_is_found_wherever_it_lies() {
    for limit in [5.0, 1000.0, 1e6, 1e12, 3e30] {
        is_refused(&capped(T, limit));
    }
    for limit in [5.0, 1e6, 4e9] {
        is_refused(&capped(Ty::U32, limit));
        is_refused(&capped(Ty::I64, limit));
    }
}

#[test]
fn saturating_addition_of_both_signs_is_refused_at_any_limit() {
    for limit in [2.0, 100.0, 1e6, 1e20] {
        let saturating = operator("Saturating", [("s", T, ZERO)], |[l], [r]| {
            let (low, high) = (l.number(-limit), l.number(limit));
            [(l + r).max(low).binary(Binary::Min, high)]
        });
        assert!(broken(&saturating).contains(&(Law::Associativity, "s".to_owned())), "{limit}");
    }
}

#[test]
fn a_difference_at_one_number_alone_is_found() {
    for (ty, odd) in [(T, 12345.0), (T, 0.001), (Ty::I32, 777.0), (Ty::U64, 1e15)] {
        let odd_one = operator("Odd", [("s", ty, Literal::zero(ty))], |[l], [r]| {
            let sum = l + r;
            [l.is(l.number(odd)).select(r, sum)]
        });
        is_refused(&odd_one);
    }
}

#[test]
fn integer_fields_with_the_identities_0_and_1_are_sampled_like_others() {
    let fields = [("a", Ty::I32, Literal::Int(0)), ("b", Ty::I32, Literal::Int(1))];
    let wrong = operator("Wrong", fields, |[la, lb], [ra, rb]| [la + ra - la * ra * ra, lb * rb]);
    check_broken(&wrong, &[(Law::Associativity, "a")]);
}

#[test]
fn identities_in_some_fields_only_are_sampled() {
    let mean = operator("Mean", [("n", T, ZERO), ("mean", T, ZERO)], |[ln, lm], [rn, rm]| {
        let n = ln + rn;
        let part = n.is(n.number(0.0)).select(n, rn / n);
        [n, lm + (rm - lm) * part]
    });
    is_refused(&mean);
    let last = operator("Last", [("value", T, ZERO), ("has", Ty::Bool, Literal::Bool(false))], |[lv, lh], [rv, rh]| {
        [rh.select(rv, lv), lh | rh]
    });
    check_broken(&last, &[(Law::LeftIdentity, "value")]);
}

#[test]
fn an_identity_at_the_limit_of_integers_that_wraps_is_refused() {
    let fields = |ty, low| [("a", ty, Literal::Int(0)), ("b", ty, Literal::Int(low))];
    for (ty, low) in [(Ty::I32, i64::from(i32::MIN)), (Ty::I64, i64::MIN)] {
        let max_plus = operator("MaxPlus", fields(ty, low), |[la, lb], [ra, rb]| [la + ra, (ra + lb).max(rb)]);
        assert!(broken(&max_plus).contains(&(Law::LeftIdentity, "b".to_owned())));
    }
    let float = [("a", T, ZERO), ("b", T, Literal::Float(f64::NEG_INFINITY))];
    let max_plus = operator("MaxPlus", float, |[la, lb], [ra, rb]| [la + ra, (ra + lb).max(rb)]);
    check_broken(&max_plus, &[]);
}

#[test]
fn a_literal_that_is_1_modulo_the_prime_of_the_proof_is_no_1() {
    let scaled = operator("Scaled", [("s", T, ZERO)], |[l], [r]| [l + r * l.number(2f64.powi(61))]);
    is_refused(&scaled);
}

#[test]
fn products_that_underflow_and_overflow_are_not_taken_for_broken() {
    for ty in [T, Ty::F32, Ty::F64] {
        let squares = operator("Norm", [("s", ty, ZERO)], |[l], [r]| [(l * l + r * r).unary(Unary::Sqrt)]);
        assert!(broken(&squares).iter().all(|(law, _)| *law != Law::Associativity), "{squares}");
    }
}

#[test]
fn unsigned_counter_examples_are_in_range() {
    let messages: Vec<String> = check(&capped(Ty::U32, 255.0)).unwrap_err().iter().map(ToString::to_string).collect();
    assert!(messages.iter().all(|message| !message.contains('-')), "{messages:?}");
}

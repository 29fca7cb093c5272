//! Operators that keep the laws on a domain.

use crate::ir::{Binary, Domain};
use crate::testing::{Expression, operator, operator_on};

use super::*;

fn min<'a>(a: Expression<'a>, b: Expression<'a>) -> Expression<'a> {
    a.binary(Binary::Min, b)
}

fn at_least<'a>(a: Expression<'a>, b: Expression<'a>) -> Expression<'a> {
    a.binary(Binary::Ge, b)
}

fn without_overflow(operator: Operator) -> Operator {
    Operator { domain: Domain { no_overflow: true, ..operator.domain.clone() }, ..operator }
}

/// The messages of all errors.
fn messages(operator: &Operator) -> Vec<String> {
    check(operator).err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

fn is_lawful(operator: &Operator) {
    assert_eq!(messages(operator), [""; 0], "{operator}");
}

fn capped(ty: Ty, limit: f64) -> Operator {
    operator("Sat", [("m", ty, Literal::zero(ty))], |[l], [r]| [min(l + r, l.number(limit))])
}

#[test]
fn saturating_counters_hold_up_to_their_limit() {
    is_lawful(&operator_on(capped(Ty::U32, 255.0), |[m]| vec![at_least(m.number(255.0), m)]));
    is_lawful(&operator_on(capped(T, 1e6), |[m]| vec![at_least(m.number(1e6), m), at_least(m, m.number(0.0))]));
}

#[test]
fn a_combination_that_leaves_the_domain_is_named() {
    let sum = operator_on(operators::sum(Ty::U32), |[s]| vec![at_least(s.number(255.0), s)]);
    let [message] = &messages(&sum)[..] else { panic!("one message") };
    assert!(message.starts_with("a combination leaves the domain of `Sum`: with x = (s: "), "{message}");
    assert!(message.ends_with(", for which 255 ≥ s does not hold"), "{message}");
}

#[test]
fn an_identity_outside_the_domain_is_named() {
    let sum = operator_on(operators::sum(T), |[s]| vec![s.above(s.number(0.0))]);
    let expected = "the identity of `Sum`, (s: 0.0), is not in its domain: s > 0 does not hold";
    assert_eq!(messages(&sum), [expected]);
}

#[test]
fn a_domain_without_states_is_refused() {
    let nowhere = operator_on(operators::sum(T), |[s]| {
        let square = s * s;
        vec![(square + s.number(1.0)).is(s.number(0.0)) | square.is(s.number(0.0)) & square.above(s.number(5.0))]
    });
    let messages = messages(&nowhere);
    assert_eq!(messages.last().unwrap(), "no states were found in the domain of `Sum`, so its laws cannot be checked");
}

#[test]
fn a_law_that_fails_on_the_domain_is_found() {
    let capped = operator_on(capped(T, 10.0), |[m]| vec![at_least(m.number(10.0), m)]);
    assert!(!messages(&capped).is_empty(), "negative numbers are in the domain");
    let narrow =
        operator_on(operator("Odd", [("s", T, ZERO)], |[l], [r]| [l.is(l.number(9.0)).select(r, l.max(r))]), |[s]| {
            vec![at_least(s, s.number(0.0)), at_least(s.number(9.0), s)]
        });
    assert!(!messages(&narrow).is_empty());
}

#[test]
fn maxima_of_non_negative_numbers_and_of_their_sums() {
    let fields = [("s", T, ZERO), ("m", T, ZERO)];
    let peak = operator("Peak", fields, |[ls, lm], [rs, rm]| [ls + rs, lm.max(ls + rm)]);
    assert!(!messages(&peak).is_empty());
    is_lawful(&operator_on(peak, |[s, m]| vec![at_least(m, m.number(0.0)), at_least(m, s)]));
    let both = operator("SumMax", fields, |[ls, lm], [rs, rm]| [ls + rs, lm.max(rm)]);
    assert!(!messages(&both).is_empty());
    is_lawful(&operator_on(both, |[s, m]| vec![at_least(s, s.number(0.0)), at_least(m, s.number(0.0))]));
}

#[test]
fn moments_with_a_count_of_integers() {
    let fields = [("n", Ty::I64, Literal::Int(0)), ("mean", Ty::F64, ZERO), ("m2", Ty::F64, ZERO)];
    let moments = operator("Moments", fields, |[ln, lm, ls], [rn, rm, rs]| {
        let (n, delta) = (ln + rn, rm - lm);
        let (lf, rf, nf) = (ln.to(crate::Elem::F64), rn.to(crate::Elem::F64), n.to(crate::Elem::F64));
        let part = n.is(n.number(0.0)).select(nf, rf / nf);
        [n, lm + delta * part, ls + rs + delta * delta * lf * part]
    });
    let moments = operator_on(moments, |[n, mean, m2]| {
        let (none, zero) = (n.is(n.number(0.0)), mean.number(0.0));
        vec![n.above(n.number(0.0)) | none & mean.is(zero) & m2.is(zero)]
    });
    assert!(!messages(&moments).is_empty(), "counts exceed their type");
    is_lawful(&without_overflow(moments));
}

#[test]
fn the_last_value_that_was_there() {
    let fields = [("value", T, ZERO), ("has", Ty::Bool, Literal::Bool(false))];
    let last = operator("Last", fields, |[lv, lh], [rv, rh]| [rh.select(rv, lv), lh | rh]);
    is_lawful(&operator_on(last, |[value, has]| vec![has | value.is(value.number(0.0))]));
}

#[test]
fn matching_of_brackets() {
    let brackets = |ty| {
        let fields = [("open", ty, Literal::zero(ty)), ("close", ty, Literal::zero(ty))];
        let operator = operator("Brackets", fields, |[lo, lc], [ro, rc]| {
            let matched = min(lo, rc);
            [lo - matched + ro, lc + (rc - matched)]
        });
        operator_on(operator, |[open, close]| {
            let zero = open.number(0.0);
            vec![at_least(open, zero), at_least(close, zero)]
        })
    };
    is_lawful(&brackets(T));
    for ty in [Ty::U32, Ty::I64] {
        assert!(!messages(&brackets(ty)).is_empty(), "counts exceed their type");
        is_lawful(&without_overflow(brackets(ty)));
    }
}

#[test]
fn no_overflow_does_not_excuse_an_identity_without_room() {
    let max_plus = |low: i64| {
        let fields = [("a", Ty::I32, Literal::Int(0)), ("b", Ty::I32, Literal::Int(low))];
        let operator = operator("MaxPlus", fields, |[la, lb], [ra, rb]| [la + ra, (ra + lb).max(rb)]);
        without_overflow(operator_on(operator, |[_, b]| vec![at_least(b, b.number(low as f64))]))
    };
    assert!(!messages(&max_plus(i64::from(i32::MIN))).is_empty());
    assert!(!messages(&max_plus(-1_000_000_000)).is_empty(), "identity ⊕ (a: 5, b: −1000000000) is 5 more");
}

#[test]
fn fields_are_bound_by_one_another() {
    let fields = [("low", T, Literal::Float(f64::INFINITY)), ("high", T, Literal::Float(f64::NEG_INFINITY))];
    let range = operator("Range", fields, |[ll, lh], [rl, rh]| [min(ll, rl), lh.max(rh)]);
    is_lawful(&operator_on(range, |[low, high]| {
        let none = low.is(low.number(f64::INFINITY)) & high.is(high.number(f64::NEG_INFINITY));
        vec![at_least(high, low) | none]
    }));
}

#[test]
fn domains_survive_segments_and_simplification() {
    let moments = crate::segmented::segmented(&operators::moments(T)).unwrap();
    is_lawful(&moments);
    assert_eq!(moments.domain.dependencies(), [0b1110]);
}

//! Associative operators, for floats of a given type where it matters.

use crate::elem::Ty;
use crate::ir::{Binary, Literal, Operator};

use super::expression::{Expression, operator, operator_on};

const ZERO: Literal = Literal::Float(0.0);
const ONE: Literal = Literal::Float(1.0);
const NOTHING: Literal = Literal::Float(f64::NEG_INFINITY);

/// l + r.
pub fn sum(ty: Ty) -> Operator {
    operator("Sum", [("s", ty, Literal::zero(ty))], |[l], [r]| [l + r])
}

/// l·r.
pub fn product(ty: Ty) -> Operator {
    let one = if ty.is_int() { Literal::Int(1) } else { ONE };
    operator("Product", [("p", ty, one)], |[l], [r]| [l * r])
}

/// The larger.
pub fn max(ty: Ty) -> Operator {
    operator("Max", [("m", ty, NOTHING)], |[l], [r]| [l.max(r)])
}

/// h\[t\] = a\[t\]·h[t−1] + b\[t\].
pub fn affine(ty: Ty) -> Operator {
    operator("Affine", [("a", ty, ONE), ("b", ty, ZERO)], |[la, lb], [ra, rb]| [la * ra, ra * lb + rb])
}

/// x\[t\] = exp(g\[t\])·x[t−1] + …, the decay kept as a logarithm.
pub fn log_decay(ty: Ty) -> Operator {
    operator("LogDecay", [("g", ty, ZERO), ("x", ty, ZERO)], |[lg, lx], [rg, rx]| [lg + rg, rg.exp() * lx + rx])
}

/// ln(eˡ + eʳ), with nothing as the identity.
pub fn log_sum_exp(ty: Ty) -> Operator {
    operator("LogSumExp", [("s", ty, NOTHING)], |[l], [r]| {
        let m = l.max(r);
        let sum = weight(l, m) + weight(r, m);
        [m.is(l.number(f64::NEG_INFINITY)).select(m, m + sum.unary(crate::ir::Unary::Ln))]
    })
}

/// The state of a softmax: running maximum m, denominator d and numerator o, both relative to exp(m). m is a gauge.
pub fn softmax(ty: Ty) -> Operator {
    let fields = [("m", ty, NOTHING), ("d", ty, ZERO), ("o", ty, ZERO)];
    let merge = operator("Softmax", fields, |[lm, ld, lo], [rm, rd, ro]| {
        let m = lm.max(rm);
        let (l, r) = (weight(lm, m), weight(rm, m));
        [m, ld * l + rd * r, lo * l + ro * r]
    });
    Operator { gauge: Some(0), ..merge }
}

/// exp(x − m), 1 where both are −∞.
fn weight<'a>(x: Expression<'a>, m: Expression<'a>) -> Expression<'a> {
    x.is(m).select(x.number(1.0), (x - m).exp())
}

/// h\[t\] = a\[t\]·h[t−1] + b\[t\] over complex numbers.
pub fn complex_affine(ty: Ty) -> Operator {
    let fields = [("a_re", ty, ONE), ("a_im", ty, ZERO), ("b_re", ty, ZERO), ("b_im", ty, ZERO)];
    operator("ComplexAffine", fields, |[la, li, lb, lj], [ra, ri, rb, rj]| {
        [la * ra - li * ri, la * ri + li * ra, ra * lb - ri * lj + rb, ra * lj + ri * lb + rj]
    })
}

/// The product r·l of 2×2 matrices, as maps are composed.
pub fn matrix(ty: Ty) -> Operator {
    let fields = [("a", ty, ONE), ("b", ty, ZERO), ("c", ty, ZERO), ("d", ty, ONE)];
    operator("Matrix", fields, |[la, lb, lc, ld], [ra, rb, rc, rd]| {
        [ra * la + rb * lc, ra * lb + rb * ld, rc * la + rd * lc, rc * lb + rd * ld]
    })
}

/// The largest value and its index, the first one at ties. −∞ has no index.
pub fn argmax(ty: Ty) -> Operator {
    let fields = [("v", ty, NOTHING), ("i", Ty::I64, Literal::Int(-1))];
    let operator = operator("ArgMax", fields, |[lv, li], [rv, ri]| {
        let later = rv.above(lv);
        [later.select(rv, lv), later.select(ri, li)]
    });
    operator_on(operator, |[v, i]| vec![v.above(v.number(f64::NEG_INFINITY)) | i.is(i.number(-1.0))])
}

/// Composition of functions of three states: f0, f1, f2 are where each goes.
pub fn automaton() -> Operator {
    let fields = [0, 1, 2].map(|k| (["f0", "f1", "f2"][k as usize], Ty::I32, Literal::Int(k)));
    let operator = operator("Automaton", fields, |l, [r0, r1, r2]| {
        l.map(|s| s.is(s.number(0.0)).select(r0, s.is(s.number(1.0)).select(r1, r2)))
    });
    operator_on(operator, |f: [_; 3]| f.map(|s| s.above(s.number(-1.0)) & s.number(3.0).above(s)).to_vec())
}

/// Count, mean and sum of squared deviations, merged after Chan, Golub and LeVeque. Nothing has the mean 0.
pub fn moments(ty: Ty) -> Operator {
    let fields = [("n", ty, ZERO), ("mean", ty, ZERO), ("m2", ty, ZERO)];
    let operator = operator("Moments", fields, |[ln, lm, ls], [rn, rm, rs]| {
        let (n, delta) = (ln + rn, rm - lm);
        let part = n.is(n.number(0.0)).select(n, rn / n);
        [n, lm + delta * part, ls + rs + delta * delta * ln * part]
    });
    operator_on(operator, |[n, mean, m2]| {
        let zero = n.number(0.0);
        vec![n.above(zero) | n.is(zero) & mean.is(zero) & m2.is(zero)]
    })
}

/// Sums that start again where `reset` is true.
pub fn resetting_sum(ty: Ty) -> Operator {
    let fields = [("reset", Ty::Bool, Literal::Bool(false)), ("s", ty, ZERO)];
    operator("ResettingSum", fields, |[lr, ls], [rr, rs]| [lr | rr, rr.select(rs, ls + rs)])
}

/// Sums of 64-bit integers and the bits set in any.
pub fn counts() -> Operator {
    let fields = [("n", Ty::U64, Literal::Int(0)), ("seen", Ty::U32, Literal::Int(0))];
    operator("Counts", fields, |[ln, ls], [rn, rs]| [ln + rn, ls | rs])
}

/// The largest of integers, which wraps nowhere.
pub fn integer_max() -> Operator {
    operator("IntegerMax", [("m", Ty::I64, Literal::Int(i64::MIN))], |[l], [r]| [l.binary(Binary::Max, r)])
}

/// Every operator above whose fields are all floats of the type, and differentiable almost everywhere.
pub fn differentiable(ty: Ty) -> Vec<Operator> {
    let mut all = vec![sum(ty), product(ty), max(ty), affine(ty), log_decay(ty), log_sum_exp(ty), softmax(ty)];
    all.extend([complex_affine(ty), matrix(ty), moments(ty)]);
    all
}

/// Every operator above.
pub fn all(ty: Ty) -> Vec<Operator> {
    let others = [argmax(ty), automaton(), resetting_sum(ty), counts(), integer_max(), sum(Ty::I32), product(Ty::U32)];
    differentiable(ty).into_iter().chain(others).collect()
}

//! Combinations on numbers, to check a law of their derivatives at sample points. Floats of every type are f64 here,
//! so that rounding to a narrow type breaks no law.

use crate::elem::{Elem, Ty};
use crate::interpret::{Combiner, Precision};
use crate::ir::{Literal, Op, Operator, Program, Value};
use crate::rng::Rng;
use crate::scalar;

/// How many sample points a law is checked at.
pub(crate) const POINTS: usize = 32;

/// Random fields of an element: floats in (−2, 2), small integers, bools.
pub(crate) fn point(rng: &mut Rng, operator: &Operator) -> Vec<Literal> {
    let mut literal = |ty: Ty| match ty {
        Ty::Bool => Literal::Bool(rng.once_in(2)),
        ty if ty.is_int() => Literal::Int(rng.below(4) as i64),
        _ => Literal::Float(rng.between(-2.0, 2.0)),
    };
    operator.fields.iter().map(|field| literal(field.ty)).collect()
}

/// l ⊕ r.
pub(crate) fn combined(operator: &Operator, l: &[Literal], r: &[Literal]) -> Vec<Literal> {
    Combiner::new(operator, Precision::Exact).combine(l, r)
}

/// The values of a program of maps for these parameters; NaN for what depends on others.
pub(crate) fn values(program: &Program, params: &[Literal]) -> Vec<Literal> {
    let mut values: Vec<Literal> = Vec::with_capacity(program.nodes.len());
    for node in &program.nodes {
        let at = |v: Value| values[v.0 as usize];
        let ty = |v: Value| if program.node(v).ty.is_float() { Ty::F64 } else { program.node(v).ty };
        values.push(match node.op {
            Op::Const(literal) => literal,
            Op::Unary(op, a) => scalar::unary(op, ty(a), at(a)),
            Op::Binary(op, a, b) => scalar::binary(op, ty(a), at(a), at(b)),
            Op::Select(c, a, b) => at(if at(c) == Literal::Bool(true) { a } else { b }),
            Op::Convert(elem, a) => scalar::convert(ty(a), if elem.is_float() { Elem::F64 } else { elem }, at(a)),
            Op::Broadcast(a) => at(a),
            Op::Param(k) => params.get(k as usize).copied().unwrap_or(Literal::Float(f64::NAN)),
            _ => Literal::Float(f64::NAN),
        });
    }
    values
}

/// Equal up to rounding; infinities and NaN are not.
pub(crate) fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * (1.0 + a.abs().max(b.abs()))
}

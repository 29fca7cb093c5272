//! Maps on numbers: the f64 values of a combination at sample points.

use crate::elem::Ty;
use crate::ir::{Literal, Node, Op, Operator, Program, Value};
use crate::scalar;

/// The values of nodes that are maps of leaves; anything else gives NaN.
fn evaluate(nodes: &[Node], leaf: impl Fn(&Op) -> Option<Literal>) -> Vec<Literal> {
    let mut values: Vec<Literal> = Vec::with_capacity(nodes.len());
    for node in nodes {
        let at = |v: &Value| values[v.0 as usize];
        let of = |v: &Value| nodes[v.0 as usize].ty;
        values.push(match &node.op {
            Op::Const(literal) => *literal,
            Op::Unary(op, a) => scalar::unary(*op, of(a), at(a)),
            Op::Binary(op, a, b) => scalar::binary(*op, of(a), at(a), at(b)),
            Op::Select(c, a, b) => at(if at(c) == Literal::Bool(true) { a } else { b }),
            Op::Convert(elem, a) => scalar::convert(of(a), *elem, at(a)),
            Op::Broadcast(a) => at(a),
            op => leaf(op).unwrap_or(Literal::Float(f64::NAN)),
        });
    }
    values
}

/// l ⊕ r.
pub(crate) fn combined(operator: &Operator, l: &[Literal], r: &[Literal]) -> Vec<Literal> {
    let inputs = [l, r].concat();
    let values = evaluate(&operator.body, |op| match op {
        Op::Input(k) => inputs.get(*k as usize).copied(),
        _ => None,
    });
    operator.combine.iter().map(|v| values[v.0 as usize]).collect()
}

/// The values of a program of maps for these parameters; those not given are NaN.
pub(crate) fn at(program: &Program, params: &[Literal]) -> Vec<Literal> {
    evaluate(&program.nodes, |op| match op {
        Op::Param(k) => params.get(*k as usize).copied(),
        _ => None,
    })
}

/// Equal up to rounding; infinities and NaN are not.
pub(crate) fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * (1.0 + a.abs().max(b.abs()))
}

/// A reproducible sequence of sample points.
#[derive(Clone, Debug)]
pub(crate) struct Samples(u64);

impl Samples {
    /// The same sequence every time.
    pub(crate) fn new() -> Samples {
        Samples(0x9e37_79b9_7f4a_7c15)
    }

    /// The fields of the next element.
    pub(crate) fn point(&mut self, operator: &Operator) -> Vec<Literal> {
        operator.fields.iter().map(|field| self.next(field.ty)).collect()
    }

    /// The next number: a float in (−2, 2), a small integer or a bool.
    fn next(&mut self, ty: Ty) -> Literal {
        // The multiplier and increment are Knuth's for 64-bit linear congruential generators.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let high = self.0 >> 33;
        match ty {
            Ty::Bool => Literal::Bool(high & 1 == 1),
            ty if ty.is_int() => Literal::Int((high & 3) as i64),
            _ => Literal::Float(high as f64 / f64::from(1u32 << 29) - 2.0),
        }
    }
}

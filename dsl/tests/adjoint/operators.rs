//! Operators of the tests, written with the builder.

use oplus_dsl::build::Builder;
use oplus_dsl::ir::{Binary, Field, Literal, Operator, Unary, Value};
use oplus_dsl::{Elem, Ty};

/// The body of an operator in f64 under construction; every method adds an operation.
pub(crate) struct Body(pub(crate) Builder);

impl Body {
    pub(crate) fn add(&mut self, a: Value, b: Value) -> Value {
        self.0.binary(Binary::Add, a, b).unwrap()
    }
    pub(crate) fn sub(&mut self, a: Value, b: Value) -> Value {
        self.0.binary(Binary::Sub, a, b).unwrap()
    }
    pub(crate) fn mul(&mut self, a: Value, b: Value) -> Value {
        self.0.binary(Binary::Mul, a, b).unwrap()
    }
    pub(crate) fn binary(&mut self, op: Binary, a: Value, b: Value) -> Value {
        self.0.binary(op, a, b).unwrap()
    }
    pub(crate) fn unary(&mut self, op: Unary, a: Value) -> Value {
        self.0.unary(op, a).unwrap()
    }
    pub(crate) fn select(&mut self, c: Value, a: Value, b: Value) -> Value {
        self.0.select(c, a, b).unwrap()
    }
    pub(crate) fn float(&mut self, x: f64) -> Value {
        self.0.float(Ty::F64, x).unwrap()
    }
    /// Σ a[i]·b[i].
    pub(crate) fn dot(&mut self, terms: &[(Value, Value)]) -> Value {
        let products: Vec<Value> = terms.iter().map(|(a, b)| self.mul(*a, *b)).collect();
        products.into_iter().reduce(|sum, p| self.add(sum, p)).unwrap()
    }
}

/// An operator on f64 fields.
pub(crate) fn operator(
    name: &str,
    fields: &[&str],
    identity: &[f64],
    combine: impl FnOnce(&mut Body, &[Value], &[Value]) -> Vec<Value>,
) -> Operator {
    let fields = fields.iter().map(|name| Field { name: (*name).to_owned(), ty: Ty::F64 }).collect();
    let mut body = Body(Builder::body(fields));
    let (l, r) = body.0.inputs().unwrap();
    let combined = combine(&mut body, &l, &r);
    let identity = identity.iter().map(|x| Literal::Float(*x)).collect();
    body.0.finish_operator(name, identity, &combined, None).unwrap()
}

pub(crate) fn sum() -> Operator {
    operator("Sum", &["s"], &[0.0], |b, l, r| vec![b.add(l[0], r[0])])
}

pub(crate) fn product() -> Operator {
    operator("Product", &["p"], &[1.0], |b, l, r| vec![b.mul(l[0], r[0])])
}

pub(crate) fn max() -> Operator {
    operator("Max", &["m"], &[f64::NEG_INFINITY], |b, l, r| vec![b.binary(Binary::Max, l[0], r[0])])
}

pub(crate) fn min() -> Operator {
    operator("Min", &["m"], &[f64::INFINITY], |b, l, r| vec![b.binary(Binary::Min, l[0], r[0])])
}

/// The largest value and its index; the lower index at a tie.
pub(crate) fn argmax() -> Operator {
    let fields = vec![Field { name: "v".to_owned(), ty: Ty::F64 }, Field { name: "i".to_owned(), ty: Ty::I64 }];
    let mut body = Body(Builder::body(fields));
    let (l, r) = body.0.inputs().unwrap();
    let right = body.binary(Binary::Gt, r[0], l[0]);
    let combine = [body.select(right, r[0], l[0]), body.select(right, r[1], l[1])];
    let identity = vec![Literal::Float(f64::NEG_INFINITY), Literal::Int(-1)];
    body.0.finish_operator("Argmax", identity, &combine, None).unwrap()
}

pub(crate) fn affine() -> Operator {
    operator("Affine", &["a", "b"], &[1.0, 0.0], |b, l, r| {
        let a = b.mul(l[0], r[0]);
        let carried = b.mul(r[0], l[1]);
        vec![a, b.add(carried, r[1])]
    })
}

pub(crate) fn decay() -> Operator {
    operator("Decay", &["g", "x"], &[0.0, 0.0], |b, l, r| {
        let factor = b.unary(Unary::Exp, r[0]);
        let carried = b.mul(factor, l[1]);
        vec![b.add(l[0], r[0]), b.add(carried, r[1])]
    })
}

/// m, d and o of block-merged attention, m the gauge; weights are 1 where m does not move, so −∞ makes no NaN.
pub(crate) fn softmax() -> Operator {
    let mut op = operator("Softmax", &["m", "d", "o"], &[f64::NEG_INFINITY, 0.0, 0.0], |b, l, r| {
        let m = b.binary(Binary::Max, l[0], r[0]);
        let weight = |b: &mut Body, x: Value| {
            let same = b.binary(Binary::Eq, x, m);
            let difference = b.sub(x, m);
            let moved = b.unary(Unary::Exp, difference);
            let one = b.float(1.0);
            b.select(same, one, moved)
        };
        let (wl, wr) = (weight(b, l[0]), weight(b, r[0]));
        vec![m, b.dot(&[(l[1], wl), (r[1], wr)]), b.dot(&[(l[2], wl), (r[2], wr)])]
    });
    op.gauge = Some(0);
    op
}

pub(crate) fn log_sum_exp() -> Operator {
    operator("LogSumExp", &["x"], &[f64::NEG_INFINITY], |b, l, r| {
        let high = b.binary(Binary::Max, l[0], r[0]);
        let low = b.binary(Binary::Min, l[0], r[0]);
        let difference = b.sub(low, high);
        let softplus = b.unary(Unary::Softplus, difference);
        let nothing = b.float(f64::NEG_INFINITY);
        let empty = b.binary(Binary::Eq, low, nothing);
        let sum = b.add(high, softplus);
        vec![b.select(empty, high, sum)]
    })
}

/// a·x + b over complex numbers.
pub(crate) fn complex_affine() -> Operator {
    operator("ComplexAffine", &["ar", "ai", "br", "bi"], &[1.0, 0.0, 0.0, 0.0], |b, l, r| {
        let (ar, ai) = complex_product(b, (l[0], l[1]), (r[0], r[1]));
        let (cr, ci) = complex_product(b, (l[2], l[3]), (r[0], r[1]));
        vec![ar, ai, b.add(cr, r[2]), b.add(ci, r[3])]
    })
}

fn complex_product(b: &mut Body, x: (Value, Value), y: (Value, Value)) -> (Value, Value) {
    let (rr, ii) = (b.mul(x.0, y.0), b.mul(x.1, y.1));
    let (ri, ir) = (b.mul(x.0, y.1), b.mul(x.1, y.0));
    (b.sub(rr, ii), b.add(ri, ir))
}

/// The product l·r of 2×2 matrices.
pub(crate) fn matrix2() -> Operator {
    operator("Matrix2", &["a", "b", "c", "d"], &[1.0, 0.0, 0.0, 1.0], |b, l, r| {
        vec![
            b.dot(&[(l[0], r[0]), (l[1], r[2])]),
            b.dot(&[(l[0], r[1]), (l[1], r[3])]),
            b.dot(&[(l[2], r[0]), (l[3], r[2])]),
            b.dot(&[(l[2], r[1]), (l[3], r[3])]),
        ]
    })
}

/// x ↦ A·x + v for 2×2 matrices A with all entries different.
pub(crate) fn matrix_affine() -> Operator {
    operator("MatrixAffine", &["a", "b", "c", "d", "x", "y"], &[1.0, 0.0, 0.0, 1.0, 0.0, 0.0], |b, l, r| {
        let x = b.dot(&[(r[0], l[4]), (r[1], l[5])]);
        let y = b.dot(&[(r[2], l[4]), (r[3], l[5])]);
        vec![
            b.dot(&[(r[0], l[0]), (r[1], l[2])]),
            b.dot(&[(r[0], l[1]), (r[1], l[3])]),
            b.dot(&[(r[2], l[0]), (r[3], l[2])]),
            b.dot(&[(r[2], l[1]), (r[3], l[3])]),
            b.add(x, r[4]),
            b.add(y, r[5]),
        ]
    })
}

/// Products of (1, u, v; 0, 1, w; 0, 0, 1): v depends on u and w, a chain of couplings without a cycle.
pub(crate) fn heisenberg() -> Operator {
    operator("Heisenberg", &["u", "v", "w"], &[0.0, 0.0, 0.0], |b, l, r| {
        let coupled = b.mul(l[0], r[2]);
        let v = b.add(l[1], r[1]);
        vec![b.add(l[0], r[0]), b.add(v, coupled), b.add(l[2], r[2])]
    })
}

/// The right operand where it is set, by a flag; a field that is copied and one that is restarted.
pub(crate) fn segmented_affine() -> Operator {
    let field = |name: &str, ty| Field { name: name.to_owned(), ty };
    let fields = vec![field("start", Ty::Bool), field("a", Ty::F64), field("b", Ty::F64)];
    let mut body = Body(Builder::body(fields));
    let (l, r) = body.0.inputs().unwrap();
    let start = body.binary(Binary::Or, l[0], r[0]);
    let a = body.mul(l[1], r[1]);
    let carried = body.mul(r[1], l[2]);
    let b = body.add(carried, r[2]);
    let combine = [start, body.select(r[0], r[1], a), body.select(r[0], r[2], b)];
    let identity = vec![Literal::Bool(false), Literal::Float(1.0), Literal::Float(0.0)];
    body.0.finish_operator("SegmentedAffine", identity, &combine, None).unwrap()
}

/// The element type of every tensor of the tests.
pub(crate) const ELEM: Elem = Elem::F64;

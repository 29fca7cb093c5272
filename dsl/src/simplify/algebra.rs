//! Identities that hold for every operand, beyond those that [`Builder`] applies itself.

use std::collections::HashMap;

use crate::build::{Builder, Built};
use crate::ir::{AxisSet, Binary, Literal, Node, Op, OperatorId, Unary, Value};

/// Adds operations to a builder in their simplest form.
#[derive(Debug, Default)]
pub(super) struct Algebra {
    /// Commutative operations that are already there.
    commutative: HashMap<(Binary, Value, Value), Value>,
}

impl Algebra {
    /// The operation of a node, or a value that is equal to it. The operands are those of the builder.
    pub(super) fn append(&mut self, b: &mut Builder, op: Op, node: &Node) -> Built {
        let (ty, axes) = (node.ty, node.axes);
        match without_broadcasts(b, op) {
            Op::Binary(op, l, r) => self.binary(b, op, l, r),
            Op::Select(c, x, y) => select(b, c, x, y),
            Op::Shift { by: 0, value, axis, .. } => b.broadcast(value, AxisSet::of(axis)),
            Op::Scan { axis, operator, elements, init, reverse, exclusive } => {
                let init = if is_identity(b, operator, &init) { vec![] } else { init };
                b.append(Op::Scan { axis, operator, elements, init, reverse, exclusive }, ty, axes)
            }
            op => b.append(op, ty, axes),
        }
    }

    fn binary(&mut self, b: &mut Builder, op: Binary, l: Value, r: Value) -> Built {
        match (op, negated(b, l), negated(b, r)) {
            (Binary::Add, _, Some(r)) => self.shared(b, Binary::Sub, l, r),
            (Binary::Add, Some(l), None) => self.shared(b, Binary::Sub, r, l),
            (Binary::Sub, _, Some(r)) => self.shared(b, Binary::Add, l, r),
            (Binary::Mul, Some(l), Some(r)) => self.shared(b, op, l, r),
            (Binary::Mul, Some(l), None) => self.minus(b, op, l, r),
            (Binary::Mul, None, Some(r)) => self.minus(b, op, l, r),
            (Binary::Div, Some(l), Some(r)) if is_float(b, l) => self.shared(b, op, l, r),
            (Binary::Div, Some(l), None) if is_float(b, l) => self.minus(b, op, l, r),
            (Binary::Div, None, Some(r)) if is_float(b, l) => self.minus(b, op, l, r),
            (Binary::Mul, ..) if is_minus_one(b, l) => b.unary(Unary::Neg, r),
            (Binary::Mul, ..) if is_minus_one(b, r) => b.unary(Unary::Neg, l),
            _ => self.shared(b, op, l, r),
        }
    }

    /// −(l op r).
    fn minus(&mut self, b: &mut Builder, op: Binary, l: Value, r: Value) -> Built {
        let value = self.shared(b, op, l, r)?;
        b.unary(Unary::Neg, value)
    }

    /// l op r, or r op l if that is there and the same.
    fn shared(&mut self, b: &mut Builder, op: Binary, l: Value, r: Value) -> Built {
        if let Some(value) = self.commutative.get(&(op, r, l)) {
            return Ok(*value);
        }
        let value = b.binary(op, l, r)?;
        if matches!(op, Binary::Add | Binary::Mul | Binary::And | Binary::Or | Binary::Xor | Binary::Eq | Binary::Ne) {
            self.commutative.insert((op, l, r), value);
        }
        Ok(value)
    }
}

/// if c { x } else { y } without a second question about c.
fn select(b: &mut Builder, mut c: Value, mut x: Value, mut y: Value) -> Built {
    let nodes = &b.program().nodes;
    while let Op::Unary(Unary::Not, opposite) = nodes[c.0 as usize].op {
        (c, x, y) = (opposite, y, x);
    }
    let x = match nodes[x.0 as usize].op {
        Op::Select(again, taken, _) if again == c => taken,
        _ => x,
    };
    let y = match nodes[y.0 as usize].op {
        Op::Select(again, _, taken) if again == c => taken,
        _ => y,
    };
    b.select(c, x, y)
}

/// A map of two or three operands in which broadcasts are left out where other operands have the axes anyway.
fn without_broadcasts(b: &Builder, op: Op) -> Op {
    if !matches!(op, Op::Binary(..) | Op::Select(..)) {
        return op;
    }
    let nodes = &b.program().nodes;
    let axes = |op: &Op| op.operands().iter().fold(AxisSet::EMPTY, |all, v| all.union(nodes[v.0 as usize].axes));
    let (all, mut shorter) = (axes(&op), op);
    for k in 0..shorter.operands().len() {
        let mut candidate = shorter.clone();
        let operand = &mut *candidate.operands_mut().swap_remove(k);
        if let Op::Broadcast(inner) = nodes[operand.0 as usize].op {
            *operand = inner;
            if axes(&candidate) == all {
                shorter = candidate;
            }
        }
    }
    shorter
}

/// Whether the state before the first element is written out but is the identity.
fn is_identity(b: &Builder, operator: OperatorId, init: &[Value]) -> bool {
    let literal = |v: &Value| match b.program().node(*v).op {
        Op::Const(literal) => Some(literal),
        _ => None,
    };
    let identity = b.program().operator(operator).identity.iter();
    !init.is_empty() && init.iter().map(literal).eq(identity.map(|x| Some(*x)))
}

/// x of −x.
fn negated(b: &Builder, value: Value) -> Option<Value> {
    match b.program().node(value).op {
        Op::Unary(Unary::Neg, x) => Some(x),
        _ => None,
    }
}

fn is_minus_one(b: &Builder, value: Value) -> bool {
    b.program().node(value).op == Op::Const(Literal::Float(-1.0))
}

fn is_float(b: &Builder, value: Value) -> bool {
    b.program().node(value).ty.is_float()
}

//! The values of steps, rows and states that do not exist.
//!
//! Tiles and constants are filled there, mostly with zeros. Often that alone makes the step the identity and the terms of
//! sums zero; only where it does not, a comparison must.

use oplus_dsl::ir::{Binary, Literal, Op, Program, Unary, Value};
use oplus_dsl::walk::WorkList;
use std::collections::HashMap;

/// A value where something does not exist; false and true are zero and one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fill {
    Zero,
    One,
    /// The state before the step.
    Before,
    /// Some finite number.
    Unknown,
}

/// The filling of a node, where `leaf` gives the filling of nodes that are no maps.
pub(super) fn filled(program: &Program, value: Value, leaf: impl Fn(Value) -> Option<Fill>) -> Fill {
    let (mut known, mut work) = (HashMap::new(), WorkList::of(value));
    let operands = |v: Value| match &program.node(v).op {
        op if op.is_map() && leaf(v).is_none() => op.operands().into_vec(),
        _ => vec![],
    };
    while let Some(next) = work.next(|v| (!known.contains_key(v)).then(|| operands(*v))) {
        let fill = leaf(next).unwrap_or_else(|| map(&program.node(next).op, |v| known[v]));
        known.insert(next, fill);
    }
    known[&value]
}

/// The filling of a map, from those of its operands.
fn map(op: &Op, of: impl Fn(&Value) -> Fill) -> Fill {
    match op {
        Op::Const(Literal::Float(x)) if *x == 0.0 => Fill::Zero,
        Op::Const(Literal::Float(x)) if *x == 1.0 => Fill::One,
        Op::Const(Literal::Bool(x)) => {
            if *x {
                Fill::One
            } else {
                Fill::Zero
            }
        }
        Op::Convert(_, x) | Op::Broadcast(x) => of(x),
        Op::Unary(f, x) => unary(*f, of(x)),
        Op::Binary(f, x, y) => binary(*f, of(x), of(y)),
        Op::Select(condition, x, y) => match of(condition) {
            Fill::One => of(x),
            Fill::Zero => of(y),
            _ => Fill::Unknown,
        },
        _ => Fill::Unknown,
    }
}

fn unary(function: Unary, x: Fill) -> Fill {
    use Unary::{Abs, Exp, Exp2, Floor, Neg, Relu, Sign, Silu, Sin, Sqrt, Tanh};
    match (function, x) {
        (Exp | Exp2, Fill::Zero) => Fill::One,
        (Neg | Abs | Sign | Relu | Silu | Sin | Tanh | Sqrt | Floor, Fill::Zero) => Fill::Zero,
        (Abs | Sign | Relu | Sqrt | Floor, Fill::One) => Fill::One,
        _ => Fill::Unknown,
    }
}

fn binary(function: Binary, x: Fill, y: Fill) -> Fill {
    match (function, x, y) {
        (Binary::Mul, Fill::Zero, _) | (Binary::Mul, _, Fill::Zero) => Fill::Zero,
        (Binary::Mul, Fill::One, other) | (Binary::Mul, other, Fill::One) => other,
        (Binary::Add, Fill::Zero, other) | (Binary::Add, other, Fill::Zero) => other,
        (Binary::Sub, other, Fill::Zero) => other,
        (Binary::Or, Fill::Zero, other) | (Binary::Or, other, Fill::Zero) => other,
        _ => Fill::Unknown,
    }
}

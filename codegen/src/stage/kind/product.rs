//! Values as products.

use oplus_dsl::ir::{Axis, Binary, Literal, Op, Program, Unary, Value};
use oplus_dsl::walk::{WorkList, follow};
use std::collections::HashMap;

/// The most factors of a product; the rest of a longer product is one factor.
const MAX_FACTORS: usize = 1 << 10;

/// A value as a product that is zero wherever one of its conditions is false.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Product {
    /// The factors.
    pub factors: Vec<Value>,
    /// The conditions.
    pub conditions: Vec<Value>,
}

impl Product {
    /// The factors and conditions of a value.
    pub fn of(program: &Program, value: Value) -> Product {
        Product { factors: factors(program, value), conditions: conditions(program, value) }
    }

    /// Takes out the factors that have an axis.
    pub(crate) fn take_along(&mut self, program: &Program, axis: Axis) -> Vec<Value> {
        self.factors.extract_if(.., |v| program.node(*v).axes.contains(axis)).collect()
    }
}

/// The factors of a value, at most [`MAX_FACTORS`]: a value that is multiplied with itself again and again has very many.
fn factors(program: &Program, value: Value) -> Vec<Value> {
    let (mut factors, mut open) = (vec![], vec![value]);
    while let Some(value) = open.pop() {
        match program.node(value).op {
            Op::Binary(Binary::Mul, x, y) if factors.len() + open.len() < MAX_FACTORS => open.extend([y, x]),
            Op::Broadcast(x) => open.push(x),
            Op::Select(_, x, zero) if is(program, zero, 0.0) => open.push(x),
            _ if is(program, value, 1.0) => {}
            _ => factors.push(value),
        }
    }
    factors
}

/// The conditions without which a value is zero.
fn conditions(program: &Program, value: Value) -> Vec<Value> {
    let mut known: HashMap<Value, Vec<Value>> = HashMap::new();
    let mut work = WorkList::of(value);
    while let Some(next) = work.next(|v| (!known.contains_key(v)).then(|| conditioned(program, *v))) {
        let found = conditions_of(program, next, &known);
        known.insert(next, found);
    }
    known.remove(&value).unwrap_or_default()
}

/// The values beneath a value whose conditions are conditions of it as well.
fn conditioned(program: &Program, value: Value) -> Vec<Value> {
    match &program.node(value).op {
        Op::Binary(Binary::Mul | Binary::Add | Binary::Sub, x, y) => vec![*x, *y],
        Op::Broadcast(x) | Op::Unary(Unary::Neg, x) => vec![*x],
        Op::Select(_, x, zero) if is(program, *zero, 0.0) => vec![*x],
        Op::Field(tuple, 0) => summed(program, *tuple).map(|(_, element)| element).into_iter().collect(),
        _ => vec![],
    }
}

/// The conditions of a value: those of any factor, those that both terms of a sum share, those of the element of a sum over an axis.
fn conditions_of(program: &Program, value: Value, known: &HashMap<Value, Vec<Value>>) -> Vec<Value> {
    let mut all = vec![];
    let mut add = |terms: &[Value]| terms.iter().for_each(|c| conjunction(program, *c, &mut all));
    match &program.node(value).op {
        Op::Binary(Binary::Mul, x, y) => [x, y].into_iter().for_each(|v| add(&known[v])),
        Op::Broadcast(x) | Op::Unary(Unary::Neg, x) => add(&known[x]),
        Op::Select(condition, x, zero) if is(program, *zero, 0.0) => {
            add(&[*condition]);
            add(&known[x]);
        }
        Op::Binary(Binary::Add | Binary::Sub, x, y) => {
            let both: Vec<Value> = known[x].iter().copied().filter(|c| known[y].contains(c)).collect();
            add(&both);
        }
        Op::Field(tuple, 0) => {
            if let Some((axis, element)) = summed(program, *tuple) {
                let lacks = |c: &Value| !program.node(*c).axes.contains(axis);
                let terms: Vec<Value> = known[&element].iter().copied().filter(lacks).collect();
                add(&terms);
            }
        }
        _ => {}
    }
    all
}

/// The axis of a reduction of one field, and the value that it combines.
fn summed(program: &Program, tuple: Value) -> Option<(Axis, Value)> {
    match &program.node(tuple).op {
        Op::Reduce { axis, elements, .. } if elements.len() == 1 => Some((*axis, elements[0])),
        _ => None,
    }
}

/// The terms of a conjunction.
pub(crate) fn conjunction(program: &Program, condition: Value, terms: &mut Vec<Value>) {
    let mut open = vec![condition];
    while let Some(condition) = open.pop() {
        match program.node(condition).op {
            Op::Binary(Binary::And, x, y) => open.extend([y, x]),
            Op::Broadcast(x) => open.push(x),
            _ if !terms.contains(&condition) => terms.push(condition),
            _ => {}
        }
    }
}

/// Whether a value is a constant at every point.
pub(crate) fn is(program: &Program, value: Value, number: f64) -> bool {
    let source = follow(value, |v| match program.node(v).op {
        Op::Broadcast(x) | Op::Convert(_, x) => Some(x),
        _ => None,
    });
    match program.node(source).op {
        Op::Const(literal @ (Literal::Float(_) | Literal::Int(_))) => literal.as_f64() == number,
        _ => false,
    }
}

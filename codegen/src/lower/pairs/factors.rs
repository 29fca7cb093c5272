//! Values as products.

use oplus_dsl::ir::{Axis, Binary, Literal, Op, Program, Unary, Value};

/// A value as a product that is zero wherever one of its conditions is false.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::lower) struct Product {
    /// What is multiplied.
    pub factors: Vec<Value>,
    /// What must hold.
    pub conditions: Vec<Value>,
}

impl Product {
    /// The factors and conditions of a value.
    pub(in crate::lower) fn of(program: &Program, value: Value) -> Product {
        let mut product = Product::default();
        product.add(program, value);
        product
    }

    fn add(&mut self, program: &Program, value: Value) {
        match &program.node(value).op {
            Op::Binary(Binary::Mul, x, y) => [x, y].into_iter().for_each(|v| self.add(program, *v)),
            Op::Broadcast(x) => self.add(program, *x),
            Op::Unary(Unary::Neg, x) => {
                let inner = Product::of(program, *x);
                inner.conditions.iter().for_each(|c| conjunction(program, *c, &mut self.conditions));
                self.factors.push(value);
            }
            Op::Select(condition, x, zero) if is(program, *zero, 0.0) => {
                conjunction(program, *condition, &mut self.conditions);
                self.add(program, *x);
            }
            _ if is(program, value, 1.0) => {}
            op => {
                self.conditions_of(program, op);
                self.factors.push(value);
            }
        }
    }

    /// The conditions without which an operation gives zero: those of both terms of a sum, of what a sum over an axis adds.
    fn conditions_of(&mut self, program: &Program, op: &Op) {
        let found = match op {
            Op::Binary(Binary::Add | Binary::Sub, x, y) => {
                let [mut x, y] = [x, y].map(|v| Product::of(program, *v).conditions);
                x.retain(|c| y.contains(c));
                x
            }
            Op::Field(tuple, 0) => match &program.node(*tuple).op {
                Op::Reduce { axis, elements, .. } if elements.len() == 1 => {
                    let mut terms = Product::of(program, elements[0]).conditions;
                    terms.retain(|c| !program.node(*c).axes.contains(*axis));
                    terms
                }
                _ => vec![],
            },
            _ => vec![],
        };
        found.into_iter().for_each(|c| conjunction(program, c, &mut self.conditions));
    }

    /// Takes out the factors that have an axis.
    pub(in crate::lower) fn take_along(&mut self, program: &Program, axis: Axis) -> Vec<Value> {
        self.factors.extract_if(.., |v| program.node(*v).axes.contains(axis)).collect()
    }
}

/// The terms of a conjunction.
pub(in crate::lower) fn conjunction(program: &Program, condition: Value, terms: &mut Vec<Value>) {
    match &program.node(condition).op {
        Op::Binary(Binary::And, x, y) => [x, y].into_iter().for_each(|v| conjunction(program, *v, terms)),
        Op::Broadcast(x) => conjunction(program, *x, terms),
        _ if !terms.contains(&condition) => terms.push(condition),
        _ => {}
    }
}

/// Whether a value is that constant, wherever it is taken.
pub(in crate::lower) fn is(program: &Program, value: Value, number: f64) -> bool {
    match &program.node(value).op {
        Op::Const(literal @ (Literal::Float(_) | Literal::Int(_))) => literal.as_f64() == number,
        Op::Broadcast(x) | Op::Convert(_, x) => is(program, *x, number),
        _ => false,
    }
}

//! The values that are stored before the gradient of a recurrence of matrices: factors that are maps, and outputs that need its states
//! alone.
//!
//! Products of matrices take their factors from memory. A factor that is a map of parameters, such as a cotangent behind a gate, is
//! stored first, rounded as all factors are. The cotangent of the gate itself is a map of the numbers that queries read of the states:
//! the recurrence computes it without its gradient.

use std::collections::BTreeSet;

use oplus_dsl::Elem;
use oplus_dsl::ir::{Axis, Binary, Op, Program, Value};

use super::ahead::Ahead;
use super::copy::beneath;

/// Two recurrences along `time` in opposite directions, of matrices over two axes, of which queries sum over the first.
pub(super) struct Matrices<'a> {
    pub forward: &'a BTreeSet<Value>,
    pub back: Value,
    pub time: Axis,
    pub axes: [Axis; 2],
}

impl Matrices<'_> {
    /// The program that finds factors and such outputs in memory, and the one that writes them, if there are any.
    pub(super) fn divided(&self, program: &Program) -> (Program, Option<Ahead>) {
        let (factors, outputs) = (self.factors(program), self.outputs(program));
        if factors.is_empty() && outputs.is_empty() {
            return (program.clone(), None);
        }
        let (rest, ahead) = Ahead::of(program, &factors, &outputs);
        (rest, Some(ahead))
    }

    /// The factors that are no parameters, and the types that they are stored in.
    fn factors(&self, program: &Program) -> Vec<(Value, Elem)> {
        let tuples = self.forward.iter().copied().chain([self.back]);
        let elements = tuples.flat_map(|tuple| match &program.node(tuple).op {
            Op::Scan { elements, .. } => elements.clone(),
            _ => vec![],
        });
        let [depth, width] = self.axes;
        let along = [(depth, width), (width, depth)];
        let of_states = |element: &Value| self.axes.iter().all(|axis| program.node(*element).axes.contains(*axis));
        let factors = elements
            .filter(of_states)
            .flat_map(|element| along.map(|(own, other)| self.factor(program, element, own, other)));
        let factors: BTreeSet<Value> = factors.flatten().collect();
        let stored = |value: Value| Some((value, stored_as(program, value)?));
        factors.into_iter().filter_map(stored).collect()
    }

    /// The factor of a product along one of the axes, if it lacks the other and is no parameter.
    fn factor(&self, program: &Program, element: Value, own: Axis, other: Axis) -> Option<Value> {
        let has = |value: Value, axis: Axis| program.node(value).axes.contains(axis);
        let mut value = element;
        loop {
            value = match program.node(value).op {
                Op::Broadcast(inner) => inner,
                Op::Binary(Binary::Mul, x, y) if has(x, own) != has(y, own) => {
                    if has(x, own) {
                        x
                    } else {
                        y
                    }
                }
                Op::Param(_) => return None,
                _ => break,
            }
        }
        (has(value, own) && has(value, self.time) && !has(value, other)).then_some(value)
    }

    /// The outputs that need sums over the first axis of the states, and no cotangents.
    fn outputs(&self, program: &Program) -> BTreeSet<usize> {
        let is_readout = |tuple: &Value| match &program.node(*tuple).op {
            Op::Reduce { axis, elements, .. } if *axis == self.axes[0] => {
                beneath(program, [elements[0]]).iter().any(|v| self.forward.contains(v))
            }
            _ => false,
        };
        let is_ahead = |k: &usize| {
            let all = beneath(program, [program.outputs[*k].value]);
            !all.contains(&self.back) && all.iter().any(is_readout)
        };
        (0..program.outputs.len()).filter(is_ahead).collect()
    }
}

/// The type of 16 bits of a parameter that a value comes from, or `f32` if none of them has such a type.
fn stored_as(program: &Program, value: Value) -> Option<Elem> {
    let of_param = |own: Value| match program.node(own).op {
        Op::Param(p) => Some(program.params[p as usize].elem),
        _ => None,
    };
    let all: Vec<Elem> = beneath(program, [value]).into_iter().filter_map(of_param).collect();
    let find = |meant: &[Elem]| all.iter().copied().find(|elem| meant.contains(elem));
    find(&[Elem::Bf16, Elem::F16]).or_else(|| find(&[Elem::F32]))
}

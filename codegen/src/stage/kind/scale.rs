//! Constants of exponentials in place of the parameters they are multiples of.
//!
//! The decay is 2^(delta·A) with A = a·log₂e computed once, and the cotangent of delta has the term Σ over N of a·w. As
//! ln 2·Σ over N of A·w it needs no second constant for every state. A product with ln 2 rounds twice more: ln 2 itself
//! and the product.

use oplus_dsl::Ty;
use oplus_dsl::build::Builder;
use oplus_dsl::ir::{Axis, AxisSet, Binary, Literal, Op, Program, Value};
use oplus_dsl::typing::TypeError;
use std::collections::{BTreeSet, HashMap};

/// The program with such sums over the state axis scaled; the program itself where that cannot be.
pub(super) fn share_scaled(program: &Program, state: Axis) -> Program {
    let empty = Program { nodes: vec![], outputs: vec![], ..program.without_nodes() };
    let pass = Scale { program, state, scaled: scaled(program), builder: Builder::from_program(empty) };
    pass.run().unwrap_or_else(|_| program.clone())
}

/// The values x for which the program also has x·log₂e, each with that value.
fn scaled(program: &Program) -> HashMap<Value, Value> {
    let log2_e = |v: Value| program.node(v).op == Op::Const(Literal::Float(std::f64::consts::LOG2_E));
    let one = |(i, node): (usize, &oplus_dsl::ir::Node)| match node.op {
        Op::Binary(Binary::Mul, x, y) if log2_e(y) => Some((x, Value(i as u32))),
        Op::Binary(Binary::Mul, x, y) if log2_e(x) => Some((y, Value(i as u32))),
        _ => None,
    };
    program.nodes.iter().enumerate().filter_map(one).collect()
}

struct Scale<'p> {
    program: &'p Program,
    state: Axis,
    scaled: HashMap<Value, Value>,
    builder: Builder,
}

impl Scale<'_> {
    fn run(mut self) -> Result<Program, TypeError> {
        let mut place: Vec<Value> = vec![];
        let mut sums: BTreeSet<Value> = BTreeSet::new();
        for (i, node) in self.program.nodes.iter().enumerate() {
            let value = Value(i as u32);
            let of = |v: Value| place[v.0 as usize];
            let changed = match &node.op {
                Op::Reduce { axis, operator, elements } if *axis == self.state => {
                    let factors = self.factors(elements[0]).filter(|(scaled, _)| *scaled < value);
                    match factors {
                        Some((scaled, rest)) => {
                            sums.insert(value);
                            let element = self.builder.binary(Binary::Mul, of(scaled), of(rest))?;
                            let op = Op::Reduce { axis: *axis, operator: *operator, elements: vec![element] };
                            self.builder.append(op, Ty::Tuple, AxisSet::EMPTY)?
                        }
                        None => self.builder.append(node.op.map_operands(of), node.ty, AxisSet::EMPTY)?,
                    }
                }
                Op::Field(tuple, k) if sums.contains(tuple) => {
                    let sum = self.builder.field(of(*tuple), *k)?;
                    let ln_2 = self.builder.float(Ty::F32, std::f64::consts::LN_2)?;
                    self.builder.binary(Binary::Mul, sum, ln_2)?
                }
                op => {
                    let op = op.map_operands(of);
                    let axes = if let Op::Broadcast(_) = op { node.axes } else { AxisSet::EMPTY };
                    self.builder.append(op, node.ty, axes)?
                }
            };
            place.push(changed);
        }
        let mut program = self.builder.finish();
        program.outputs.clone_from(&self.program.outputs);
        program.outputs.iter_mut().for_each(|o| o.value = place[o.value.0 as usize]);
        Ok(program)
    }

    /// The scaled x, and w, of an element x·w.
    fn factors(&self, element: Value) -> Option<(Value, Value)> {
        let Op::Binary(Binary::Mul, x, y) = self.program.node(element).op else { return None };
        let scaled = |x: &Value| self.scaled.get(x).copied();
        scaled(&x).map(|x| (x, y)).or(scaled(&y).map(|y| (y, x)))
    }
}

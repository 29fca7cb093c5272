//! The programs around groups: what groups read, and what is left when all have run.

use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, AxisSet, Binary, Literal, Node, Op, Output, Param, Program, Value};
use oplus_dsl::rewrite::{push, rewrite};
use oplus_dsl::simplify::{prune_params, simplify};

use super::group::Group;
use super::{Source, Tensor};

/// A program, some of whose values are tensors by now.
pub(super) struct Derived<'a> {
    program: &'a Program,
    /// Values at every time, with their tensors.
    exports: Vec<(Value, usize)>,
    /// Nodes that take a value at an end of an axis, with the tensor of that value.
    ends: Vec<(Value, usize, Axis)>,
}

impl<'a> Derived<'a> {
    pub(super) fn new(program: &'a Program) -> Derived<'a> {
        Derived { program, exports: vec![], ends: vec![] }
    }

    /// The source of a parameter of a derived program.
    pub(super) fn source(&self, param: &str) -> Source {
        let tensor = param.strip_prefix(TENSOR).and_then(|number| number.parse().ok());
        tensor.map_or_else(|| Source::Param(self.program.param(param).unwrap_or_default() as usize), Source::Tensor)
    }

    /// Notes the tensors that a group wrote.
    pub(super) fn know(&mut self, group: &Group, exports: &[usize], ends: &[usize]) {
        self.exports.extend(group.exports.iter().copied().zip(exports.iter().copied()));
        self.ends.extend(group.ends.iter().zip(ends).map(|(end, k)| (end.node, *k, group.time)));
    }

    /// The program whose outputs are what a group reads; truth values are 0 and 1.
    pub(super) fn importing(&self, group: &Group, own: &[Tensor], tensors: &[Tensor]) -> Program {
        let mut program = Program { outputs: vec![], ..self.program.clone() };
        for (k, (value, Tensor { elem, axes, .. })) in group.imports.iter().zip(own).enumerate() {
            let Node { ty, axes: over, .. } = *program.node(*value);
            let mut value = *value;
            if ty == Ty::Bool {
                let number = |x: f64| Node { op: Op::Const(Literal::Float(x)), ty: group.ty, axes: AxisSet::EMPTY };
                let (one, zero) = (push(&mut program, number(1.0)), push(&mut program, number(0.0)));
                value = push(&mut program, Node { op: Op::Select(value, one, zero), ty: group.ty, axes: over });
            }
            program.outputs.push(Output { name: format!("{IMPORT}{k}"), axes: axes.clone(), elem: *elem, value });
        }
        self.derived(program, tensors)
    }

    /// The program that gives the outputs when all groups have run.
    pub(super) fn rest(&self, tensors: &[Tensor]) -> Program {
        self.derived(self.program.clone(), tensors)
    }

    /// The program with parameters in the place of values that are tensors.
    fn derived(&self, mut program: Program, tensors: &[Tensor]) -> Program {
        let all: Vec<usize> =
            self.exports.iter().map(|(_, k)| *k).chain(self.ends.iter().map(|(_, k, _)| *k)).collect();
        let own = program.params.len();
        for k in &all {
            let Tensor { elem, axes, .. } = &tensors[*k];
            let (name, axes) = (format!("{TENSOR}{k}"), axes.clone());
            program.params.push(Param { name, axes, elem: *elem, or: None, default: None });
        }
        let param = |k: usize| (own + all.iter().position(|known| *known == k).unwrap_or_default()) as u32;
        let changed = rewrite(&program, |changed, value, node| {
            let export = self.exports.iter().find(|(known, _)| *known == value);
            let end = self.ends.iter().find(|(known, ..)| *known == value);
            match (export, end, &node.op) {
                (Some((_, k)), ..) => node.op = Op::Param(param(*k)),
                (_, Some((_, k, time)), Op::Last { empty, .. } | Op::First { empty, .. }) => {
                    node.op = at_end(changed, (*time, param(*k)), *empty, node);
                }
                _ => {}
            }
        });
        prune_params(&simplify(&changed))
    }
}

/// How the names of parameters begin that are tensors of parts.
pub(super) const TENSOR: &str = "part.v";

/// How the names of outputs begin that are what a group reads.
pub(super) const IMPORT: &str = "import.v";

/// `if size(T) = 0 { empty } else { the tensor }`.
fn at_end(program: &mut Program, (time, param): (Axis, u32), empty: Value, node: &Node) -> Op {
    let axes = program.params[param as usize].axes.iter().copied().collect();
    let read = push(program, Node { op: Op::Param(param), ty: node.ty, axes });
    let plain = |op: Op, ty: Ty| Node { op, ty, axes: AxisSet::EMPTY };
    let size = push(program, plain(Op::Size(time), Ty::I64));
    let none = push(program, plain(Op::Const(Literal::Int(0)), Ty::I64));
    let is_empty = push(program, plain(Op::Binary(Binary::Eq, size, none), Ty::Bool));
    Op::Select(is_empty, empty, read)
}

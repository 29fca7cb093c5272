//! Scans as recurrences.

use std::collections::HashMap;

use crate::adjoint::rules;
use crate::ir::{Axis, AxisSet, Binary, Op, Operator, OperatorId, Value};

use super::Writer;
use super::expression::{Environment, Level, Written, is_long, map, parenthesised};
use super::names::{Index, display_name};

/// Scans that go through the same states: all of a scan but `exclusive`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Family {
    /// The axis scanned.
    pub(super) axis: Axis,
    operator: OperatorId,
    elements: Vec<Value>,
    init: Vec<Value>,
    reverse: bool,
}

impl Family {
    /// The states that a scan goes through, and whether it gives those before each element.
    pub(super) fn of(op: &Op) -> Option<(Family, bool)> {
        match op {
            Op::Scan { axis, operator, elements, init, reverse, exclusive } => {
                let (elements, init) = (elements.clone(), init.clone());
                Some((Family { axis: *axis, operator: *operator, elements, init, reverse: *reverse }, *exclusive))
            }
            _ => None,
        }
    }

    /// How far from t the state before t is.
    pub(super) fn back(&self) -> i64 {
        if self.reverse { 1 } else { -1 }
    }
}

/// `combine` under way: what is known of the values of an operator's body.
struct Body<'a> {
    family: &'a Family,
    operator: &'a Operator,
    names: &'a [Option<String>],
    /// The axes of every value.
    axes: Vec<AxisSet>,
    /// Values that have an equation.
    defined: HashMap<Value, String>,
    /// How often each value is an operand or a field of the combination.
    uses: Vec<usize>,
}

/// How often each value of an operator's body is an operand or a field of the combination.
fn uses(operator: &Operator) -> Vec<usize> {
    let mut uses = vec![0; operator.body.len()];
    let operands = operator.body.iter().flat_map(|node| node.op.operands());
    operands.chain(operator.combine.iter().copied()).for_each(|v| uses[v.0 as usize] += 1);
    uses
}

impl Writer<'_> {
    /// The name of a field of a scan's states, whose recurrences are written if they are not yet.
    pub(super) fn state(&mut self, family: &Family, field: u32) -> String {
        if !self.states.contains_key(family) {
            self.aside(|writer| writer.recurrences(family));
        }
        self.states[family][field as usize].clone().unwrap_or_default()
    }

    fn recurrences(&mut self, family: &Family) {
        let operator = self.program.operator(family.operator).clone();
        let fields = self.state_fields(family);
        let names = (0..operator.fields.len() as u32).map(|k| fields.contains(&k).then(|| self.state_name(family, k)));
        let names: Vec<Option<String>> = names.collect();
        self.states.insert(family.clone(), names.clone());
        let (axes, defined) = (self.body_axes(family, &operator), HashMap::new());
        let uses = uses(&operator);
        let mut body = Body { family, operator: &operator, names: &names, axes, defined, uses };
        for k in fields {
            let (name, value) = (names[k as usize].clone().unwrap_or_default(), operator.combine[k as usize]);
            let right = self.body_value(&mut body, value, Level::Choice);
            let axes = self.state_axes(family, k);
            let left = self.names.indexed(&name, axes, &Environment::default());
            if let Some(init) = family.init.get(k as usize) {
                let init = self.whole(*init);
                let before = if family.reverse { Index::End(0) } else { Index::First(-1) };
                let at = Environment::default().at(family.axis, before);
                self.conditions.push(format!("{} = {init}", self.names.indexed(&name, axes, &at)));
            }
            self.line(&left, &right);
            body.defined.insert(value, name);
        }
    }

    /// A value of an operator's body on the state before t and the element at t.
    fn body_value(&mut self, body: &mut Body<'_>, value: Value, place: Level) -> String {
        let n = body.operator.fields.len() as u32;
        let here = Environment::default();
        let axes = body.axes[value.0 as usize];
        match body.operator.body[value.0 as usize].op {
            Op::Input(k) if k < n => {
                let before = here.at(body.family.axis, Index::Step(body.family.back()));
                self.names.indexed(body.names[k as usize].as_deref().unwrap_or_default(), axes, &before)
            }
            Op::Input(k) => self.render(body.family.elements[(k - n) as usize], &here, place),
            _ => {
                let shared = body.uses[value.0 as usize] > 1 && is_long(&body.operator.body, value);
                if shared && !body.defined.contains_key(&value) && !body.operator.combine.contains(&value) {
                    let name = self.aside(|writer| {
                        let right = writer.body_written(body, value).0;
                        let name = writer.names.fresh(&["w"]);
                        let left = writer.names.indexed(&name, axes, &here);
                        writer.line(&left, &right);
                        name
                    });
                    body.defined.insert(value, name);
                }
                match body.defined.get(&value) {
                    Some(name) => self.names.indexed(name, axes, &here),
                    None => parenthesised(self.body_written(body, value), place),
                }
            }
        }
    }

    fn body_written(&mut self, body: &mut Body<'_>, value: Value) -> Written {
        self.bounded(|writer| writer.body_operation(body, value))
    }

    fn body_operation(&mut self, body: &mut Body<'_>, value: Value) -> Written {
        let nodes = &body.operator.body;
        let op = &nodes[value.0 as usize].op;
        let op = match (rules::weight(nodes, op), op) {
            (Some((.., exp)), _) => nodes[exp.0 as usize].op.clone(),
            // λ[t] = g[t] + …: what comes from outside first.
            (_, Op::Binary(Binary::Add, carried, own)) if self.is_adjoint(body.family) => {
                Op::Binary(Binary::Add, *own, *carried)
            }
            (_, op) => op.clone(),
        };
        map(&op, &mut |v, place| self.body_value(body, v, place))
    }

    /// The axes of every value of an operator's body.
    fn body_axes(&self, family: &Family, operator: &Operator) -> Vec<AxisSet> {
        let n = operator.fields.len() as u32;
        let mut axes: Vec<AxisSet> = vec![];
        for node in &operator.body {
            axes.push(match node.op {
                Op::Input(k) if k < n => self.state_axes(family, k),
                Op::Input(k) => self.program.node(family.elements[(k - n) as usize]).axes,
                ref op => op.operands().iter().fold(AxisSet::EMPTY, |all, v| all.union(axes[v.0 as usize])),
            });
        }
        axes
    }

    /// The fields that are read, and those whose states they depend on.
    fn state_fields(&self, family: &Family) -> Vec<u32> {
        let operator = self.program.operator(family.operator);
        let n = operator.fields.len() as u32;
        let mut set = self.read.get(family).copied().unwrap_or_default();
        for _ in 0..n {
            let needed = operator.dependencies().into_iter().enumerate().filter(|(k, _)| set >> k & 1 == 1);
            set |= needed.fold(0, |all, (_, inputs)| all | inputs) & ((1 << n) - 1);
        }
        (0..n).filter(|k| set >> k & 1 == 1).collect()
    }

    /// The axes of a field of the states.
    pub(super) fn state_axes(&self, family: &Family, field: u32) -> AxisSet {
        let axes = |v: Option<&Value>| v.map_or(AxisSet::EMPTY, |v| self.program.node(*v).axes);
        let k = |k: usize| axes(family.elements.get(k)).union(axes(family.init.get(k)));
        let given: Vec<AxisSet> = (0..family.elements.len()).map(k).collect();
        self.program.operator(family.operator).field_axes(&given)[field as usize].with(family.axis)
    }

    /// λ for a state of the reverse sweep, the output that the state is, or the field's name.
    fn state_name(&mut self, family: &Family, field: u32) -> String {
        if self.is_adjoint(family) {
            return self.names.fresh(&["λ"]);
        }
        let is_state = |value: Value| match self.program.node(value).op {
            Op::Field(tuple, k) => {
                k == field && Family::of(&self.program.node(tuple).op) == Some((family.clone(), false))
            }
            _ => false,
        };
        match self.program.outputs.iter().find(|output| is_state(output.value)) {
            Some(output) => display_name(&output.name),
            None => self.names.fresh(&[&self.program.operator(family.operator).fields[field as usize].name, "s"]),
        }
    }

    /// Whether the states depend on a cotangent.
    fn is_adjoint(&self, family: &Family) -> bool {
        family.elements.iter().chain(&family.init).any(|v| self.cotangents.contains(v))
    }
}

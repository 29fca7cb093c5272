//! Programs as equations for people to read.
//!
//! ```text
//! λ[t] = h̄[t] + a[t+1]·λ[t+1]    (λ[n] = h̄_last, a[n] = 1)
//! ā[t] = λ[t]·h[t−1]    (h[−1] = h0)
//! b̄[t] = λ[t]
//! ```
//!
//! A scan is written as its recurrence, with what holds outside the axis in parentheses; a state is called like the
//! output that it is, λ if it depends on a cotangent, and else after its field (or s). Indices are written along axes that
//! something runs along (t from 0 to n − 1 if there is only one such axis) and left out along all others. `x.bar` is
//! x̄, `x.dot` is ẋ. A selection that only keeps exp(x − m) from being NaN at x = m = −∞ is written exp(x − m).

mod expression;
mod names;

use std::collections::{HashMap, HashSet};

use crate::ir::{Axis, AxisSet, Op, OperatorId, Program, Value};
use crate::simplify::simplify;
use crate::verify::verify;

use expression::{Environment, Level};
use names::{Index, Names, display_name};

/// The equations of a program, one a line: those of states and of values used more than once where they are first
/// needed, and one for every output. Nothing for a program that does not verify.
pub fn equations(program: &Program) -> String {
    if verify(program).is_err() {
        return String::new();
    }
    let program = simplify(program);
    let mut writer = Writer::new(&program);
    for output in &program.outputs {
        writer.output(output.value, &output.name);
    }
    writer.lines.into_iter().map(|line| line + "\n").collect()
}

/// Equations under way.
struct Writer<'a> {
    program: &'a Program,
    names: Names,
    /// How often each value is an operand or an output.
    uses: Vec<usize>,
    /// Values that depend on a cotangent.
    cotangents: HashSet<Value>,
    /// Names of values that have an equation of their own.
    defined: HashMap<Value, String>,
    /// The states of scans that have equations.
    states: HashMap<Family, Vec<Option<String>>>,
    /// The fields that are read of scans with the same elements.
    read: HashMap<Family, u64>,
    lines: Vec<String>,
    /// What holds outside the axis, for the line under way.
    conditions: Vec<String>,
}

/// Scans that go through the same states: all but `exclusive`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Family {
    axis: Axis,
    operator: OperatorId,
    elements: Vec<Value>,
    init: Vec<Value>,
    reverse: bool,
}

impl Family {
    fn of(op: &Op) -> Option<(Family, bool)> {
        match op {
            Op::Scan { axis, operator, elements, init, reverse, exclusive } => {
                let (elements, init) = (elements.clone(), init.clone());
                Some((Family { axis: *axis, operator: *operator, elements, init, reverse: *reverse }, *exclusive))
            }
            _ => None,
        }
    }

    /// How far from t the state before t is.
    fn back(&self) -> i64 {
        if self.reverse { 1 } else { -1 }
    }
}

impl<'a> Writer<'a> {
    fn new(program: &'a Program) -> Writer<'a> {
        let mut writer = Writer {
            program,
            names: Names::of(program),
            uses: vec![0; program.nodes.len()],
            cotangents: HashSet::new(),
            defined: HashMap::new(),
            states: HashMap::new(),
            read: HashMap::new(),
            lines: vec![],
            conditions: vec![],
        };
        let operands = program.nodes.iter().flat_map(|node| node.op.operands());
        operands.chain(program.outputs.iter().map(|o| o.value)).for_each(|v| writer.uses[v.0 as usize] += 1);
        for (i, node) in program.nodes.iter().enumerate() {
            let value = Value(i as u32);
            let is_cotangent = matches!(node.op, Op::Param(k) if program.params[k as usize].name.ends_with(".bar"));
            if is_cotangent || node.op.operands().iter().any(|v| writer.cotangents.contains(v)) {
                writer.cotangents.insert(value);
            }
            if let Op::Field(tuple, k) = node.op
                && let Some((family, _)) = Family::of(&program.node(tuple).op)
            {
                *writer.read.entry(family).or_default() |= 1 << k;
            }
        }
        writer
    }

    /// The equation of an output, unless it is a state of the same name.
    fn output(&mut self, value: Value, name: &str) {
        let name = display_name(name);
        let right = self.whole(value);
        let left = self.names.indexed(&name, self.program.node(value).axes, &Environment::default());
        if left != right {
            self.line(&left, &right);
        }
    }

    /// A value on the right-hand side of an equation.
    fn whole(&mut self, value: Value) -> String {
        self.render(value, &Environment::default(), Level::Choice)
    }

    fn line(&mut self, left: &str, right: &str) {
        let mut conditions = std::mem::take(&mut self.conditions);
        conditions.dedup();
        let note = if conditions.is_empty() { String::new() } else { format!("    ({})", conditions.join(", ")) };
        self.lines.push(format!("{left} = {right}{note}"));
    }

    /// Runs the writing of equations that another one needs, keeping that one's conditions apart.
    fn aside<T>(&mut self, write: impl FnOnce(&mut Self) -> T) -> T {
        let conditions = std::mem::take(&mut self.conditions);
        let result = write(self);
        self.conditions = conditions;
        result
    }

    /// The name of a value that gets an equation of its own.
    fn bind(&mut self, value: Value) -> String {
        if let Some(name) = self.defined.get(&value) {
            return name.clone();
        }
        let name = self.aside(|writer| {
            let right = writer.expand(value, &Environment::default(), Level::Choice);
            let name = writer.names.fresh(&["w"]);
            let left = writer.names.indexed(&name, writer.program.node(value).axes, &Environment::default());
            writer.line(&left, &right);
            name
        });
        self.defined.insert(value, name.clone());
        name
    }

    /// The name of a field of a scan's states, whose recurrences are written if they are not yet.
    fn state(&mut self, family: &Family, field: u32) -> String {
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
        let axis = AxisSet::of(family.axis);
        for k in fields {
            let name = names[k as usize].clone().unwrap_or_default();
            let axes = self.state_axes(family, k).union(axis);
            let right = self.combination(family, &names, k);
            let left = self.names.indexed(&name, axes, &Environment::default());
            if let Some(init) = family.init.get(k as usize) {
                let init = self.whole(*init);
                let before = if family.reverse { Index::End(0) } else { Index::First(-1) };
                let at = Environment::default().at(family.axis, before);
                self.conditions.push(format!("{} = {init}", self.names.indexed(&name, axes, &at)));
            }
            self.line(&left, &right);
        }
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
    fn state_axes(&self, family: &Family, field: u32) -> AxisSet {
        let axes = |v: Option<&Value>| v.map_or(AxisSet::EMPTY, |v| self.program.node(*v).axes);
        let k = |k: usize| axes(family.elements.get(k)).union(axes(family.init.get(k)));
        let given: Vec<AxisSet> = (0..family.elements.len()).map(k).collect();
        self.program.operator(family.operator).field_axes(&given)[field as usize]
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

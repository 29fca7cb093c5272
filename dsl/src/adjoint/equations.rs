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
//!
//! Operations that stand more than 100 deep, or behind the first 4,000, are written `…`, and the last line says so.

mod bounds;
mod expression;
mod matrix;
mod names;
mod recurrence;

use std::collections::{HashMap, HashSet};

use crate::ir::{MatrixScan, Op, Program, Value};
use crate::simplify::simplify;
use crate::verify::verify;

use bounds::Bounds;
use expression::{Environment, Level};
use names::{Names, display_name};
use recurrence::Family;

/// The equations of a program, one a line: those of states and of values used more than once where they are first
/// needed, and one for every output. Nothing for a program that does not verify.
pub fn equations(program: &Program) -> String {
    if verify(program).is_err() {
        return String::new();
    }
    let program = simplify(program);
    let mut writer = Writer::new(&program);
    for output in &program.outputs {
        if writer.bounds.is_spent() {
            _ = writer.bounds.enter();
            break;
        }
        writer.output(output.value, &output.name);
    }
    writer.lines.extend(writer.bounds.note());
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
    /// The names of the states of recurrences of matrices, which have equations.
    matrices: HashMap<MatrixScan, String>,
    /// The fields that are read of scans with the same elements.
    read: HashMap<Family, u64>,
    lines: Vec<String>,
    /// The value outside the axis, for the line under way.
    conditions: Vec<String>,
    bounds: Bounds,
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
            matrices: HashMap::new(),
            read: HashMap::new(),
            lines: vec![],
            conditions: vec![],
            bounds: Bounds::default(),
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
}

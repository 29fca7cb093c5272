//! Values as expressions.

use crate::adjoint::rules;
use crate::elem::Elem;
use crate::ir::{Axis, Binary, Literal, Node, Op, Operator, Unary, Value};

use super::Writer;
use super::bounds::REST;
use super::names::{Index, display_name, superscript};
use super::recurrence::Family;

/// Where a value is read: an index for every axis that is not at t.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Environment(Vec<(Axis, Index)>);

impl Environment {
    /// The index along an axis.
    pub(super) fn index(&self, axis: Axis) -> Index {
        self.0.iter().find(|(a, _)| *a == axis).map_or(Index::Step(0), |(_, index)| *index)
    }

    /// Replaces the index along one axis.
    pub(super) fn at(&self, axis: Axis, index: Index) -> Environment {
        let others = self.0.iter().copied().filter(|(a, _)| *a != axis);
        Environment(others.chain([(axis, index)]).collect())
    }

    /// Moves the index along one axis by d.
    pub(super) fn moved(&self, axis: Axis, d: i64) -> Environment {
        self.at(axis, self.index(axis).moved(d))
    }
}

/// How tightly an expression binds; what binds less than its place asks for is put in parentheses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// `if c { a } else { b }`, comparisons.
    Choice,
    /// a + b, a − b, −a.
    Sum,
    /// Σ a.
    Big,
    /// a·b, a/b.
    Product,
    /// Names, calls, powers.
    Atom,
}

pub(super) type Written = (String, Level);

impl Writer<'_> {
    /// A value in a place that asks for a level: by name if it has an equation, else written out.
    pub(super) fn render(&mut self, value: Value, at: &Environment, place: Level) -> String {
        let written = self.named(value, at);
        parenthesised(written, place)
    }

    pub(super) fn named(&mut self, value: Value, at: &Environment) -> Written {
        let node = self.program.node(value);
        let is_shared = self.uses[value.0 as usize] > 1 && node.op.is_map() && is_long(&self.program.nodes, value);
        if is_shared {
            self.bind(value);
        }
        match self.defined.get(&value) {
            Some(name) => (self.names.indexed(name, node.axes, at), Level::Atom),
            None => self.written(value, at),
        }
    }

    /// A value written out, unless it stands too deep.
    pub(super) fn expand(&mut self, value: Value, at: &Environment, place: Level) -> String {
        let written = self.written(value, at);
        parenthesised(written, place)
    }

    fn written(&mut self, value: Value, at: &Environment) -> Written {
        self.bounded(|writer| writer.operation(value, at))
    }

    /// The text that `write` gives, or `…` where enough is written.
    pub(super) fn bounded(&mut self, write: impl FnOnce(&mut Self) -> Written) -> Written {
        if !self.bounds.enter() {
            return (REST.to_owned(), Level::Atom);
        }
        let written = write(self);
        self.bounds.leave();
        written
    }

    fn operation(&mut self, value: Value, at: &Environment) -> Written {
        let Node { op, axes, .. } = self.program.node(value).clone();
        match op {
            Op::Param(k) => {
                let name = display_name(&self.program.params[k as usize].name);
                (self.names.indexed(&name, axes, at), Level::Atom)
            }
            Op::Index(axis) => (self.names.index(axis, at.index(axis)), Level::Sum),
            Op::Size(axis) => (self.names.size(axis), Level::Atom),
            Op::Starts { axis, offsets, .. } => {
                let offsets = self.render(offsets, at, Level::Choice);
                (format!("{} ∈ {offsets}", self.names.index(axis, at.index(axis))), Level::Choice)
            }
            Op::Gather { axis, to, value, .. } if self.program.renaming(&op).is_some() => {
                let value = self.render(value, at, Level::Atom);
                (format!("{value}|{}→{}", self.names.axis(axis), self.names.axis(to)), Level::Atom)
            }
            Op::Gather { axis, value, index, .. } => {
                let (value, index) = (self.render(value, at, Level::Atom), self.render(index, at, Level::Atom));
                (format!("{value} | {}={index}", self.names.axis(axis)), Level::Choice)
            }
            Op::MatrixScan(scan) => self.matrix_states(&scan, axes, at),
            Op::Field(tuple, k) => self.field(tuple, k, at),
            Op::Last { axis, value, .. } => self.named(value, &at.at(axis, Index::End(-1))),
            Op::First { axis, value, .. } => self.named(value, &at.at(axis, Index::First(0))),
            Op::Shift { axis, by, value, fill } => self.shift(axis, by, value, fill, at),
            op => match rules::weight(&self.program.nodes, &op) {
                Some((.., exp)) => self.named(exp, at),
                None => map(&self.as_quotient(op), &mut |v, place| self.render(v, at, place)),
            },
        }
    }

    /// a·(1/b) as a/b.
    fn as_quotient(&self, op: Op) -> Op {
        let Op::Binary(Binary::Mul, a, b) = op else { return op };
        let divisor = |v: Value| match self.program.node(v).op {
            Op::Unary(Unary::Recip, x) => Some(x),
            _ => None,
        };
        match (divisor(a), divisor(b)) {
            (_, Some(x)) => Op::Binary(Binary::Div, a, x),
            (Some(x), None) => Op::Binary(Binary::Div, b, x),
            _ => op,
        }
    }

    /// A neighbour: the value has a name, so that what holds outside the axis can be said of it.
    fn shift(&mut self, axis: Axis, by: i64, value: Value, fill: Value, at: &Environment) -> Written {
        let node = self.program.node(value).clone();
        let name = match node.op {
            Op::Param(k) => display_name(&self.program.params[k as usize].name),
            Op::Field(..) if node.axes.contains(axis) => String::new(),
            _ => self.bind(value),
        };
        let at_index = |writer: &mut Self, at: &Environment| match name.as_str() {
            "" => writer.render(value, at, Level::Atom),
            name => writer.names.indexed(name, node.axes.with(axis), at),
        };
        let outside = if by > 0 { Index::First(-1) } else { Index::End(0) };
        let (edge, fill) = (at_index(self, &at.at(axis, outside)), self.render(fill, at, Level::Choice));
        let further = if by.unsigned_abs() > 1 { " and beyond" } else { "" };
        self.conditions.push(format!("{edge} = {fill}{further}"));
        (at_index(self, &at.moved(axis, by.saturating_neg())), Level::Atom)
    }

    fn field(&mut self, tuple: Value, k: u32, at: &Environment) -> Written {
        let op = self.program.node(tuple).op.clone();
        if let Some((family, exclusive)) = Family::of(&op) {
            let name = self.state(&family, k);
            let at = if exclusive { at.moved(family.axis, family.back()) } else { at.clone() };
            let axes = self.state_axes(&family, k);
            return (self.names.indexed(&name, axes, &at), Level::Atom);
        }
        match op {
            Op::Reduce { axis, operator, elements } => self.total(tuple, k, axis, operator, &elements, at),
            _ => (String::new(), Level::Atom),
        }
    }

    /// One field of a reduction: a big operator where there is a sign for it, else a line of its own.
    fn total(
        &mut self,
        tuple: Value,
        k: u32,
        axis: Axis,
        operator: crate::ir::OperatorId,
        elements: &[Value],
        at: &Environment,
    ) -> Written {
        let operator = self.program.operator(operator).clone();
        let inner = at.at(axis, Index::Step(0));
        if let Some(sign) = big_operator(&operator) {
            let element = self.render(elements[0], &inner, Level::Big);
            return (format!("{sign}_{} {element}", self.names.axis(axis)), Level::Big);
        }
        let names = self.totals(tuple, axis, &operator, elements);
        let axes = self.program.node(tuple).axes;
        (self.names.indexed(&names[k as usize], axes, at), Level::Atom)
    }

    /// `(m, d) = Softmax_T(s, 1)`; gives the names.
    fn totals(&mut self, tuple: Value, axis: Axis, operator: &Operator, elements: &[Value]) -> Vec<String> {
        if let Some(names) = self.defined.get(&tuple) {
            return names.split(", ").map(str::to_owned).collect();
        }
        let names: Vec<String> = operator.fields.iter().map(|field| self.names.fresh(&[&field.name])).collect();
        self.aside(|writer| {
            let elements: Vec<String> = elements.iter().map(|v| writer.whole(*v)).collect();
            let axes = writer.program.node(tuple).axes;
            let left: Vec<String> =
                names.iter().map(|name| writer.names.indexed(name, axes, &Environment::default())).collect();
            let left = if left.len() == 1 { left[0].clone() } else { format!("({})", left.join(", ")) };
            let right = format!("{}_{}({})", operator.name, writer.names.axis(axis), elements.join(", "));
            writer.line(&left, &right);
        });
        self.defined.insert(tuple, names.join(", "));
        names
    }
}

/// Whether a map takes more than two operations to write out.
pub(super) fn is_long(nodes: &[Node], value: Value) -> bool {
    let (mut count, mut beneath) = (0, vec![value]);
    while let Some(value) = beneath.pop() {
        let op = &nodes[value.0 as usize].op;
        if op.is_map() {
            count += usize::from(!matches!(op, Op::Broadcast(_) | Op::Convert(..)));
            beneath.extend(op.operands());
        }
        if count > 2 {
            return true;
        }
    }
    false
}

pub(super) fn parenthesised((text, level): Written, place: Level) -> String {
    if level < place { format!("({text})") } else { text }
}

/// A constant or a map, its operands written by `operand` for the level that their place asks for.
pub(super) fn map(op: &Op, operand: &mut dyn FnMut(Value, Level) -> String) -> Written {
    match op {
        Op::Const(literal) => (literal_text(*literal), Level::Atom),
        Op::Unary(op, a) => unary(*op, *a, operand),
        Op::Binary(op, a, b) => binary(*op, *a, *b, operand),
        Op::Select(c, a, b) => {
            let [c, a, b] = [*c, *a, *b].map(|v| operand(v, Level::Choice));
            (format!("if {c} {{ {a} }} else {{ {b} }}"), Level::Choice)
        }
        Op::Convert(elem @ (Elem::Bf16 | Elem::F16), a) => {
            (format!("{elem}({})", operand(*a, Level::Choice)), Level::Atom)
        }
        Op::Convert(elem, a) if !elem.is_float() => (format!("{elem}({})", operand(*a, Level::Choice)), Level::Atom),
        Op::Convert(_, a) | Op::Broadcast(a) => (operand(*a, Level::Atom), Level::Atom),
        op => (op.name().to_owned(), Level::Atom),
    }
}

fn unary(op: Unary, a: Value, operand: &mut dyn FnMut(Value, Level) -> String) -> Written {
    match op {
        Unary::Neg => (format!("−{}", operand(a, Level::Product)), Level::Sum),
        Unary::Recip => (format!("1/{}", operand(a, Level::Atom)), Level::Product),
        Unary::Powi(n) => (format!("{}{}", operand(a, Level::Atom), superscript(n)), Level::Atom),
        Unary::Abs => (format!("|{}|", operand(a, Level::Choice)), Level::Atom),
        Unary::Not => (format!("!{}", operand(a, Level::Atom)), Level::Atom),
        op => (format!("{}({})", op.name(), operand(a, Level::Choice)), Level::Atom),
    }
}

fn binary(op: Binary, a: Value, b: Value, operand: &mut dyn FnMut(Value, Level) -> String) -> Written {
    let (left, right, sign, level) = match op {
        Binary::Add => {
            let (a, b) = (operand(a, Level::Sum), operand(b, Level::Sum));
            let sum = b.strip_prefix('−').map_or_else(|| format!("{a} + {b}"), |b| format!("{a} − {b}"));
            return (sum, Level::Sum);
        }
        Binary::Mul => {
            let factors = [operand(a, Level::Product), operand(b, Level::Product)];
            let factors: Vec<String> = factors.into_iter().filter(|factor| factor != "1").collect();
            return (if factors.is_empty() { "1".to_owned() } else { factors.join("·") }, Level::Product);
        }
        Binary::Sub => (Level::Sum, Level::Big, " − ", Level::Sum),
        Binary::Div => (Level::Product, Level::Atom, "/", Level::Product),
        Binary::Lt => (Level::Sum, Level::Sum, " < ", Level::Choice),
        Binary::Le => (Level::Sum, Level::Sum, " ≤ ", Level::Choice),
        Binary::Gt => (Level::Sum, Level::Sum, " > ", Level::Choice),
        Binary::Ge => (Level::Sum, Level::Sum, " ≥ ", Level::Choice),
        Binary::Eq => (Level::Sum, Level::Sum, " = ", Level::Choice),
        Binary::Ne => (Level::Sum, Level::Sum, " ≠ ", Level::Choice),
        Binary::Max | Binary::Min => {
            let (a, b) = (operand(a, Level::Choice), operand(b, Level::Choice));
            return (format!("{}({a}, {b})", op.name()), Level::Atom);
        }
        op => {
            let (a, b) = (operand(a, Level::Atom), operand(b, Level::Atom));
            return (format!("{a} {} {b}", op.symbol()), Level::Choice);
        }
    };
    (format!("{}{sign}{}", operand(a, left), operand(b, right)), level)
}

/// The sign of a reduction by an operator of one field that has one.
fn big_operator(operator: &Operator) -> Option<&'static str> {
    let [combine] = operator.combine[..] else { return None };
    let Op::Binary(op, l, r) = operator.body[combine.0 as usize].op else { return None };
    let inputs = [l, r].map(|v| operator.body[v.0 as usize].op.clone());
    let sign = match op {
        Binary::Add => "Σ",
        Binary::Mul => "Π",
        Binary::Max => "max",
        Binary::Min => "min",
        _ => return None,
    };
    (inputs == [Op::Input(0), Op::Input(1)] || inputs == [Op::Input(1), Op::Input(0)]).then_some(sign)
}

fn literal_text(literal: Literal) -> String {
    match literal {
        Literal::Float(x) if x.is_infinite() => if x > 0.0 { "∞" } else { "−∞" }.to_owned(),
        Literal::Float(x) if x < 0.0 => format!("−{}", -x),
        Literal::Float(x) => x.to_string(),
        Literal::Int(i) if i < 0 => format!("−{}", i.unsigned_abs()),
        Literal::Int(i) => i.to_string(),
        Literal::Bool(b) => b.to_string(),
    }
}

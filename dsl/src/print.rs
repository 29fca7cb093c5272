//! The text form of programs; [`crate::parse`] reads it back.
//!
//! ```text
//! program ema {
//!     axes B, L;
//!     param x: call[B, L];
//!     param h0: call[B] = 0.0;
//!     operator Affine(a: call, b: call) {
//!         identity (1.0, 0.0);
//!         %0: call = input l.a;
//!         %1: call = input l.b;
//!         %2: call = input r.a;
//!         %3: call = input r.b;
//!         %4: call = %0 * %2;
//!         %5: call = %2 * %1;
//!         %6: call = %5 + %3;
//!         combine (%4, %6);
//!     }
//!     %0: call[B, L] = param x;
//!     %1: call = const 0.9;
//!     %2: call[B] = param h0;
//!     %3: tuple[B, L] = scan(L, Affine, (%1, %0), init (%1, %2), reverse, exclusive);
//!     %4: call[B, L] = %3.b;
//!     output y: call[B, L] = %4;
//! }
//! ```
//!
//! Parameters, axes, operators and fields are written by name, or as `#` and a number where the name is not theirs
//! alone. A parameter that may store something else says so behind its element type, `i32 | i64[S]`. Floats are the shortest
//! decimals that read back to the same bits; `inf`, `nan` and `nan(0x…)` are words.
//! An operator with a gauge says `gauge m;` after its identity. One with a domain says next what holds of its states, here
//! that m ≤ 255; `no overflow` says that no integer exceeds its type.
//!
//! ```text
//! where {
//!     %0: u32 = input m;
//!     %1: u32 = const 255;
//!     %2: bool = %0 <= %1;
//!     holds (%2);
//!     no overflow;
//! }
//! ```

use std::fmt::{self, Display, Formatter};

use crate::ir::{
    Axis, AxisSet, Binary, Field, Literal, MatrixScan, Node, Op, Operator, OperatorId, Output, Param, Program, Term,
    Unary, Value,
};

/// The text of a program; the same as its `Display`.
pub fn print(program: &Program) -> String {
    program.to_string()
}

impl Display for Program {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "program {} {{", self.name)?;
        if !self.axes.is_empty() {
            writeln!(f, "    axes {};", self.axes.join(", "))?;
        }
        self.params.iter().try_for_each(|param| self.write_param(f, param))?;
        self.operators.iter().try_for_each(|operator| operator.write(f, "    "))?;
        for (i, node) in self.nodes.iter().enumerate() {
            writeln!(f, "    {}: {}{} = {};", Value(i as u32), node.ty, self.axis_set(node.axes), self.op(node))?;
        }
        self.outputs.iter().try_for_each(|output| self.write_output(f, output))?;
        writeln!(f, "}}")
    }
}

impl Display for Operator {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.write(f, "")
    }
}

impl Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

impl Display for Literal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Literal::Float(x) if x.to_bits() == f64::NAN.to_bits() => f.write_str("nan"),
            Literal::Float(x) if x.is_nan() => write!(f, "nan({:#x})", x.to_bits()),
            Literal::Float(x) => write!(f, "{x:?}"),
            Literal::Int(i) => write!(f, "{i}"),
            Literal::Bool(b) => write!(f, "{b}"),
        }
    }
}

impl Operator {
    fn write(&self, f: &mut Formatter<'_>, indent: &str) -> fmt::Result {
        let fields: Vec<String> = self.fields.iter().map(|field| format!("{}: {}", field.name, field.ty)).collect();
        writeln!(f, "{indent}operator {}({}) {{", self.name, fields.join(", "))?;
        writeln!(f, "{indent}    identity {};", tuple(&self.identity))?;
        if let Some(k) = self.gauge {
            writeln!(f, "{indent}    gauge {};", field_name(&self.fields, k))?;
        }
        self.write_domain(f, indent)?;
        for (i, node) in self.body.iter().enumerate() {
            let op = match &node.op {
                Op::Input(k) => format!("input {}", self.input_name(*k)),
                op => map(op).unwrap_or_else(|| op.name().to_owned()),
            };
            writeln!(f, "{indent}    {}: {} = {op};", Value(i as u32), node.ty)?;
        }
        writeln!(f, "{indent}    combine {};", tuple(&self.combine))?;
        writeln!(f, "{indent}}}")
    }

    fn write_domain(&self, f: &mut Formatter<'_>, indent: &str) -> fmt::Result {
        if self.domain.is_everything() {
            return Ok(());
        }
        writeln!(f, "{indent}    where {{")?;
        for (i, node) in self.domain.body.iter().enumerate() {
            let op = match &node.op {
                Op::Input(k) => format!("input {}", field_name(&self.fields, *k)),
                op => map(op).unwrap_or_else(|| op.name().to_owned()),
            };
            writeln!(f, "{indent}        {}: {} = {op};", Value(i as u32), node.ty)?;
        }
        writeln!(f, "{indent}        holds {};", tuple(&self.domain.conditions))?;
        if self.domain.no_overflow {
            writeln!(f, "{indent}        no overflow;")?;
        }
        writeln!(f, "{indent}    }}")
    }

    /// `l.a` or `r.a` of an operand's field.
    fn input_name(&self, k: u32) -> String {
        let n = self.fields.len() as u32;
        let (side, k) = if k < n { ("l", k) } else { ("r", k - n) };
        format!("{side}.{}", field_name(&self.fields, k))
    }
}

impl Program {
    fn write_param(&self, f: &mut Formatter<'_>, param: &Param) -> fmt::Result {
        let or = param.or.map(|elem| format!(" | {elem}")).unwrap_or_default();
        write!(f, "    param {}: {}{or}{}", param.name, param.elem, self.axis_list(param.axes.iter().copied()))?;
        match param.default {
            Some(literal) => writeln!(f, " = {literal};"),
            None => writeln!(f, ";"),
        }
    }

    fn write_output(&self, f: &mut Formatter<'_>, output: &Output) -> fmt::Result {
        let axes = self.axis_list(output.axes.iter().copied());
        writeln!(f, "    output {}: {}{axes} = {};", output.name, output.elem, output.value)
    }

    fn axis_set(&self, axes: AxisSet) -> String {
        self.axis_list(axes.iter())
    }

    /// `[B, L]`, nothing for no axes.
    fn axis_list(&self, axes: impl Iterator<Item = Axis>) -> String {
        let names: Vec<String> = axes.map(|axis| self.axis_word(axis)).collect();
        if names.is_empty() { String::new() } else { format!("[{}]", names.join(", ")) }
    }

    fn axis_word(&self, axis: Axis) -> String {
        let name = self.axes.get(axis.0 as usize).filter(|name| self.axis(name) == Some(axis));
        name.cloned().unwrap_or_else(|| number(axis.0))
    }

    fn param_word(&self, k: u32) -> String {
        let name = self.params.get(k as usize).map(|p| &p.name).filter(|name| self.param(name) == Some(k));
        name.cloned().unwrap_or_else(|| number(k))
    }

    fn operator_word(&self, id: OperatorId) -> String {
        let name = self.operators.get(id.0 as usize).map(|o| &o.name);
        let own = name.filter(|name| self.operators.iter().filter(|o| o.name == **name).count() == 1);
        own.cloned().unwrap_or_else(|| number(id.0))
    }

    fn op(&self, node: &Node) -> String {
        match &node.op {
            Op::Param(k) => format!("param {}", self.param_word(*k)),
            Op::Input(k) => format!("input {}", number(*k)),
            Op::Index(axis) => format!("index({})", self.axis_word(*axis)),
            Op::Size(axis) => format!("size({})", self.axis_word(*axis)),
            Op::Field(value, k) => format!("{value}.{}", field_name(self.fields_of_value(*value), *k)),
            Op::Reduce { axis, operator, elements } => {
                format!("reduce({}, {}, {})", self.axis_word(*axis), self.operator_word(*operator), tuple(elements))
            }
            Op::Scan { .. } => self.scan(&node.op),
            Op::MatrixScan(scan) => self.matrix_scan(scan),
            Op::Last { axis, value, empty } => format!("last({}, {value}, {empty})", self.axis_word(*axis)),
            Op::First { axis, value, empty } => format!("first({}, {value}, {empty})", self.axis_word(*axis)),
            Op::Shift { axis, by, value, fill } => format!("shift({}, {by}, {value}, {fill})", self.axis_word(*axis)),
            Op::Starts { axis, list, offsets } => {
                format!("starts({}, {}, {offsets})", self.axis_word(*axis), self.axis_word(*list))
            }
            Op::Gather { axis, to, value, index, inverse } => {
                format!("gather({}, {}, {value}, {index}, {inverse})", self.axis_word(*axis), self.axis_word(*to))
            }
            op => map(op).unwrap_or_default(),
        }
    }

    fn scan(&self, op: &Op) -> String {
        let Op::Scan { axis, operator, elements, init, reverse, exclusive } = op else { return String::new() };
        let mut parts = vec![self.axis_word(*axis), self.operator_word(*operator), tuple(elements)];
        if !init.is_empty() {
            parts.push(format!("init {}", tuple(init)));
        }
        parts.extend(reverse.then(|| "reverse".to_owned()));
        parts.extend(exclusive.then(|| "exclusive".to_owned()));
        format!("scan({})", parts.join(", "))
    }

    fn matrix_scan(&self, scan: &MatrixScan) -> String {
        let mut parts = vec![self.axis_word(scan.axis), self.axis_word(scan.along), format!("decay {}", scan.decay)];
        parts.extend(scan.terms.iter().map(|term| match term {
            Term::Pair { column, row } => format!("pair ({column}, {row})"),
            Term::Dense { matrix, other, transposed } => {
                let word = if *transposed { "transposed" } else { "dense" };
                format!("{word} ({}, {matrix})", self.axis_word(*other))
            }
        }));
        parts.extend([format!("input {}", scan.input), format!("init {}", scan.init)]);
        parts.extend(scan.reset.map(|reset| format!("reset {reset}")));
        parts.extend(scan.reverse.then(|| "reverse".to_owned()));
        parts.extend(scan.exclusive.then(|| "exclusive".to_owned()));
        format!("matrix_scan({})", parts.join(", "))
    }

    fn fields_of_value(&self, value: Value) -> &[Field] {
        match self.nodes.get(value.0 as usize).map(|node| &node.op) {
            Some(Op::Scan { operator, .. } | Op::Reduce { operator, .. }) => {
                self.operators.get(operator.0 as usize).map_or(&[], |operator| &operator.fields)
            }
            _ => &[],
        }
    }
}

/// A map or a constant, which reads the same in programs and in bodies.
fn map(op: &Op) -> Option<String> {
    Some(match op {
        Op::Const(literal) => format!("const {literal}"),
        Op::Unary(Unary::Powi(n), a) => format!("powi({a}, {n})"),
        Op::Unary(op, a) => format!("{}({a})", op.name()),
        Op::Binary(op @ (Binary::Max | Binary::Min), a, b) => format!("{}({a}, {b})", op.name()),
        Op::Binary(op, a, b) => format!("{a} {} {b}", op.symbol()),
        Op::Select(c, a, b) => format!("select({c}, {a}, {b})"),
        Op::Convert(elem, a) => format!("convert({elem}, {a})"),
        Op::Broadcast(a) => format!("broadcast({a})"),
        _ => return None,
    })
}

fn field_name(fields: &[Field], k: u32) -> String {
    let name = fields.get(k as usize).map(|field| &field.name);
    let own = name.filter(|name| fields.iter().position(|field| field.name == **name) == Some(k as usize));
    own.cloned().unwrap_or_else(|| number(k))
}

fn number(k: u32) -> String {
    format!("#{k}")
}

fn tuple<T: Display>(items: &[T]) -> String {
    let items: Vec<String> = items.iter().map(T::to_string).collect();
    format!("({})", items.join(", "))
}

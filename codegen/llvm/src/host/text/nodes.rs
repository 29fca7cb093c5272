//! The nodes of a step.

use oplus_dsl::ir::{Binary, Unary};

use super::super::{Action, Input, Node, Source, takes_binary, takes_unary};
use super::Writer;
use crate::CompileError;

impl Writer<'_> {
    /// The name of a source's value, where so many nodes are known, and perhaps the states after the step.
    pub(super) fn find(&self, source: Source, nodes: usize, has_after: bool) -> Result<String, CompileError> {
        let (name, k, n) = match source {
            Source::Input(k) if self.is_in_rows && self.sweep.inputs.get(k) != Some(&Input::One) => {
                ("g", k, self.sweep.inputs.len())
            }
            Source::Input(k) => ("e", k, self.sweep.inputs.len()),
            Source::Before(k) => (if self.is_in_rows { "o" } else { "b" }, k, self.fields()),
            Source::After(k) => (if self.is_in_rows { "h" } else { "d" }, k, if has_after { self.fields() } else { 0 }),
            Source::Node(k) => ("n", k, nodes),
        };
        if k < n { Ok(format!("%{name}{k}")) } else { Err(CompileError::Lowering(format!("there is no {source:?}"))) }
    }

    /// Writes a node.
    pub(super) fn node(&mut self, k: usize, node: &Node) -> Result<(), CompileError> {
        let has_after = k >= self.sweep.nodes.len();
        let known = node.operands.iter().map(|source| self.find(*source, k, has_after));
        let known = known.collect::<Result<Vec<String>, CompileError>>()?;
        let expression = match (node.action, &known[..]) {
            (Action::Const(bits), []) => self.constant(f64::from_bits(bits)),
            (Action::Flag(is), []) => {
                format!("or {} {}, zeroinitializer", self.flags, self.splat_of(if is { "i1 true" } else { "i1 false" }))
            }
            (Action::Unary(Unary::Not), [a]) if node.is_flag => {
                format!("xor {} {a}, {}", self.flags, self.splat_of("i1 true"))
            }
            (Action::Unary(op), [a]) if takes_unary(op) && !node.is_flag => self.unary(op, a),
            (Action::Binary(op), [a, b]) if takes_binary(op) => self.binary(op, a, b),
            (Action::Logic(op), [a, b]) => self.logic(op, a, b)?,
            (Action::Select, [is, a, b]) => {
                let of = if node.is_flag { &self.flags } else { &self.vector };
                format!("select {} {is}, {of} {a}, {of} {b}", self.flags)
            }
            _ => return Err(CompileError::Lowering(format!("no machine code for {:?}", node.action))),
        };
        self.line(format!("%n{k} = {expression}"));
        Ok(())
    }

    fn splat_of(&self, one: &str) -> String {
        format!("<{}>", vec![one; self.lanes].join(", "))
    }

    /// A number in every lane. Sums with −0 keep every number.
    fn constant(&self, x: f64) -> String {
        let bits = match self.scalar {
            "float" => f64::from(x as f32).to_bits(),
            _ => x.to_bits(),
        };
        let [number, zero] =
            [bits, (-0.0_f64).to_bits()].map(|bits| self.splat_of(&format!("{} 0x{bits:016X}", self.scalar)));
        format!("fadd {} {number}, {zero}", self.vector)
    }

    fn unary(&mut self, op: Unary, a: &str) -> String {
        let vector = self.vector.clone();
        let one = self.splat_of(&format!("{} 1.0", self.scalar));
        match op {
            Unary::Abs => format!("call {vector} @{}({vector} {a})", self.intrinsic("fabs")),
            Unary::Sqrt => format!("call {vector} @{}({vector} {a})", self.intrinsic("sqrt")),
            Unary::Recip => format!("fdiv {vector} {one}, {a}"),
            Unary::Relu => {
                let is_above = self.value(format!("fcmp ogt {vector} {a}, zeroinitializer"));
                format!("select {} {is_above}, {vector} {a}, {vector} zeroinitializer", self.flags)
            }
            Unary::Powi(_) => format!("fmul {vector} {a}, {a}"),
            _ => format!("fneg {vector} {a}"),
        }
    }

    fn binary(&mut self, op: Binary, a: &str, b: &str) -> String {
        let vector = self.vector.clone();
        match op {
            Binary::Add => format!("fadd {vector} {a}, {b}"),
            Binary::Sub => format!("fsub {vector} {a}, {b}"),
            Binary::Mul => format!("fmul {vector} {a}, {b}"),
            Binary::Div => format!("fdiv {vector} {a}, {b}"),
            Binary::Max => self.extreme("ogt", "and", a, b),
            Binary::Min => self.extreme("olt", "or", a, b),
            Binary::Lt => format!("fcmp olt {vector} {a}, {b}"),
            Binary::Le => format!("fcmp ole {vector} {a}, {b}"),
            Binary::Gt => format!("fcmp ogt {vector} {a}, {b}"),
            Binary::Ge => format!("fcmp oge {vector} {a}, {b}"),
            Binary::Ne => format!("fcmp une {vector} {a}, {b}"),
            _ => format!("fcmp oeq {vector} {a}, {b}"),
        }
    }

    /// The larger or smaller number; the one that is a number, if one is not. Of two zeros it is the one with the sign that makes it so.
    fn extreme(&mut self, is_before: &str, bits: &str, a: &str, b: &str) -> String {
        let (vector, flags) = (self.vector.clone(), self.flags.clone());
        let integers = format!("<{} x i{}>", self.lanes, self.bytes * 8);
        let is_first = self.value(format!("fcmp {is_before} {vector} {a}, {b}"));
        let is_only = self.value(format!("fcmp uno {vector} {b}, {b}"));
        let takes = self.value(format!("or {flags} {is_first}, {is_only}"));
        let other = self.value(format!("select {flags} {takes}, {vector} {a}, {vector} {b}"));
        let are_equal = self.value(format!("fcmp oeq {vector} {a}, {b}"));
        let [a, b] = [a, b].map(|x| self.value(format!("bitcast {vector} {x} to {integers}")));
        let joined = self.value(format!("{bits} {integers} {a}, {b}"));
        let joined = self.value(format!("bitcast {integers} {joined} to {vector}"));
        format!("select {flags} {are_equal}, {vector} {joined}, {vector} {other}")
    }

    fn logic(&self, op: Binary, a: &str, b: &str) -> Result<String, CompileError> {
        let flags = &self.flags;
        Ok(match op {
            Binary::And => format!("and {flags} {a}, {b}"),
            Binary::Or => format!("or {flags} {a}, {b}"),
            Binary::Xor | Binary::Ne => format!("xor {flags} {a}, {b}"),
            Binary::Eq => format!("icmp eq {flags} {a}, {b}"),
            _ => return Err(CompileError::Lowering(format!("no machine code for {op:?} of truth values"))),
        })
    }
}

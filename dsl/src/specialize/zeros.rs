//! Structural zeros: what becomes of a program when a parameter that enters linearly is absent.

use crate::build::{Builder, Built};
use crate::copy::Copy;
use crate::ir::{Binary, Literal, Node, Op, Operator, Program, Unary, Value};
use crate::typing::TypeError;

/// The program in which a parameter, and all that is a multiple of it, is zero.
pub(super) fn with_zero(program: &Program, param: u32) -> Result<Program, TypeError> {
    let zeros = Zeros::of(program, param);
    let mut into = super::empty_like(program);
    let mut copy = Copy::of(program);
    let append = |b: &mut Builder, op: Op, value: Value| zeros.append(b, op, value);
    let roots = copy.run_with(&mut into, &super::outputs(program), append)?;
    Ok(super::with_outputs(into, program, &roots))
}

/// Which values are structural zeros.
struct Zeros<'a> {
    program: &'a Program,
    zero: Vec<bool>,
}

impl<'a> Zeros<'a> {
    fn of(program: &'a Program, param: u32) -> Zeros<'a> {
        let mut zeros = Zeros { program, zero: vec![] };
        for node in &program.nodes {
            let zero = match &node.op {
                Op::Param(k) => *k == param,
                Op::Field(tuple, k) => zeros.zero_fields(*tuple) >> k & 1 == 1,
                op => is_zero_map(op, |v| zeros.is(v), |v| zeros.vanishes(v)),
            };
            zeros.zero.push(zero && node.ty.is_float());
        }
        zeros
    }

    fn is(&self, value: Value) -> bool {
        self.zero[value.0 as usize]
    }

    fn vanishes(&self, value: Value) -> bool {
        self.is(value) || is_literal_zero(self.program.node(value))
    }

    /// The fields of a scan or a reduction that are zero at every step, as a set: their elements and their first
    /// state are zero, and `combine` of zeros is zero.
    fn zero_fields(&self, tuple: Value) -> u64 {
        let (operator, elements, init) = match &self.program.node(tuple).op {
            Op::Scan { operator, elements, init, .. } => (operator, elements, init.as_slice()),
            Op::Reduce { operator, elements, .. } => (operator, elements, &[] as &[Value]),
            _ => return 0,
        };
        let operator = self.program.operator(*operator);
        let starts_zero = |k: usize| match init.get(k) {
            Some(init) => self.vanishes(*init),
            None => operator.identity[k] == Literal::Float(0.0),
        };
        let is_structural = |k: usize| self.is(elements[k]) || init.get(k).is_some_and(|init| self.is(*init));
        let candidates =
            (0..elements.len()).filter(|k| self.vanishes(elements[*k]) && starts_zero(*k) && is_structural(*k));
        largest_closed(operator, candidates.fold(0, |set, k| set | 1 << k))
    }

    /// The operation of a value without its zero terms.
    fn append(&self, b: &mut Builder, op: Op, value: Value) -> Built {
        let node = self.program.node(value);
        if self.is(value) {
            return b.float(node.ty, 0.0);
        }
        match (&node.op, &op) {
            (Op::Binary(Binary::Add | Binary::Sub, _, r), Op::Binary(_, l, _)) if self.is(*r) => Ok(*l),
            (Op::Binary(Binary::Add, l, _), Op::Binary(_, _, r)) if self.is(*l) => Ok(*r),
            (Op::Binary(Binary::Sub, l, _), Op::Binary(_, _, r)) if self.is(*l) => b.unary(Unary::Neg, *r),
            _ => b.append(op, node.ty, node.axes),
        }
    }
}

/// Whether an operation gives zero because operands do: `zero` says which are structural zeros, `vanishes` which are
/// zero for any reason.
fn is_zero_map(op: &Op, zero: impl Fn(Value) -> bool, vanishes: impl Fn(Value) -> bool) -> bool {
    let both = |a: Value, b: Value| (zero(a) || zero(b)) && vanishes(a) && vanishes(b);
    match *op {
        Op::Unary(Unary::Neg, a) | Op::Convert(_, a) | Op::Broadcast(a) => zero(a),
        Op::Binary(Binary::Mul, a, b) => zero(a) || zero(b),
        Op::Binary(Binary::Div, a, _) => zero(a),
        Op::Binary(Binary::Add | Binary::Sub, a, b) => zero(a) && zero(b),
        Op::Select(_, a, b) => both(a, b),
        Op::Last { value, empty, .. } | Op::First { value, empty, .. } => both(value, empty),
        Op::Shift { value, fill, .. } => both(value, fill),
        Op::Gather { value, .. } => zero(value),
        _ => false,
    }
}

/// The largest subset of the fields that stay zero when all of it are.
fn largest_closed(operator: &Operator, mut set: u64) -> u64 {
    loop {
        let kept = set & zero_combinations(operator, set);
        if kept == set {
            return set;
        }
        set = kept;
    }
}

/// The fields of a combination that are zero when these fields of both operands are.
fn zero_combinations(operator: &Operator, set: u64) -> u64 {
    let n = operator.fields.len() as u32;
    let mut zero: Vec<bool> = vec![];
    for node in &operator.body {
        let is = |v: Value| zero[v.0 as usize];
        zero.push(match node.op {
            Op::Input(k) => set >> (k % n) & 1 == 1,
            ref op => is_zero_map(op, is, |v| is(v) || is_literal_zero(&operator.body[v.0 as usize])),
        });
    }
    let combine = operator.combine.iter().enumerate();
    combine.filter(|(_, v)| zero[v.0 as usize]).fold(0, |set, (k, _)| set | 1 << k)
}

fn is_literal_zero(node: &Node) -> bool {
    matches!(node.op, Op::Const(Literal::Float(x)) if x == 0.0)
}

//! Decays as powers of two: where exp(x) is a factor of a recurrence in `f32`, 2^(x·log₂e) takes its place.
//!
//! An accurate exp spends most of its work on what t = x·log₂e loses when it is rounded: a relative error of the
//! power of at most |x|·2⁻²⁴. In a factor of products that is no more than summing the logarithms instead would lose,
//! and for a decay, x ≤ 0, it is at most 2⁻²⁴/e of 1: what a decay has forgotten need not be exact. So the elements
//! of multiplied fields, and whatever else reads the same exponentials, take two operations instead of eight.

use std::collections::{BTreeSet, HashSet};
use std::f64::consts::LOG2_E;

use crate::Ty;
use crate::ir::{AxisSet, Binary, Literal, Node, Op, Operator, Program, Unary, Value};
use crate::rewrite::{push, rewrite};

/// The program with the exponentials among its decays as powers of two.
pub fn decays(program: &Program) -> Program {
    let decays = exponentials(program);
    rewrite(program, |changed, value, node| {
        if let (true, Op::Unary(_, x)) = (decays.contains(&value), &node.op) {
            let scaled = scale(changed, *x, node.axes);
            node.op = Op::Unary(Unary::Exp2, scaled);
        }
    })
}

/// x·log₂e.
fn scale(program: &mut Program, x: Value, axes: AxisSet) -> Value {
    let log2_e = Op::Const(Literal::Float(LOG2_E));
    let factor = push(program, Node { op: log2_e, ty: Ty::F32, axes: AxisSet::default() });
    push(program, Node { op: Op::Binary(Binary::Mul, x, factor), ty: Ty::F32, axes })
}

/// The exponentials in `f32` that elements of multiplied fields are made of.
fn exponentials(program: &Program) -> BTreeSet<Value> {
    let mut decays = vec![];
    for node in &program.nodes {
        let (Op::Scan { operator, elements, .. } | Op::Reduce { operator, elements, .. }) = &node.op else { continue };
        let operator = program.operator(*operator);
        decays.extend((0..elements.len()).filter(|k| is_multiplied(operator, *k)).map(|k| elements[k]));
    }
    moved_exponentials(program, decays)
}

/// Whether a field's combination is the product of itself in both operands, also where a segment may begin.
fn is_multiplied(operator: &Operator, k: usize) -> bool {
    let (left, right) = (Op::Input(k as u32), Op::Input((operator.fields.len() + k) as u32));
    let op = |v: Value| &operator.body[v.0 as usize].op;
    let product = |v: Value| match op(v) {
        Op::Binary(Binary::Mul, x, y) => [(op(*x), op(*y)), (op(*y), op(*x))].contains(&(&left, &right)),
        _ => false,
    };
    match op(operator.combine[k]) {
        Op::Select(_, x, y) => (*op(*x) == right && product(*y)) || (product(*x) && *op(*y) == right),
        _ => product(operator.combine[k]),
    }
}

/// The exponentials that values are, moved or chosen but not computed with.
fn moved_exponentials(program: &Program, mut values: Vec<Value>) -> BTreeSet<Value> {
    let (mut found, mut seen) = (BTreeSet::new(), HashSet::new());
    while let Some(value) = values.pop() {
        if !seen.insert(value) {
            continue;
        }
        match &program.node(value).op {
            Op::Unary(Unary::Exp, _) if program.node(value).ty == Ty::F32 => {
                found.insert(value);
            }
            Op::Select(_, a, b) => values.extend([*a, *b]),
            Op::Shift { value, .. } => values.push(*value),
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interpret::{Array, Mode, Order, Precision, interpret};
    use crate::parse::parse;
    use crate::verify::verify;

    /// h[t] = exp(g[t])·h[t−1] + x[t] and, beside it, exp(x).
    fn program(elem: &str) -> Program {
        let text = format!(
            "program decay {{
    axes T;
    param g: {elem}[T];
    param x: {elem}[T];
    operator Affine(a: {elem}, b: {elem}) {{
        identity (1.0, 0.0);
        %0: {elem} = input l.a;
        %1: {elem} = input l.b;
        %2: {elem} = input r.a;
        %3: {elem} = input r.b;
        %4: {elem} = %0 * %2;
        %5: {elem} = %2 * %1;
        %6: {elem} = %5 + %3;
        combine (%4, %6);
    }}
    %0: {elem}[T] = param g;
    %1: {elem}[T] = param x;
    %2: {elem}[T] = exp(%0);
    %3: tuple[T] = scan(T, Affine, (%2, %1));
    %4: {elem}[T] = %3.b;
    %5: {elem}[T] = exp(%1);
    output h: {elem}[T] = %4;
    output e: {elem}[T] = %5;
}}"
        );
        parse(&text).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn only_a_decay_becomes_a_power_of_two() {
        let changed = decays(&program("f32"));
        verify(&changed).expect("valid");
        let count =
            |wanted: Unary| changed.nodes.iter().filter(|n| matches!(n.op, Op::Unary(op, _) if op == wanted)).count();
        assert_eq!((count(Unary::Exp2), count(Unary::Exp)), (1, 1), "{changed}");
    }

    #[test]
    fn double_precision_stays() {
        let program = program("f64");
        assert_eq!(decays(&program), program);
    }

    #[test]
    fn values_agree_within_rounding() {
        let n = 97;
        let number = |i: usize| ((i * 37 % 101) as f64 - 50.0) / 20.0;
        let decay = |i: usize| if i == 40 { f64::NEG_INFINITY } else { -number(i).abs() };
        let g = Array::floats(&[n], (0..n).map(decay).collect::<Vec<_>>());
        let x = Array::floats(&[n], (0..n).map(number).collect::<Vec<_>>());
        let mode = Mode { precision: Precision::Exact, order: Order::Sequential };
        let run = |p: &Program| interpret(p, &[Some(g.clone()), Some(x.clone())], mode).expect("runs").remove(0);
        let (ours, reference) = (run(&decays(&program("f32"))), run(&program("f32")));
        for (a, b) in ours.as_floats().expect("floats").iter().zip(reference.as_floats().expect("floats")) {
            assert!((a - b).abs() <= 1e-6 * (1.0 + a.abs()), "{a} {b}");
        }
    }
}

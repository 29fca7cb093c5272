//! Change of base: a base that is summed and only ever read through its exponential becomes a product.
//!
//! With a = exp(g), the log-decay operator (g, x), `(l.g + r.g, exp(r.g)·l.x + r.x)`, is the affine operator (a, x),
//! `(l.a·r.a, r.a·l.x + r.x)`: exp is a homomorphism from (ℝ, +) to (ℝ, ·). A scan combines every element several
//! times; after the change it takes one exponential per element instead of one per combination. g = −∞ is a = 0.
//!
//! A field changes if it is the sum of itself in both operands, if nothing outside the operator reads it, and if inside
//! only exp(r.g) is read. The products round where the sums did, so bits may differ from those of the program as
//! written; what an interpreter gives agrees within rounding.

use std::collections::HashSet;

use crate::ir::{AxisSet, Binary, Literal, Node, Op, Operator, OperatorId, Program, Unary, Value};
use crate::rewrite::{push, rewrite};
use crate::uses::fields_read;

/// The program with every summed, exponentiated base replaced by a product.
pub fn rebase(program: &Program) -> Program {
    let read = fields_read(program);
    rewrite(program, |changed, value, node| {
        if let Some(fields) = bases(program, value, &read) {
            multiply(changed, node, &fields);
        }
    })
}

/// The fields of a scan or a reduction that change; `None` if none does.
fn bases(program: &Program, tuple: Value, read: &HashSet<(Value, u32)>) -> Option<Vec<usize>> {
    let (Op::Scan { operator, .. } | Op::Reduce { operator, .. }) = &program.node(tuple).op else { return None };
    let operator = program.operator(*operator);
    let read = |k: usize| read.contains(&(tuple, k as u32));
    let fields: Vec<usize> = (0..operator.fields.len()).filter(|k| is_base(operator, *k) && !read(*k)).collect();
    (!fields.is_empty()).then_some(fields)
}

/// Whether a field is summed and otherwise read through the exponential of the right operand alone.
fn is_base(operator: &Operator, k: usize) -> bool {
    let n = operator.fields.len();
    let input = |v: Value| match operator.body[v.0 as usize].op {
        Op::Input(k) => Some(k as usize),
        _ => None,
    };
    let sum = operator.combine[k];
    let summed = match operator.body[sum.0 as usize].op {
        Op::Binary(Binary::Add, x, y) => [(input(x), input(y)), (input(y), input(x))].contains(&(Some(k), Some(n + k))),
        _ => false,
    };
    let zero = matches!(operator.identity[k], Literal::Float(x) if x == 0.0);
    let (mut exponentials, mut others) = (0, 0);
    for (i, node) in operator.body.iter().enumerate().filter(|(i, _)| *i != sum.0 as usize) {
        let reads = |field: usize| node.op.operands().iter().any(|v| input(*v) == Some(field));
        let exponential = matches!(node.op, Op::Unary(Unary::Exp, v) if input(v) == Some(n + k));
        exponentials += usize::from(exponential);
        others += usize::from(!exponential && (reads(k) || reads(n + k)));
        others += usize::from(
            operator.combine.contains(&Value(i as u32)) && matches!(input(Value(i as u32)), Some(f) if f % n == k),
        );
    }
    let sum_is_field_only = !operator.body.iter().any(|node| node.op.operands().contains(&sum))
        && operator.combine.iter().filter(|v| **v == sum).count() == 1;
    summed && zero && sum_is_field_only && exponentials > 0 && others == 0
}

/// Gives a scan or a reduction (whose operands are already placed) the operator and the elements of the products.
fn multiply(program: &mut Program, node: &mut Node, fields: &[usize]) {
    let (Op::Scan { operator, .. } | Op::Reduce { operator, .. }) = node.op else { return };
    let product = product(program.operator(operator), fields);
    let id = program.operators.iter().position(|o| *o == product).unwrap_or_else(|| {
        program.operators.push(product);
        program.operators.len() - 1
    });
    let mut exponential = |value: &mut Value| {
        let Node { ty, axes, .. } = *program.node(*value);
        *value = push(program, Node { op: Op::Unary(Unary::Exp, *value), ty, axes: AxisSet(axes.0) });
    };
    match &mut node.op {
        Op::Scan { operator, elements, init, .. } => {
            *operator = OperatorId(id as u32);
            fields.iter().for_each(|k| exponential(&mut elements[*k]));
            if !init.is_empty() {
                fields.iter().for_each(|k| exponential(&mut init[*k]));
            }
        }
        Op::Reduce { operator, elements, .. } => {
            *operator = OperatorId(id as u32);
            fields.iter().for_each(|k| exponential(&mut elements[*k]));
        }
        _ => {}
    }
}

/// The operator on exponentials.
fn product(operator: &Operator, fields: &[usize]) -> Operator {
    let n = operator.fields.len();
    let mut product = operator.clone();
    for k in fields {
        product.identity[*k] = Literal::Float(1.0);
        let sum = product.combine[*k].0 as usize;
        if let Op::Binary(op, ..) = &mut product.body[sum].op {
            *op = Binary::Mul;
        }
        let right = product.body.iter().position(|node| node.op == Op::Input((n + k) as u32));
        let right = Value(right.unwrap_or_default() as u32);
        let exponentials: Vec<Value> = (0..product.body.len())
            .filter(|i| product.body[*i].op == Op::Unary(Unary::Exp, right))
            .map(|i| Value(i as u32))
            .collect();
        let replace = |v: Value| if exponentials.contains(&v) { right } else { v };
        for node in &mut product.body {
            node.op = node.op.map_operands(replace);
        }
        product.combine.iter_mut().for_each(|v| *v = replace(*v));
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;
    use crate::verify::verify;

    const LOG_DECAY: &str = "operator LogDecay(g: f32, x: f32) {
        identity (0.0, 0.0);
        %0: f32 = input l.g;
        %1: f32 = input l.x;
        %2: f32 = input r.g;
        %3: f32 = input r.x;
        %4: f32 = %0 + %2;
        %5: f32 = exp(%2);
        %6: f32 = %5 * %1;
        %7: f32 = %6 + %3;
        combine (%4, %7);
    }";

    fn program(outputs: &str) -> Program {
        let text = format!(
            "program decay {{
    axes T;
    param g: f32[T];
    param x: f32[T];
    {LOG_DECAY}
    %0: f32[T] = param g;
    %1: f32[T] = param x;
    %2: tuple[T] = scan(T, LogDecay, (%0, %1));
    %3: f32[T] = %2.x;
    {outputs}
}}"
        );
        parse(&text).unwrap_or_else(|e| panic!("{e}"))
    }

    #[test]
    fn a_log_decay_becomes_affine() {
        let changed = rebase(&program("output h: f32[T] = %3;"));
        verify(&changed).expect("valid");
        assert_eq!(changed.nodes[2].op, Op::Unary(Unary::Exp, Value(0)));
        let Op::Scan { elements, .. } = &changed.nodes[3].op else { panic!("{changed}") };
        assert_eq!(elements, &[Value(2), Value(1)]);
        let operator = changed.operators.last().expect("the product");
        assert!(matches!(operator.body[operator.combine[0].0 as usize].op, Op::Binary(Binary::Mul, ..)));
        assert_eq!(operator.identity[0], Literal::Float(1.0));
    }

    #[test]
    fn a_base_that_is_read_stays() {
        let before = program("%4: f32[T] = %2.g;\n    output h: f32[T] = %3;\n    output total: f32[T] = %4;");
        assert_eq!(rebase(&before), before);
    }

    #[test]
    fn values_agree_within_rounding() {
        use crate::interpret::{Array, Mode, Order, Precision, interpret};
        let before = program("output h: f32[T] = %3;");
        let n = 97;
        let number = |i: usize| ((i * 37 % 101) as f64 - 50.0) / 20.0;
        let decay = |i: usize| if i == 40 { f64::NEG_INFINITY } else { -number(i).abs() };
        let g = Array::floats(&[n], (0..n).map(decay).collect::<Vec<_>>());
        let x = Array::floats(&[n], (0..n).map(number).collect::<Vec<_>>());
        let mode = Mode { precision: Precision::Exact, order: Order::Sequential };
        let run = |p: &Program| interpret(p, &[Some(g.clone()), Some(x.clone())], mode).expect("runs").remove(0);
        let (ours, reference) = (run(&rebase(&before)), run(&before));
        for (a, b) in ours.as_floats().expect("floats").iter().zip(reference.as_floats().expect("floats")) {
            assert!((a - b).abs() <= 1e-12 * (1.0 + a.abs()), "{a} {b}");
        }
    }
}

//! Products that are rounded before they are added.
//!
//! Schedules compute a·b + c with one rounding where product and sum are maps of one program, and with two where the product
//! reaches the sum from elsewhere, as an element of a scan does. Where two programs must give the same bits though they are written
//! differently, no product may be fused: it goes through a conversion to its own type, which changes nothing.

use crate::ir::{Binary, Node, Op, Operator, Program, Value};
use crate::rewrite::{push, rewrite};

/// The program, and its operators, with every product apart from the sums that it is a term of.
pub fn unfused(program: &Program) -> Program {
    let mut apart = rewrite(program, |changed, _, node| {
        for product in products(&changed.nodes, node) {
            let rounded = rounded(&changed.nodes, product);
            let place = push(changed, rounded);
            node.op = node.op.map_operands(|v| if v == product { place } else { v });
        }
    });
    apart.operators.iter_mut().for_each(|operator| *operator = unfused_operator(operator));
    apart
}

fn unfused_operator(operator: &Operator) -> Operator {
    let (mut body, mut place): (Vec<Node>, Vec<Value>) = (vec![], vec![]);
    for node in &operator.body {
        let mut node = Node { op: node.op.map_operands(|v| place[v.0 as usize]), ..node.clone() };
        for product in products(&body, &node) {
            body.push(rounded(&body, product));
            let apart = Value(body.len() as u32 - 1);
            node.op = node.op.map_operands(|v| if v == product { apart } else { v });
        }
        body.push(node);
        place.push(Value(body.len() as u32 - 1));
    }
    let combine = operator.combine.iter().map(|v| place[v.0 as usize]).collect();
    Operator { body, combine, ..operator.clone() }
}

/// The products that a sum or difference of floats is made of.
fn products(nodes: &[Node], node: &Node) -> Vec<Value> {
    let Op::Binary(Binary::Add | Binary::Sub, a, b) = node.op else { return vec![] };
    let is_product = |v: &Value| matches!(nodes[v.0 as usize].op, Op::Binary(Binary::Mul, ..));
    let terms = if a == b { vec![a] } else { vec![a, b] };
    terms.into_iter().filter(|v| node.ty.is_float() && is_product(v)).collect()
}

/// A value converted to its own type.
fn rounded(nodes: &[Node], value: Value) -> Node {
    let node = &nodes[value.0 as usize];
    match node.ty.elem() {
        Some(elem) => Node { op: Op::Convert(elem, value), ..node.clone() },
        None => node.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interpret::{Mode, Order, Precision, interpret_sized};
    use crate::ir::Axis;
    use crate::testing::{inputs, recurrence};
    use crate::verify::verify;
    use crate::{Elem, Ty};

    /// Whether a product is a term of a sum.
    fn fuses(nodes: &[Node]) -> bool {
        nodes.iter().any(|node| !products(nodes, node).is_empty())
    }

    #[test]
    fn no_product_is_a_term_and_every_bit_stays() {
        let mut changed = 0;
        for seed in 0..40 {
            let program = recurrence(seed, Elem::F32);
            let apart = unfused(&program);
            assert_eq!(verify(&apart), Ok(()), "{apart}");
            assert!(!fuses(&apart.nodes) && apart.operators.iter().all(|o| !fuses(&o.body)), "{apart}");
            changed += usize::from(apart != program);
            let (sizes, mode) = ([2, 3, 2, 5], Mode { precision: Precision::Storage, order: Order::Sequential });
            let named: Vec<(Axis, usize)> = (0..).map(Axis).zip(sizes).collect();
            let given = inputs(&program, &sizes, seed);
            let run = |program| interpret_sized(program, &given, &named, mode).expect("runs");
            assert_eq!(run(&apart), run(&program));
        }
        assert!(changed > 20, "{changed}");
    }

    #[test]
    fn a_product_added_to_itself_is_rounded_once() {
        let operator = Operator {
            body: vec![
                Node { op: Op::Input(0), ty: Ty::F32, axes: Default::default() },
                Node { op: Op::Binary(Binary::Mul, Value(0), Value(0)), ty: Ty::F32, axes: Default::default() },
                Node { op: Op::Binary(Binary::Add, Value(1), Value(1)), ty: Ty::F32, axes: Default::default() },
            ],
            combine: vec![Value(2)],
            ..crate::testing::operators::sum(Ty::F32)
        };
        let apart = unfused_operator(&operator);
        assert_eq!(apart.body[3].op, Op::Binary(Binary::Add, Value(2), Value(2)));
        assert_eq!(apart.combine, [Value(3)]);
    }
}

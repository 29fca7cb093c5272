//! Passes that go through a program node by node.

use crate::ir::{Node, Program, Value};

/// The program with every node as `change` leaves it, in the old order. `change` gets the program as far as it has been
/// rewritten, to which it may [`push`] more nodes, the old value, and the node with its operands in their new places.
pub fn rewrite(program: &Program, mut change: impl FnMut(&mut Program, Value, &mut Node)) -> Program {
    let mut changed = program.without_nodes();
    let mut place: Vec<Value> = Vec::with_capacity(program.nodes.len());
    for (i, node) in program.nodes.iter().enumerate() {
        let mut node = Node { op: node.op.map_operands(|v| place[v.0 as usize]), ..node.clone() };
        change(&mut changed, Value(i as u32), &mut node);
        place.push(push(&mut changed, node));
    }
    for output in &mut changed.outputs {
        output.value = place[output.value.0 as usize];
    }
    changed
}

/// Adds a node.
pub fn push(program: &mut Program, node: Node) -> Value {
    program.nodes.push(node);
    Value(program.nodes.len() as u32 - 1)
}

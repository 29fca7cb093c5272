//! Copies of programs in which some values are others.

use oplus_dsl::build::Builder;
use oplus_dsl::ir::{Output, Program, Value};
use oplus_dsl::typing::TypeError;

/// A copy of a program. Where `change` returns a value, that value takes the place of the original one.
pub(super) fn rebuild(
    program: &Program,
    mut change: impl FnMut(&mut Builder, Value, &[Value]) -> Result<Option<Value>, TypeError>,
) -> Result<Program, TypeError> {
    let mut b = Builder::from_program(Program { nodes: vec![], outputs: vec![], ..program.without_nodes() });
    let mut place: Vec<Value> = vec![];
    for (i, node) in program.nodes.iter().enumerate() {
        let value = match change(&mut b, Value(i as u32), &place)? {
            Some(value) => value,
            None => b.append(node.op.map_operands(|v| place[v.0 as usize]), node.ty, node.axes)?,
        };
        place.push(value);
    }
    let outputs = program.outputs.iter().map(|o| Output { value: place[o.value.0 as usize], ..o.clone() }).collect();
    Ok(Program { outputs, ..b.finish() })
}

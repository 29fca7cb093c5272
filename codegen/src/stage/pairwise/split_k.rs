//! Split-K: partial sums over pairs.
//!
//! Where rows are few, one block for each sixty-four of them leaves most of a device idle. Their columns are then divided into
//! ranges, each with blocks of its own. The program gets one axis more, the *axis of partial sums*, and its operator joins these:
//!
//! ```text
//! x = the sum or merge over the columns  ⟶  part[p] = that of range p's columns;   x = that over p of part[p]
//! ```
//!
//! As a program it is read with such an axis of size 1, on which the sum is broadcast; the plan gives the axis its size. The
//! partial sums are joined in an order that depends on their number only.

use std::collections::HashMap;

use oplus_dsl::build::Builder;
use oplus_dsl::ir::{Axis, Op, Output, Program, Value};
use oplus_dsl::typing::TypeError;

use super::Group;
use super::find::{Pairs, Sharing};
use crate::stage::partial_sums::partial_axis_name;
use crate::stage::reduction::Reduction;

/// A program with partial sums over pairs.
#[derive(Debug)]
pub(super) struct SplitK {
    /// The program. The axis of partial sums is its last one.
    pub program: Program,
    /// The axis.
    pub axis: Axis,
    /// The partial sums of every field of a pair sum: values to be stored.
    pub partial_sums: HashMap<Value, Value>,
}

impl SplitK {
    /// The program with partial sums; `None` unless it has one stage of pair sums.
    pub(super) fn of(program: &Program) -> Result<Option<SplitK>, TypeError> {
        let pairs = Pairs::of(program, Sharing::Fused);
        let Some(first) = pairs.sums.first().map(Group::of) else { return Ok(None) };
        if pairs.sums.iter().any(|sum| Group::of(sum) != first) {
            return Ok(None);
        }
        let axis = Axis(program.axes.len() as u32);
        let mut empty = Program { nodes: vec![], outputs: vec![], ..program.without_nodes() };
        empty.axes.push(partial_axis_name(program));
        let (mut b, mut partial_sums) = (Builder::from_program(empty), HashMap::new());
        // The joined fields of every pair sum, by its tuple.
        let mut joined: HashMap<Value, Vec<Value>> = HashMap::new();
        let mut place: Vec<Value> = vec![];
        for (i, node) in program.nodes.iter().enumerate() {
            let tuple = Value(i as u32);
            let op = node.op.map_operands(|v| place[v.0 as usize]);
            let value = match (&op, &node.op) {
                (Op::Reduce { .. }, _) if pairs.contains(tuple) => {
                    let fields = split(&mut b, program, tuple, axis, &place, &mut partial_sums)?;
                    // Nothing reads the tuple but its fields.
                    let first = fields[0];
                    joined.insert(tuple, fields);
                    first
                }
                (_, Op::Field(tuple, k)) if joined.contains_key(tuple) => joined[tuple][*k as usize],
                _ => b.append(op, node.ty, node.axes)?,
            };
            place.push(value);
        }
        let output = |o: &Output| Output { value: place[o.value.0 as usize], ..o.clone() };
        let outputs = program.outputs.iter().map(output).collect();
        Ok(Some(SplitK { program: Program { outputs, ..b.finish() }, axis, partial_sums }))
    }
}

/// The fields of a pair sum, joined from partial sums.
fn split(
    b: &mut Builder,
    program: &Program,
    tuple: Value,
    outer: Axis,
    place: &[Value],
    partial_sums: &mut HashMap<Value, Value>,
) -> Result<Vec<Value>, TypeError> {
    let Op::Reduce { operator, .. } = program.node(tuple).op else { return Err(TypeError::NotATuple) };
    let Reduction { axis, elements, .. } = Reduction::of(program, tuple).ok_or(TypeError::NotATuple)?;
    let elements: Vec<Value> = elements.iter().map(|v| place[v.0 as usize]).collect();
    let mut stored = vec![];
    for field in b.reduce(axis, operator, &elements)? {
        let axes = b.program().node(field).axes.with(outer);
        let value = b.broadcast(field, axes)?;
        partial_sums.insert(field, value);
        stored.push(value);
    }
    b.reduce(outer, operator, &stored)
}

//! Finds which values of a program are used, once for all of them.

use std::collections::HashSet;

use crate::ir::{Op, Program, Value};

/// The fields of scans and reductions that some node takes: the tuple and the number of the field.
pub(crate) fn fields_read(program: &Program) -> HashSet<(Value, u32)> {
    let field = |op: &Op| if let Op::Field(tuple, k) = op { Some((*tuple, *k)) } else { None };
    program.nodes.iter().filter_map(|node| field(&node.op)).collect()
}

/// For every node, whether it is a scan, a reduction or a recurrence of matrices, or depends on one.
pub(crate) fn behind_combinations(program: &Program) -> Vec<bool> {
    let mut behind: Vec<bool> = Vec::with_capacity(program.nodes.len());
    for node in &program.nodes {
        let is_combination = matches!(node.op, Op::Scan { .. } | Op::Reduce { .. } | Op::MatrixScan(_));
        behind.push(is_combination || node.op.operands().iter().any(|v| behind[v.0 as usize]));
    }
    behind
}

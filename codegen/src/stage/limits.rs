//! Limits of the size of programs.
//!
//! A kernel holds its values in registers and is compiled by LLVM: programs of very many operations make bad kernels, and would take
//! too long to plan. Any program within these limits is planned in seconds, on a small stack.

use oplus_dsl::ir::{Op, Program, Unary};

use super::error::{CutError, MAX_NESTED, MAX_OPERATIONS};

/// Refuses a program that is too large.
pub(super) fn check(program: &Program) -> Result<(), CutError> {
    let bodies: usize = program.operators.iter().map(|operator| operator.body.len()).sum();
    let operations = program.nodes.len() + bodies;
    if operations > MAX_OPERATIONS {
        return Err(CutError::TooLarge { program: program.name.clone(), operations });
    }
    match nested(program) {
        nested if nested > MAX_NESTED => Err(CutError::TooNested { program: program.name.clone(), nested }),
        _ => Ok(()),
    }
}

/// The most operations along an axis, and exponentials, that depend on each other.
fn nested(program: &Program) -> usize {
    let mut levels: Vec<usize> = Vec::with_capacity(program.nodes.len());
    for node in &program.nodes {
        let is_along_an_axis = matches!(
            node.op,
            Op::Scan { .. }
                | Op::MatrixScan(_)
                | Op::Reduce { .. }
                | Op::Starts { .. }
                | Op::Gather { .. }
                | Op::Shift { .. }
                | Op::First { .. }
                | Op::Last { .. }
        );
        let counts = is_along_an_axis || matches!(node.op, Op::Unary(Unary::Exp | Unary::Exp2, _));
        let beneath = node.op.operands().iter().map(|v| levels[v.0 as usize]).max().unwrap_or(0);
        levels.push(beneath + usize::from(counts));
    }
    levels.into_iter().max().unwrap_or(0)
}

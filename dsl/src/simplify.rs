//! Simplification: the same program with less in it.
//!
//! [`simplify`] repeats four passes until nothing changes:
//!
//! * the bodies of operators are simplified like programs;
//! * *dead fields*: a field of a scan or a reduction that no live [`Op::Field`] depends on through `combine` is dropped
//!   from the operator, the elements and the init;
//! * *copy*: live nodes are built again, which shares equal ones, folds constants and applies the identities below;
//! * operators that nothing uses are dropped.
//!
//! The bits of the outputs stay the same: only identities that hold for every operand are used, infinities, zeros of
//! both signs and NaN included (a NaN may get another sign or payload). So x·1 = x, x − 0 = x, x + (−y) = x − y and
//! x·(−y) = −(x·y), but x + 0, which is +0 for x = −0, and x·0, which may be NaN, stay as they are. Structural zeros are
//! another matter: see [`crate::specialize`].
//!
//! Parameters stay in the signature even if nothing reads them ([`prune_params`] drops those), and axes stay.

mod algebra;
mod fields;
#[cfg(test)]
mod tests;

use crate::build::Builder;
use crate::copy::Copy;
use crate::ir::{Op, Operator, Output, Program, Value};
use crate::typing::TypeError;
use crate::verify::verify;

use algebra::Algebra;

/// A bound on how often the passes repeat; in practice they settle after two or three rounds.
const ROUNDS: usize = 16;

/// The program simplified. A program that does not verify is given back as it is.
pub fn simplify(program: &Program) -> Program {
    if verify(program).is_err() { program.clone() } else { simplified(program) }
}

/// A program that verifies, simplified.
pub fn simplified(program: &Program) -> Program {
    let mut simplest = program.clone();
    for _ in 0..ROUNDS {
        match round(&simplest) {
            Ok(simpler) if simpler != simplest => simplest = simpler,
            _ => break,
        }
    }
    simplest
}

/// The program without the parameters that nothing reads. One that does not verify is given back as it is.
pub fn prune_params(program: &Program) -> Program {
    if verify(program).is_err() { program.clone() } else { retain_params(program, |_, read| read) }
}

/// The program with those parameters for which `keep`, told the index and whether a node reads it, is true; reads of
/// the others must be dead.
pub fn retain_params(program: &Program, keep: impl Fn(u32, bool) -> bool) -> Program {
    let mut read = vec![false; program.params.len()];
    for node in &program.nodes {
        if let Op::Param(k) = node.op {
            read[k as usize] = true;
        }
    }
    let kept: Vec<bool> = read.iter().enumerate().map(|(k, read)| keep(k as u32, *read)).collect();
    let mut pruned = program.clone();
    let mut flags = kept.iter();
    pruned.params.retain(|_| flags.next() == Some(&true));
    for node in &mut pruned.nodes {
        if let Op::Param(k) = &mut node.op {
            *k = kept[..*k as usize].iter().filter(|kept| **kept).count() as u32;
        }
    }
    pruned
}

fn round(program: &Program) -> Result<Program, TypeError> {
    let mut program = fields::drop_dead(program);
    for operator in &mut program.operators {
        *operator = simplify_operator(operator)?;
    }
    copied(&program)
}

/// The live nodes built again.
fn copied(program: &Program) -> Result<Program, TypeError> {
    let start = Program { operators: vec![], nodes: vec![], outputs: vec![], ..program.without_nodes() };
    let mut into = Builder::from_program(start);
    let mut algebra = Algebra::default();
    let roots: Vec<Value> = program.outputs.iter().map(|o| o.value).collect();
    let append = |b: &mut Builder, op: Op, v: Value| algebra.append(b, op, program.node(v));
    let roots = Copy::of(program).run_with(&mut into, &roots, append)?;
    let outputs = program.outputs.iter().zip(roots).map(|(o, value)| Output { value, ..o.clone() }).collect();
    Ok(Program { outputs, ..into.finish() })
}

/// An operator with a simplified body; its inputs come first, in order.
fn simplify_operator(operator: &Operator) -> Result<Operator, TypeError> {
    let body = Program {
        name: operator.name.clone(),
        axes: vec![],
        params: vec![],
        operators: vec![],
        nodes: operator.body.clone(),
        outputs: vec![],
    };
    let mut into = Builder::body(operator.fields.clone());
    let mut algebra = Algebra::default();
    let append = |b: &mut Builder, op: Op, v: Value| algebra.append(b, op, body.node(v));
    let mut copy = Copy::of(&body);
    for (k, value) in inputs(&copy, operator)? {
        copy.set(value, into.input(k)?);
    }
    let combine = copy.run_with(&mut into, &operator.combine, append)?;
    let simple = into.finish_operator(&operator.name, operator.identity.clone(), &combine, operator.gauge)?;
    Ok(Operator { domain: operator.domain.clone(), ..simple })
}

/// The inputs that a body reads, in order.
fn inputs(copy: &Copy<'_>, operator: &Operator) -> Result<Vec<(u32, Value)>, TypeError> {
    let input = |value: Value| match operator.body[value.0 as usize].op {
        Op::Input(k) => Some((k, value)),
        _ => None,
    };
    let mut inputs: Vec<_> = copy.missing(&operator.combine)?.into_iter().filter_map(input).collect();
    inputs.sort_unstable();
    Ok(inputs)
}

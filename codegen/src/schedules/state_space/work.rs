//! The work of a walk, for the planner: instructions counted in the program.

use super::hoisted;
use super::tiles::Values;
use crate::stage::{Stage, is_dear};
use oplus_dsl::ir::{Binary, Node, Op, Unary};

/// Instructions of an elementary function.
const DEAR: f64 = 12.0;
/// Instructions per row and step: the chunk's loads, the sum over lanes, the copies.
const ROW: f64 = 12.0;

/// Instructions of the walk.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Issue slots per update of a state.
    pub issues: f64,
    /// Exponentials and the like per update.
    pub exponentials: f64,
    /// Issue slots per row and step.
    pub row_issues: f64,
    /// Whether functions that take many instructions are computed for every row and step.
    pub dear_rows: bool,
}

/// The work of a stage that the state-space schedule takes; no work for another.
pub fn work(stage: &Stage) -> Work {
    let Some((stage, state)) = hoisted(stage).ok().and_then(|s| s.state_axis().map(|state| (s, state))) else {
        return Work::default();
    };
    let Some(scan) = stage.scan() else { return Work::default() };
    let program = &stage.program;
    let values = Values::of(&stage, &scan, state);
    let timed = |node: &&Node| node.axes.contains(scan.axis);
    let mut work = Work { row_issues: ROW, ..Work::default() };
    for node in program.nodes.iter().filter(timed) {
        let issues = if node.axes.contains(state) { &mut work.issues } else { &mut work.row_issues };
        *issues += instructions(program.nodes.as_slice(), node);
        let of_rows = !node.axes.contains(state) && values.row.is_some_and(|row| node.axes.contains(row));
        work.dear_rows |= of_rows && is_dear(&node.op);
        work.exponentials += if node.axes.contains(state) { f64::from(u8::from(is_dear(&node.op))) } else { 0.0 };
    }
    let body = &program.operator(scan.operator).body;
    work.issues += body.iter().map(|node| instructions(body, node)).sum::<f64>() / 2.0;
    // A load of 16 bytes serves four steps, and takes an issue slot.
    work.issues += 0.5 * values.tiles.iter().filter(|tile| tile.states).count() as f64;
    work
}

/// Instructions of a node; those that are rounded with a product count with it.
fn instructions(nodes: &[Node], node: &Node) -> f64 {
    let product = |v: &oplus_dsl::ir::Value| matches!(nodes[v.0 as usize].op, Op::Binary(Binary::Mul, ..));
    match &node.op {
        Op::Unary(Unary::Exp2, _) => 1.0,
        op if is_dear(op) => DEAR,
        Op::Binary(Binary::Add | Binary::Sub, x, y) if product(x) || product(y) => 0.0,
        Op::Unary(..) | Op::Binary(..) | Op::Select(..) => 1.0,
        _ => 0.0,
    }
}

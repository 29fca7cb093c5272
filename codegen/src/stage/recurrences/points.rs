//! Which values the stage of a recurrence computes, and which it reads.

use std::collections::BTreeSet;

use oplus_dsl::ir::{Axis, AxisSet, MatrixScan, Op, Program, Unary, Value};

use super::Progress;
use crate::stage::dear::is_dear;

/// The values beneath a stage.
pub(super) struct Points {
    /// Values that it computes, and the parameters of the program that it reads.
    pub(super) inside: BTreeSet<Value>,
    /// Values that it reads and that are in memory.
    pub(super) held: BTreeSet<Value>,
    /// Values that it reads and that are still to be stored.
    pub(super) imports: BTreeSet<Value>,
}

impl Points {
    /// The point values beneath the states of a recurrence, whose nodes are `members`, and beneath the outputs of the stage.
    pub(super) fn of(progress: &Progress<'_>, scan: &MatrixScan, members: &[Value], written: Vec<Value>) -> Points {
        let program = progress.program;
        let mut points = Points { inside: BTreeSet::new(), held: BTreeSet::new(), imports: BTreeSet::new() };
        let rows = program.node(members[0]).axes.without(scan.axis).without(scan.along);
        let mut open: Vec<Value> = written;
        open.extend(members);
        while let Some(value) = open.pop() {
            if progress.held.contains_key(&value) {
                points.held.insert(value);
            } else if is_inside(program, value, scan, members, rows)
                || progress.decays == Decays::Computed && is_decay(program, value, scan)
            {
                if points.inside.insert(value) {
                    open.extend(program.node(value).op.operands());
                }
            } else {
                points.imports.insert(value);
            }
        }
        points
    }
}

/// Where the exponentials of decays are computed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::stage) enum Decays {
    /// Before the stage of the recurrence, which reads them.
    Stored,
    /// In the stage of the recurrence.
    Computed,
}

/// Whether a value is the exponential that the states decay by.
pub(super) fn is_decay(program: &Program, value: Value, scan: &MatrixScan) -> bool {
    let decay = oplus_dsl::walk::follow(scan.decay, |v| match program.node(v).op {
        Op::Broadcast(x) => Some(x),
        _ => None,
    });
    value == decay && matches!(program.node(value).op, Op::Unary(Unary::Exp | Unary::Exp2, _))
}

/// Whether a recurrence of matrices has decays that its stage reads from memory: exponentials that differ along the axis that the matrices
/// act on, but not along all rows.
pub(in crate::stage) fn stores_decays(program: &Program) -> bool {
    let scans = program.nodes.iter().filter_map(|node| match &node.op {
        Op::MatrixScan(scan) => Some((&**scan, node.axes)),
        _ => None,
    });
    let mut decays = scans.flat_map(|(scan, axes)| {
        let rows = axes.without(scan.axis).without(scan.along);
        (0..program.nodes.len() as u32).map(Value).filter(move |v| is_decay(program, *v, scan)).map(move |v| {
            let own = program.node(v).axes;
            !own.contains_all(rows) && own.contains(scan.axis) && own.contains(scan.along)
        })
    });
    decays.any(|is_stored| is_stored)
}

/// Whether the stage computes a value that is not in memory.
fn is_inside(program: &Program, value: Value, scan: &MatrixScan, members: &[Value], rows: AxisSet) -> bool {
    let (node, time, along) = (program.node(value), scan.axis, scan.along);
    match &node.op {
        Op::Param(_) | Op::Const(_) | Op::Index(_) | Op::Size(_) => true,
        Op::MatrixScan(_) => members.contains(&value),
        Op::Last { value: of, .. } | Op::First { value: of, .. } => members.contains(of),
        Op::Field(tuple, _) => depends(program, *tuple, members),
        Op::Reduce { .. } => depends(program, value, members),
        Op::Shift { axis, .. } => *axis == time && is_point(program, value, time),
        op if op.is_map() => {
            // Each row would repeat the computation for each of its vectors.
            let is_repeated = !node.axes.contains_all(rows) && node.axes.contains(time) && node.axes.contains(along);
            !(is_dear(op) && is_repeated && !depends(program, value, members))
        }
        _ => false,
    }
}

/// Whether a value is computed from one of some others.
fn depends(program: &Program, value: Value, others: &[Value]) -> bool {
    oplus_dsl::walk::any(program, value, |v| others.contains(&v))
}

/// Whether a value is a map of parameters and of their neighbours along an axis.
fn is_point(program: &Program, value: Value, time: Axis) -> bool {
    oplus_dsl::walk::all(program, value, |v| match &program.node(v).op {
        Op::Param(_) | Op::Const(_) | Op::Index(_) | Op::Size(_) => Some(true),
        Op::Shift { axis, .. } if *axis == time => None,
        op if op.is_map() && !is_dear(op) => None,
        _ => Some(false),
    })
}

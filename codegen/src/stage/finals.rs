//! Final states by lanes that hold several of them, where a scan is used for nothing else: the total of a shard or a segment.
//!
//! Rows of a scan that differ only along one axis often share elements: those of a selective scan are made of values that lack the
//! state axis. A lane that holds several states of a row reads and computes these once.

use oplus_dsl::ir::{Axis, AxisSet, Binary, Node, Op, Program, Value};

use super::cut::cut_plain;
use super::error::CutError;
use super::kind::product::is;
use super::opposite::{is_affine, narrow, shifted_decay};
use super::{Cut, Kind, Stage};

/// The plain cut of a program that keeps final states alone, with lanes that hold several of them; `None` where no stage can.
pub(super) fn final_states(program: &Program) -> Result<Option<Cut>, CutError> {
    if !keeps_no_time(program) {
        return Ok(None);
    }
    let mut cut = cut_plain(program)?;
    let mut is_any = false;
    for stage in &mut cut.stages {
        if stage.axis().is_some() && !stage.is_reduction() {
            return Ok(None);
        }
        if let Some(axis) = shared(stage) {
            let own = with_own_decays(&stage.program).map_or_else(|| stage.clone(), |own| stage.with_program(own));
            *stage = own.with_final_states(axis);
            is_any = true;
        }
    }
    Ok(is_any.then_some(cut))
}

/// Whether the program scans, and no output has an axis along which it does.
fn keeps_no_time(program: &Program) -> bool {
    let scanned = |node: &Node| if let Op::Scan { axis, .. } = node.op { Some(axis) } else { None };
    let times: AxisSet = program.nodes.iter().filter_map(scanned).collect();
    !times.is_empty() && !program.outputs.iter().any(|output| output.axes.iter().any(|axis| times.contains(*axis)))
}

/// The last axis of all final states of a stage that some parameter with the time lacks.
fn shared(stage: &Stage) -> Option<Axis> {
    let time = stage.axis().filter(|_| *stage.kind() == Kind::Reduce)?;
    let program = &stage.program;
    let first = program.outputs.first()?;
    let in_all = |axis: &&Axis| program.outputs.iter().all(|output| program.node(output.value).axes.contains(**axis));
    let is_lacked = |axis: &&Axis| {
        let mut timed = program.params.iter().filter(|param| param.axes.contains(&time));
        timed.any(|param| !param.axes.contains(axis))
    };
    first.axes.iter().rev().filter(in_all).find(is_lacked).copied()
}

/// Rewrites a scan of a gradient as one whose steps have their own decays. The affine scan of a gradient has at every step the decay of
/// the step before, and its final states are multiplied by the last decay; the final states are equal, since
/// a\[t\]·S\[t\] = a\[t\]·(a\[t+1\]·S\[t+1\]) + a\[t\]·b\[t\]. `None` for another program.
fn with_own_decays(program: &Program) -> Option<Program> {
    let is_scan = |v: &Value| matches!(program.node(*v).op, Op::Scan { .. });
    let scan = (0..program.nodes.len() as u32).map(Value).find(is_scan)?;
    let Op::Scan { operator, ref elements, ref init, exclusive: false, .. } = program.node(scan).op else {
        return None;
    };
    let Op::Shift { fill, .. } = program.node(elements[0]).op else { return None };
    let is_meant = init.is_empty() && is(program, fill, 1.0) && is_affine(program.operator(operator));
    let decay = shifted_decay(program, scan).filter(|_| is_meant)?;
    let mut own = program.without_nodes();
    let mut place: Vec<Value> = vec![];
    let push = |own: &mut Program, node: Node| {
        own.nodes.push(node);
        Value(own.nodes.len() as u32 - 1)
    };
    for (k, node) in program.nodes.iter().enumerate() {
        let mut op = node.op.map_operands(|v| place[v.0 as usize]);
        if Value(k as u32) == scan {
            let Op::Scan { elements: moved, .. } = &mut op else { return None };
            let added = program.node(elements[1]);
            let axes = added.axes.union(program.node(decay).axes);
            moved[0] = place[decay.0 as usize];
            let product = Op::Binary(Binary::Mul, moved[0], moved[1]);
            moved[1] = push(&mut own, Node { op: product, ty: added.ty, axes });
        }
        let is_shift = Value(k as u32) == elements[0];
        let made = match decayed(program, node, decay).or(is_shift.then_some(decay)) {
            Some(known) => place[known.0 as usize],
            None if reads(program, node, scan) => return None,
            None if Value(k as u32) != scan && node.op.operands().contains(&elements[0]) => return None,
            None => push(&mut own, Node { op, ..node.clone() }),
        };
        place.push(made);
    }
    own.outputs.iter_mut().for_each(|output| output.value = place[output.value.0 as usize]);
    Some(own)
}

/// The state that a node multiplies with its decay.
fn decayed(program: &Program, node: &Node, decay: Value) -> Option<Value> {
    let Op::Binary(Binary::Mul, x, y) = node.op else { return None };
    let is_decay = |v: Value| narrow(program, v) == narrow(program, decay);
    let is_state = |v: Value| matches!(program.node(v).op, Op::Field(..));
    [(x, y), (y, x)].into_iter().find(|(x, y)| is_decay(*x) && is_state(*y)).map(|(_, state)| state)
}

/// Whether a node reads a state of a scan.
fn reads(program: &Program, node: &Node, scan: Value) -> bool {
    node.op.operands().into_iter().any(|v| matches!(program.node(v).op, Op::Field(tuple, _) if tuple == scan))
}

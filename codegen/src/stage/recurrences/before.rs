//! The readouts of states that a gradient needs before it walks back.
//!
//! A program may go on from a readout o\[t\] = Σ S\[t\]·q\[t\]: by a gate, a norm, or both. The cotangent of o then depends on o, or the gate's
//! own gradient does. A first stage of the recurrence alone stores these readouts, so that the stage of both directions finds the cotangents in
//! memory, and plain stages the readouts.

use std::collections::BTreeSet;

use oplus_dsl::ir::{MatrixScan, Op, Program, Value};
use oplus_dsl::walk::any;

use super::group::{Group, Reach};
use super::{CutError, Decays, Progress};
use crate::stage::Cut;

/// Stores the readouts that the walk back depends on, or that outputs are maps of.
pub(super) fn store_readouts(
    progress: &mut Progress<'_>,
    plain: impl Fn(&Program) -> Result<Cut, CutError>,
) -> Result<(), CutError> {
    let Some(reach) = Reach::find(progress) else { return Ok(()) };
    let stored = readouts_before(progress.program, &reach);
    if reach.scan.reverse || stored.is_empty() {
        return Ok(());
    }
    let is_read = |member: &Value| stored.iter().any(|readout| any(progress.program, *readout, |v| v == *member));
    let members = reach.members.into_iter().filter(is_read).collect();
    // Decays are read by this stage and by the next: neither stores them.
    let decays = std::mem::replace(&mut progress.decays, Decays::Computed);
    let mut group = Group { scan: reach.scan, members, imports: BTreeSet::new(), outputs: vec![], stored };
    group.imports = group.points(progress).imports;
    progress.store(&group.imports, plain)?;
    progress.run(&group)?;
    progress.decays = decays;
    Ok(())
}

/// The readouts of a recurrence that the operands of recurrences in the other direction depend on, or that outputs are maps of.
fn readouts_before(program: &Program, reach: &Reach) -> BTreeSet<Value> {
    let reversed = program.nodes.iter().filter_map(|node| match &node.op {
        Op::MatrixScan(scan) if scan.reverse => Some(&**scan),
        _ => None,
    });
    let operands: Vec<Value> = reversed.flat_map(MatrixScan::operands).collect();
    let outputs: Vec<Value> = program.outputs.iter().map(|output| output.value).collect();
    let is_needed = |readout: Value| {
        let leads_to = |value: &Value| any(program, *value, |v| v == readout);
        operands.iter().any(leads_to) || outputs.iter().any(|output| is_map_of(program, *output, readout))
    };
    reach.readouts.iter().copied().filter(|readout| is_needed(*readout)).collect()
}

/// Whether a value is a map of another and of any values.
fn is_map_of(program: &Program, value: Value, of: Value) -> bool {
    let (mut open, mut seen) = (vec![value], BTreeSet::new());
    while let Some(value) = open.pop() {
        if value == of {
            return true;
        }
        let op = &program.node(value).op;
        if seen.insert(value) && op.is_map() {
            open.extend(op.operands());
        }
    }
    false
}

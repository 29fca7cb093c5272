//! Values over fewer axes from which a value is computed again without a scan.

use std::collections::{BTreeMap, BTreeSet};

use oplus_dsl::ir::{Program, Value};

use super::needs::dependent;

/// The values to store for a map of several states: the map itself, or the values that it is a map of, where each of them has fewer axes
/// and nothing else beneath the map depends on a scan.
///
/// A product w·k of a weight for each pair and a key takes a number for each pair and each place of a key. The weights alone take
/// one for each pair, and the product is computed from them wherever it is read.
pub(super) fn narrowest(program: &Program, value: Value, read: &BTreeSet<Value>) -> BTreeSet<Value> {
    let depends = dependent(program, read);
    let mut known: BTreeMap<Value, BTreeSet<Value>> = BTreeMap::new();
    for beneath in maps_beneath(program, value, &depends) {
        let node = program.node(beneath);
        let operands = node.op.operands().into_iter().filter(|v| depends[v.0 as usize]);
        let narrower: BTreeSet<Value> =
            operands.flat_map(|v| known.get(&v).cloned().unwrap_or_else(|| BTreeSet::from([v]))).collect();
        let are_narrower = narrower.iter().all(|v| program.node(*v).axes != node.axes);
        known.insert(beneath, if are_narrower { narrower } else { BTreeSet::from([beneath]) });
    }
    known.remove(&value).unwrap_or_else(|| BTreeSet::from([value]))
}

/// The maps beneath a value that depend on a scan, each after its operands.
fn maps_beneath(program: &Program, value: Value, depends: &[bool]) -> BTreeSet<Value> {
    let (mut found, mut open) = (BTreeSet::new(), vec![value]);
    while let Some(value) = open.pop() {
        let op = &program.node(value).op;
        if depends[value.0 as usize] && op.is_map() && found.insert(value) {
            open.extend(op.operands());
        }
    }
    found
}

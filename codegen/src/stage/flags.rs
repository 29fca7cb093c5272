//! Flags of packed sequences, written by stages of their own before the stages that read them.
//!
//! Where segments begin is found in a list of offsets ([`Op::Starts`]); a stage of scans takes the flags as a parameter.

use std::collections::BTreeSet;

use oplus_dsl::Elem;
use oplus_dsl::ir::{Op, Program, Value};

use super::ahead::Ahead;

/// A program with its flags as further parameters, and the program that writes these; the program itself where it has none.
pub(super) fn flagged(program: Program) -> (Program, Option<Ahead>) {
    let starts = |i: &u32| matches!(program.nodes[*i as usize].op, Op::Starts { .. });
    let flags: Vec<(Value, Elem)> =
        (0..program.nodes.len() as u32).filter(starts).map(|i| (Value(i), Elem::Bool)).collect();
    if flags.is_empty() {
        return (program, None);
    }
    let (rest, ahead) = Ahead::of(&program, &flags, &BTreeSet::new());
    (rest, Some(ahead))
}

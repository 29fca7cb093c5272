//! The recurrence of matrices of a stage.

use oplus_dsl::ir::{MatrixScan, Op, Value};

use super::Stage;

/// The recurrence of a stage that multiplies a state by a matrix at every step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recurrence<'a> {
    /// The recurrence; whether it is exclusive does not matter.
    pub scan: &'a MatrixScan,
    /// The states after the steps, if an output uses them.
    pub inclusive: Option<Value>,
    /// The states before the steps, if an output uses them.
    pub exclusive: Option<Value>,
}

impl Stage {
    /// The recurrence of matrices, if the stage has one; of two in opposite directions the one from the first index to the last.
    pub fn recurrence(&self) -> Option<Recurrence<'_>> {
        self.recurrence_of(false).or_else(|| self.recurrence_of(true))
    }

    /// Two recurrences of matrices in opposite directions, if the stage has such: of the states, and of their cotangents.
    pub fn opposite_recurrences(&self) -> Option<[Recurrence<'_>; 2]> {
        Some([self.recurrence_of(false)?, self.recurrence_of(true)?])
    }

    /// The recurrence of a direction.
    fn recurrence_of(&self, reverse: bool) -> Option<Recurrence<'_>> {
        let mut found: Option<Recurrence<'_>> = None;
        for (k, node) in self.program.nodes.iter().enumerate() {
            let Op::MatrixScan(scan) = &node.op else { continue };
            if scan.reverse != reverse {
                continue;
            }
            let own = found.get_or_insert(Recurrence { scan, inclusive: None, exclusive: None });
            let states = if scan.exclusive { &mut own.exclusive } else { &mut own.inclusive };
            *states = Some(Value(k as u32));
        }
        found
    }
}

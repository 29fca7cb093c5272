//! How many exchanges a value waits for.

use crate::ir::{Axis, Literal, Op, Program, Value};

use super::scans::{Shifted, shifted};

/// The role of a value in the division.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exchange {
    /// A scan along the axis: its state before the shard comes from totals.
    Scan,
    /// A reduction along the axis: it comes from totals.
    Reduce,
    /// The last state of that scan, in the direction of its walk: the fold of all totals.
    LastState {
        /// The scan.
        scan: Value,
        /// The field of its state.
        field: u32,
    },
    /// The value at an end of the axis.
    End,
    /// Elements from beyond the shard.
    Shift,
    /// Elements at indices of the whole axis, each of which one rank has.
    Gather,
}

/// Levels of all values of a program.
pub(super) struct Levels {
    /// The number of exchanges before which a value is not known.
    pub(super) of: Vec<usize>,
    /// The level at which the messages of an exchange are known; 0 for other values.
    pub(super) sent: Vec<usize>,
    pub(super) exchange: Vec<Option<Exchange>>,
    /// The element of a scan that is left to the rank before.
    pub(super) shifted: Vec<Option<Shifted>>,
}

impl Levels {
    pub(super) fn of(program: &Program, axis: Axis) -> Levels {
        let n = program.nodes.len();
        let shifted = (0..n as u32).map(|k| shifted(program, axis, Value(k))).collect();
        let mut levels = Levels { of: Vec::with_capacity(n), sent: vec![0; n], exchange: vec![None; n], shifted };
        for k in 0..n {
            let exchange = exchange(program, axis, Value(k as u32));
            let (level, sent) = levels.level(program, Value(k as u32), exchange);
            levels.of.push(level);
            (levels.sent[k], levels.exchange[k]) = (sent, exchange);
        }
        levels
    }

    /// The values that the elements of a scan are computed from: with those of a shifted one before they are shifted.
    pub(super) fn elements(&self, scan: Value, elements: &[Value]) -> Vec<Value> {
        let mut all = elements.to_vec();
        if let Some(Shifted { field, value, fill }) = self.shifted[scan.0 as usize] {
            all[field] = value;
            all.push(fill);
        }
        all
    }

    /// The level of a value and that of its messages.
    fn level(&self, program: &Program, value: Value, exchange: Option<Exchange>) -> (usize, usize) {
        let op = &program.node(value).op;
        let most = |values: &[Value]| values.iter().map(|v| self.of[v.0 as usize]).max().unwrap_or(0);
        match (exchange, op) {
            (Some(Exchange::Scan), Op::Scan { elements, init, .. }) => {
                let sent = most(&self.elements(value, elements));
                (most(init).max(sent + 1), sent)
            }
            (Some(Exchange::Reduce), Op::Reduce { elements, .. }) => (most(elements) + 1, most(elements)),
            (Some(Exchange::LastState { scan, .. }), Op::Last { empty, .. } | Op::First { empty, .. }) => {
                debug_assert!(matches!(program.node(scan).op, Op::Scan { .. }));
                (most(&[scan, *empty]), 0)
            }
            (Some(Exchange::End), Op::Last { value, empty, .. } | Op::First { value, empty, .. }) => {
                ((most(&[*value]) + 1).max(most(&[*empty])), most(&[*value]))
            }
            (Some(Exchange::Shift), Op::Shift { value, fill, .. }) => {
                ((most(&[*value]) + 1).max(most(&[*fill])), most(&[*value]))
            }
            (Some(Exchange::Gather), op) => (most(&op.operands()) + 1, most(&op.operands())),
            _ => (most(&op.operands()), 0),
        }
    }
}

/// The exchange that a value needs, if any.
fn exchange(program: &Program, along: Axis, value: Value) -> Option<Exchange> {
    match program.node(value).op {
        Op::Scan { axis, .. } if axis == along => Some(Exchange::Scan),
        Op::Reduce { axis, .. } if axis == along => Some(Exchange::Reduce),
        Op::Shift { axis, by, .. } if axis == along && by != 0 => Some(Exchange::Shift),
        Op::Gather { axis, .. } if axis == along => Some(Exchange::Gather),
        Op::Last { axis, .. } | Op::First { axis, .. } if axis == along => {
            let last_state = last_state(program, along, value);
            Some(last_state.map_or(Exchange::End, |(scan, field)| Exchange::LastState { scan, field }))
        }
        _ => None,
    }
}

/// The scan and the field of the last state that a value is: the end of an inclusive scan in the direction of its walk.
pub(super) fn last_state(program: &Program, along: Axis, value: Value) -> Option<(Value, u32)> {
    let (of, is_first) = match program.node(value).op {
        Op::Last { axis, value, .. } if axis == along => (value, false),
        Op::First { axis, value, .. } if axis == along => (value, true),
        _ => return None,
    };
    let Op::Field(scan, field) = program.node(of).op else { return None };
    match program.node(scan).op {
        Op::Scan { axis, reverse, exclusive: false, .. } if axis == along && reverse == is_first => Some((scan, field)),
        _ => None,
    }
}

/// Whether what an end gives for an empty axis is the state that its scan starts from.
pub(super) fn is_initial(program: &Program, scan: Value, field: u32, empty: Value) -> bool {
    let Op::Scan { operator, init, .. } = &program.node(scan).op else { return false };
    match init.get(field as usize) {
        Some(init) => *init == empty,
        None => {
            let identity: Literal = program.operator(*operator).identity[field as usize];
            program.node(empty).op == Op::Const(identity)
        }
    }
}

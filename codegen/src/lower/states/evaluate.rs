//! Values at a state and a step: emitted once for all the points that share them.
//!
//! A lane holds several states of a row and several steps at once. A value that lacks the state axis is the same for
//! all of its states, one that lacks time for all steps; so a value is known by its node, the state and the step that it
//! depends on, and softplus(delta) is computed once per step, not once per state.

use crate::build::Builder;
use crate::lower::point::{Term, fused};
use crate::lower::scalar::emit_map;
use crate::tile::Operand;
use oplus_dsl::ir::{Axis, Program, Value};
use std::collections::HashMap;

/// A state of a lane and a step of its chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Place {
    /// Which of the lane's states.
    pub state: u32,
    /// Which of the steps at hand.
    pub step: u32,
}

/// Where values come from that are not maps of others, or are at hand already.
pub(super) trait Source {
    /// The value at a place, if it need not be computed. A node that is no map must be here.
    fn leaf(&mut self, b: &mut Builder, value: Value, at: Place) -> Option<Operand>;
}

/// The values emitted so far.
#[derive(Clone)]
pub(super) struct Evaluator<'p> {
    program: &'p Program,
    time: Axis,
    state: Axis,
    memo: HashMap<(Value, Place), Operand>,
}

impl<'p> Evaluator<'p> {
    /// Nothing is known yet.
    pub(super) fn new(program: &'p Program, time: Axis, state: Axis) -> Evaluator<'p> {
        Evaluator { program, time, state, memo: HashMap::new() }
    }

    /// The value at a place.
    pub(super) fn value(&mut self, b: &mut Builder, source: &mut dyn Source, value: Value, at: Place) -> Operand {
        let axes = self.program.node(value).axes;
        let own = Place {
            state: if axes.contains(self.state) { at.state } else { 0 },
            step: if axes.contains(self.time) { at.step } else { 0 },
        };
        if let Some(known) = self.memo.get(&(value, own)) {
            return *known;
        }
        let result = match source.leaf(b, value, own) {
            Some(leaf) => leaf,
            None => self.map(b, source, value, at),
        };
        self.memo.insert((value, own), result);
        result
    }

    fn map(&mut self, b: &mut Builder, source: &mut dyn Source, value: Value, at: Place) -> Operand {
        let program = self.program;
        let node = program.node(value);
        if let Some(terms) = fused(&node.op, node.ty, |v| &program.node(v).op) {
            let [x, y, z] = terms.map(|term: Term| {
                let value = self.value(b, source, term.value, at);
                term.signed(b, value)
            });
            return b.fma(x, y, z);
        }
        let operands: Vec<Operand> = node.op.operands().iter().map(|v| self.value(b, source, *v, at)).collect();
        emit_map(b, &node.op, node.ty, &operands)
    }
}

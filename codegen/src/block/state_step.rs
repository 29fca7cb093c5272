//! Values at a state and a step: emitted once for all the points that share them.
//!
//! A lane holds several states of a row and several steps at once. A value that lacks the state axis is the same for
//! all of its states, one that lacks time for all steps; so a value is known by its node, the state and the step that it
//! depends on, and softplus(delta) is computed once per step, not once per state.

use super::evaluate::{Emitted, Evaluate, evaluate};
use crate::build::Builder;
use crate::tile::Operand;
use oplus_dsl::ir::{Axis, Node, Program, Value};

/// A state of a lane and a step of its chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct StateStep {
    /// Which of the lane's states.
    pub state: u32,
    /// Which of the steps at hand.
    pub step: u32,
}

/// The source of values that are not maps of others, or are known already.
pub(crate) trait Source {
    /// The value at a state and step, if it need not be computed. A node that is no map must be here.
    fn leaf(&mut self, b: &mut Builder, value: Value, at: StateStep) -> Option<Operand>;
}

/// The values emitted so far.
#[derive(Clone)]
pub(crate) struct Evaluator<'p> {
    program: &'p Program,
    time: Axis,
    state: Axis,
    emitted: Emitted<StateStep>,
}

impl<'p> Evaluator<'p> {
    /// An evaluator to which nothing is known yet.
    pub(crate) fn new(program: &'p Program, time: Axis, state: Axis) -> Evaluator<'p> {
        Evaluator { program, time, state, emitted: Emitted::new() }
    }

    /// The value at a state and step.
    pub(crate) fn value(&mut self, b: &mut Builder, source: &mut dyn Source, value: Value, at: StateStep) -> Operand {
        evaluate(&mut From { evaluator: self, source }, b, value, at)
    }
}

/// The values emitted so far, and the source of others.
struct From<'a, 'p> {
    evaluator: &'a mut Evaluator<'p>,
    source: &'a mut dyn Source,
}

impl Evaluate for From<'_, '_> {
    type Place = StateStep;

    fn node(&self, value: Value) -> &Node {
        self.evaluator.program.node(value)
    }

    fn own(&self, value: Value, at: StateStep) -> StateStep {
        let axes = self.node(value).axes;
        StateStep {
            state: if axes.contains(self.evaluator.state) { at.state } else { 0 },
            step: if axes.contains(self.evaluator.time) { at.step } else { 0 },
        }
    }

    fn leaf(&mut self, b: &mut Builder, value: Value, own: StateStep) -> Option<Operand> {
        self.source.leaf(b, value, own)
    }

    fn emitted(&mut self) -> &mut Emitted<StateStep> {
        &mut self.evaluator.emitted
    }
}

//! A gradient of packed sequences while it becomes that of one sequence.
//!
//! A gradient of packed sequences reads the states before each step, those of a scan along all times, as zero where a sequence begins, and
//! adds there what the initial states of sequences contribute. So a value has [three views](Views), in each of which the conditions have
//! one value. In the program of one sequence the state before the first step is the initial one. A value is the same in all views
//! if, with the initial state in the place of the state before the step, its form elsewhere becomes that of a first time, as sums of products.

use std::collections::HashMap;

use oplus_dsl::build::Builder;
use oplus_dsl::ir::{MatrixScan, Program, Value};

use super::alike::alike;
use super::normal::{At, Instead, Normal};
use super::one::{Begun, Packed};

/// A value at the first time of a sequence, at the first of the times that no sequence has, and elsewhere.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Views(pub [Value; 3]);

/// The place of the view elsewhere.
pub(super) const ELSEWHERE: usize = 2;

/// The counterpart, in the program of one sequence, of a value of the program of all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Place {
    /// A value at every time, or of every sequence.
    Known(Views),
    /// A value at each sequence's last time, zero elsewhere, and another one beside it.
    AtLast(Value, Option<Value>),
    /// A value of sequences that have a time, zero for others.
    OfSome(Value),
    /// A value of sequences that have no time, zero for others.
    OfNone(Value),
    /// A value of sequences that have a time, zero for others, for which it would have another value.
    Picked(Value, Value),
    /// The tuple of a scan of states, which lacks the flag that is its first field in the program; and whether it has those before each step.
    Forward(Value, bool),
    /// The tuple of a scan of cotangents.
    Back(Value),
    /// Nothing of one sequence.
    Unknown,
}

/// A recurrence of cotangents: its states, and by what the first of them becomes the cotangent of the initial state.
pub(super) struct Cotangents {
    pub(super) states: Value,
    /// The cotangents of last states, if they have any.
    pub(super) last: Option<Value>,
    pub(super) step: Step,
}

/// The factor of the state in a step.
pub(super) enum Step {
    /// A decay.
    Decay(Value),
    /// The matrix of the recurrence of states.
    Matrix,
}

/// A gradient while it is made that of one sequence.
pub(super) struct Rewriting<'a> {
    pub(super) program: &'a Program,
    pub(super) packed: &'a Packed,
    pub(super) scans: HashMap<Value, Begun>,
    /// The program of one sequence.
    pub(super) b: Builder,
    /// For each value of the program so far, what it is there.
    pub(super) places: Vec<Place>,
    /// For each state before a step, the state before the first step: that of a sequence, and where there is none.
    pub(super) entered: HashMap<Value, Instead>,
    pub(super) begun: HashMap<Value, Instead>,
    /// The recurrences of states that are no scans.
    pub(super) forward: Vec<MatrixScan>,
    pub(super) cotangents: Vec<Cotangents>,
}

impl Rewriting<'_> {
    /// The value of the program of one sequence that a value is at every time, or for every sequence; `None` where there is none.
    pub(super) fn whole(&mut self, value: Value) -> Option<Value> {
        match self.places[value.0 as usize] {
            Place::Known(views) => self.merged(views),
            _ => None,
        }
    }

    /// Whether a value is a scan or a field of one.
    pub(super) fn is_scan(&self, value: Value) -> bool {
        matches!(self.places[value.0 as usize], Place::Forward(..) | Place::Back(_))
    }

    /// Whether two values of the program are the same.
    pub(super) fn is(&self, value: Value, expected: Value) -> bool {
        let nodes = [value, expected].map(|v| self.packed.b.program().node(v));
        nodes[0].ty == nodes[1].ty && nodes[0].axes == nodes[1].axes && alike(&self.packed.b, &[[value, expected]])
    }

    pub(super) fn views(&self, value: Value) -> Option<Views> {
        if let Place::Known(views) = self.places[value.0 as usize] { Some(views) } else { None }
    }

    pub(super) fn elsewhere(&self, value: Value) -> Option<Value> {
        Some(self.views(value)?.0[ELSEWHERE])
    }

    /// A value that does not depend on where a sequence begins.
    pub(super) fn plain(&self, value: Value) -> Option<Value> {
        let Views(views) = self.views(value)?;
        views.iter().all(|view| *view == views[0]).then_some(views[0])
    }

    pub(super) fn same(value: Value) -> Place {
        Place::Known(Views([value; 3]))
    }

    /// The value that has these views.
    pub(super) fn merged(&mut self, views: Views) -> Option<Value> {
        let Views([first, bare, elsewhere]) = views;
        if first == elsewhere && bare == elsewhere {
            return Some(elsewhere);
        }
        let none = HashMap::new();
        let of = |value: Value, instead: &HashMap<Value, Instead>| Normal::new(&self.b, instead, At::AnyTime).of(value);
        let is_own = of(elsewhere, &self.entered) == of(first, &none) && of(elsewhere, &self.begun) == of(bare, &none);
        is_own.then_some(elsewhere)
    }
}

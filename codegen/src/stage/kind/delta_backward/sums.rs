//! The search for the sums of a gradient of a delta rule.

use std::collections::BTreeSet;

use oplus_dsl::ir::{Axis, Binary, Op, Program, Term, Value};

use super::{DeltaRuleBackward, DeltaSum, OVER_DEPTH};
use crate::stage::kind::delta::{Channels, DeltaRule, Factored, Find};
use crate::stage::kind::product::is;
use crate::stage::opposite::narrow;
use crate::stage::{Recurrence, Refusal};

/// The sums of a stage, as they are found.
pub(super) struct Sums<'s> {
    pub program: &'s Program,
    pub form: &'s mut DeltaRuleBackward,
    pub forward: Recurrence<'s>,
    pub back: Recurrence<'s>,
}

/// The states in a product.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    After,
    Before,
    Cotangent,
}

impl Sums<'_> {
    /// Finds the sums of the stage.
    pub(super) fn find(&mut self) -> Result<(), Refusal> {
        let program = self.program;
        // The reads of the state; and the sums of reads and of values with cotangents, which are terms of differences.
        let (mut reads, mut parts) = (BTreeSet::new(), vec![]);
        // The sums over one axis of the energy.
        let mut halves: Vec<(Value, Axis)> = vec![];
        for (value, node) in (0..).map(Value).zip(&program.nodes) {
            if let Op::Binary(Binary::Sub, x, y) = node.op
                && let [Some(x), Some(y)] = [x, y].map(|v| parts.iter().find(|(own, _)| *own == narrow(program, v)))
                && (x.1, y.1) == (Part::Values, Part::Reads)
            {
                self.add(value, DeltaSum::Keys, vec![], false);
            }
            if self.is_initial(value) {
                self.add(value, DeltaSum::Initial, vec![], false);
            }
            let Op::Field(tuple, 0) = node.op else { continue };
            let Op::Reduce { axis, elements, .. } = &program.node(tuple).op else { continue };
            let (axis, element) = (*axis, elements[0]);
            if !program.node(element).axes.contains(self.form.states.time) {
                // A part of the cotangent of the state before the first step.
                continue;
            }
            if let Some((_, other)) = halves.iter().find(|(own, _)| *own == narrow(program, element))
                && *other != axis
            {
                self.add(value, DeltaSum::Energy, vec![], false);
                continue;
            }
            if !program.node(element).axes.contains(self.form.states.width) && axis == self.form.states.depth {
                self.total(value, element)?;
                continue;
            }
            let find = self.form.states.find(program);
            let found = self.product(&find, element, axis, &reads);
            match found.ok_or_else(|| self.not_query(axis))? {
                Found::Sum(sum, (factors, negative)) => self.add(value, sum, factors, negative),
                Found::Read => _ = reads.insert(value),
                Found::Part(part) => parts.push((value, part)),
                Found::Energy if self.form.states.channels.is_none() => halves.push((value, axis)),
                Found::Energy if axis == self.form.states.width => self.add(value, DeltaSum::Energies, vec![], false),
                Found::Energy => return Err(self.not_query(axis)),
            }
        }
        Ok(())
    }

    fn not_query(&self, axis: Axis) -> Refusal {
        Refusal::NotQuery { axis: self.program.axis_name(axis).to_owned() }
    }

    fn add(&mut self, value: Value, sum: DeltaSum, factors: Vec<Value>, negative: bool) {
        self.form.sums.push((value, sum, Factored { param: 0, factors, negative }));
    }

    /// The kind of states that a factor is, if it is some.
    fn states(&self, value: Value) -> Option<Of> {
        let value = narrow(self.program, value);
        if Some(value) == self.back.inclusive {
            return Some(Of::Cotangent);
        }
        if Some(value) == self.forward.inclusive {
            return Some(Of::After);
        }
        let before = self.forward.exclusive?;
        let is_before = match (&self.program.node(value).op, self.form.states.reset) {
            (Op::Select(condition, zero, own), Some(reset)) => {
                let [condition, reset, own] = [*condition, reset, *own].map(|v| narrow(self.program, v));
                condition == reset && is(self.program, *zero, 0.0) && own == before
            }
            (_, None) => value == before,
            _ => false,
        };
        is_before.then_some(Of::Before)
    }

    /// Finds the meaning of the sum of a product over an axis.
    fn product(&self, find: &Find<'_>, element: Value, axis: Axis, reads: &BTreeSet<Value>) -> Option<Found> {
        let form = &*self.form;
        let DeltaRule { depth, width, .. } = form.states;
        let mut factors = find.factors(element);
        let mut states: Vec<Of> = vec![];
        factors.values.retain(|v| {
            self.states(*v).is_none_or(|of| {
                states.push(of);
                false
            })
        });
        states.sort_by_key(|of| *of == Of::Cotangent);
        if states == [Of::Before, Of::Cotangent] {
            return (factors.values.is_empty() && !factors.negative).then_some(Found::Energy);
        }
        let [of] = states[..] else { return None };
        let lacks = |all: &[Value]| {
            all.iter().all(|v| [depth, width].iter().all(|axis| !self.program.node(*v).axes.contains(*axis)))
        };
        if axis == depth {
            let is_decayed = of == Of::Before && form.states.channels == Some(Channels::ReadAfter);
            if is_decayed {
                let decay = narrow(self.program, self.forward.scan.decay);
                let place = factors.values.iter().position(|v| *v == decay)?;
                factors.values.remove(place);
            }
            let param = find.take(&mut factors, depth)?;
            let is_alone = factors.values.iter().all(|v| !self.program.node(*v).axes.contains(depth));
            let sorted = |all: &[Value]| {
                let mut all = all.to_vec();
                all.sort();
                all
            };
            let column = &form.states.column;
            let is_column = param == column.param && factors.negative == column.negative;
            return match of {
                Of::Before if is_column && sorted(&factors.values) == sorted(&column.factors) => Some(Found::Read),
                Of::Cotangent if is_alone && param == form.states.row.param && lacks(&factors.values) => {
                    Some(Found::Sum(DeltaSum::Rows, (factors.values, factors.negative)))
                }
                Of::Cotangent if is_alone && param == form.states.key && lacks(&factors.values) => {
                    Some(Found::Sum(DeltaSum::ValueRows, (factors.values, factors.negative)))
                }
                _ => None,
            };
        }
        // Over the width.
        let place = factors.values.iter().position(|v| self.program.node(*v).axes.contains(width))?;
        let along = narrow(self.program, factors.values.remove(place));
        let none = factors.values.is_empty() && !factors.negative;
        let (is_lacking, has_two) = (lacks(&factors.values), form.states.has_two_keys());
        let is_param = |param: u32| self.program.node(along).op == Op::Param(param);
        let rows = form.sums.iter().find(|(value, sum, _)| (*value, *sum) == (along, DeltaSum::Rows));
        match of {
            Of::After if is_lacking && is_param(form.cotangents.value.param) => {
                Some(Found::Sum(DeltaSum::Queries, (factors.values, factors.negative)))
            }
            Of::Before if is_lacking => {
                let (_, _, own) = rows?;
                factors.values.extend(&own.factors);
                Some(Found::Sum(DeltaSum::Columns, (factors.values, factors.negative != own.negative)))
            }
            Of::Cotangent if has_two && is_lacking && is_param(form.states.value.param) => {
                Some(Found::Sum(DeltaSum::Values, (factors.values, factors.negative)))
            }
            Of::Cotangent if has_two && is_lacking && reads.contains(&along) => {
                Some(Found::Sum(DeltaSum::Reads, (factors.values, factors.negative)))
            }
            Of::Cotangent if none && is_param(form.states.value.param) => Some(Found::Part(Part::Values)),
            Of::Cotangent if none && reads.contains(&along) => Some(Found::Part(Part::Reads)),
            _ => None,
        }
    }

    /// A sum over the depth of a map of vectors along it.
    fn total(&mut self, value: Value, element: Value) -> Result<(), Refusal> {
        if !self.form.is_map(self.program, element, OVER_DEPTH) {
            return Err(self.not_query(self.form.states.depth));
        }
        self.form.totals.push((value, element));
        Ok(())
    }

    /// Whether a value is the cotangent of the state before the first step: Λ\[0\] times the matrix of the first step.
    fn is_initial(&self, value: Value) -> bool {
        let program = self.program;
        let Op::Binary(Binary::Add, x, y) = program.node(value).op else { return false };
        let own = self.forward.scan;
        let [Term::Pair { column, row }] = own.terms[..] else { return false };
        let first = |v: Value, of: Value| matches!(program.node(narrow(program, v)).op, Op::First { value, .. } if narrow(program, value) == narrow(program, of));
        let Some(dual) = self.back.inclusive else { return false };
        let product = |v: Value| match program.node(narrow(program, v)).op {
            Op::Binary(Binary::Mul, x, y) => Some([x, y]),
            _ => None,
        };
        let either = |[x, y]: [Value; 2], is: &dyn Fn(Value, Value) -> bool| is(x, y) || is(y, x);
        let is_decayed = |v: Value| {
            (is(program, own.decay, 1.0) && first(v, dual))
                || product(v).is_some_and(|two| either(two, &|x, y| first(x, dual) && first(y, own.decay)))
        };
        let is_read = |v: Value| {
            let Op::Field(tuple, 0) = program.node(narrow(program, v)).op else { return false };
            let Op::Reduce { axis, elements, .. } = &program.node(tuple).op else { return false };
            *axis == own.along
                && product(elements[0]).is_some_and(|two| either(two, &|x, y| first(x, dual) && first(y, row)))
        };
        let is_moved = |v: Value| product(v).is_some_and(|two| either(two, &|x, y| is_read(x) && first(y, column)));
        own.reset.is_none() && either([x, y], &|x, y| is_decayed(x) && is_moved(y))
    }
}

/// The meaning of a sum of a product.
enum Found {
    Sum(DeltaSum, (Vec<Value>, bool)),
    /// S\[t−1\]·z\[t\].
    Read,
    /// A part of a difference that is a sum.
    Part(Part),
    /// The energy's sum over one of its axes.
    Energy,
}

/// The parts of Σ over the width of e·Λ = x·Λ − (S·z)·Λ.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Values,
    Reads,
}

//! The recurrences of cotangents of a gradient, as those of one sequence, and the cotangents of initial states.

use oplus_dsl::Ty;
use oplus_dsl::ir::{AxisSet, Binary, MatrixScan, Op, Term, Value};

use super::normal::{At, Normal};
use super::rewriting::{Cotangents, Place, Rewriting, Step, Views};
use crate::stage::opposite::{is_affine, is_zero};

impl Rewriting<'_> {
    /// A value over time that was displaced by one step, before that.
    fn before_shift(&self, value: Value) -> Option<Value> {
        match self.program.node(value).op {
            Op::Shift { axis, by: -1, value, .. } if axis == self.packed.time => Some(value),
            _ => None,
        }
    }

    /// A scan of cotangents, whose decays are 0 where a sequence begins.
    pub(super) fn back_scan(&mut self, op: &Op) -> Option<Place> {
        let Op::Scan { axis, operator, elements, init, exclusive: false, .. } = op else { return None };
        let operator = self.program.operator(*operator).clone();
        let [decay, added] = elements[..] else { return None };
        if !init.is_empty() || !is_affine(&operator) {
            return None;
        }
        let Views([first, bare, decay]) = self.views(self.before_shift(decay)?)?;
        if [first, bare].into_iter().any(|v| !is_zero(self.b.program(), v)) {
            return None;
        }
        let (last, added) = self.parts(added)?;
        let one = self.b.float(Ty::F32, 1.0).ok()?;
        let shifted = self.b.shift(*axis, -1, decay, one).ok()?;
        let added = added.map_or_else(|| self.b.float(Ty::F32, 0.0).ok(), Some)?;
        let init = vec![one, self.last_or_nothing(last)?];
        let operator = self.b.operator(operator);
        let elements = vec![shifted, added];
        let scan = Op::Scan { axis: *axis, operator, elements, init, reverse: true, exclusive: false };
        let scan = self.b.append(scan, Ty::Tuple, AxisSet::EMPTY).ok()?;
        let states = self.b.field(scan, 1).ok()?;
        self.cotangents.push(Cotangents { states, last, step: Step::Decay(decay) });
        Some(Place::Back(scan))
    }

    /// A recurrence of cotangents by matrices, which forgets its state where a sequence begins.
    pub(super) fn back_recurrence(&mut self, scan: &MatrixScan) -> Option<Place> {
        let is_forgotten = scan.reset.and_then(|reset| self.before_shift(reset)) == Some(self.packed.starts);
        if !scan.reverse || scan.exclusive || !is_forgotten || !is_zero(self.program, scan.init) {
            return None;
        }
        let (last, input) = self.parts(scan.input)?;
        let zero = self.b.float(Ty::F32, 0.0).ok()?;
        let mut own = MatrixScan { reset: None, init: zero, input: zero, ..scan.clone() };
        own.decay = self.next(scan.decay, 1.0, last.is_some())?;
        for (own, term) in own.terms.iter_mut().zip(&scan.terms) {
            let (Term::Pair { column, row }, Term::Pair { column: z, row: b }) = (own, term) else {
                return None;
            };
            *column = self.next(*z, 0.0, last.is_some())?;
            *row = self.next(*b, 0.0, last.is_some())?;
        }
        own.input = input.unwrap_or(zero);
        own.init = self.last_or_nothing(last)?;
        let states = self.b.matrix_scan(own).ok()?;
        self.cotangents.push(Cotangents { states, last, step: Step::Matrix });
        Some(Self::same(states))
    }

    /// The cotangent of last states, each sequence's own, also where it is 0.
    pub(super) fn last_or_nothing(&mut self, last: Option<Value>) -> Option<Value> {
        last.map_or_else(|| self.nothing(), Some)
    }

    /// 0 for each sequence.
    fn nothing(&mut self) -> Option<Value> {
        let zero = self.b.float(Ty::F32, 0.0).ok()?;
        self.b.broadcast(zero, AxisSet::of(self.packed.packing.sequences())).ok()
    }

    /// A factor of the next step, which leaves the state behind the last step as it is.
    fn next(&mut self, value: Value, fill: f64, has_last: bool) -> Option<Value> {
        let fill = self.b.float(Ty::F32, fill).ok()?;
        match self.before_shift(value) {
            Some(before) => {
                let before = self.elsewhere(before)?;
                self.b.shift(self.packed.time, -1, before, fill).ok()
            }
            None => {
                let own = self.plain(value)?;
                // A constant has no value behind the last step but its own.
                (!has_last || own == fill).then_some(own)
            }
        }
    }

    /// The addends of a recurrence of cotangents: the cotangent of last states, and the addend of every time.
    pub(super) fn parts(&mut self, value: Value) -> Option<(Option<Value>, Option<Value>)> {
        match self.places[value.0 as usize] {
            Place::AtLast(last, added) => Some((Some(last), added)),
            Place::Known(views) => Some((None, Some(self.merged(views)?))),
            _ => None,
        }
    }

    /// The cotangent of initial states, which at the first time of a sequence is this value.
    pub(super) fn initial(&mut self, value: Value) -> Option<Place> {
        for k in 0..self.cotangents.len() {
            let last = self.cotangents[k].last;
            let empty = self.last_or_nothing(last)?;
            let own = self.first_cotangent(k, empty)?;
            // Initial states that are repeated have the sum of their cotangents.
            let [of_states, of_value] = [own, value].map(|v| self.b.axes_of(v));
            let repeated = of_states.ok()?.minus(of_value.ok()?);
            let own = self.sum_over(repeated, own)?;
            let mut normal = Normal::new(&self.b, &self.entered, At::FirstTime);
            if normal.of(own) == normal.of(value) {
                let Some(last) = last else { return Some(Self::same(own)) };
                return Some(Place::Picked(own, self.sum_over(repeated, last)?));
            }
        }
        None
    }

    fn sum_over(&mut self, axes: AxisSet, value: Value) -> Option<Value> {
        axes.iter().try_fold(value, |sum, axis| self.b.sum(axis, sum).ok())
    }

    /// The cotangent of the state before the first step, in the form in which a gradient of one sequence has it.
    fn first_cotangent(&mut self, number: usize, empty: Value) -> Option<Value> {
        let (time, Cotangents { states, step, .. }) = (self.packed.time, &self.cotangents[number]);
        let (one, zero) = (self.b.float(Ty::F32, 1.0).ok()?, self.b.float(Ty::F32, 0.0).ok()?);
        match step {
            Step::Decay(decay) => {
                let product = self.b.binary(Binary::Mul, *decay, *states).ok()?;
                self.b.first(time, product, empty).ok()
            }
            Step::Matrix => {
                let lambda = self.b.first(time, *states, empty).ok()?;
                let mut step = self.forward.first().cloned()?;
                let mut of_first = |value: Value, fill: Value| match self.b.axes_of(value).ok()?.contains(time) {
                    true => self.b.first(time, value, fill).ok(),
                    // There may be no first step, at which a constant would have a value all the same.
                    false => (value == fill).then_some(value),
                };
                step.decay = of_first(step.decay, one)?;
                for term in &mut step.terms {
                    let Term::Pair { column, row } = *term else { return None };
                    *term = Term::Pair { column: of_first(row, zero)?, row: of_first(column, zero)? };
                }
                self.b.matrix_step(&step, lambda).ok()
            }
        }
    }
}

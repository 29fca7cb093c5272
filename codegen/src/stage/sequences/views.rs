//! The program of one sequence for a gradient: each value as it is where a sequence begins, and elsewhere.
//!
//! A gradient of packed sequences reads the states before each step, those of a scan along all times, as zero where a sequence begins, and
//! adds there what the initial states of sequences contribute. So a value has [three views](Views), in each of which the conditions have
//! one value. In the program of one sequence the state before the first step is the initial one. A value is the same in all views
//! if, with the initial state in the place of the state before the step, its form elsewhere becomes that of a first time, as sums of products.

use std::collections::HashMap;

use oplus_dsl::Ty;
use oplus_dsl::build::Builder;
use oplus_dsl::ir::{Axis, AxisSet, Binary, Literal, MatrixScan, Node, Op, Param, Program, Unary, Value};
use oplus_dsl::transition::is_sum;

use super::alike::alike;
use super::goes_along;
use super::normal::{Instead, Normal};
use super::one::{Begun, OneScan, Packed};
use crate::stage::opposite::{is_affine, is_zero};

/// A value at the first time of a sequence, at the first of the times that no sequence has, and elsewhere.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Views([Value; 3]);

/// The place of the view elsewhere.
const ELSEWHERE: usize = 2;

/// What a value of the program of all sequences is in that of one.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Known(Views),
    /// A value at each sequence's last time, zero elsewhere, and another one beside it.
    AtLast(Value, Option<Value>),
    /// A value of sequences that have a time, zero for others.
    OfSome(Value),
    /// A value of sequences that have no time, zero for others.
    OfNone(Value),
    /// A value of sequences that have a time, zero for others, for which it would have another value.
    Picked(Value, Value),
    /// The fields of scans, by their tuple: forward ones have the flag as their first field.
    Forward(Value, bool),
    Back(Value),
    Unknown,
}

/// A recurrence of cotangents: its states, and by what the first of them becomes the cotangent of the initial state.
struct Cotangents {
    states: Value,
    last: Option<Value>,
    step: Step,
}

enum Step {
    Decay(Value),
    Matrix(Box<MatrixScan>),
}

/// A gradient while it is made that of one sequence.
pub(super) struct Rewriting<'a> {
    program: &'a Program,
    packed: &'a Packed,
    scans: HashMap<Value, Begun>,
    pub(super) b: Builder,
    places: Vec<Place>,
    /// For each state before a step, the initial one, or the number that it is.
    entered: HashMap<Value, Instead>,
    begun: HashMap<Value, Instead>,
    forward: Vec<MatrixScan>,
    cotangents: Vec<Cotangents>,
}

impl<'a> Rewriting<'a> {
    /// All values of a program in that of one sequence, whose tensors along time have the axis of sequences.
    pub(super) fn of(program: &'a Program, packed: &'a Packed, scans: HashMap<Value, Begun>) -> Rewriting<'a> {
        let (time, sequences) = (packed.time, packed.packing.sequences());
        let with_sequences = |param: &Param| {
            let mut param = param.clone();
            if param.axes.contains(&time) && !param.axes.contains(&sequences) {
                param.axes.insert(0, sequences);
            }
            param
        };
        let params = program.params.iter().map(with_sequences).collect();
        let b = Builder::from_program(Program { params, nodes: vec![], outputs: vec![], ..program.clone() });
        let (entered, begun) = (HashMap::new(), HashMap::new());
        let (forward, cotangents) = (vec![], vec![]);
        let mut own = Rewriting { program, packed, scans, b, places: vec![], entered, begun, forward, cotangents };
        for (k, node) in program.nodes.iter().enumerate() {
            let place = own.place(Value(k as u32), node).unwrap_or(Place::Unknown);
            own.places.push(place);
        }
        own
    }

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

    fn place(&mut self, value: Value, node: &Node) -> Option<Place> {
        if self.scans.contains_key(&value) {
            return self.forward_scan(value);
        }
        match &node.op {
            Op::Starts { .. } if value == self.packed.starts => self.condition([true, true, false]),
            Op::Scan { axis, reverse: true, .. } if *axis == self.packed.time => self.back_scan(&node.op),
            Op::MatrixScan(scan) if scan.axis == self.packed.time => self.back_recurrence(scan),
            Op::Field(tuple, k) => self.field(*tuple, *k, node),
            Op::Gather { axis, to, .. } if [*axis, *to].contains(&self.packed.time) => self.gather(value, &node.op),
            op if goes_along(op, self.packed.time) || goes_along(op, self.packed.packing.sequences()) => None,
            Op::Binary(Binary::Ge, ..) if self.is(value, self.packed.is_first) => self.condition([true, false, false]),
            Op::Select(condition, x, y) if self.is(*condition, self.packed.is_some) => self.of_sequences(*x, *y),
            Op::Binary(Binary::Add, x, y) => self.added(*x, *y).or_else(|| self.map(node)),
            Op::Reduce { axis, operator, elements } => {
                let added = |own: &mut Self, v: Value| own.summed(*axis, *operator, v);
                self.each_of_sequences(elements, added).or_else(|| self.map(node))
            }
            _ => self.map(node),
        }
    }

    /// Whether two values of the program are the same.
    fn is(&self, value: Value, expected: Value) -> bool {
        let nodes = [value, expected].map(|v| self.packed.b.program().node(v));
        nodes[0].ty == nodes[1].ty && nodes[0].axes == nodes[1].axes && alike(&self.packed.b, &[[value, expected]])
    }

    fn condition(&mut self, views: [bool; 3]) -> Option<Place> {
        let mut found = vec![];
        for holds in views {
            found.push(self.b.constant(Ty::Bool, Literal::Bool(holds)).ok()?);
        }
        Some(Place::Known(Views(found.try_into().ok()?)))
    }

    /// A map of values, in each of its views.
    fn map(&mut self, node: &Node) -> Option<Place> {
        let operands = node.op.operands();
        let views: Vec<Views> = operands.iter().map(|v| self.views(*v)).collect::<Option<_>>()?;
        let mut found: Vec<Value> = vec![];
        for k in 0..3 {
            if k > 0 && views.iter().all(|views| views.0[k] == views.0[k - 1]) {
                found.push(found[k - 1]);
                continue;
            }
            let own = |v: Value| operands.iter().position(|o| *o == v).map_or(v, |place| views[place].0[k]);
            let chosen = match node.op {
                Op::Select(condition, x, y) => self.holds(own(condition)).map(|holds| if holds { x } else { y }),
                _ => None,
            };
            let masked = if views.iter().all(|views| views.0[0] == views.0[ELSEWHERE]) { None } else { self.masked(&node.op, own) };
            found.push(match (chosen, masked) {
                (Some(chosen), _) => own(chosen),
                (None, Some(masked)) => masked,
                (None, None) => self.b.append(node.op.map_operands(own), node.ty, node.axes).ok()?,
            });
        }
        Some(Place::Known(Views(found.try_into().ok()?)))
    }

    /// What an operation gives where some operands are masked by 0.
    fn masked(&mut self, op: &Op, own: impl Fn(Value) -> Value) -> Option<Value> {
        let is_nothing = |v: Value| is_zero(self.b.program(), own(v));
        match *op {
            Op::Binary(Binary::Mul, x, y) if is_nothing(x) || is_nothing(y) => self.b.float(Ty::F32, 0.0).ok(),
            Op::Binary(Binary::Add, x, y) if is_nothing(x) => Some(own(y)),
            Op::Binary(Binary::Add | Binary::Sub, x, y) if is_nothing(y) => Some(own(x)),
            Op::Binary(Binary::Sub, x, y) if is_nothing(x) => self.b.unary(Unary::Neg, own(y)).ok(),
            Op::Select(_, x, y) if is_nothing(x) && is_nothing(y) => Some(own(x)),
            Op::Unary(Unary::Neg, x) | Op::Broadcast(x) | Op::Field(x, 0) if is_nothing(x) => Some(own(x)),
            Op::Reduce { operator, ref elements, .. } if is_sum(self.program.operator(operator)) => {
                is_nothing(elements[0]).then(|| own(elements[0]))
            }
            _ => None,
        }
    }

    fn holds(&self, condition: Value) -> Option<bool> {
        match self.b.program().node(condition).op {
            Op::Const(Literal::Bool(holds)) => Some(holds),
            _ => None,
        }
    }

    fn views(&self, value: Value) -> Option<Views> {
        if let Place::Known(views) = self.places[value.0 as usize] { Some(views) } else { None }
    }

    fn elsewhere(&self, value: Value) -> Option<Value> {
        Some(self.views(value)?.0[ELSEWHERE])
    }

    /// A value that does not depend on where a sequence begins.
    fn plain(&self, value: Value) -> Option<Value> {
        let Views(views) = self.views(value)?;
        views.iter().all(|view| *view == views[0]).then_some(views[0])
    }

    fn same(value: Value) -> Place {
        Place::Known(Views([value; 3]))
    }

    /// A scan of states from the first time to the last.
    fn forward_scan(&mut self, value: Value) -> Option<Place> {
        let begun = self.scans.get(&value)?;
        let sequences = AxisSet::of(self.packed.packing.sequences());
        let has_states = begun.init.iter().any(Option::is_some);
        let mut init = vec![];
        for (state, (ty, identity)) in begun.init.iter().zip(begun.fields()) {
            init.push(match state {
                Some(state) => self.plain(*state)?,
                None if has_states => self.b.constant(ty, identity).ok()?,
                None => {
                    let identity = self.b.constant(ty, identity).ok()?;
                    self.b.broadcast(identity, sequences).ok()?
                }
            });
        }
        let starts: Vec<Instead> = begun.fields().iter().map(|(_, x)| Instead::Number(x.as_f64())).collect();
        let of_scan: Vec<Instead> = init.iter().map(|v| Instead::Value(*v)).collect();
        let node = self.program.node(value);
        let (scan, is_exclusive) = match (&begun.op, &node.op) {
            (OneScan::Elements(operator, elements), Op::Scan { exclusive, .. }) => {
                let elements: Vec<Value> = elements.iter().map(|v| self.elsewhere(*v)).collect::<Option<_>>()?;
                let operator = self.b.operator(operator.clone());
                let axis = self.packed.time;
                let scan = Op::Scan { axis, operator, elements, init, reverse: false, exclusive: *exclusive };
                (self.b.append(scan, node.ty, AxisSet::EMPTY).ok()?, *exclusive)
            }
            (OneScan::Matrices(plain), Op::MatrixScan(own)) => {
                let mut scan = MatrixScan { init: Value(0), exclusive: own.exclusive, ..(**plain).clone() };
                for operand in scan.operands_mut() {
                    *operand = if *operand == Value(0) { *operand } else { self.elsewhere(*operand)? };
                }
                let scan = MatrixScan { init: init[0], ..scan };
                self.forward.push(scan.clone());
                (self.b.matrix_scan(scan).ok()?, own.exclusive)
            }
            _ => return None,
        };
        if matches!(node.op, Op::Scan { .. }) {
            let fields: Vec<Value> = (0..starts.len() as u32).map(|k| self.b.field(scan, k).ok()).collect::<Option<_>>()?;
            if is_exclusive {
                self.entered.extend(fields.iter().copied().zip(of_scan));
                self.begun.extend(fields.into_iter().zip(starts));
            }
            return Some(Place::Forward(scan, is_exclusive));
        }
        if !is_exclusive {
            return Some(Self::same(scan));
        }
        self.entered.insert(scan, of_scan[0]);
        self.begun.insert(scan, starts[0]);
        self.before_steps(scan)
    }

    /// The states before steps: where a sequence begins they are those of another, for which a value stands that is no other's.
    fn before_steps(&mut self, states: Value) -> Option<Place> {
        let zero = self.b.float(Ty::F32, 0.0).ok()?;
        let other = self.b.shift(self.packed.time, 1, states, zero).ok()?;
        Some(Place::Known(Views([other, other, states])))
    }

    /// A field of a scan, or of a sum.
    fn field(&mut self, tuple: Value, k: u32, node: &Node) -> Option<Place> {
        match self.places[tuple.0 as usize] {
            Place::Forward(scan, is_exclusive) => {
                let field = self.b.field(scan, k.checked_sub(1)?).ok()?;
                if is_exclusive { self.before_steps(field) } else { Some(Self::same(field)) }
            }
            Place::Back(scan) => Some(Self::same(self.b.field(scan, k).ok()?)),
            Place::Known(_) => self.map(node),
            _ => self.each_of_sequences(&[tuple], |own, v| own.b.field(v, k).ok()),
        }
    }

    /// A value over time that was displaced by one step, before that.
    fn before_shift(&self, value: Value) -> Option<Value> {
        match self.program.node(value).op {
            Op::Shift { axis, by: -1, value, .. } if axis == self.packed.time => Some(value),
            _ => None,
        }
    }

    /// A scan of cotangents, whose decays are 0 where a sequence begins.
    fn back_scan(&mut self, op: &Op) -> Option<Place> {
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
    fn back_recurrence(&mut self, scan: &MatrixScan) -> Option<Place> {
        let is_forgotten = scan.reset.and_then(|reset| self.before_shift(reset)) == Some(self.packed.starts);
        if !scan.reverse || scan.exclusive || !is_forgotten || !is_zero(self.program, scan.init) {
            return None;
        }
        let (last, input) = self.parts(scan.input)?;
        let zero = self.b.float(Ty::F32, 0.0).ok()?;
        let mut own = MatrixScan { reset: None, init: zero, input: zero, ..scan.clone() };
        own.decay = self.next(scan.decay, 1.0, last.is_some())?;
        for (own, term) in own.terms.iter_mut().zip(&scan.terms) {
            let (oplus_dsl::ir::Term::Pair { column, row }, oplus_dsl::ir::Term::Pair { column: z, row: b }) = (own, term)
            else {
                return None;
            };
            *column = self.next(*z, 0.0, last.is_some())?;
            *row = self.next(*b, 0.0, last.is_some())?;
        }
        own.input = input.unwrap_or(zero);
        own.init = self.last_or_nothing(last)?;
        let states = self.b.matrix_scan(own).ok()?;
        let step = self.forward.first().cloned()?;
        self.cotangents.push(Cotangents { states, last, step: Step::Matrix(Box::new(step)) });
        Some(Self::same(states))
    }

    /// The cotangent of last states, each sequence's own, also where it is 0.
    fn last_or_nothing(&mut self, last: Option<Value>) -> Option<Value> {
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

    /// What a recurrence of cotangents adds: the cotangent of last states, and what it adds at every time.
    fn parts(&mut self, value: Value) -> Option<(Option<Value>, Option<Value>)> {
        match self.places[value.0 as usize] {
            Place::AtLast(last, added) => Some((Some(last), added)),
            Place::Known(views) => Some((None, Some(self.merged(views)?))),
            _ => None,
        }
    }

    /// Values of sequences with a time, or without any.
    fn of_sequences(&self, some: Value, none: Value) -> Option<Place> {
        if is_zero(self.program, none) {
            return Some(Place::OfSome(self.plain(some)?));
        }
        is_zero(self.program, some).then_some(Place::OfNone(self.plain(none)?))
    }

    fn gather(&mut self, node: Value, op: &Op) -> Option<Place> {
        let Op::Gather { axis, to, value, .. } = *op else { return None };
        let (time, sequences) = (self.packed.time, self.packed.packing.sequences());
        let mut b = Builder::from_program(self.packed.b.program().clone());
        if (axis, to) == (sequences, time) {
            let first = self.packed.packing.spread(&mut b, self.packed.first, value).ok()?;
            if alike(&b, &[[node, first]]) {
                let (own, zero) = (self.plain(value)?, self.b.float(Ty::F32, 0.0).ok()?);
                return Some(Place::Known(Views([own, zero, zero])));
            }
            let last = self.packed.packing.spread(&mut b, self.packed.last, value).ok()?;
            let own = match self.places[value.0 as usize] {
                Place::OfSome(own) => own,
                _ => self.plain(value)?,
            };
            return alike(&b, &[[node, last]]).then_some(Place::AtLast(own, None));
        }
        let first = self.packed.packing.picked(&mut b, self.packed.first, value).ok()?;
        if (axis, to) != (time, sequences) || !alike(&b, &[[node, first]]) {
            return None;
        }
        self.initial(self.views(value)?.0[0])
    }

    /// The cotangent of initial states, which at the first time of a sequence is this value.
    fn initial(&mut self, value: Value) -> Option<Place> {
        for k in 0..self.cotangents.len() {
            let last = self.cotangents[k].last;
            let empty = self.last_or_nothing(last)?;
            let own = self.first_cotangent(k, empty)?;
            // Initial states that are repeated have the sum of their cotangents.
            let [of_states, of_value] = [own, value].map(|v| self.b.axes_of(v));
            let repeated = of_states.ok()?.minus(of_value.ok()?);
            let own = self.sum_over(repeated, own)?;
            let mut normal = Normal::new(&self.b, &self.entered);
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
            Step::Matrix(scan) => {
                let lambda = self.b.first(time, *states, empty).ok()?;
                let mut step = (**scan).clone();
                let mut of_first = |value: Value, fill: Value| match self.b.axes_of(value).ok()?.contains(time) {
                    true => self.b.first(time, value, fill).ok(),
                    // There may be no first step, at which a constant would have a value all the same.
                    false => (value == fill).then_some(value),
                };
                step.decay = of_first(step.decay, one)?;
                for term in &mut step.terms {
                    let oplus_dsl::ir::Term::Pair { column, row } = *term else { return None };
                    *term = oplus_dsl::ir::Term::Pair { column: of_first(row, zero)?, row: of_first(column, zero)? };
                }
                self.b.matrix_step(&step, lambda).ok()
            }
        }
    }

    /// A sum with a value that only some sequences or times have.
    fn added(&mut self, x: Value, y: Value) -> Option<Place> {
        let places = [x, y].map(|v| self.places[v.0 as usize]);
        match places {
            [Place::AtLast(last, None), Place::Known(views)] | [Place::Known(views), Place::AtLast(last, None)] => {
                Some(Place::AtLast(last, Some(self.merged(views)?)))
            }
            [Place::OfNone(none), Place::Picked(own, empty)] | [Place::Picked(own, empty), Place::OfNone(none)] => {
                let mut normal = Normal::new(&self.b, &self.entered);
                (normal.of(none) == normal.of(empty)).then_some(Self::same(own))
            }
            _ => None,
        }
    }

    /// A linear map of values that only some sequences have.
    fn each_of_sequences(
        &mut self,
        operands: &[Value],
        map: impl Fn(&mut Self, Value) -> Option<Value>,
    ) -> Option<Place> {
        let [operand] = operands else { return None };
        match self.places[operand.0 as usize] {
            Place::OfNone(none) => Some(Place::OfNone(map(self, none)?)),
            Place::Picked(own, empty) => Some(Place::Picked(map(self, own)?, map(self, empty)?)),
            _ => None,
        }
    }

    fn summed(&mut self, axis: Axis, operator: oplus_dsl::ir::OperatorId, value: Value) -> Option<Value> {
        let is_sum = is_sum(self.program.operator(operator));
        let sum = Op::Reduce { axis, operator, elements: vec![value] };
        is_sum.then(|| self.b.append(sum, Ty::Tuple, AxisSet::EMPTY).ok())?
    }

    /// The value that has these views.
    fn merged(&mut self, views: Views) -> Option<Value> {
        let Views([first, bare, elsewhere]) = views;
        if first == elsewhere && bare == elsewhere {
            return Some(elsewhere);
        }
        let none = HashMap::new();
        let of = |value: Value, instead: &HashMap<Value, Instead>| Normal::new(&self.b, instead).of(value);
        let is_own = of(elsewhere, &self.entered) == of(first, &none) && of(elsewhere, &self.begun) == of(bare, &none);
        is_own.then_some(elsewhere)
    }
}

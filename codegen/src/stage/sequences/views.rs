//! The counterparts, in the program of one sequence, of the values of a gradient of packed sequences.

use std::collections::HashMap;

use oplus_dsl::Ty;
use oplus_dsl::build::Builder;
use oplus_dsl::ir::{Axis, AxisSet, Binary, Literal, MatrixScan, Node, Op, OperatorId, Param, Program, Unary, Value};
use oplus_dsl::transition::is_sum;

use super::alike::alike;
use super::goes_along;
use super::normal::{At, Instead, Normal};
use super::one::{Begun, OneScan, Packed};
use super::rewriting::{ELSEWHERE, Place, Rewriting, Views};
use crate::stage::opposite::is_zero;

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
            let masked = if views.iter().all(|views| views.0[0] == views.0[ELSEWHERE]) {
                None
            } else {
                self.masked(&node.op, own)
            };
            found.push(match (chosen, masked) {
                (Some(chosen), _) => own(chosen),
                (None, Some(masked)) => masked,
                (None, None) => self.b.append(node.op.map_operands(own), node.ty, node.axes).ok()?,
            });
        }
        Some(Place::Known(Views(found.try_into().ok()?)))
    }

    /// The value of an operation some of whose operands are masked by 0.
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
            let fields: Vec<Value> =
                (0..starts.len() as u32).map(|k| self.b.field(scan, k).ok()).collect::<Option<_>>()?;
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
    /// A sum with a value that only some sequences or times have.
    fn added(&mut self, x: Value, y: Value) -> Option<Place> {
        let places = [x, y].map(|v| self.places[v.0 as usize]);
        match places {
            [Place::AtLast(last, None), Place::Known(views)] | [Place::Known(views), Place::AtLast(last, None)] => {
                Some(Place::AtLast(last, Some(self.merged(views)?)))
            }
            [Place::OfNone(none), Place::Picked(own, empty)] | [Place::Picked(own, empty), Place::OfNone(none)] => {
                let mut normal = Normal::new(&self.b, &self.entered, At::AnyTime);
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

    fn summed(&mut self, axis: Axis, operator: OperatorId, value: Value) -> Option<Value> {
        let is_sum = is_sum(self.program.operator(operator));
        let sum = Op::Reduce { axis, operator, elements: vec![value] };
        is_sum.then(|| self.b.append(sum, Ty::Tuple, AxisSet::EMPTY).ok())?
    }
}

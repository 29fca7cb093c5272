//! The program of one of several packed sequences.

use std::collections::{BTreeSet, HashMap};

use oplus_dsl::build::Builder;
use oplus_dsl::ir::{Axis, AxisSet, Binary, MatrixScan, Op, Operator, OperatorId, Output, Param, Program, Value};
use oplus_dsl::packed::{Border, Packing};
use oplus_dsl::simplify::simplified;
use oplus_dsl::verify::verify;

use super::SequencesRefusal;
use super::alike::alike;
use super::goes_along;
use super::operator::unsegmented;

/// The program of one sequence, whose first and last states have the axis of the sequences.
pub(super) struct OneSequence {
    pub(super) program: Program,
    pub(super) time: Axis,
    pub(super) sequences: Axis,
    /// The axis of the offsets, and its name.
    pub(super) list: Axis,
    pub(super) list_name: String,
    /// The number of the parameter that has the offsets, and the parameter.
    pub(super) place: u32,
    pub(super) offsets: Param,
}

/// The program of one sequence of a program in which all are scanned as one; `None` where no sequence has states of its own.
///
/// # Errors
/// Why that of one sequence is no such program.
pub(super) fn one_sequence(program: &Program) -> Result<Option<OneSequence>, SequencesRefusal> {
    let Some(packed) = Packed::of(program)? else { return Ok(None) };
    let scans: HashMap<Value, Begun> = packed.scans(program).ok_or(SequencesRefusal::Scan)?;
    let begins = scans.values().any(|begun| begun.init.iter().any(Option::is_some));
    let ends = (0..program.nodes.len() as u32).any(|k| packed.last_of(Value(k)).is_some());
    if !begins && !ends {
        return Ok(None);
    }
    let changed = Rewritten::of(program, &packed, &scans).ok_or(SequencesRefusal::Values)?;
    packed.one(program, changed).map(Some)
}

/// A program with packed sequences, and what it means that one begins or ends.
pub(super) struct Packed {
    /// The program, continued by values that are compared with its own.
    pub(super) b: Builder,
    pub(super) time: Axis,
    list: Axis,
    /// The offsets, and where sequences begin.
    offsets: Value,
    pub(super) starts: Value,
    pub(super) packing: Packing,
    pub(super) first: Border,
    pub(super) last: Border,
    /// Whether an index is the first of a sequence.
    pub(super) is_first: Value,
    /// Whether a sequence has an index.
    pub(super) is_some: Value,
}

/// A scan of all sequences, as one of a sequence.
pub(super) struct Begun {
    pub(super) op: OneScan,
    /// The states before the first element, of the program; those that are the identity have none.
    pub(super) init: Vec<Option<Value>>,
}

pub(super) enum OneScan {
    /// By an operator of elements.
    Elements(Operator, Vec<Value>),
    /// Of matrices; its states are the scan itself.
    Matrices(Box<MatrixScan>),
}

impl Packed {
    /// The packed sequences of a program; `None` where it has none, or no axis of sequences.
    ///
    /// # Errors
    /// [`SequencesRefusal`] where there are several such axes or lists.
    pub(super) fn of(program: &Program) -> Result<Option<Packed>, SequencesRefusal> {
        let mut all = program.nodes.iter().enumerate().filter_map(|(k, node)| match node.op {
            Op::Starts { axis, list, offsets } => Some((Value(k as u32), axis, list, offsets)),
            _ => None,
        });
        let Some((starts, time, list, offsets)) = all.next() else { return Ok(None) };
        if all.next().is_some() {
            return Err(SequencesRefusal::Lists);
        }
        let mut b = Builder::from_program(program.clone());
        // The offsets of a verified program are whole numbers over their list.
        let untyped = |_| SequencesRefusal::Lists;
        let Some(packing) = Packing::of(&mut b, time, list, offsets).map_err(untyped)? else { return Ok(None) };
        let [first, last] = [packing.border(&mut b, false), packing.border(&mut b, true)];
        let (first, last) = (first.map_err(untyped)?, last.map_err(untyped)?);
        let is_first = packing.is_at(&mut b, first).map_err(untyped)?;
        let is_some = packing.is_some(&mut b).map_err(untyped)?;
        Ok(Some(Packed { b, time, list, offsets, starts, packing, first, last, is_first, is_some }))
    }

    /// The program of one sequence, with its place among all sequences of this program.
    pub(super) fn one(&self, program: &Program, of_one: Program) -> Result<OneSequence, SequencesRefusal> {
        let Op::Param(place) = program.node(self.offsets).op else { return Err(SequencesRefusal::Lists) };
        Ok(OneSequence {
            program: of_one,
            time: self.time,
            sequences: self.packing.sequences(),
            list: self.list,
            list_name: program.axis_name(self.list).to_owned(),
            place,
            offsets: program.params[place as usize].clone(),
        })
    }

    /// The scans of states of a gradient.
    pub(super) fn scans_forward(&self, program: &Program) -> Option<HashMap<Value, Begun>> {
        let mut all = HashMap::new();
        for (k, node) in program.nodes.iter().enumerate() {
            let begun = match &node.op {
                Op::Scan { axis, operator, elements, init, reverse: false, .. }
                    if *axis == self.time && init.is_empty() =>
                {
                    self.of_elements(program.operator(*operator), elements)?
                }
                Op::MatrixScan(scan) if scan.axis == self.time && !scan.reverse => {
                    self.of_matrices(&MatrixScan { exclusive: false, ..(**scan).clone() })?
                }
                _ => continue,
            };
            all.insert(Value(k as u32), begun);
        }
        Some(all)
    }

    /// All scans along time.
    fn scans(&self, program: &Program) -> Option<HashMap<Value, Begun>> {
        let mut all = HashMap::new();
        for (k, node) in program.nodes.iter().enumerate() {
            let begun = match &node.op {
                Op::Scan { axis, operator, elements, init, reverse: false, exclusive: false }
                    if *axis == self.time && init.is_empty() =>
                {
                    self.of_elements(program.operator(*operator), elements)?
                }
                Op::MatrixScan(scan) if scan.axis == self.time => self.of_matrices(scan)?,
                op if matches!(op, Op::Scan { .. }) && goes_along(op, self.time) => return None,
                _ => continue,
            };
            all.insert(Value(k as u32), begun);
        }
        Some(all)
    }

    /// A scan of elements: where a sequence begins its element is combined with the state before.
    fn of_elements(&self, operator: &Operator, elements: &[Value]) -> Option<Begun> {
        if *elements.first()? != self.starts {
            return None;
        }
        let operator = unsegmented(operator)?;
        let parts: Vec<(Option<Value>, Value)> = elements[1..].iter().map(|element| self.entered(*element)).collect();
        let states = parts.iter().map(|(entered, _)| entered.map_or(Some(None), |entered| self.state_beneath(entered)));
        let init: Vec<Option<Value>> = states.collect::<Option<_>>()?;
        let mut b = Builder::from_program(self.b.program().clone());
        let plain: Vec<Value> = parts.iter().map(|(_, element)| *element).collect();
        let mut spread = vec![];
        for ((state, identity), field) in init.iter().zip(&operator.identity).zip(&operator.fields) {
            spread.push(match state {
                Some(state) => self.packing.spread(&mut b, self.first, *state).ok()?,
                None => b.constant(field.ty, *identity).ok()?,
            });
        }
        let combined = b.inline(&operator, &spread, &plain).ok()?;
        let has_states = init.iter().any(Option::is_some);
        let is_compared = |(entered, _): &(Option<Value>, Value)| entered.is_some() || has_states;
        let pairs = parts.iter().zip(combined).filter(|(part, _)| is_compared(part));
        let pairs: Vec<[Value; 2]> =
            pairs.map(|((entered, plain), combined)| [entered.unwrap_or(*plain), combined]).collect();
        alike(&b, &pairs).then_some(Begun { op: OneScan::Elements(operator, plain), init })
    }

    /// A recurrence of matrices: where a sequence begins the product of the state before and the step's matrix is added.
    fn of_matrices(&self, scan: &MatrixScan) -> Option<Begun> {
        let is_zero = |v: Value| matches!(self.b.program().node(v).op, Op::Const(x) if x.as_f64() == 0.0);
        if scan.reverse || scan.exclusive || scan.reset != Some(self.starts) || !is_zero(scan.init) {
            return None;
        }
        let plain = MatrixScan { reset: None, ..scan.clone() };
        let Op::Binary(Binary::Add, x, y) = self.b.program().node(scan.input).op else {
            return Some(Begun { op: OneScan::Matrices(Box::new(plain)), init: vec![None] });
        };
        let carried = [(x, y), (y, x)].into_iter().find_map(|(carried, input)| match self.entered(carried) {
            (Some(carried), zero) if is_zero(zero) => Some((carried, input)),
            _ => None,
        });
        let Some((carried, input)) = carried else {
            return Some(Begun { op: OneScan::Matrices(Box::new(plain)), init: vec![None] });
        };
        let state = self.state_beneath(carried)??;
        let mut b = Builder::from_program(self.b.program().clone());
        let spread = self.packing.spread(&mut b, self.first, state).ok()?;
        let product = b.matrix_step(scan, spread).ok()?;
        let plain = MatrixScan { input, ..plain };
        alike(&b, &[[carried, product]])
            .then(|| Begun { op: OneScan::Matrices(Box::new(plain)), init: vec![Some(state)] })
    }

    /// The value of an element where a sequence begins, if that is another, and elsewhere.
    fn entered(&self, element: Value) -> (Option<Value>, Value) {
        match self.b.program().node(element).op {
            Op::Select(condition, entered, plain) if alike(&self.b, &[[condition, self.is_first]]) => {
                (Some(entered), plain)
            }
            _ => (None, element),
        }
    }

    /// The state of each sequence that a value is computed from, if there is one; `None` where there are several.
    fn state_beneath(&self, value: Value) -> Option<Option<Value>> {
        let program = self.b.program();
        let (mut open, mut seen, mut states) = (vec![value], BTreeSet::new(), BTreeSet::new());
        while let Some(value) = open.pop() {
            if !seen.insert(value) {
                continue;
            }
            match program.node(value).op {
                Op::Gather { axis, to, value, .. } if (axis, to) == (self.packing.sequences(), self.time) => {
                    states.insert(value);
                }
                ref op => open.extend(op.operands()),
            }
        }
        (states.len() < 2).then(|| states.into_iter().next())
    }

    /// The states of which a value is the last one of every sequence, and what it is of a sequence without any.
    fn last_of(&self, value: Value) -> Option<(Value, Value)> {
        let program = self.b.program();
        let Op::Select(condition, picked, empty) = program.node(value).op else { return None };
        let Op::Gather { axis, to, value: states, .. } = program.node(picked).op else { return None };
        if (axis, to) != (self.time, self.packing.sequences()) {
            return None;
        }
        let mut b = Builder::from_program(program.clone());
        let expected = self.packing.picked(&mut b, self.last, states).ok()?;
        alike(&b, &[[condition, self.is_some], [picked, expected]]).then_some((states, empty))
    }
}

/// A program while it is made that of one sequence.
struct Rewritten<'a> {
    program: &'a Program,
    packed: &'a Packed,
    scans: &'a HashMap<Value, Begun>,
    b: Builder,
    /// Of each value of the program its new place, if one sequence has it.
    places: Vec<Option<Value>>,
    /// The first states of scans in their new places.
    init: HashMap<Value, Vec<Value>>,
}

impl Rewritten<'_> {
    fn of(program: &Program, packed: &Packed, scans: &HashMap<Value, Begun>) -> Option<Program> {
        let b = Builder::from_program(Program { nodes: vec![], outputs: vec![], ..program.clone() });
        let mut own = Rewritten { program, packed, scans, b, places: vec![], init: HashMap::new() };
        for k in 0..program.nodes.len() as u32 {
            let place = own.node(Value(k));
            own.places.push(place);
        }
        let outputs = program.outputs.iter().map(|output| own.output(output)).collect::<Option<Vec<Output>>>()?;
        let changed = simplified(&Program { outputs, ..own.b.finish() });
        verify(&changed).is_ok().then_some(changed)
    }

    /// An output of all sequences, with their axis.
    fn output(&self, output: &Output) -> Option<Output> {
        let value = self.places[output.value.0 as usize]?;
        let mut output = Output { value, ..output.clone() };
        let sequences = self.packed.packing.sequences();
        if self.b.program().node(value).axes.contains(sequences) && !output.axes.contains(&sequences) {
            output.axes.push(sequences);
        }
        Some(output)
    }

    fn node(&mut self, value: Value) -> Option<Value> {
        let node = self.program.node(value);
        if let Some(begun) = self.scans.get(&value) {
            return self.scan(value, begun);
        }
        if let Some((states, empty)) = self.packed.last_of(value) {
            return self.last(states, empty);
        }
        match node.op {
            Op::Field(tuple, k) if self.scans.contains_key(&tuple) => {
                let tuple = self.places[tuple.0 as usize]?;
                self.b.field(tuple, k.checked_sub(1)?).ok()
            }
            ref op if goes_along(op, self.packed.time) => None,
            ref op => {
                let known = op.operands().iter().all(|v| self.places[v.0 as usize].is_some());
                let moved = op.map_operands(|v| self.places[v.0 as usize].unwrap_or(v));
                known.then(|| self.b.append(moved, node.ty, node.axes).ok())?
            }
        }
    }

    fn scan(&mut self, value: Value, begun: &Begun) -> Option<Value> {
        let init = self.first_states(begun)?;
        self.init.insert(value, init.clone());
        let time = self.packed.time;
        match &begun.op {
            OneScan::Elements(operator, elements) => {
                let elements = elements.iter().map(|v| self.places[v.0 as usize]).collect::<Option<Vec<Value>>>()?;
                let operator: OperatorId = self.b.operator(operator.clone());
                let (reverse, exclusive) = (false, false);
                let scan = Op::Scan { axis: time, operator, elements, init, reverse, exclusive };
                let node = self.program.node(value);
                self.b.append(scan, node.ty, AxisSet::EMPTY).ok()
            }
            OneScan::Matrices(scan) => {
                let mut scan = MatrixScan { init: Value(0), ..(**scan).clone() };
                for operand in scan.operands_mut() {
                    *operand = self.places[operand.0 as usize].unwrap_or(Value(0));
                }
                let known = begun.operands().all(|v| self.places[v.0 as usize].is_some());
                let scan = MatrixScan { init: init[0], ..scan };
                known.then(|| self.b.matrix_scan(scan).ok())?
            }
        }
    }

    /// The states before the first element of a scan, each sequence's own.
    fn first_states(&mut self, begun: &Begun) -> Option<Vec<Value>> {
        let sequences = AxisSet::of(self.packed.packing.sequences());
        let fields = begun.fields();
        let mut states = vec![];
        for (state, (ty, identity)) in begun.init.iter().zip(fields) {
            states.push(match state {
                Some(state) => self.places[state.0 as usize]?,
                None => {
                    let identity = self.b.constant(ty, identity).ok()?;
                    self.b.broadcast(identity, sequences).ok()?
                }
            });
        }
        Some(states)
    }

    /// The last states of a scan; of a sequence without elements the first ones.
    fn last(&mut self, states: Value, empty: Value) -> Option<Value> {
        let (scan, field) = match self.program.node(states).op {
            Op::Field(tuple, k) => (tuple, k.checked_sub(1)?),
            _ => (states, 0),
        };
        let begun = self.scans.get(&scan)?;
        let is_own = match begun.init[field as usize] {
            Some(state) => state == empty,
            None => matches!(self.program.node(empty).op, Op::Const(x) if x == begun.fields()[field as usize].1),
        };
        let init = self.init.get(&scan)?[field as usize];
        let states = self.places[states.0 as usize]?;
        is_own.then(|| self.b.last(self.packed.time, states, init).ok())?
    }
}

impl Begun {
    /// The type and the identity of each field of the states.
    pub(super) fn fields(&self) -> Vec<(oplus_dsl::Ty, oplus_dsl::ir::Literal)> {
        match &self.op {
            OneScan::Elements(operator, _) => {
                operator.fields.iter().zip(&operator.identity).map(|(field, identity)| (field.ty, *identity)).collect()
            }
            OneScan::Matrices(_) => vec![(oplus_dsl::Ty::F32, oplus_dsl::ir::Literal::Float(0.0))],
        }
    }

    /// The operands of the scan in the program, without its first state.
    fn operands(&self) -> impl Iterator<Item = Value> {
        let all: Vec<Value> = match &self.op {
            OneScan::Elements(_, elements) => elements.clone(),
            OneScan::Matrices(scan) => {
                let init = scan.init;
                scan.operands().iter().copied().filter(|v| *v != init).collect()
            }
        };
        all.into_iter()
    }
}

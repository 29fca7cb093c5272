//! The delta rules: recurrences whose step reads the state with one vector, and adds the result times another vector.
//!
//! S\[t\] = w\[t\]·S\[t−1\] + (Σ over the depth of S\[t−1\]·z\[t\])·b\[t\] + y\[t\]⊗x\[t\], with vectors z, b and y that are numbers times parameters.
//! In the delta rules b and y are numbers times one vector, the key, so that a step adds one row times the key. In gated linear attention a
//! step reads nothing of the state: b is 0.

use oplus_dsl::ir::{Axis, AxisSet, Binary, Op, Program, Term, Unary, Value};

use super::matrix::Decay;
use super::product::is;
use super::readouts::readouts;
use crate::stage::{Recurrence, Refusal, Stage};

/// A recurrence that can be computed in chunks of times.
#[derive(Clone, Debug, PartialEq)]
pub struct DeltaRule {
    /// The axis that is scanned.
    pub time: Axis,
    /// The axis that the matrices act on.
    pub depth: Axis,
    /// The other axis of the state.
    pub width: Axis,
    /// The axes over which recurrences are computed apart.
    pub outer: AxisSet,
    /// The decay, over time, the outer axes and perhaps the depth; none where it is 1.
    pub decay: Option<Decay>,
    /// The state that the step reads, before or after the decay, where the decay differs along the depth.
    pub channels: Option<Channels>,
    /// The condition under which the state is forgotten, as at the first time of a packed sequence, if there is one.
    pub reset: Option<Value>,
    /// Whether a step reads the state. If it does not, `column` and `row` are the key.
    pub reads: bool,
    /// The vector that the state is read by, as a parameter and other factors.
    pub column: Factored,
    /// The vector that is added times the product of the state with `column`, as a parameter and other factors.
    pub row: Factored,
    /// The parameter that is added times `value`: the key. In the delta rules it is that of `row`.
    pub key: u32,
    /// The parameter with the width that is added times the key, and the factors beside both.
    pub value: Factored,
    /// The state before the first step; none where it is 0.
    pub init: Option<Value>,
    /// The reads of the state after every step, if there are any.
    pub readout: Option<DeltaReadout>,
}

/// The state that a step reads whose decay differs along the depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channels {
    /// The state as the step before has left it.
    ReadBefore,
    /// The decayed state: the vector that it is read by has the decay as a factor.
    ReadAfter,
}

/// A parameter times numbers over time and the outer axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Factored {
    /// The parameter.
    pub param: u32,
    /// The other factors.
    pub factors: Vec<Value>,
    /// Whether the product is negated.
    pub negative: bool,
}

/// The sum over the depth of the state and a query.
#[derive(Clone, Debug, PartialEq)]
pub struct DeltaReadout {
    /// The sum.
    pub value: Value,
    /// The query.
    pub query: Factored,
}

impl DeltaRule {
    /// The form of a recurrence, or what it lacks.
    pub(super) fn of(stage: &Stage, recurrence: Recurrence<'_>) -> Result<DeltaRule, Refusal> {
        if recurrence.scan.reverse {
            return Err(Refusal::Reverse);
        }
        if recurrence.exclusive.is_some() {
            return Err(Refusal::Exclusive);
        }
        let mut form = DeltaRule::steps(&stage.program, recurrence, stage.outer_axes())?;
        form.readout = form.find(&stage.program).readout(stage, recurrence.inclusive)?;
        form.check(stage)?;
        Ok(form)
    }

    /// The form of the steps of a recurrence over these axes, without reads of its states, or what it lacks.
    pub(super) fn steps(program: &Program, recurrence: Recurrence<'_>, axes: AxisSet) -> Result<DeltaRule, Refusal> {
        let scan = recurrence.scan;
        let [Term::Pair { column, row }] = scan.terms[..] else { return Err(Refusal::Terms) };
        let find = Find { program, depth: scan.along, time: scan.axis };
        let not_outer = || Refusal::NotOuter {
            depth: program.axis_name(scan.along).to_owned(),
            width: "another axis of the state".to_owned(),
        };
        let decay = find.decay(scan.decay)?;
        let ((column, channels), row) = (find.column(column, scan.decay)?, find.vector(row)?);
        let mut added = find.factors(scan.input);
        let key = find.take(&mut added, scan.along).ok_or_else(not_outer)?;
        let width = axes.iter().filter(|axis| find.is_width(&added, *axis, [column.param, row.param, key]));
        let width = width.last().ok_or_else(not_outer)?;
        let value = find.take(&mut added, width).ok_or_else(not_outer)?;
        let outer = axes.without(width);
        let value = find.factored(value, added)?;
        Ok(DeltaRule {
            time: scan.axis,
            depth: scan.along,
            width,
            outer,
            decay,
            channels,
            reset: scan.reset,
            reads: true,
            column,
            row,
            key,
            value,
            init: Some(scan.init),
            readout: None,
        })
    }

    /// Whether reads of the state and values are added times different vectors.
    pub fn has_two_keys(&self) -> bool {
        self.key != self.row.param
    }

    /// A finder of factors along the axes of the form.
    pub(super) fn find<'p>(&self, program: &'p Program) -> Find<'p> {
        Find { program, depth: self.depth, time: self.time }
    }

    /// The parameters that are multiplied as matrices.
    pub fn params(&self) -> Vec<u32> {
        let mut params = vec![self.column.param, self.row.param, self.key, self.value.param];
        params.extend(self.readout.as_ref().map(|readout| readout.query.param));
        params
    }

    /// Whether a step scales the whole state by one number.
    pub fn decays(&self) -> bool {
        (self.decay.is_some() || self.reset.is_some()) && self.channels.is_none()
    }

    /// Refuses decays and resets that differ along the width.
    pub(super) fn check_decay(&self, program: &Program) -> Result<(), Refusal> {
        let of_decay = self.decay.map_or(AxisSet::EMPTY, |decay| decay.axes(program));
        let of_reset = self.reset.map_or(AxisSet::EMPTY, |reset| program.node(reset).axes);
        let differs = if of_decay.union(of_reset).contains(self.width) { Some(self.width) } else { None };
        let differs = differs.or(of_reset.contains(self.depth).then_some(self.depth));
        differs.map_or(Ok(()), |axis| Err(Refusal::Channels { axis: program.axis_name(axis).to_owned() }))
    }

    pub(super) fn check(&self, stage: &Stage) -> Result<(), Refusal> {
        let program = &stage.program;
        let first = program.params[self.row.param as usize].elem;
        if self.params().iter().any(|param| program.params[*param as usize].elem != first) {
            return Err(Refusal::Type);
        }
        let lacks_width = |values: &[Value]| values.iter().all(|v| !program.node(*v).axes.contains(self.width));
        let numbers = [&self.column, &self.row, &self.value].into_iter().chain(self.readout.iter().map(|r| &r.query));
        if !numbers.into_iter().all(|factored| lacks_width(&factored.factors)) {
            return Err(Refusal::Vectors);
        }
        self.check_decay(program)?;
        if program.outputs.iter().any(|o| o.axes.contains(&self.time) && o.axes.contains(&self.depth)) {
            return Err(Refusal::AllStates);
        }
        let shifts = |node: &oplus_dsl::ir::Node| matches!(node.op, Op::Shift { .. });
        if program.nodes.iter().any(shifts) { Err(Refusal::Elsewhere) } else { Ok(()) }
    }
}

/// The program in which factors are found, and the axes that they may have.
pub(super) struct Find<'p> {
    program: &'p Program,
    depth: Axis,
    time: Axis,
}

impl Find<'_> {
    /// The factors of a value; −1 for a negation.
    pub(super) fn factors(&self, value: Value) -> Factors {
        let (mut factors, mut open) = (Factors::default(), vec![value]);
        while let Some(value) = open.pop() {
            match self.program.node(value).op {
                Op::Binary(Binary::Mul, x, y) => open.extend([y, x]),
                Op::Broadcast(x) => open.push(x),
                Op::Unary(Unary::Neg, x) => {
                    factors.negative = !factors.negative;
                    open.push(x);
                }
                _ if is(self.program, value, 1.0) => {}
                _ => factors.values.push(value),
            }
        }
        factors
    }

    /// Takes out the one factor with an axis, if it is a parameter.
    pub(super) fn take(&self, factors: &mut Factors, axis: Axis) -> Option<u32> {
        let mut with: Vec<Value> =
            factors.values.extract_if(.., |v| self.program.node(*v).axes.contains(axis)).collect();
        let param = with.pop().filter(|_| with.is_empty()).map(|v| &self.program.node(v).op);
        if let Some(Op::Param(param)) = param { Some(*param) } else { None }
    }

    /// The vector that the state is read by, and how decays apply to it where they differ along the depth.
    fn column(&self, value: Value, decay: Value) -> Result<(Factored, Option<Channels>), Refusal> {
        let mut factors = self.factors(value);
        let channels = match self.factors(decay).values[..] {
            [one] if self.program.node(one).axes.contains(self.depth) => {
                let place = factors.values.iter().position(|v| *v == one);
                place.inspect(|place| _ = factors.values.remove(*place));
                Some(place.map_or(Channels::ReadBefore, |_| Channels::ReadAfter))
            }
            _ => None,
        };
        let param = self.take(&mut factors, self.depth).ok_or(Refusal::Vectors)?;
        Ok((self.factored(param, factors)?, channels))
    }

    /// A parameter with the depth and time, times numbers.
    fn vector(&self, value: Value) -> Result<Factored, Refusal> {
        let mut factors = self.factors(value);
        let param = self.take(&mut factors, self.depth).ok_or(Refusal::Vectors)?;
        self.factored(param, factors)
    }

    pub(super) fn factored(&self, param: u32, factors: Factors) -> Result<Factored, Refusal> {
        let has_time = self.program.params[param as usize].axes.contains(&self.time);
        let is_free = factors.values.iter().all(|v| !self.program.node(*v).axes.contains(self.depth));
        if !has_time || !is_free {
            return Err(Refusal::Vectors);
        }
        Ok(Factored { param, factors: factors.values, negative: factors.negative })
    }

    /// Whether an axis is the width: the added value has it, and the other vectors lack it.
    fn is_width(&self, added: &Factors, axis: Axis, vectors: [u32; 3]) -> bool {
        let has = |param: u32| self.program.params[param as usize].axes.contains(&axis);
        let added = added.values.iter().any(|v| self.program.node(*v).axes.contains(axis));
        added && !vectors.into_iter().any(has)
    }

    fn decay(&self, decay: Value) -> Result<Option<Decay>, Refusal> {
        let factors = self.factors(decay);
        match factors.values[..] {
            _ if factors.negative => Err(Refusal::NoExponential),
            [] => Ok(None),
            [one] => match self.program.node(one).op {
                Op::Unary(Unary::Exp, log) => Ok(Some(Decay { log, binary: false, reset: None })),
                Op::Unary(Unary::Exp2, log) => Ok(Some(Decay { log, binary: true, reset: None })),
                _ => Err(Refusal::NoExponential),
            },
            _ => Err(Refusal::NoExponential),
        }
    }

    pub(super) fn readout(&self, stage: &Stage, states: Option<Value>) -> Result<Option<DeltaReadout>, Refusal> {
        let readouts = readouts(stage);
        let not_query = || Refusal::NotQuery { axis: self.program.axis_name(self.depth).to_owned() };
        let [readout] = readouts[..] else { return if readouts.is_empty() { Ok(None) } else { Err(not_query()) } };
        let mut factors = self.factors(readout.element);
        let before = factors.values.len();
        factors.values.retain(|v| Some(*v) != states);
        if factors.values.len() + 1 != before {
            return Err(not_query());
        }
        let param = self.take(&mut factors, self.depth).ok_or_else(not_query)?;
        let query = self.factored(param, factors).map_err(|_| not_query())?;
        Ok(Some(DeltaReadout { value: readout.value, query }))
    }
}

/// The factors of a product.
#[derive(Default)]
pub(super) struct Factors {
    pub values: Vec<Value>,
    pub negative: bool,
}

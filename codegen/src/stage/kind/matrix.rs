//! Recurrences of matrices that are read by queries.

use std::collections::BTreeSet;
use std::f64::consts::LOG2_E;

use oplus_dsl::ir::{Axis, AxisSet, Binary, Op, Operator, Program, Unary, Value};
use oplus_dsl::walk::follow;
use oplus_dsl::{Elem, Ty};

use super::contracted::is_drained;
use super::product::{Product, is};
use crate::stage::{Refusal, Scan, Stage};

/// A stage as a recurrence of matrices, S\[t\] = decay\[t\]·S[t−1] + gain\[t\]·value\[t\]⊗key\[t\], that queries read.
#[derive(Clone, Debug, PartialEq)]
pub struct MatrixRecurrence {
    /// The axis scanned.
    pub time: Axis,
    /// The axis of the state that is summed away.
    pub depth: Axis,
    /// The other axis of the state.
    pub width: Axis,
    /// The axes over which recurrences are computed apart.
    pub outer: AxisSet,
    /// The inclusive scan and the field of S.
    pub state: (Value, u32),
    /// The logarithm of the decay, over time and the outer axes; none where nothing is forgotten.
    pub decay: Option<Decay>,
    /// Whether the decay differs along the depth, too.
    pub channels: bool,
    /// The parameter with time and depth that is added.
    pub key: u32,
    /// The parameter with time and width that is added.
    pub value: u32,
    /// The other factors, over time and the outer axes.
    pub gain: Vec<Value>,
    /// The state before the first time.
    pub init: Option<Value>,
    /// The reads of the state at every time, if there are any.
    pub readout: Option<Readout>,
    /// Whether time goes backwards: S\[t\] = decay[t+1]·S[t+1] + ….
    pub reverse: bool,
}

/// A field of a scan's states.
#[derive(Clone, Copy)]
pub(super) struct StateField {
    pub tuple: Value,
    pub field: u32,
}

/// The axes of a state that is a matrix.
#[derive(Clone, Copy)]
pub(super) struct StateAxes {
    /// The axis that is summed away.
    pub depth: Axis,
    pub width: Axis,
}

/// The logarithm of a decay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decay {
    /// The logarithm.
    pub log: Value,
    /// Whether its base is 2 instead of e.
    pub binary: bool,
    /// The condition under which nothing is left, as at the first time of a packed sequence, if there is one.
    pub reset: Option<Value>,
}

impl Decay {
    /// The decay e^x or 2^x of a value x. Where x is a multiple of log₂e, the other factor to base e takes its place.
    fn of(program: &Program, log: Value, binary: bool) -> Decay {
        let natural = match program.node(log).op {
            Op::Binary(Binary::Mul, x, scale) if is(program, scale, LOG2_E) => Some(x),
            Op::Binary(Binary::Mul, scale, x) if is(program, scale, LOG2_E) => Some(x),
            _ => None,
        };
        match natural.filter(|_| binary) {
            Some(log) => Decay { log, binary: false, reset: None },
            None => Decay { log, binary, reset: None },
        }
    }

    /// The axes that it has.
    pub(crate) fn axes(&self, program: &Program) -> AxisSet {
        let of = |value: Value| program.node(value).axes;
        self.reset.map_or(of(self.log), |reset| of(self.log).union(of(reset)))
    }
}

/// The sum over depth of query·S, times factors.
#[derive(Clone, Debug, PartialEq)]
pub struct Readout {
    /// Its tuple.
    pub tuple: Value,
    /// The parameter with time and depth.
    pub query: u32,
    /// The other factors, without the depth.
    pub factors: Vec<Value>,
}

impl MatrixRecurrence {
    /// The form of a stage that keeps its contractions, or what it lacks.
    pub(super) fn of(stage: &Stage) -> Result<MatrixRecurrence, Refusal> {
        let program = &stage.program;
        let (scan, depth) = (stage.scan().ok_or(Refusal::NoReadout)?, stage.state_axis().ok_or(Refusal::NoReadout)?);
        let operator = program.operator(scan.operator);
        let tuple = match (scan.inclusive, scan.exclusive) {
            (Some(tuple), None) => tuple,
            _ => return Err(Refusal::Exclusive),
        };
        let field = only_field(program, tuple).ok_or_else(|| not_affine(operator))?;
        let coefficient = coefficient(operator, field).ok_or_else(|| not_affine(operator))?;
        let decay = coefficient.decay(program, scan.elements)?;
        let state = axes_of(program, tuple, field).without(scan.axis);
        let decay_axes = decay.map_or(AxisSet::EMPTY, |d| d.axes(program));
        let width = width(program, state, depth, decay_axes)?;
        if scan.reverse {
            return Err(Refusal::Reverse);
        }
        let mut form =
            MatrixRecurrence::of_scan(program, &scan, StateField { tuple, field }, StateAxes { depth, width }, decay)?;
        form.readout(program)?;
        form.check_outputs(stage)?;
        match form.elem(program)? {
            Elem::Bf16 | Elem::F16 | Elem::F32 => Ok(form),
            _ => Err(Refusal::Type),
        }
    }

    /// The recurrence of a field of a scan whose decay is known, without a readout.
    pub(super) fn of_scan(
        program: &Program,
        scan: &Scan<'_>,
        StateField { tuple, field }: StateField,
        StateAxes { depth, width }: StateAxes,
        decay: Option<Decay>,
    ) -> Result<MatrixRecurrence, Refusal> {
        let state = axes_of(program, tuple, field).without(scan.axis);
        let mut form = MatrixRecurrence {
            time: scan.axis,
            depth,
            width,
            outer: state.without(depth).without(width),
            state: (tuple, field),
            decay,
            channels: decay.is_some_and(|d| d.axes(program).contains(depth)),
            key: 0,
            value: 0,
            gain: vec![],
            init: scan.init.get(field as usize).copied(),
            readout: None,
            reverse: scan.reverse,
        };
        form.payload(program, scan.elements[field as usize])?;
        Ok(form)
    }

    /// Divides the added product into key, value and gain.
    fn payload(&mut self, program: &Program, element: Value) -> Result<(), Refusal> {
        let name = |axis: Axis| program.axis_name(axis).to_owned();
        let refusal = || Refusal::NotOuter { depth: name(self.depth), width: name(self.width) };
        let mut product = Product::of(program, element);
        let keys = product.take_along(program, self.depth);
        let values = product.take_along(program, self.width);
        let ([key], [value], []) = (&keys[..], &values[..], &product.conditions[..]) else { return Err(refusal()) };
        (self.key, self.value) = (
            self.leaf(program, *key, self.depth).ok_or_else(refusal)?,
            self.leaf(program, *value, self.width).ok_or_else(refusal)?,
        );
        self.gain = product.factors;
        Ok(())
    }

    /// The parameter over time, one axis of the state and outer axes that a value is.
    fn leaf(&self, program: &Program, value: Value, axis: Axis) -> Option<u32> {
        let allowed = self.outer.with(self.time).with(axis);
        match program.node(value) {
            node if !node.axes.contains(self.time) || !node.axes.minus(allowed).is_empty() => None,
            node => {
                if let Op::Param(p) = node.op {
                    Some(p)
                } else {
                    None
                }
            }
        }
    }

    /// The sum of a parameter times a state.
    fn readout(&mut self, program: &Program) -> Result<(), Refusal> {
        let refusal = || Refusal::NotQuery { axis: program.axis_name(self.depth).to_owned() };
        let mut sums = (0..program.nodes.len() as u32).map(Value).filter_map(|tuple| match &program.node(tuple).op {
            Op::Reduce { elements, .. } => Some((tuple, elements[0])),
            _ => None,
        });
        let (Some((tuple, element)), None) = (sums.next(), sums.next()) else { return Err(refusal()) };
        let mut product = Product::of(program, element);
        let is_state = |v: &Value| program.node(*v).op == Op::Field(self.state.0, self.state.1);
        let states = product.factors.extract_if(.., |v| is_state(v)).count();
        let queries = product.take_along(program, self.depth);
        let ([query], 1, []) = (&queries[..], states, &product.conditions[..]) else { return Err(refusal()) };
        let query = self.leaf(program, *query, self.depth).ok_or_else(refusal)?;
        self.readout = Some(Readout { tuple, query, factors: product.factors });
        Ok(())
    }

    /// Refuses outputs of states, but for the last one of the recurrence: packed sequences have others.
    fn check_outputs(&self, stage: &Stage) -> Result<(), Refusal> {
        let program = &stage.program;
        let state = Op::Field(self.state.0, self.state.1);
        let is_kept = |op: &Op| !matches!(op, Op::Last { value, .. } if program.node(*value).op != state);
        let keeps_states = program.nodes.iter().all(|node| is_kept(&node.op));
        for (k, output) in program.outputs.iter().enumerate() {
            let is_known = if stage.is_final(k) { keeps_states } else { is_drained(stage, output.value) };
            if !is_known {
                return Err(Refusal::Output { output: output.name.clone() });
            }
        }
        Ok(())
    }

    /// The type of the factors, if it is one.
    pub(crate) fn elem(&self, program: &Program) -> Result<Elem, Refusal> {
        let elem = program.params[self.key as usize].elem;
        let query = self.readout.as_ref().map_or(self.key, |readout| readout.query);
        let same = [self.value, query].iter().all(|p| program.params[*p as usize].elem == elem);
        if same { Ok(elem) } else { Err(Refusal::Type) }
    }
}

/// The one field of a scan that is read.
pub(super) fn only_field(program: &Program, tuple: Value) -> Option<u32> {
    let fields: BTreeSet<u32> = program
        .nodes
        .iter()
        .filter_map(|node| match node.op {
            Op::Field(of, field) if of == tuple => Some(field),
            _ => None,
        })
        .collect();
    let mut fields = fields.into_iter();
    fields.next().filter(|_| fields.next().is_none())
}

/// The axes of a field.
pub(super) fn axes_of(program: &Program, tuple: Value, field: u32) -> AxisSet {
    let own = program.nodes.iter().find(|node| node.op == Op::Field(tuple, field));
    own.map_or(AxisSet::EMPTY, |node| node.axes)
}

/// The axis of the state beside the one summed away, which the decay lacks.
fn width(program: &Program, state: AxisSet, depth: Axis, decay: AxisSet) -> Result<Axis, Refusal> {
    let name = |axis: Axis| program.axis_name(axis).to_owned();
    // The innermost axis of the state beside the depth.
    let inner = program.outputs.iter().flat_map(|o| o.axes.iter().rev()).copied();
    let mut others = inner.filter(|a| state.contains(*a) && *a != depth);
    let Some(candidate) = others.next() else { return Err(Refusal::Vector { axis: name(depth) }) };
    match (decay.contains(depth), decay.contains(candidate)) {
        (_, false) => Ok(candidate),
        (false, true) => Err(Refusal::Channels { axis: name(candidate) }),
        (true, true) => {
            let own: Vec<String> = [candidate, depth].map(name).into();
            Err(Refusal::Diagonal { axes: own.join(" and ") })
        }
    }
}

fn not_affine(operator: &Operator) -> Refusal {
    Refusal::NotAffine { operator: operator.name.clone() }
}

/// The factor of the left operand's field: none, a field of the right operand, or an exponential of one.
pub(super) enum Scale {
    One,
    Field(usize),
    Exponential(usize, bool),
}

/// A scale of the left operand, and the field of the right operand under which the left operand is forgotten, if there is one.
pub(super) struct Coefficient {
    scale: Scale,
    reset: Option<usize>,
}

impl Coefficient {
    /// The logarithm of the decay in the program.
    pub(super) fn decay(&self, program: &Program, elements: &[Value]) -> Result<Option<Decay>, Refusal> {
        let decay = match self.scale {
            Scale::One if self.reset.is_none() => return Ok(None),
            Scale::One => return Err(Refusal::NoExponential),
            Scale::Exponential(k, binary) => Decay::of(program, elements[k], binary),
            Scale::Field(k) => match decay_of(program, elements[k])? {
                None if self.reset.is_none() => return Ok(None),
                decay => decay.ok_or(Refusal::NoExponential)?,
            },
        };
        match (self.reset.map(|k| elements[k]), decay.reset) {
            (Some(_), Some(_)) => Err(Refusal::NoExponential),
            (own, inner) => Ok(Some(Decay { reset: own.or(inner), ..decay })),
        }
    }
}

/// The decay that a value is; none where that is 1.
pub(super) fn decay_of(program: &Program, value: Value) -> Result<Option<Decay>, Refusal> {
    if is(program, value, 1.0) { Ok(None) } else { exponential(program, value).map(Some).ok_or(Refusal::NoExponential) }
}

/// The decay that a value is: an exponential, or 0 under a condition.
pub(super) fn exponential(program: &Program, value: Value) -> Option<Decay> {
    let (mut value, mut reset) = (value, None);
    loop {
        value = match program.node(value).op {
            Op::Broadcast(x) => x,
            Op::Unary(Unary::Exp, log) => return Some(Decay { reset, ..Decay::of(program, log, false) }),
            Op::Unary(Unary::Exp2, log) => return Some(Decay { reset, ..Decay::of(program, log, true) }),
            Op::Select(condition, zero, own) if is(program, zero, 0.0) => {
                let is_zero = matches!(program.node(condition).op, Op::Binary(Binary::Eq, x, y) if x == own && is(program, y, 0.0));
                if !is_zero && reset.replace(condition).is_some() {
                    return None;
                }
                own
            }
            _ => return None,
        };
    }
}

/// The coefficient of a field that is combined as coefficient·l + r.
pub(super) fn coefficient(operator: &Operator, field: u32) -> Option<Coefficient> {
    let body = Body { operator };
    let (n, own) = (operator.fields.len() as u32, operator.combine[field as usize]);
    if operator.fields[field as usize].ty != Ty::F32 {
        return None;
    }
    let (own, reset) = body.without_reset(own, n + field);
    let Op::Binary(Binary::Add, x, y) = *body.op(own) else { return None };
    let scaled = if body.input(y) == Some(n + field) { x } else { y };
    let added = if body.input(y) == Some(n + field) { y } else { x };
    let scale = body.factor(scaled, field).filter(|_| body.input(added) == Some(n + field))?;
    Some(Coefficient { scale, reset })
}

/// The body of an operator.
struct Body<'o> {
    operator: &'o Operator,
}

impl Body<'_> {
    fn op(&self, value: Value) -> &Op {
        &self.operator.body[value.0 as usize].op
    }

    fn input(&self, value: Value) -> Option<u32> {
        if let Op::Input(k) = self.op(value) { Some(*k) } else { None }
    }

    /// The value that `if reset { right } else { value }` chooses otherwise, and the field of the right operand that is `reset`.
    fn without_reset(&self, value: Value, right: u32) -> (Value, Option<usize>) {
        let n = self.operator.fields.len() as u32;
        match *self.op(value) {
            Op::Select(reset, own, other) if self.input(own) == Some(right) => match self.input(reset) {
                Some(field) if field >= n => (other, Some((field - n) as usize)),
                _ => (value, None),
            },
            _ => (value, None),
        }
    }

    /// The factor of the left operand's field in a product; `if factor == 0 { 0 } else { product }` is one.
    fn factor(&self, value: Value, field: u32) -> Option<Scale> {
        let nothing = |v: Value| matches!(self.op(v), Op::Const(x) if x.as_f64() == 0.0);
        let guarded = follow(value, |v| match *self.op(v) {
            Op::Select(condition, zero, product) if nothing(zero) => {
                let guards = matches!(*self.op(condition), Op::Binary(Binary::Eq, _, y) if nothing(y));
                guards.then_some(product)
            }
            _ => None,
        });
        match *self.op(guarded) {
            Op::Input(k) if k == field => Some(Scale::One),
            Op::Binary(Binary::Mul, x, y) if self.input(y) == Some(field) => self.decay(x),
            Op::Binary(Binary::Mul, x, y) if self.input(x) == Some(field) => self.decay(y),
            _ => None,
        }
    }

    /// A factor that depends on one field of the right operand.
    fn decay(&self, value: Value) -> Option<Scale> {
        let n = self.operator.fields.len() as u32;
        let right = |v: Value| self.input(v).filter(|k| *k >= n).map(|k| (k - n) as usize);
        match *self.op(value) {
            Op::Unary(Unary::Exp, x) => Some(Scale::Exponential(right(x)?, false)),
            Op::Unary(Unary::Exp2, x) => Some(Scale::Exponential(right(x)?, true)),
            _ => Some(Scale::Field(right(value)?)),
        }
    }
}

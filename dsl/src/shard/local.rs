//! Programs of one shard: values of the whole program, computed from the elements of the shard and from what other ranks sent.

use std::collections::HashMap;

use crate::build::{Builder, Direction};
use crate::elem::{Elem, Ty};
use crate::ir::{Axis, AxisSet, Binary, Literal, Op, OperatorId, Output, Program, Unary, Value};
use crate::typing::TypeError;

use super::divide::Divide;
use super::level::Exchange;
use super::scans::Shifted;
use super::{END, MOST_SHIFTED, SIZE, START, Which};

/// A program under construction, in which values of the whole program have images.
pub(super) struct Local<'a> {
    divide: &'a Divide<'a>,
    pub(super) into: Builder,
    images: HashMap<Value, Value>,
    /// Parameters that are not those of the whole program.
    extra: HashMap<String, Value>,
    outputs: Vec<Output>,
}

/// The name of what is exchanged for a value.
pub(super) fn named(what: &str, value: Value) -> String {
    format!("shard.{what}{}", value.0)
}

/// The name of a field of what is exchanged for a scan or a reduction.
pub(super) fn named_field(what: &str, value: Value, field: &str) -> String {
    format!("shard.{what}{}.{field}", value.0)
}

/// The name of the element that comes into a shard from that far beyond its border.
pub(super) fn named_border(value: Value, k: i64) -> String {
    format!("shard.border{}.n{k}", value.0)
}

/// The type that a tensor of such values stores.
pub(super) fn stored(ty: Ty) -> Elem {
    if ty == Ty::Call { Elem::State } else { ty.elem().unwrap_or(Elem::Call) }
}

impl<'a> Local<'a> {
    /// A program with the axes and parameters of the whole.
    pub(super) fn new(divide: &'a Divide<'a>, name: &str) -> Local<'a> {
        let from = divide.program;
        let start =
            Program { name: name.to_owned(), operators: vec![], nodes: vec![], outputs: vec![], ..from.clone() };
        Local {
            divide,
            into: Builder::from_program(start),
            images: HashMap::new(),
            extra: HashMap::new(),
            outputs: vec![],
        }
    }

    fn from(&self) -> &'a Program {
        self.divide.program
    }

    /// The images of values, after whatever they need has one.
    pub(super) fn images(&mut self, roots: &[Value]) -> Result<Vec<Value>, TypeError> {
        for value in self.missing(roots) {
            let image = self.image(value)?;
            self.images.insert(value, image);
        }
        Ok(roots.iter().map(|v| self.images[v]).collect())
    }

    /// The values without an image that the roots need on this rank, in order of evaluation.
    fn missing(&self, roots: &[Value]) -> Vec<Value> {
        let mut needed = vec![false; self.from().nodes.len()];
        roots.iter().for_each(|v| needed[v.0 as usize] = true);
        for k in (0..needed.len()).rev() {
            let value = Value(k as u32);
            needed[k] = needed[k] && !self.images.contains_key(&value);
            if needed[k] {
                self.divide.needs(value).iter().for_each(|v| needed[v.0 as usize] = true);
            }
        }
        (0..needed.len()).filter(|k| needed[*k]).map(|k| Value(k as u32)).collect()
    }

    fn image(&mut self, value: Value) -> Result<Value, TypeError> {
        let node = self.from().node(value);
        match (self.divide.levels.exchange[value.0 as usize], &node.op) {
            (Some(Exchange::Scan), Op::Scan { .. }) => self.scan(value),
            (Some(Exchange::LastState { .. }), _) => {
                let axes: Vec<Axis> = node.axes.iter().collect();
                self.param(&named("state", value), &axes, stored(node.ty))
            }
            (Some(Exchange::End), Op::Last { value: of, empty, .. } | Op::First { value: of, empty, .. }) => {
                self.end(value, *of, *empty)
            }
            (Some(Exchange::Shift), Op::Shift { by, .. }) => self.shift(value, *by),
            (Some(Exchange::Gather), _) => {
                let axes: Vec<Axis> = node.axes.iter().collect();
                self.param(&named("taken", value), &axes, stored(node.ty))
            }
            (_, Op::Field(tuple, k)) if self.divide.is_total(*tuple) => {
                let axes: Vec<Axis> = node.axes.iter().collect();
                self.param(&named_field("sum", *tuple, self.divide.field(*tuple, *k)), &axes, stored(node.ty))
            }
            (_, Op::Index(axis)) if *axis == self.divide.axis => {
                let (index, start) = (self.into.index(*axis)?, self.position(START)?);
                self.into.binary(Binary::Add, index, start)
            }
            (_, Op::Size(axis)) if *axis == self.divide.axis => self.position(SIZE),
            (_, Op::Starts { axis, list, offsets }) if *axis == self.divide.axis => {
                self.starts(*axis, *list, self.images[offsets])
            }
            (_, op) => {
                let op = self.own(op.map_operands(|v| self.images[&v]))?;
                self.into.append(op, node.ty, node.axes)
            }
        }
    }

    /// The operation with this program's number of its operator.
    fn own(&mut self, mut op: Op) -> Result<Op, TypeError> {
        if let Op::Reduce { operator, .. } | Op::Scan { operator, .. } = &mut op {
            *operator = self.operator(*operator)?;
        }
        Ok(op)
    }

    pub(super) fn operator(&mut self, id: OperatorId) -> Result<OperatorId, TypeError> {
        let unknown = TypeError::Unknown { kind: "operator", index: id.0 };
        let operator = self.from().operators.get(id.0 as usize).ok_or(unknown)?;
        Ok(self.into.operator(operator.clone()))
    }

    /// A parameter that the whole program does not have.
    pub(super) fn param(&mut self, name: &str, axes: &[Axis], elem: Elem) -> Result<Value, TypeError> {
        if let Some(value) = self.extra.get(name) {
            return Ok(*value);
        }
        let value = self.into.param(name, axes, elem, None)?;
        self.extra.insert(name.to_owned(), value);
        Ok(value)
    }

    pub(super) fn position(&mut self, name: &str) -> Result<Value, TypeError> {
        self.param(name, &[], Elem::I64)
    }

    /// The scan of the shard from the state before it.
    fn scan(&mut self, value: Value) -> Result<Value, TypeError> {
        let from = self.from();
        let Op::Scan { axis, operator, elements, reverse, exclusive, .. } = &from.node(value).op else {
            return Ok(value);
        };
        let live = self.divide.live_fields(value);
        let own = from.operator(*operator);
        let elements = self.elements_of(value, elements)?;
        let init = (0..own.fields.len()).map(|k| match live[k] {
            true => {
                let axes: Vec<Axis> = self.divide.state_axes(value)[k].iter().collect();
                self.carry(value, k, &axes)
            }
            false => self.into.constant(own.fields[k].ty, own.identity[k]),
        });
        let init: Vec<Value> = init.collect::<Result<_, _>>()?;
        let operator = self.operator(*operator)?;
        let op = Op::Scan { axis: *axis, operator, elements, init, reverse: *reverse, exclusive: *exclusive };
        self.into.append(op, Ty::Tuple, AxisSet::EMPTY)
    }

    /// The elements of a scan of the shard; the identity comes in by a shift, even if the shard is not the first one.
    fn elements_of(&mut self, scan: Value, elements: &[Value]) -> Result<Vec<Value>, TypeError> {
        let shifted = self.divide.levels.shifted[scan.0 as usize];
        let mut own = vec![];
        for (k, element) in elements.iter().enumerate() {
            let image = match shifted.filter(|shifted| shifted.field == k) {
                Some(Shifted { value, fill, .. }) => {
                    let Op::Shift { axis, by, .. } = self.from().node(*element).op else { return Ok(own) };
                    let images = self.images(&[value, fill])?;
                    self.into.shift(axis, by, images[0], images[1])?
                }
                None => self.images(&[*element])?[0],
            };
            own.push(image);
        }
        Ok(own)
    }

    /// A field of the state before the shard.
    fn carry(&mut self, scan: Value, k: usize, axes: &[Axis]) -> Result<Value, TypeError> {
        let Op::Scan { operator, .. } = self.from().node(scan).op else { return Ok(scan) };
        let field = &self.from().operator(operator).fields[k];
        self.param(&named_field("carry", self.divide.leader(scan), &field.name), axes, stored(field.ty))
    }

    /// The value at an end of the whole axis.
    fn end(&mut self, value: Value, of: Value, empty: Value) -> Result<Value, TypeError> {
        let (axes, elem) = self.divide.beside(of);
        let picked = self.param(&named("end", value), &axes, elem)?;
        let (size, zero) = (self.position(SIZE)?, self.into.constant(Ty::I64, Literal::Int(0))?);
        let is_empty = self.into.binary(Binary::Eq, size, zero)?;
        self.into.select(is_empty, self.images[&empty], picked)
    }

    /// The shifted shard: one shift by one for each element that comes in.
    fn shift(&mut self, value: Value, by: i64) -> Result<Value, TypeError> {
        let from = self.from();
        let Op::Shift { axis, value: shifted, fill, .. } = &from.node(value).op else { return Ok(value) };
        let (mut image, fill) = (self.images[shifted], self.images[fill]);
        let (axes, elem) = self.divide.beside(*shifted);
        for k in 0..by.abs().min(MOST_SHIFTED) {
            let picked = self.param(&named_border(value, k), &axes, elem)?;
            let is_outside = self.is_outside(by > 0, k)?;
            let comes_in = self.into.select(is_outside, fill, picked)?;
            image = self.into.shift(*axis, by.signum(), image, comes_in)?;
        }
        Ok(image)
    }

    /// Whether the element k + 1 places before the shard, or k places from its end, is outside the axis.
    fn is_outside(&mut self, is_before: bool, k: i64) -> Result<Value, TypeError> {
        if is_before {
            let (start, k) = (self.position(START)?, self.into.constant(Ty::I64, Literal::Int(k))?);
            return self.into.binary(Binary::Le, start, k);
        }
        let (end, k) = (self.position(END)?, self.into.constant(Ty::I64, Literal::Int(k))?);
        let (at, size) = (self.into.binary(Binary::Add, end, k)?, self.position(SIZE)?);
        self.into.binary(Binary::Ge, at, size)
    }

    /// Where segments begin in the shard.
    fn starts(&mut self, axis: Axis, list: Axis, offsets: Value) -> Result<Value, TypeError> {
        let (offsets, start) = (self.into.convert(Elem::I64, offsets)?, self.position(START)?);
        let back = self.into.unary(Unary::Neg, start)?;
        let offsets = self.into.binary(Binary::Add, offsets, back)?;
        self.into.starts(axis, list, offsets)
    }
}

/// Messages.
impl Local<'_> {
    /// The totals of a scan or a reduction: one output for each field that the fold reads.
    pub(super) fn totals(&mut self, value: Value) -> Result<Vec<String>, TypeError> {
        let from = self.from();
        let (Op::Scan { axis, operator, elements, .. } | Op::Reduce { axis, operator, elements }) =
            &from.node(value).op
        else {
            return Ok(vec![]);
        };
        let reverse = matches!(from.node(value).op, Op::Scan { reverse: true, .. });
        let elements = self.elements_of(value, elements)?;
        let id = self.operator(*operator)?;
        let fields = if let Op::Reduce { .. } = from.node(value).op {
            self.into.reduce(*axis, id, &elements)?
        } else {
            let states = self.into.scan(*axis, id, &elements, &[], Direction { reverse, exclusive: false })?;
            let states = self.with_next_shifted(value, states)?;
            self.last_states(*axis, *operator, &states, reverse)?
        };
        let own = &from.operator(*operator).fields;
        let sent = own.iter().zip(self.divide.total_axes(value)).zip(fields).map(|((own, axes), field)| {
            self.send(named_field("total", value, &own.name), (axes.iter().collect(), stored(own.ty)), field)
        });
        Ok(sent.collect())
    }

    /// The states of a scan, each with the shifted value that is the element of the step after, if there is one.
    fn with_next_shifted(&mut self, scan: Value, states: Vec<Value>) -> Result<Vec<Value>, TypeError> {
        let (from, shifted) = (self.from(), self.divide.levels.shifted[scan.0 as usize]);
        let (Op::Scan { operator, .. }, Some(Shifted { field, value, .. })) = (&from.node(scan).op, shifted) else {
            return Ok(states);
        };
        let own = from.operator(*operator);
        let typed = own.fields.iter().zip(&own.identity);
        let mut next = typed.map(|(f, x)| self.into.constant(f.ty, *x)).collect::<Result<Vec<_>, _>>()?;
        next[field] = self.images(&[value])?[0];
        let combined = self.into.inline(own, &states, &next)?;
        let own_zero =
            |x: Value| next.contains(&x) && matches!(self.into.program().node(x).op, Op::Const(z) if z.as_f64() == 0.0);
        let without_zero = |value: Value| match self.into.program().node(value).op {
            Op::Binary(Binary::Add, x, zero) if own_zero(zero) => x,
            _ => value,
        };
        Ok(combined.into_iter().map(without_zero).collect())
    }

    pub(super) fn last_states(
        &mut self,
        axis: Axis,
        operator: OperatorId,
        states: &[Value],
        reverse: bool,
    ) -> Result<Vec<Value>, TypeError> {
        let own = self.from().operator(operator);
        let fields = own.fields.iter().zip(&own.identity).zip(states);
        let last = fields.map(|((field, identity), state)| {
            let empty = self.into.constant(field.ty, *identity)?;
            if reverse { self.into.first(axis, *state, empty) } else { self.into.last(axis, *state, empty) }
        });
        last.collect()
    }

    /// The value at the end of the shard.
    pub(super) fn end_of_shard(&mut self, value: Value) -> Result<Vec<String>, TypeError> {
        let (axis, of, empty, is_first) = match self.from().node(value).op {
            Op::Last { axis, value, empty } => (axis, value, empty, false),
            Op::First { axis, value, empty } => (axis, value, empty, true),
            _ => return Ok(vec![]),
        };
        let image = self.images(&[of])?[0];
        let nothing = match self.passed_on(of, empty, is_first)? {
            Some(carry) => carry,
            None => self.nothing(image)?,
        };
        let end = self.at_end(axis, image, nothing, is_first)?;
        Ok(vec![self.send(named("end", value), self.divide.beside(of), end)])
    }

    /// The carry of the scan whose initial state the end of an empty axis is: an empty shard passes it on.
    fn passed_on(&mut self, of: Value, empty: Value, is_first: bool) -> Result<Option<Value>, TypeError> {
        let levels = &self.divide.levels;
        let field_of = |k: usize| match &self.from().nodes[k].op {
            Op::Scan { init, reverse, .. } if *reverse == is_first => init.iter().position(|init| *init == empty),
            _ => None,
        };
        let known =
            |k: &usize| levels.exchange[*k] == Some(Exchange::Scan) && levels.of[*k] <= levels.of[of.0 as usize];
        let found = (0..self.from().nodes.len()).filter(known).find_map(|k| Some((Value(k as u32), field_of(k)?)));
        let Some((scan, field)) = found.filter(|(scan, field)| self.divide.live_fields(*scan)[*field]) else {
            return Ok(None);
        };
        let axes: Vec<Axis> = self.divide.state_axes(scan)[field].iter().collect();
        self.carry(scan, field, &axes).map(Some)
    }

    /// Zero, of the type of a value.
    fn nothing(&mut self, image: Value) -> Result<Value, TypeError> {
        let ty = self.into.ty(image)?;
        self.into.constant(ty, Literal::zero(ty))
    }

    fn at_end(&mut self, axis: Axis, image: Value, nothing: Value, is_first: bool) -> Result<Value, TypeError> {
        if is_first { self.into.first(axis, image, nothing) } else { self.into.last(axis, image, nothing) }
    }

    /// The elements at the border of the shard, the outermost first.
    pub(super) fn border(&mut self, value: Value) -> Result<Vec<String>, TypeError> {
        let Op::Shift { axis, by, value: of, .. } = self.from().node(value).op else { return Ok(vec![]) };
        let image = self.images(&[of])?[0];
        let nothing = self.nothing(image)?;
        let mut element = |k: i64| {
            let shifted = if k == 0 { image } else { self.into.shift(axis, k * by.signum(), image, nothing)? };
            let end = self.at_end(axis, shifted, nothing, by < 0)?;
            Ok(self.send(named_border(value, k), self.divide.beside(of), end))
        };
        (0..by.abs().min(MOST_SHIFTED)).map(&mut element).collect()
    }

    /// Of the elements that are taken those of the shard, zero for the others.
    pub(super) fn elements(&mut self, value: Value) -> Result<Vec<String>, TypeError> {
        let node = self.from().node(value);
        let Op::Gather { axis, to, value: of, index, inverse } = node.op else { return Ok(vec![]) };
        let images = self.images(&[of, index, inverse])?;
        let start = self.position(START)?;
        let index = self.into.binary(Binary::Sub, images[1], start)?;
        let taken = self.into.gather((axis, to), images[0], (index, images[2]))?;
        Ok(vec![self.send(named("elements", value), (node.axes.iter().collect(), stored(node.ty)), taken)])
    }

    /// A new output that is not one of the whole program; its name.
    pub(super) fn send(&mut self, name: String, (axes, elem): (Vec<Axis>, Elem), value: Value) -> String {
        self.outputs.push(Output { name: name.clone(), axes, elem, value });
        name
    }

    /// An output of the whole program.
    pub(super) fn output(&mut self, output: &Output) -> Result<(), TypeError> {
        let value = self.images(&[output.value])?[0];
        self.outputs.push(Output { value, ..output.clone() });
        Ok(())
    }

    /// The program.
    pub(super) fn finish(self) -> Program {
        Program { outputs: self.outputs, ..self.into.finish() }
    }
}

impl Which {
    /// The k-th element that comes in by a shift.
    pub(super) fn of_shift(by: i64, k: i64) -> Which {
        if by > 0 { Which::Before(k as u64 + 1) } else { Which::After(k as u64) }
    }
}

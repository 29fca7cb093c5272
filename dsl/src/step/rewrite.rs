//! The program for one index of an axis, without the axis.

use crate::build::{Builder, Built};
use crate::ir::{Axis, AxisSet, Binary, MatrixScan, Node, Op, OperatorId, Program, Value};
use crate::typing::TypeError;

use super::StepError;
use super::delays::{Delay, Read, read};

/// Rewrites a program for calls in which an axis has the size 1; the axis does not appear in the result.
pub(super) fn one_index(program: &Program, axis: Axis, delays: &[Delay]) -> Result<Program, StepError> {
    let into = Builder::new(&format!("{}_step", program.name));
    let mut rewrite = Rewrite { from: program, axis, delays, before: vec![], into };
    let mut images: Vec<Image> = vec![];
    let params = rewrite.signature()?;
    for node in &program.nodes {
        let image = rewrite.node(node, &params, &images)?;
        images.push(image);
    }
    for output in &program.outputs {
        let (axes, value) = (rewrite.axes(&output.axes), images[output.value.0 as usize].value());
        rewrite.into.output(&output.name, &axes, output.elem, value)?;
    }
    rewrite.hand_on(&images)?;
    Ok(rewrite.into.finish())
}

/// The image of a node.
enum Image {
    Value(Value),
    /// The fields of a scan or a reduction.
    Fields(Vec<Value>),
}

impl Image {
    /// The value; of a tuple, which only `Field` reads, its first field.
    fn value(&self) -> Value {
        match self {
            Image::Value(value) => *value,
            Image::Fields(fields) => fields[0],
        }
    }
}

struct Rewrite<'a> {
    from: &'a Program,
    axis: Axis,
    delays: &'a [Delay],
    /// Of each delay the elements 1, 2, … times before.
    before: Vec<Vec<Value>>,
    into: Builder,
}

impl Rewrite<'_> {
    /// Declares axes and parameters; the values of the parameters.
    fn signature(&mut self) -> Result<Vec<Value>, TypeError> {
        for (k, name) in self.from.axes.iter().enumerate() {
            if k != self.axis.0 as usize {
                self.into.axis(name)?;
            }
        }
        let mut params = vec![];
        for param in &self.from.params {
            params.push(self.into.param(&param.name, &self.axes(&param.axes), param.elem, param.default)?);
            if let Some(other) = param.or {
                self.into.or(other);
            }
        }
        self.before = self.delays.iter().map(|delay| self.elements(delay)).collect::<Result<_, _>>()?;
        Ok(params)
    }

    /// Declares the elements of a delay, from 1 time before on.
    fn elements(&mut self, delay: &Delay) -> Result<Vec<Value>, TypeError> {
        let axes = self.axes(&delay.axes);
        let element = |k| self.into.param(&delay.state(k).param, &axes, delay.elem, Some(delay.fill));
        (1..=delay.count).map(element).collect()
    }

    /// Gives out the elements that the next step is given: the new one, and all but the oldest.
    fn hand_on(&mut self, images: &[Image]) -> Result<(), TypeError> {
        for (delay, before) in self.delays.iter().zip(self.before.clone()) {
            let (axes, new) = (self.axes(&delay.axes), images[delay.value.0 as usize].value());
            for (k, value) in (1..=delay.count).zip([new].into_iter().chain(before)) {
                self.into.output(&delay.state(k).output, &axes, delay.elem, value)?;
            }
        }
        Ok(())
    }

    /// The axis of the same name.
    fn axis(&self, axis: Axis) -> Axis {
        Axis(axis.0 - u32::from(axis > self.axis))
    }

    /// The axes that remain.
    fn axes(&self, axes: &[Axis]) -> Vec<Axis> {
        axes.iter().filter(|axis| **axis != self.axis).map(|axis| self.axis(*axis)).collect()
    }

    fn node(&mut self, node: &Node, params: &[Value], images: &[Image]) -> Result<Image, StepError> {
        let axes: AxisSet = self.axes(&node.axes.iter().collect::<Vec<_>>()).into_iter().collect();
        let image = |value: &Value| images[value.0 as usize].value();
        self.check(&node.op)?;
        let value = match &node.op {
            Op::Param(k) => params[*k as usize],
            Op::Scan { operator, elements, init, exclusive, .. } => {
                let elements: Vec<Value> = elements.iter().map(image).collect();
                let init: Vec<Value> = init.iter().map(image).collect();
                return Ok(Image::Fields(self.combination(*operator, &elements, &init, *exclusive)?));
            }
            Op::MatrixScan(scan) => self.matrix_step(scan, image)?,
            Op::Reduce { axis, operator, elements } => {
                let operator = self.into.operator(self.from.operator(*operator).clone());
                let elements: Vec<Value> = elements.iter().map(image).collect();
                return Ok(Image::Fields(self.into.reduce(self.axis(*axis), operator, &elements)?));
            }
            Op::Field(tuple, k) => match &images[tuple.0 as usize] {
                Image::Fields(fields) => fields[*k as usize],
                Image::Value(value) => *value,
            },
            Op::Last { axis, value, .. } | Op::First { axis, value, .. } if *axis == self.axis => image(value),
            Op::Shift { axis, by, value, fill } if *axis == self.axis => {
                match read(self.from, self.delays, *by, *value, *fill) {
                    Read::Now(value) | Read::Given(value) => image(&value),
                    Read::Before(delay, by) => self.before[delay][by - 1],
                }
            }
            op => self.into.append(self.renamed(op).map_operands(|v| image(&v)), node.ty, axes)?,
        };
        // A combination may lack axes that the scan's state has, say of an init that it ignores.
        Ok(Image::Value(self.into.broadcast(value, axes)?))
    }

    /// The state after one element; for an exclusive scan the one before it.
    fn combination(
        &mut self,
        operator: OperatorId,
        elements: &[Value],
        init: &[Value],
        exclusive: bool,
    ) -> Result<Vec<Value>, TypeError> {
        let operator = self.from.operator(operator);
        let identity = operator.fields.iter().zip(&operator.identity);
        let before = match init {
            [] => identity.map(|(field, literal)| self.into.constant(field.ty, *literal)).collect::<Result<_, _>>()?,
            _ => init.to_vec(),
        };
        if exclusive { Ok(before) } else { self.into.inline(operator, &before, elements) }
    }

    /// The state after one step of a recurrence of matrices; of an exclusive one the state before it.
    fn matrix_step(&mut self, scan: &MatrixScan, image: impl Fn(&Value) -> Value) -> Built {
        let mut one = scan.clone();
        one.operands_mut().into_iter().for_each(|v| *v = image(v));
        one.map_axes(|axis| self.axis(axis));
        if one.exclusive {
            return Ok(one.init);
        }
        let state = self.into.broadcast(one.init, AxisSet::of(one.along))?;
        let state = self.into.matrix_before(&one, state)?;
        let carried = self.into.matrix_step(&one, state)?;
        self.into.binary(Binary::Add, carried, one.input)
    }

    /// Refuses what sees more than one index.
    fn check(&self, op: &Op) -> Result<(), StepError> {
        let (what, along) = match op {
            Op::Index(axis) => ("`index`", axis),
            Op::Size(axis) => ("`size`", axis),
            Op::Reduce { axis, .. } => ("a reduction", axis),
            Op::Starts { list, .. } if *list == self.axis => ("a list of offsets", list),
            Op::Starts { axis, .. } => ("a list of offsets", axis),
            Op::Gather { to, .. } if *to == self.axis => ("a list of offsets", to),
            Op::Gather { axis, .. } => ("a list of offsets", axis),
            _ => return Ok(()),
        };
        let axis = self.from.axis_name(self.axis).to_owned();
        if *along == self.axis { Err(StepError::Whole { what, axis }) } else { Ok(()) }
    }

    /// The operation with the numbers that its axes have now.
    fn renamed(&self, op: &Op) -> Op {
        let mut op = op.clone();
        match &mut op {
            Op::Starts { axis, list, .. } => (*axis, *list) = (self.axis(*axis), self.axis(*list)),
            Op::Gather { axis, to, .. } => (*axis, *to) = (self.axis(*axis), self.axis(*to)),
            Op::Index(axis) | Op::Size(axis) => *axis = self.axis(*axis),
            Op::Last { axis, .. } | Op::First { axis, .. } | Op::Shift { axis, .. } => *axis = self.axis(*axis),
            _ => {}
        }
        op
    }
}

//! Nodes, one after the other.

use std::borrow::Cow;

use crate::elem::{Elem, Ty};
use crate::ir::{Axis, AxisSet, Binary, Literal, Node, Op, Output, Program, Value};
use crate::scalar;

use super::shapes::Shapes;
use super::{Array, Data, InterpretError, Mode, columns};

/// A program half way through.
pub(super) struct Interpreter<'a> {
    pub(super) program: &'a Program,
    pub(super) inputs: &'a [Option<Array>],
    pub(super) shapes: Shapes,
    pub(super) mode: Mode,
    /// The elements of every value so far, dense over its axes in order of declaration; of tuples, of every field.
    values: Vec<Vec<Data>>,
    /// The last node that uses a value, to free it.
    last_use: Vec<usize>,
}

type Run<T> = Result<T, InterpretError>;

impl<'a> Interpreter<'a> {
    pub(super) fn new(program: &'a Program, inputs: &'a [Option<Array>], shapes: Shapes, mode: Mode) -> Self {
        let mut last_use: Vec<usize> = (0..program.nodes.len()).collect();
        for (i, node) in program.nodes.iter().enumerate() {
            node.op.operands().into_iter().for_each(|v| last_use[v.0 as usize] = i);
        }
        program.outputs.iter().for_each(|output| last_use[output.value.0 as usize] = usize::MAX);
        Interpreter { program, inputs, shapes, mode, values: vec![], last_use }
    }

    /// Computes the next node, and frees what no later one uses.
    pub(super) fn run(&mut self, value: Value) -> Run<()> {
        let node = self.program.node(value);
        let n = self.shapes.count(node.axes, || format!("node {value}"))?;
        let data = match node.op {
            // The field of a tuple that nothing else uses any more.
            Op::Field(tuple, k) if self.last_use[tuple.0 as usize] == value.0 as usize => {
                let field = &mut self.values[tuple.0 as usize][k as usize];
                vec![std::mem::replace(field, Data::Bool(vec![]))]
            }
            _ => self.evaluate(node, n)?,
        };
        self.values.push(data);
        for operand in node.op.operands().into_iter().chain([value]) {
            if self.last_use[operand.0 as usize] <= value.0 as usize {
                self.values[operand.0 as usize] = vec![];
            }
        }
        Ok(())
    }

    fn evaluate(&self, node: &Node, n: usize) -> Run<Vec<Data>> {
        Ok(vec![match &node.op {
            Op::Param(k) => self.param(*k),
            Op::Const(literal) => Data::filled(self.round(node.ty, *literal), n),
            Op::Index(_) => Data::Int((0..n as i64).collect()),
            Op::Size(axis) => Data::Int(vec![self.shapes.size(*axis) as i64]),
            Op::Unary(op, a) => columns::unary(*op, self.ty(*a), self.data(*a)),
            Op::Binary(op, a, b) => self.binary(*op, *a, *b, node.axes),
            Op::Select(c, a, b) => self.select(*c, *a, *b, node.axes),
            Op::Convert(elem, a) => self.convert(*elem, *a),
            Op::Broadcast(a) => self.expanded(*a, node.axes).into_owned(),
            Op::Reduce { .. } | Op::Scan { .. } => return self.combination(node),
            Op::MatrixScan(scan) => self.matrix_scan(scan, node, n),
            Op::Field(tuple, k) => self.values[tuple.0 as usize][*k as usize].clone(),
            Op::Last { axis, value, empty } => self.end(*axis, *value, *empty, node.axes, true),
            Op::First { axis, value, empty } => self.end(*axis, *value, *empty, node.axes, false),
            Op::Shift { axis, by, value, fill } => self.shift(*axis, *by, *value, *fill, node.axes),
            Op::Starts { axis, offsets, .. } => self.starts(*axis, *offsets),
            Op::Gather { axis, to, value, index, .. } => self.gathered((*axis, *to), *value, *index, node),
            Op::Input(_) => Data::filled(Literal::zero(node.ty), n),
        }])
    }

    /// An output in its memory order, rounded to its element type.
    pub(super) fn output(&self, output: &Output) -> Run<Array> {
        let axes: AxisSet = output.axes.iter().copied().collect();
        self.shapes.count(axes, || format!("output `{}`", output.name))?;
        let own: Vec<Axis> = self.axes(output.value).iter().collect();
        let sizes = self.shapes.sizes(output.axes.iter().copied());
        let data = self.data(output.value).gather(0, &sizes, &self.shapes.strides(&own, output.axes.iter().copied()));
        Ok(Array { sizes, data: self.rounded(output.elem, data) })
    }

    fn param(&self, k: u32) -> Data {
        let param = &self.program.params[k as usize];
        let axes: AxisSet = param.axes.iter().copied().collect();
        let sizes = self.shapes.sizes(axes.iter());
        let data = match (&self.inputs[k as usize], param.default) {
            (Some(array), _) => array.data.gather(0, &sizes, &self.shapes.strides(&param.axes, axes.iter())),
            (None, default) => {
                let literal = default.unwrap_or(Literal::zero(param.elem.value()));
                Data::filled(literal, sizes.iter().product())
            }
        };
        self.rounded(param.elem, data)
    }

    /// Elements as a tensor of that type stores them.
    fn rounded(&self, elem: Elem, mut data: Data) -> Data {
        let elem = self.mode.precision.elem(elem);
        match &mut data {
            Data::Float(xs) => xs.iter_mut().for_each(|x| *x = scalar::round(elem, *x)),
            Data::Int(xs) => xs.iter_mut().for_each(|x| *x = scalar::wrap(elem.value(), i128::from(*x))),
            Data::Bool(_) => {}
        }
        data
    }

    fn round(&self, ty: Ty, literal: Literal) -> Literal {
        self.mode.precision.round(ty.elem().unwrap_or(Elem::Call), literal)
    }

    fn axes(&self, value: Value) -> AxisSet {
        self.program.node(value).axes
    }

    /// The elements of a scalar value.
    pub(super) fn data(&self, value: Value) -> &Data {
        &self.values[value.0 as usize][0]
    }

    /// Where the elements of a value lie along the given axes: the stride of each.
    pub(super) fn strides(&self, value: Value, axes: AxisSet) -> Vec<usize> {
        let own: Vec<Axis> = self.axes(value).iter().collect();
        self.shapes.strides(&own, axes.iter())
    }

    /// The elements of a value over more axes.
    fn expanded(&self, value: Value, axes: AxisSet) -> Cow<'_, Data> {
        if self.axes(value) == axes {
            return Cow::Borrowed(self.data(value));
        }
        let sizes = self.shapes.sizes(axes.iter());
        Cow::Owned(self.data(value).gather(0, &sizes, &self.strides(value, axes)))
    }

    /// The type in which a value is computed.
    fn ty(&self, value: Value) -> Ty {
        self.mode.precision.ty(self.program.node(value).ty)
    }
}

/// Maps.
impl Interpreter<'_> {
    fn binary(&self, op: Binary, a: Value, b: Value, axes: AxisSet) -> Data {
        columns::binary(op, self.ty(a), &self.expanded(a, axes), &self.expanded(b, axes))
    }

    fn select(&self, c: Value, a: Value, b: Value, axes: AxisSet) -> Data {
        columns::select(&self.expanded(c, axes), &self.expanded(a, axes), self.expanded(b, axes).into_owned())
    }

    fn convert(&self, elem: Elem, a: Value) -> Data {
        columns::convert(self.ty(a), self.mode.precision.elem(elem), self.data(a))
    }
}

/// Positions.
impl Interpreter<'_> {
    fn end(&self, axis: Axis, value: Value, empty: Value, axes: AxisSet, last: bool) -> Data {
        let size = self.shapes.size(axis);
        if size == 0 {
            return self.expanded(empty, axes).into_owned();
        }
        let own: Vec<Axis> = self.axes(value).iter().collect();
        let start = if last { (size - 1) * self.shapes.stride(&own, axis) } else { 0 };
        self.data(value).gather(start, &self.shapes.sizes(axes.iter()), &self.shapes.strides(&own, axes.iter()))
    }

    fn shift(&self, axis: Axis, by: i64, value: Value, fill: Value, axes: AxisSet) -> Data {
        let (over, mut shifted) = (self.expanded(value, axes), self.expanded(fill, axes).into_owned());
        let own: Vec<Axis> = axes.iter().collect();
        let (size, stride) = (self.shapes.size(axis) as i128, self.shapes.stride(&own, axis) as i128);
        for i in 0..shifted.len() {
            let t = i as i128 / stride % size - i128::from(by);
            if (0..size).contains(&t) {
                shifted.set(i, over.get((i as i128 - i128::from(by) * stride) as usize));
            }
        }
        shifted
    }

    fn starts(&self, axis: Axis, offsets: Value) -> Data {
        let mut starts = vec![false; self.shapes.size(axis)];
        if let Data::Int(offsets) = self.data(offsets) {
            let within = offsets.iter().filter_map(|i| usize::try_from(*i).ok()).filter(|i| *i < starts.len());
            within.collect::<Vec<_>>().into_iter().for_each(|i| starts[i] = true);
        }
        Data::Bool(starts)
    }

    fn gathered(&self, (axis, to): (Axis, Axis), value: Value, index: Value, node: &Node) -> Data {
        let from = node.axes.without(to).with(axis);
        let (over, index) = (self.expanded(value, from), self.expanded(index, AxisSet::of(to)));
        let n = self.shapes.sizes(node.axes.iter()).iter().product();
        let mut gathered = Data::filled(Literal::zero(node.ty), n);
        let [own, other]: [Vec<Axis>; 2] = [node.axes, from].map(|axes| axes.iter().collect());
        for k in 0..n {
            let at = |axis: Axis| k / self.shapes.stride(&own, axis) % self.shapes.size(axis);
            let Literal::Int(i) = index.get(at(to)) else { continue };
            let Some(i) = usize::try_from(i).ok().filter(|i| *i < self.shapes.size(axis)) else { continue };
            let place =
                other.iter().map(|a| if *a == axis { i } else { at(*a) } * self.shapes.stride(&other, *a)).sum();
            gathered.set(k, over.get(place));
        }
        gathered
    }
}

//! The evaluation of a program with errors, node by node.

use oplus_dsl::interpret::Array;
use oplus_dsl::ir::{Axis, Binary, Literal, Node, Op, Program, Unary, Value};
use oplus_dsl::{Elem, Ty, scalar};

use super::number::Number;

/// One element of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell {
    /// A float.
    Float(Number),
    /// An integer or a truth value, and whether it is that in spite of rounding.
    Sure(Literal, bool),
}

/// The elements of a value over its axes in ascending order, the last fastest.
pub(super) type Cells = Vec<Cell>;

/// A program under evaluation.
pub(super) struct Evaluation<'a> {
    pub(super) program: &'a Program,
    pub(super) sizes: &'a [usize],
    inputs: &'a [Array],
    /// For every node evaluated its cells; for a tuple those of every field, over all axes of the tuple.
    pub(super) values: Vec<Vec<Cells>>,
}

/// The outputs of a program whose axes have these sizes, with their errors; one input per parameter.
pub fn evaluate(program: &Program, inputs: &[Array], sizes: &[usize]) -> Vec<Vec<Cell>> {
    let mut evaluation = Evaluation { program, sizes, inputs, values: vec![] };
    for node in &program.nodes {
        let value = evaluation.node(node);
        evaluation.values.push(value);
    }
    let output = |output: &oplus_dsl::ir::Output| {
        let over: Vec<Axis> = output.axes.clone();
        evaluation.gather(output.value, 0, &over)
    };
    program.outputs.iter().map(output).collect()
}

impl Evaluation<'_> {
    fn node(&self, node: &Node) -> Vec<Cells> {
        let over: Vec<Axis> = node.axes.iter().collect();
        let operand = |v: &Value| self.gather(*v, 0, &over);
        let cells = match &node.op {
            Op::Param(k) => self.param(*k as usize, &over),
            Op::Const(literal) => vec![Cell::of(*literal)],
            Op::Index(axis) => {
                self.digits(&over, *axis).into_iter().map(|i| Cell::of(Literal::Int(i as i64))).collect()
            }
            Op::Size(axis) => vec![Cell::of(Literal::Int(self.size(*axis) as i64))],
            Op::Input(_) => vec![],
            Op::Unary(op, x) => operand(x).into_iter().map(|x| x.unary(*op, node.ty)).collect(),
            Op::Binary(op, l, r) => {
                let ty = self.program.node(*l).ty;
                operand(l).into_iter().zip(operand(r)).map(|(l, r)| l.binary(*op, ty, r)).collect()
            }
            Op::Select(c, l, r) => {
                let branches = operand(l).into_iter().zip(operand(r));
                operand(c).into_iter().zip(branches).map(|(c, (l, r))| c.select(l, r)).collect()
            }
            Op::Convert(elem, x) => {
                let from = self.program.node(*x).ty;
                operand(x).into_iter().map(|x| x.convert(from, *elem)).collect()
            }
            Op::Broadcast(x) => operand(x),
            Op::Scan { .. } | Op::Reduce { .. } => return self.combination(node),
            Op::MatrixScan(scan) => self.matrix_scan(scan, node),
            Op::Field(tuple, k) => self.gather(*tuple, *k as usize, &over).into_iter().map(Cell::settled).collect(),
            Op::Last { axis, value, empty } => self.end(&over, *axis, (*value, *empty), true),
            Op::First { axis, value, empty } => self.end(&over, *axis, (*value, *empty), false),
            Op::Shift { axis, by, value, fill } => self.shift(&over, (*axis, *by), *value, *fill),
            Op::Starts { axis, offsets, .. } => self.starts(&over, *axis, *offsets),
            Op::Gather { axis, to, value, index, .. } => self.gathered(&over, (*axis, *to), *value, *index),
        };
        vec![cells]
    }

    fn param(&self, k: usize, over: &[Axis]) -> Cells {
        let (param, input) = (&self.program.params[k], &self.inputs[k]);
        self.positions(over, &param.axes).into_iter().map(|at| Cell::of(input.data.get(at))).collect()
    }

    fn end(&self, over: &[Axis], axis: Axis, (value, empty): (Value, Value), last: bool) -> Cells {
        let size = self.size(axis);
        if size == 0 {
            return self.gather(empty, 0, over);
        }
        let own: Vec<Axis> = self.program.node(value).axes.iter().collect();
        let at = if last { (size - 1) * self.stride(&own, axis) } else { 0 };
        let cells = &self.values[value.0 as usize][0];
        self.positions(over, &own).into_iter().map(|p| cells[p + at]).collect()
    }

    fn shift(&self, over: &[Axis], (axis, by): (Axis, i64), value: Value, fill: Value) -> Cells {
        let own: Vec<Axis> = self.program.node(value).axes.iter().collect();
        let (cells, stride) = (&self.values[value.0 as usize][0], self.stride(&own, axis) as i64);
        let places = self.positions(over, &own).into_iter().zip(self.digits(over, axis));
        let fills = self.gather(fill, 0, over);
        let inside =
            |t: usize| (t as i64).checked_sub(by).is_some_and(|from| (0..self.size(axis) as i64).contains(&from));
        let read = |((p, t), fill)| if inside(t) { cells[(p as i64 - by * stride) as usize] } else { fill };
        places.zip(fills).map(read).collect()
    }

    fn starts(&self, over: &[Axis], axis: Axis, offsets: Value) -> Cells {
        let named: Vec<i64> = self.values[offsets.0 as usize][0].iter().filter_map(|c| c.whole()).collect();
        let start = |t: usize| Cell::of(Literal::Bool(named.contains(&(t as i64))));
        self.digits(over, axis).into_iter().map(start).collect()
    }

    fn gathered(&self, over: &[Axis], (axis, to): (Axis, Axis), value: Value, index: Value) -> Cells {
        let own: Vec<Axis> = self.program.node(value).axes.iter().collect();
        let (cells, stride) = (&self.values[value.0 as usize][0], self.stride(&own, axis));
        let nothing = Cell::of(Literal::zero(self.program.node(value).ty));
        let read = |(place, index): (usize, Cell)| {
            let index = index.whole().and_then(|i| usize::try_from(i).ok()).filter(|i| *i < self.size(axis));
            index.map_or(nothing, |i| cells[place + i * stride])
        };
        let without: Vec<Axis> = own.iter().copied().filter(|a| *a != axis && *a != to).collect();
        let places = over.iter().map(|a| if without.contains(a) { self.stride(&own, *a) } else { 0 });
        let steps: Vec<(Axis, usize)> = over.iter().copied().zip(places).collect();
        let place = |k: usize| steps.iter().map(|(a, step)| self.digits(over, *a)[k] * step).sum();
        let indices = self.gather(index, 0, over);
        (0..indices.len()).map(place).zip(indices).map(read).collect()
    }

    // ---- where elements lie

    pub(super) fn size(&self, axis: Axis) -> usize {
        self.sizes[axis.0 as usize]
    }

    /// The cells of a value (a field of it) at every index of some axes.
    pub(super) fn gather(&self, value: Value, field: usize, over: &[Axis]) -> Cells {
        let own: Vec<Axis> = self.program.node(value).axes.iter().collect();
        let cells = &self.values[value.0 as usize][field];
        self.positions(over, &own).into_iter().map(|at| cells[at]).collect()
    }

    /// How far apart neighbours along an axis lie in a dense array over `own`.
    pub(super) fn stride(&self, own: &[Axis], axis: Axis) -> usize {
        let place = own.iter().position(|a| *a == axis);
        // A tuple may be over an empty axis that one of its fields lacks: such an axis counts as one index.
        place.map_or(0, |d| own[d + 1..].iter().map(|a| self.size(*a).max(1)).product())
    }

    /// For every index of some axes, the place in a dense array over `own`.
    pub(super) fn positions(&self, over: &[Axis], own: &[Axis]) -> Vec<usize> {
        over.iter().fold(vec![0], |places, axis| {
            let (size, stride) = (self.size(*axis), self.stride(own, *axis));
            places.into_iter().flat_map(|p| (0..size).map(move |i| p + i * stride)).collect()
        })
    }

    /// For every index of some axes, its component along one of them.
    fn digits(&self, over: &[Axis], axis: Axis) -> Vec<usize> {
        self.positions(over, &[axis])
    }
}

impl Cell {
    /// An element that is exactly that.
    pub fn of(literal: Literal) -> Cell {
        match literal {
            Literal::Float(x) => Cell::Float(Number::exact(x)),
            other => Cell::Sure(other, true),
        }
    }

    /// The value as a number.
    pub fn value(self) -> f64 {
        match self {
            Cell::Float(x) => x.value,
            Cell::Sure(literal, _) => literal.as_f64(),
        }
    }

    fn whole(self) -> Option<i64> {
        if let Cell::Sure(Literal::Int(x), _) = self { Some(x) } else { None }
    }

    fn literal(self) -> (Literal, bool) {
        match self {
            Cell::Float(x) => (Literal::Float(x.value), x.error == 0.0),
            Cell::Sure(literal, sure) => (literal, sure),
        }
    }

    pub(super) fn settled(self) -> Cell {
        if let Cell::Float(x) = self { Cell::Float(x.settled()) } else { self }
    }

    pub(super) fn unary(self, op: Unary, ty: Ty) -> Cell {
        match self {
            Cell::Float(x) => Cell::Float(Number::unary(op, ty, x)),
            Cell::Sure(x, sure) => Cell::Sure(scalar::unary(op, ty, x), sure),
        }
    }

    /// op of two operands of type `ty`.
    pub(super) fn binary(self, op: Binary, ty: Ty, other: Cell) -> Cell {
        match (self, other) {
            (Cell::Float(l), Cell::Float(r)) if op.is_comparison() => {
                Cell::Sure(Literal::Bool(scalar::compare(op, l.value, r.value)), !l.may_equal(r))
            }
            (Cell::Float(l), Cell::Float(r)) => Cell::Float(Number::binary(op, ty, l, r)),
            (l, r) => {
                let ((l, sure), (r, also)) = (l.literal(), r.literal());
                Cell::Sure(scalar::binary(op, ty, l, r), sure && also)
            }
        }
    }

    /// The first or the second, by this condition.
    pub(super) fn select(self, first: Cell, second: Cell) -> Cell {
        let (condition, sure) = self.literal();
        let (taken, other) = if condition == Literal::Bool(true) { (first, second) } else { (second, first) };
        match (taken, other) {
            _ if sure => taken,
            (Cell::Float(x), Cell::Float(y)) => {
                let error = (x.value - y.value).abs() + x.error.max(y.error);
                Cell::Float(Number { error, magnitude: x.magnitude.max(y.magnitude), ..x })
            }
            (taken, other) => Cell::Sure(taken.literal().0, taken == other),
        }
    }

    pub(super) fn convert(self, from: Ty, to: Elem) -> Cell {
        match self {
            Cell::Float(x) if to.is_float() => Cell::Float(x.converted(to)),
            Cell::Float(x) => {
                let at = |x: f64| scalar::convert(from, to, Literal::Float(x));
                let around = super::SLACK * x.error;
                Cell::Sure(at(x.value), at(x.value - around) == at(x.value + around))
            }
            Cell::Sure(x, sure) => match scalar::convert(from, to, x) {
                Literal::Float(value) if sure => Cell::Float(Number::exact(value)),
                Literal::Float(value) => Cell::Float(Number::exact(value).unknown()),
                other => Cell::Sure(other, sure),
            },
        }
    }
}

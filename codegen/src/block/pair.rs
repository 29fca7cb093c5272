//! Values at pairs of a row and a column that a thread holds, and at indices within columns.

mod quotient;

use super::args::Args;
use super::evaluate::{Emitted, Evaluate, evaluate};
use crate::abi::{Tensor, elem};
use crate::build::{Builder, zero};
use crate::stage::Stage;
use crate::stage::kind::product::is;
use crate::tile::{Expr, Memory, Operand, SharedId};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, AxisSet, Binary, Literal, Node, Op, Unary, Value};
use quotient::Divisor;
use std::collections::HashMap;
use std::f64::consts::LOG2_E;

/// Columns of a fragment, of which a thread holds two.
const EIGHT: u32 = 8;

/// Where a value is taken: the number of a row among the thread's rows, of a column among its columns, and of an index among
/// those of an axis within columns. A coordinate that a value does not depend on does not matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Coordinates {
    /// The row, if there is one.
    pub row: Option<u32>,
    /// The column, if there is one.
    pub column: Option<u32>,
    /// The number along the axis within a column, if there is one.
    pub inner: Option<u32>,
}

/// An index along an axis that a thread holds.
#[derive(Clone, Copy)]
pub(crate) struct Index {
    /// The index, `i64`.
    pub at: Operand,
    /// Whether the axis has it.
    pub exists: Operand,
}

impl Index {
    /// The index along an axis, from one of 32 or 64 bits.
    pub(crate) fn along(b: &mut Builder, args: &Args, at: Operand, axis: Axis) -> Index {
        let at = b.convert(Ty::I64, at);
        Index { at, exists: b.lt(at, args.size(axis)) }
    }

    /// The index as one of the first and the last state.
    pub(crate) fn of_states(self, b: &mut Builder, args: &Args) -> Index {
        Index { exists: args.with_states(b, self.exists), ..self }
    }
}

/// The values known in a block of statements. What is known before a block is known inside; a block gets a copy.
#[derive(Clone)]
pub(crate) struct Values<'s> {
    stage: &'s Stage,
    args: &'s Args,
    /// The axes of rows and columns.
    axes: [Axis; 2],
    /// Indices along the axes over which the block is one point.
    outer: Vec<(Axis, Operand)>,
    rows: HashMap<u32, Index>,
    columns: HashMap<u32, Index>,
    /// Indices within a column, along an axis.
    inner_indices: HashMap<u32, (Axis, Index)>,
    emitted: Emitted<Coordinates>,
    /// Parameters whose elements for the columns of a tile are in shared memory, that of the thread's first column at an index.
    numbers: HashMap<u32, (SharedId, Operand)>,
    /// Values times ±log₂ e.
    scaled: HashMap<(Value, Coordinates, bool), Operand>,
    /// Whether exponentials are powers of two, with an error of 2⁻²⁴ of the exponent: for weights that are rounded.
    pub fast: bool,
    /// The numbers that divide all elements of a row.
    divisors: HashMap<(Value, Coordinates), Divisor>,
    /// What sums of a row have yet to be multiplied with.
    late_factors: HashMap<u32, Operand>,
    /// States before they are multiplied with the late factor of their row.
    early_states: HashMap<(Value, Coordinates), Operand>,
    /// Whether quotients by what all elements of a row share are products with its reciprocal, with an error of 2⁻²³: for outputs of
    /// 16 bits.
    pub reciprocal: bool,
}

impl<'s> Values<'s> {
    /// An evaluator that knows only the outer indices.
    pub(crate) fn new(stage: &'s Stage, args: &'s Args, axes: [Axis; 2], outer: Vec<(Axis, Operand)>) -> Values<'s> {
        let (rows, columns) = (HashMap::new(), HashMap::new());
        let (inner_indices, emitted, scaled, numbers) =
            (HashMap::new(), Emitted::new(), HashMap::new(), HashMap::new());
        let (divisors, late_factors, early_states) = (HashMap::new(), HashMap::new(), HashMap::new());
        Values {
            stage,
            args,
            axes,
            outer,
            rows,
            columns,
            inner_indices,
            emitted,
            numbers,
            scaled,
            fast: false,
            divisors,
            late_factors,
            early_states,
            reciprocal: false,
        }
    }

    /// Sets the index along one more axis for the whole block.
    pub(crate) fn set_outer(&mut self, axis: Axis, index: Operand) {
        self.outer.push((axis, index));
    }

    /// The indices along the axes over which the block is one point.
    pub(crate) fn outer_indices(&self) -> &[(Axis, Operand)] {
        &self.outer
    }

    /// Replaces the registers of the outer indices.
    pub(crate) fn replace_outer(&mut self, outer: &[(Axis, Operand)]) {
        self.outer = outer.to_vec();
    }

    /// Sets the index of the thread's row of a number.
    pub(crate) fn set_row(&mut self, number: u32, index: Index) {
        self.rows.insert(number, index);
    }

    /// Makes a row of a number the second one of two rows where a condition holds, else the first one. States and parameters that are known
    /// of both are selected.
    pub(crate) fn select_row(&mut self, b: &mut Builder, number: u32, rows: [u32; 2], second: Operand) {
        let [below, above] = rows.map(|row| self.rows[&row]);
        let [at, exists] = [(above.at, below.at), (above.exists, below.exists)].map(|(x, y)| b.select(second, x, y));
        self.set_row(number, Index { at, exists });
        let coordinates = |row| Coordinates { row: Some(row), ..Coordinates::default() };
        let nodes = &self.stage.program.nodes;
        let is_leaf = |i: &u32| matches!(nodes[*i as usize].op, Op::Field(..) | Op::Param(_));
        for value in (0..nodes.len() as u32).filter(is_leaf).map(Value) {
            let known = rows.map(|row| self.emitted.get(&(value, coordinates(row))).copied());
            if let [Some(x), Some(y)] = known {
                let either = b.select(second, y, x);
                self.set(value, coordinates(number), either);
            }
        }
    }

    /// Sets the index of the thread's column of a number.
    pub(crate) fn set_column(&mut self, number: u32, index: Index) {
        self.columns.insert(number, index);
    }

    /// Sets the index of a number along an axis within columns.
    pub(crate) fn set_inner(&mut self, number: u32, axis: Axis, index: Index) {
        self.inner_indices.insert(number, (axis, index));
    }

    /// Tells that a parameter's elements for the columns are in shared memory, that of the first
    /// column at `first`, an even index.
    pub(crate) fn set_numbers(&mut self, param: u32, array: SharedId, first: Operand) {
        self.numbers.insert(param, (array, first));
    }

    /// The thread's column of a number.
    #[cfg(test)]
    pub(crate) fn column(&self, number: u32) -> Index {
        self.columns[&number]
    }

    /// The thread's row of a number.
    pub(crate) fn row(&self, number: u32) -> Index {
        self.rows[&number]
    }

    /// Sets the value of a tuple's field at coordinates.
    pub(crate) fn set_state(&mut self, state: (Value, u32), coordinates: Coordinates, value: Operand) {
        self.nodes_of(state).into_iter().for_each(|node| self.set(node, coordinates, value));
    }

    /// The nodes that are a tuple's field.
    fn nodes_of(&self, (tuple, field): (Value, u32)) -> Vec<Value> {
        let nodes = (0..).map(Value).zip(&self.stage.program.nodes);
        nodes.filter(|(_, node)| node.op == Op::Field(tuple, field)).map(|(value, _)| value).collect()
    }

    /// Sets the value of a node at coordinates.
    pub(crate) fn set(&mut self, value: Value, coordinates: Coordinates, known: Operand) {
        self.remember(value, coordinates, known);
    }

    /// Sets the value of a parameter at coordinates.
    pub(crate) fn set_param(&mut self, param: u32, coordinates: Coordinates, known: Operand) {
        let nodes = &self.stage.program.nodes;
        for i in (0..nodes.len() as u32).filter(|i| nodes[*i as usize].op == Op::Param(param)) {
            self.set(Value(i), coordinates, known);
        }
    }

    /// Reads every parameter that varies along rows only, at one of them: once, and early.
    pub(crate) fn read_row(&mut self, b: &mut Builder, number: u32) {
        let nodes = &self.stage.program.nodes;
        let own = self.outer.iter().fold(AxisSet::of(self.axes[0]), |own, (axis, _)| own.with(*axis));
        let is_own = |i: &u32| {
            let node = &nodes[*i as usize];
            matches!(node.op, Op::Param(_)) && node.axes.minus(own) == AxisSet::EMPTY
        };
        for i in (0..nodes.len() as u32).filter(is_own) {
            self.value(b, Value(i), Coordinates { row: Some(number), ..Coordinates::default() });
        }
    }

    /// The product of some nodes' values and a number, if there is one; `None` for the product of nothing.
    pub(crate) fn product(
        &mut self,
        b: &mut Builder,
        start: Option<Operand>,
        factors: &[Value],
        coordinates: Coordinates,
    ) -> Option<Operand> {
        factors.iter().fold(start, |product, factor| {
            let factor = self.value(b, *factor, coordinates);
            Some(product.map_or(factor, |product| b.mul(product, factor)))
        })
    }

    /// Whether all of some conditions hold.
    pub(crate) fn all(&mut self, b: &mut Builder, conditions: &[Value], coordinates: Coordinates) -> Operand {
        conditions.iter().fold(Operand::bool(true), |all, condition| {
            let holds = self.value(b, *condition, coordinates);
            b.and(all, holds)
        })
    }

    /// The value of a node.
    pub(crate) fn value(&mut self, b: &mut Builder, value: Value, coordinates: Coordinates) -> Operand {
        evaluate(self, b, value, coordinates)
    }

    /// Whether `same ? one : power` is `x == y ? 1 : exp(x − y)`, which is the power where x and y are finite.
    fn is_power(&self, same: Value, one: Value, power: Value) -> bool {
        let node = |v: Value| &self.stage.program.node(v).op;
        match (node(same), node(power)) {
            (Op::Binary(Binary::Eq, x, y), Op::Unary(Unary::Exp, z)) => {
                is(&self.stage.program, one, 1.0) && *node(*z) == Op::Binary(Binary::Sub, *x, *y)
            }
            _ => false,
        }
    }

    /// exp(value) as a power of two; in a difference both operands are scaled, so that the one that varies least is scaled once.
    fn exp(&mut self, b: &mut Builder, value: Value, coordinates: Coordinates) -> Operand {
        let log2_e = Operand::Const(Ty::F32, Literal::Float(LOG2_E));
        let value = self.taken(b, value, coordinates);
        let exponent = match self.stage.program.node(value).op {
            Op::Binary(Binary::Sub, x, y) => {
                let less = self.scaled(b, y, -LOG2_E, coordinates);
                let x = self.taken(b, x, coordinates);
                match self.stage.program.node(x).op {
                    Op::Binary(Binary::Mul, x, scale) if self.stage.program.node(scale).axes.is_empty() => {
                        let scale = self.scaled(b, scale, LOG2_E, coordinates);
                        let x = self.value(b, x, coordinates);
                        b.fma(x, scale, less)
                    }
                    _ => {
                        let x = self.value(b, x, coordinates);
                        b.fma(x, log2_e, less)
                    }
                }
            }
            _ => self.scaled(b, value, LOG2_E, coordinates),
        };
        b.let_(Ty::F32, Expr::Exp2Fast(exponent))
    }

    /// Forgets what depends on indices within columns, which are to be others.
    pub(crate) fn forget_inner(&mut self) {
        self.emitted.retain(|(_, at), _| at.inner.is_none());
        self.scaled.retain(|(_, at, _), _| at.inner.is_none());
        self.early_states.retain(|(_, at), _| at.inner.is_none());
    }

    /// A value times a number.
    fn scaled(&mut self, b: &mut Builder, value: Value, by: f64, coordinates: Coordinates) -> Operand {
        let coordinates = self.own(value, coordinates);
        let key = (value, coordinates, by > 0.0);
        if let Some(known) = self.scaled.get(&key) {
            return *known;
        }
        let x = self.value(b, value, coordinates);
        let result = b.mul(x, Operand::Const(Ty::F32, Literal::Float(by)));
        self.scaled.insert(key, result);
        result
    }

    /// The value that takes the place of a select whose conditions are known to hold.
    fn taken(&mut self, b: &mut Builder, mut value: Value, coordinates: Coordinates) -> Value {
        loop {
            value = match self.stage.program.node(value).op {
                Op::Broadcast(x) => x,
                Op::Select(condition, x, _) if self.value(b, condition, coordinates) == Operand::bool(true) => x,
                _ => return value,
            };
        }
    }

    /// The indices at coordinates, and whether all of them exist.
    pub(crate) fn indices(&self, b: &mut Builder, coordinates: Coordinates) -> (Vec<(Axis, Operand)>, Operand) {
        let [row, column] = self.axes;
        let own = [
            coordinates.row.map(|number| (row, self.rows[&number])),
            coordinates.column.map(|number| (column, self.columns[&number])),
            coordinates.inner.map(|number| self.inner_indices[&number]),
        ];
        let (mut indices, mut exists) = (self.outer.clone(), Operand::bool(true));
        for (axis, index) in own.into_iter().flatten() {
            indices.push((axis, index.at));
            exists = b.and(exists, index.exists);
        }
        (indices, exists)
    }

    fn param(&self, b: &mut Builder, param: u32, coordinates: Coordinates) -> Operand {
        let tensor = Tensor::Param(param);
        let (indices, exists) = self.indices(b, coordinates);
        let offset = self.args.offset(b, tensor, &indices);
        let nothing = zero(elem(self.stage, tensor).value());
        b.load(Memory::Global(self.args.pointer(tensor)), offset, 1, Some(exists), nothing)[0]
    }

    /// The element for a column, read in one access with that for the column beside it.
    fn numbers(&mut self, b: &mut Builder, value: Value, array: SharedId, first: Operand, column: u32) -> Operand {
        let index = b.add(first, column / 2 * EIGHT);
        let two = b.load(Memory::Shared(array), index, 2, None, zero(self.stage.program.node(value).ty));
        for (column, element) in [column / 2 * 2, column / 2 * 2 + 1].into_iter().zip(&two) {
            self.emitted.insert((value, Coordinates { column: Some(column), ..Coordinates::default() }), *element);
        }
        two[(column % 2) as usize]
    }

    fn index(&self, axis: Axis, coordinates: Coordinates) -> Operand {
        let [row, column] = self.axes;
        let own = match coordinates {
            Coordinates { row: Some(number), .. } if axis == row => Some(self.rows[&number].at),
            Coordinates { column: Some(number), .. } if axis == column => Some(self.columns[&number].at),
            Coordinates { inner: Some(number), .. } if axis == self.inner_indices[&number].0 => {
                Some(self.inner_indices[&number].1.at)
            }
            _ => self.outer.iter().find(|(a, _)| *a == axis).map(|(_, index)| *index),
        };
        own.unwrap_or(Operand::i64(0))
    }
}

impl Evaluate for Values<'_> {
    type Place = Coordinates;

    fn node(&self, value: Value) -> &Node {
        self.stage.program.node(value)
    }

    fn own(&self, value: Value, coordinates: Coordinates) -> Coordinates {
        let axes = self.stage.program.node(value).axes;
        let [row, column] = self.axes.map(|axis| axes.contains(axis));
        let inner = coordinates.inner.filter(|number| axes.contains(self.inner_indices[number].0));
        Coordinates { row: coordinates.row.filter(|_| row), column: coordinates.column.filter(|_| column), inner }
    }

    fn leaf(&mut self, b: &mut Builder, value: Value, coordinates: Coordinates) -> Option<Operand> {
        let node = self.stage.program.node(value);
        Some(match &node.op {
            Op::Param(p) => match (self.numbers.get(p), coordinates.column) {
                (Some((array, first)), Some(column)) => self.numbers(b, value, *array, *first, column),
                _ => self.param(b, *p, coordinates),
            },
            Op::Index(axis) => self.index(*axis, coordinates),
            Op::Size(axis) => self.args.size(*axis),
            Op::Unary(Unary::Exp, x) if self.fast && node.ty == Ty::F32 => self.exp(b, *x, coordinates),
            Op::Field(..) => return self.late_state(b, value, coordinates),
            Op::Binary(Binary::Div, x, y)
                if self.reciprocal && node.ty == Ty::F32 && self.is_shared(*y, coordinates) =>
            {
                self.quotient(b, *x, *y, coordinates)
            }
            Op::Select(same, one, power) if self.fast && self.is_power(*same, *one, *power) => {
                self.value(b, *power, coordinates)
            }
            _ => return None,
        })
    }

    fn emitted(&mut self) -> &mut Emitted<Coordinates> {
        &mut self.emitted
    }
}

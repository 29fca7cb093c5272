//! Building programs node by node.
//!
//! A [`Builder`] infers types and axes ([`crate::typing`]), gives an existing node back instead of repeating it,
//! folds constants whose result has the same bits in every type the node may get, and inserts the widening
//! conversions where floats of different types meet. The same type builds the bodies of operators
//! ([`Builder::body`]), where [`Builder::input`] replaces parameters.

mod fold;
mod matrix;
#[cfg(test)]
mod tests;

use rustc_hash::FxHashMap;

use crate::alternative::common;
use crate::elem::{Elem, Ty};
use crate::ir::{
    Axis, AxisSet, Binary, Domain, Field, Literal, Node, Op, Operator, OperatorId, Output, Param, Program, Unary, Value,
};
use crate::typing::{Scope, TypeError};

/// The result of a builder's methods.
pub type Built = Result<Value, TypeError>;

/// A program or the body of an operator under construction.
#[derive(Clone, Debug)]
pub struct Builder {
    program: Program,
    fields: Option<Vec<Field>>,
    seen: FxHashMap<Node, Value>,
}

/// How a scan runs along its axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Direction {
    /// From the last index to the first.
    pub reverse: bool,
    /// Give the state before each element instead of after it.
    pub exclusive: bool,
}

/// Beginnings and ends.
impl Builder {
    /// An empty program.
    pub fn new(name: &str) -> Builder {
        Builder::from_program(Program {
            name: name.to_owned(),
            axes: vec![],
            params: vec![],
            operators: vec![],
            nodes: vec![],
            outputs: vec![],
        })
    }

    /// The body of an operator with these fields.
    pub fn body(fields: Vec<Field>) -> Builder {
        Builder { fields: Some(fields), ..Builder::new("") }
    }

    /// A program to be continued; its values keep their numbers.
    pub fn from_program(program: Program) -> Builder {
        let mut seen = FxHashMap::default();
        for (i, node) in program.nodes.iter().enumerate() {
            seen.entry(node.clone()).or_insert(Value(i as u32));
        }
        Builder { program, fields: None, seen }
    }

    /// The program so far.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The program.
    pub fn finish(self) -> Program {
        self.program
    }

    /// The operator of a body, for all states: `combine` gives the value of every field, converted to its type if it is a
    /// narrower float.
    pub fn finish_operator(
        mut self,
        name: &str,
        identity: Vec<Literal>,
        combine: &[Value],
        gauge: Option<u32>,
    ) -> Result<Operator, TypeError> {
        let fields = self.fields.clone().unwrap_or_default();
        let combine = self.widen_all(&fields, combine)?;
        let (name, body, domain) = (name.to_owned(), self.program.nodes, Domain::default());
        Ok(Operator { name, fields, identity, body, combine, gauge, domain })
    }
}

/// Declarations.
impl Builder {
    /// The axis of that name, declared if it is new.
    pub fn axis(&mut self, name: &str) -> Result<Axis, TypeError> {
        if let Some(axis) = self.program.axis(name) {
            return Ok(axis);
        }
        if self.program.axes.len() == 64 {
            return Err(TypeError::TooManyAxes);
        }
        self.program.axes.push(name.to_owned());
        Ok(Axis(self.program.axes.len() as u32 - 1))
    }

    /// A new parameter, and its value. Axes are in memory order.
    pub fn param(&mut self, name: &str, axes: &[Axis], elem: Elem, default: Option<Literal>) -> Built {
        let k = self.program.params.len() as u32;
        self.program.params.push(Param { name: name.to_owned(), axes: axes.to_vec(), elem, or: None, default });
        self.push(Op::Param(k), elem.value(), AxisSet::EMPTY)
    }

    /// Lets the last parameter store something else instead, see [`crate::alternative`].
    pub fn or(&mut self, elem: Elem) {
        if let Some(param) = self.program.params.last_mut() {
            param.or = Some(elem);
        }
    }

    /// The operator's number; an operator that is already there is not repeated.
    pub fn operator(&mut self, operator: Operator) -> OperatorId {
        let operators = &mut self.program.operators;
        let k = operators.iter().position(|o| *o == operator).unwrap_or_else(|| {
            operators.push(operator);
            operators.len() - 1
        });
        OperatorId(k as u32)
    }

    /// A new output, rounded to the element type if the value is another float. Axes are in memory order.
    pub fn output(&mut self, name: &str, axes: &[Axis], elem: Elem, value: Value) -> Result<(), TypeError> {
        let narrower = self.ty(value)?.is_float() && elem.is_float();
        let value = if narrower { self.convert(elem.value().elem().unwrap_or(elem), value)? } else { value };
        self.program.outputs.push(Output { name: name.to_owned(), axes: axes.to_vec(), elem, value });
        Ok(())
    }
}

/// Leaves.
impl Builder {
    /// In a body: field k of the left operand, or k − n of the right one.
    pub fn input(&mut self, k: u32) -> Built {
        self.push(Op::Input(k), Ty::Tuple, AxisSet::EMPTY)
    }

    /// In a body: the fields of the left and of the right operand.
    pub fn inputs(&mut self) -> Result<(Vec<Value>, Vec<Value>), TypeError> {
        let n = self.fields.as_ref().map_or(0, Vec::len) as u32;
        let l = (0..n).map(|k| self.input(k)).collect::<Result<_, _>>()?;
        let r = (n..2 * n).map(|k| self.input(k)).collect::<Result<_, _>>()?;
        Ok((l, r))
    }

    /// A constant.
    pub fn constant(&mut self, ty: Ty, literal: Literal) -> Built {
        self.push(Op::Const(literal), ty, AxisSet::EMPTY)
    }

    /// A floating-point constant of a type.
    pub fn float(&mut self, ty: Ty, x: f64) -> Built {
        self.constant(ty, Literal::Float(x))
    }

    /// The number of a small integer in a number type.
    pub fn number(&mut self, ty: Ty, x: i32) -> Built {
        let literal = if ty.is_float() { Literal::Float(f64::from(x)) } else { Literal::Int(i64::from(x)) };
        self.constant(ty, literal)
    }

    /// The index along an axis.
    pub fn index(&mut self, axis: Axis) -> Built {
        self.push(Op::Index(axis), Ty::I64, AxisSet::EMPTY)
    }

    /// The size of an axis.
    pub fn size(&mut self, axis: Axis) -> Built {
        self.push(Op::Size(axis), Ty::I64, AxisSet::EMPTY)
    }
}

/// Maps.
impl Builder {
    /// A function of one value.
    pub fn unary(&mut self, op: Unary, a: Value) -> Built {
        self.map(Op::Unary(op, a))
    }

    /// A function of two values; floats meet in the wider type.
    pub fn binary(&mut self, op: Binary, a: Value, b: Value) -> Built {
        let (a, b) = self.meet(a, b)?;
        self.map(Op::Binary(op, a, b))
    }

    /// `if condition { a } else { b }`; floats meet in the wider type.
    pub fn select(&mut self, condition: Value, a: Value, b: Value) -> Built {
        let (a, b) = self.meet(a, b)?;
        self.map(Op::Select(condition, a, b))
    }

    /// Conversion to the value type of an element type, rounded to the element type.
    pub fn convert(&mut self, elem: Elem, a: Value) -> Built {
        let narrow = matches!(elem, Elem::Bf16 | Elem::F16);
        if !narrow && self.ty(a)? == elem.value() { Ok(a) } else { self.map(Op::Convert(elem, a)) }
    }

    /// The value over these axes too.
    pub fn broadcast(&mut self, a: Value, axes: AxisSet) -> Built {
        let axes = axes.union(self.axes_of(a)?);
        if axes == self.axes_of(a)? { Ok(a) } else { self.push(Op::Broadcast(a), Ty::Tuple, axes) }
    }

    /// `combine` of an operator, written out: one value per field.
    pub fn inline(&mut self, operator: &Operator, l: &[Value], r: &[Value]) -> Result<Vec<Value>, TypeError> {
        for (values, what) in [(l, "left operands"), (r, "right operands")] {
            let (fields, given) = (operator.fields.len(), values.len());
            if fields != given {
                return Err(TypeError::Arity { operator: operator.name.clone(), fields, given, what });
            }
        }
        let l = self.widen_all(&operator.fields, l)?;
        let inputs = [l, self.widen_all(&operator.fields, r)?].concat();
        let mut values: Vec<Value> = Vec::with_capacity(operator.body.len());
        for node in &operator.body {
            let unknown = |kind, index| TypeError::Unknown { kind, index };
            let value = match &node.op {
                Op::Input(k) => *inputs.get(*k as usize).ok_or(unknown("operand field", *k))?,
                op => {
                    let known = |v: &Value| (v.0 as usize) < values.len();
                    if let Some(v) = op.operands().into_iter().find(|v| !known(v)) {
                        return Err(unknown("value", v.0));
                    }
                    self.append(op.map_operands(|v| values[v.0 as usize]), node.ty, AxisSet::EMPTY)?
                }
            };
            values.push(value);
        }
        let field =
            |v: &Value| values.get(v.0 as usize).copied().ok_or(TypeError::Unknown { kind: "value", index: v.0 });
        operator.combine.iter().map(field).collect()
    }

    fn map(&mut self, op: Op) -> Built {
        if let Some(value) = self.identical_operand(&op) {
            self.infer(&op, Ty::Tuple, AxisSet::EMPTY)?;
            return Ok(value);
        }
        let (ty, axes) = self.infer(&op, Ty::Tuple, AxisSet::EMPTY)?;
        match self.folded(&op) {
            Some(literal) => self.constant(ty, literal),
            None => Ok(self.intern(Node { op, ty, axes })),
        }
    }
}

/// Along axes.
impl Builder {
    /// The combination of all elements along an axis, one value per field; narrower floats are widened.
    pub fn reduce(&mut self, axis: Axis, operator: OperatorId, elements: &[Value]) -> Result<Vec<Value>, TypeError> {
        let elements = self.widen_to(operator, elements)?;
        let tuple = self.push(Op::Reduce { axis, operator, elements }, Ty::Tuple, AxisSet::EMPTY)?;
        self.fields(tuple)
    }

    /// The running combinations along an axis, one value per field; `init` is empty for the identity.
    pub fn scan(
        &mut self,
        axis: Axis,
        operator: OperatorId,
        elements: &[Value],
        init: &[Value],
        direction: Direction,
    ) -> Result<Vec<Value>, TypeError> {
        let elements = self.widen_to(operator, elements)?;
        let init = if init.is_empty() { vec![] } else { self.widen_to(operator, init)? };
        let Direction { reverse, exclusive } = direction;
        let op = Op::Scan { axis, operator, elements, init, reverse, exclusive };
        let tuple = self.push(op, Ty::Tuple, AxisSet::EMPTY)?;
        self.fields(tuple)
    }

    /// One field of a scan or a reduction.
    pub fn field(&mut self, tuple: Value, k: u32) -> Built {
        self.push(Op::Field(tuple, k), Ty::Tuple, AxisSet::EMPTY)
    }

    /// Every field of a scan or a reduction.
    pub fn fields(&mut self, tuple: Value) -> Result<Vec<Value>, TypeError> {
        let n = self.scope().fields_of(&self.node(tuple)?.op)?.len() as u32;
        (0..n).map(|k| self.field(tuple, k)).collect()
    }

    /// The value at the last index of an axis, `empty` when there is none.
    pub fn last(&mut self, axis: Axis, value: Value, empty: Value) -> Built {
        let (value, empty) = self.meet(value, empty)?;
        self.push(Op::Last { axis, value, empty }, Ty::Tuple, AxisSet::EMPTY)
    }

    /// The value at index 0 of an axis, `empty` when there is none.
    pub fn first(&mut self, axis: Axis, value: Value, empty: Value) -> Built {
        let (value, empty) = self.meet(value, empty)?;
        self.push(Op::First { axis, value, empty }, Ty::Tuple, AxisSet::EMPTY)
    }

    /// The value `by` indices earlier, `fill` outside the axis.
    pub fn shift(&mut self, axis: Axis, by: i64, value: Value, fill: Value) -> Built {
        let (value, fill) = self.meet(value, fill)?;
        self.push(Op::Shift { axis, by, value, fill }, Ty::Tuple, AxisSet::EMPTY)
    }

    /// True where a segment begins: at the indices of `axis` that the list of offsets names.
    pub fn starts(&mut self, axis: Axis, list: Axis, offsets: Value) -> Built {
        self.push(Op::Starts { axis, list, offsets }, Ty::Bool, AxisSet::EMPTY)
    }

    /// The value of `axis` at every index of `to`, zero where there is none; the relation of the indices, in both directions.
    pub fn gather(&mut self, (axis, to): (Axis, Axis), value: Value, (index, inverse): (Value, Value)) -> Built {
        self.push(Op::Gather { axis, to, value, index, inverse }, Ty::Tuple, AxisSet::EMPTY)
    }
}

/// Facts of values, and adding operations of any kind.
impl Builder {
    /// The integer that a value was converted from without loss; the value itself if it was not.
    pub fn unconverted(&self, value: Value) -> Value {
        let Ok(Node { op: Op::Convert(to, from), .. }) = self.node(value) else { return value };
        let elem = self.ty(*from).ok().and_then(Ty::elem);
        let wider = elem.and_then(|elem| common(elem, *to)) == Some(to.value());
        if wider && to.value().is_int() { *from } else { value }
    }

    /// The type of a value.
    pub fn ty(&self, value: Value) -> Result<Ty, TypeError> {
        Ok(self.node(value)?.ty)
    }

    /// The axes of a value.
    pub fn axes_of(&self, value: Value) -> Result<AxisSet, TypeError> {
        Ok(self.node(value)?.axes)
    }

    /// Any operation with operands of this builder, simplified and converted as the method of its own would;
    /// `ty` matters to constants only, `axes` to broadcasts only.
    pub fn append(&mut self, op: Op, ty: Ty, axes: AxisSet) -> Built {
        match op {
            Op::Unary(op, a) => self.unary(op, a),
            Op::Binary(op, a, b) => self.binary(op, a, b),
            Op::Select(c, a, b) => self.select(c, a, b),
            Op::Convert(elem, a) => self.convert(elem, a),
            Op::Broadcast(a) => self.broadcast(a, axes),
            op => self.push(op, ty, axes),
        }
    }

    fn push(&mut self, op: Op, ty: Ty, axes: AxisSet) -> Built {
        let (ty, axes) = self.infer(&op, ty, axes)?;
        Ok(self.intern(Node { op, ty, axes }))
    }

    fn intern(&mut self, node: Node) -> Value {
        let nodes = &mut self.program.nodes;
        *self.seen.entry(node).or_insert_with_key(|node| {
            nodes.push(node.clone());
            Value(nodes.len() as u32 - 1)
        })
    }

    fn infer(&self, op: &Op, ty: Ty, axes: AxisSet) -> Result<(Ty, AxisSet), TypeError> {
        self.scope().infer(op, ty, axes)
    }

    fn scope(&self) -> Scope<'_> {
        Scope { program: &self.program, nodes: &self.program.nodes, fields: self.fields.as_deref() }
    }

    fn node(&self, value: Value) -> Result<&Node, TypeError> {
        self.program.nodes.get(value.0 as usize).ok_or(TypeError::Unknown { kind: "value", index: value.0 })
    }

    /// Two floats in their common type; other values as they are.
    fn meet(&mut self, a: Value, b: Value) -> Result<(Value, Value), TypeError> {
        let (left, right) = (self.ty(a)?, self.ty(b)?);
        match left.join(right).and_then(Ty::elem) {
            Some(common) if left != right => Ok((self.convert(common, a)?, self.convert(common, b)?)),
            _ => Ok((a, b)),
        }
    }

    fn widen_to(&mut self, operator: OperatorId, values: &[Value]) -> Result<Vec<Value>, TypeError> {
        let unknown = TypeError::Unknown { kind: "operator", index: operator.0 };
        let fields = self.program.operators.get(operator.0 as usize).ok_or(unknown)?.fields.clone();
        self.widen_all(&fields, values)
    }

    /// Values widened to the types of fields where both are floats and the field's is the wider.
    fn widen_all(&mut self, fields: &[Field], values: &[Value]) -> Result<Vec<Value>, TypeError> {
        let types = fields.iter().map(|f| Some(f.ty)).chain(std::iter::repeat(None));
        values.iter().zip(types).map(|(value, ty)| self.widen(*value, ty)).collect()
    }

    fn widen(&mut self, value: Value, ty: Option<Ty>) -> Built {
        let own = self.ty(value)?;
        match ty {
            Some(ty) if own != ty && own.join(ty) == Some(ty) => self.convert(ty.elem().unwrap_or(Elem::Call), value),
            _ => Ok(value),
        }
    }
}

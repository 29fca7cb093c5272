//! The rules of types and axes: what a node's value is, given its operands.
//!
//! | operation | operands | type | axes |
//! |---|---|---|---|
//! | `exp` … `floor`, `powi` | a float | the same | the same |
//! | `neg`, `abs`, `sign` | a number | the same | the same |
//! | `not` | an integer or a bool | the same | the same |
//! | `+ - * / %`, `max`, `min` | two numbers of one type | the same | union |
//! | `< <= > >=` | two numbers of one type | bool | union |
//! | `== !=` | two values of one type | bool | union |
//! | `& \| ^` | two integers or bools of one type | the same | union |
//! | `<< >>` | two integers of one type | the same | union |
//! | `select` | a bool and two values of one type | theirs | union |
//! | `convert` | a scalar | the element's value type | the same |
//! | `broadcast` | a value | the same | the node's, a superset |
//! | `reduce`, `scan` | an element (and init) per field, of its type | tuple | those of all fields |
//! | `matrix_scan` | floats of one type | the same | union with both axes, without the other axes of matrices |
//! | `last`, `first` | a value, `empty` of its type without the axis | the same | union without the axis |
//! | `shift` | a value, `fill` of its type without the axis | the same | union with the axis |
//! | `starts` | integers over the list's axis alone | bool | the axis |
//!
//! [`crate::build`] infers with these rules, [`crate::verify`] checks against them.

mod matrix;

use thiserror::Error;

use crate::elem::Ty;
use crate::ir::{Axis, AxisSet, Binary, Field, Literal, Node, Op, Operator, Program, Unary, Value};

/// Why an operation cannot have these operands.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum TypeError {
    /// A program has too many axes.
    #[error("a program has at most 64 axes")]
    TooManyAxes,
    /// A reference to something that does not exist.
    #[error("there is no {kind} number {index}")]
    Unknown {
        /// The kind of thing that was referred to: value, parameter, axis, operator, field.
        kind: &'static str,
        /// Its number.
        index: u32,
    },
    /// A tuple where a scalar is needed, or the other way round.
    #[error("`{op}` cannot take the state of a scan or reduction: take one of its fields")]
    Tuple {
        /// The operation.
        op: &'static str,
    },
    /// `field` of something that has none.
    #[error("a field can only be taken of a scan or a reduction")]
    NotATuple,
    /// An operand of a type that the operation is not defined on.
    #[error("`{op}` takes {expected}, not `{found}`")]
    Operand {
        /// The operation.
        op: &'static str,
        /// The operands that it takes, in words.
        expected: &'static str,
        /// The type of the operand that it got.
        found: Ty,
    },
    /// Operands of different types.
    #[error("the operands of `{op}` are `{left}` and `{right}`: convert one of them")]
    Mismatch {
        /// The operation.
        op: &'static str,
        /// Type of the first.
        left: Ty,
        /// Type of the second.
        right: Ty,
    },
    /// A literal that is not of its node's type.
    #[error("the literal {literal} is not of type `{ty}`")]
    Literal {
        /// The literal.
        literal: Literal,
        /// The type wanted.
        ty: Ty,
    },
    /// The wrong number of elements or initial values.
    #[error("operator `{operator}` has {fields} field(s), but {given} {what} are given")]
    Arity {
        /// The operator.
        operator: String,
        /// How many fields it has.
        fields: usize,
        /// How many values are given.
        given: usize,
        /// `elements`, `initial values`, `left operands` or `right operands`.
        what: &'static str,
    },
    /// An element or initial value of another type than its field.
    #[error("field `{field}` of operator `{operator}` is `{expected}`, but its {what} is `{found}`")]
    FieldType {
        /// The operator.
        operator: String,
        /// The field.
        field: String,
        /// Its type.
        expected: Ty,
        /// The type of what was given.
        found: Ty,
        /// `element` or `initial value`.
        what: &'static str,
    },
    /// A value that must not vary along the axis of the operation.
    #[error("{what} of `{op}` must not vary along axis `{axis}`")]
    Varies {
        /// The operation.
        op: &'static str,
        /// The operand.
        what: &'static str,
        /// The axis.
        axis: String,
    },
    /// Axes of a recurrence of matrices that are not different ones.
    #[error("axis `{axis}` cannot be the axis scanned, or of the state, and another axis of `matrix_scan` as well")]
    MatrixAxes {
        /// The axis.
        axis: String,
    },
    /// A broadcast that would lose axes.
    #[error("a broadcast cannot drop axis `{axis}`")]
    Drops {
        /// The axis.
        axis: String,
    },
    /// Offsets over other axes than their list.
    #[error("the offsets of `starts` must vary along axis `{axis}` and no other")]
    Offsets {
        /// The axis of the list.
        axis: String,
    },
    /// Indices of a gather over other axes than their own.
    #[error("the indices of `gather` must vary along axis `{axis}` and no other")]
    Relation {
        /// The axis of the indices.
        axis: String,
    },
    /// A leaf of programs in an operator's body, or the other way round.
    #[error("`{op}` cannot be used in {place}")]
    Place {
        /// The operation.
        op: &'static str,
        /// Where.
        place: &'static str,
    },
}

/// Where a node stands: what its operands and references mean.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// The program, or the one whose operator it is (only its parameters, axes and operators are used).
    pub program: &'a Program,
    /// The nodes before it.
    pub nodes: &'a [Node],
    /// In the body of an operator, its fields.
    pub fields: Option<&'a [Field]>,
}

type Typed = (Ty, AxisSet);

impl Scope<'_> {
    /// Type and axes of a node; `ty` is used for constants only, `axes` for broadcasts only.
    pub fn infer(&self, op: &Op, ty: Ty, axes: AxisSet) -> Result<Typed, TypeError> {
        self.check_place(op)?;
        match op {
            Op::Param(k) => self.param(*k),
            Op::Input(k) => self.input(*k),
            Op::Const(literal) => check_literal(*literal, ty).map(|()| (ty, AxisSet::EMPTY)),
            Op::Index(axis) => self.axis(*axis).map(|()| (Ty::I64, AxisSet::of(*axis))),
            Op::Size(axis) => self.axis(*axis).map(|()| (Ty::I64, AxisSet::EMPTY)),
            Op::Unary(op, a) => self.unary(*op, *a),
            Op::Binary(op, a, b) => self.binary(*op, *a, *b),
            Op::Select(c, a, b) => self.select(*c, *a, *b),
            Op::Convert(elem, a) => Ok((elem.value(), self.scalar("convert", *a)?.1)),
            Op::Broadcast(a) => self.broadcast(*a, axes),
            Op::Reduce { .. } | Op::Scan { .. } => self.combination(op),
            Op::MatrixScan(scan) => self.matrix_scan(scan),
            Op::Field(tuple, k) => self.field(*tuple, *k),
            Op::Last { axis, value, empty } => self.end("last", *axis, *value, *empty),
            Op::First { axis, value, empty } => self.end("first", *axis, *value, *empty),
            Op::Shift { axis, value, fill, .. } => self.shift(*axis, *value, *fill),
            Op::Starts { axis, list, offsets } => self.starts(*axis, *list, *offsets),
            Op::Gather { axis, to, value, index, inverse } => self.gather((*axis, *to), *value, (*index, *inverse)),
        }
    }

    fn check_place(&self, op: &Op) -> Result<(), TypeError> {
        let in_body = self.fields.is_some();
        let allowed = match op {
            Op::Input(_) => in_body,
            Op::Const(_) => true,
            Op::Broadcast(_) => !in_body,
            op => !in_body || op.is_map(),
        };
        let place = if in_body { "the body of an operator" } else { "a program" };
        if allowed { Ok(()) } else { Err(TypeError::Place { op: op.name(), place }) }
    }

    fn axis(&self, axis: Axis) -> Result<(), TypeError> {
        let known = (axis.0 as usize) < self.program.axes.len().min(64);
        if known { Ok(()) } else { Err(TypeError::Unknown { kind: "axis", index: axis.0 }) }
    }

    fn axis_name(&self, axis: Axis) -> String {
        self.program.axis_name(axis).to_owned()
    }

    fn node(&self, value: Value) -> Result<&Node, TypeError> {
        self.nodes.get(value.0 as usize).ok_or(TypeError::Unknown { kind: "value", index: value.0 })
    }

    fn scalar(&self, op: &'static str, value: Value) -> Result<Typed, TypeError> {
        let node = self.node(value)?;
        if node.ty == Ty::Tuple { Err(TypeError::Tuple { op }) } else { Ok((node.ty, node.axes)) }
    }

    fn param(&self, k: u32) -> Result<Typed, TypeError> {
        let param = self.program.params.get(k as usize).ok_or(TypeError::Unknown { kind: "parameter", index: k })?;
        param.axes.iter().try_for_each(|axis| self.axis(*axis))?;
        Ok((param.elem.value(), param.axes.iter().copied().collect()))
    }

    fn input(&self, k: u32) -> Result<Typed, TypeError> {
        let fields = self.fields.unwrap_or_default();
        let unknown = TypeError::Unknown { kind: "operand field", index: k };
        let field = fields.iter().chain(fields).nth(k as usize).ok_or(unknown)?;
        Ok((field.ty, AxisSet::EMPTY))
    }

    fn unary(&self, op: Unary, a: Value) -> Result<Typed, TypeError> {
        let (ty, axes) = self.scalar(op.name(), a)?;
        let (allowed, expected) = match op {
            Unary::Neg | Unary::Abs | Unary::Sign => (ty.is_float() || ty.is_int(), "a number"),
            Unary::Not => (ty.is_int() || ty == Ty::Bool, "an integer or a bool"),
            _ => (ty.is_float(), "a float"),
        };
        if allowed { Ok((ty, axes)) } else { Err(TypeError::Operand { op: op.name(), expected, found: ty }) }
    }

    fn binary(&self, op: Binary, a: Value, b: Value) -> Result<Typed, TypeError> {
        let (ty, axes) = self.same(op.symbol(), a, b)?;
        let (allowed, expected) = match op {
            Binary::Eq | Binary::Ne => (true, ""),
            Binary::And | Binary::Or | Binary::Xor => (ty.is_int() || ty == Ty::Bool, "integers or bools"),
            Binary::Shl | Binary::Shr => (ty.is_int(), "integers"),
            _ => (ty.is_float() || ty.is_int(), "numbers"),
        };
        if !allowed {
            return Err(TypeError::Operand { op: op.symbol(), expected, found: ty });
        }
        Ok((if op.is_comparison() { Ty::Bool } else { ty }, axes))
    }

    fn same(&self, op: &'static str, a: Value, b: Value) -> Result<Typed, TypeError> {
        let ((left, la), (right, ra)) = (self.scalar(op, a)?, self.scalar(op, b)?);
        if left == right { Ok((left, la.union(ra))) } else { Err(TypeError::Mismatch { op, left, right }) }
    }

    fn select(&self, c: Value, a: Value, b: Value) -> Result<Typed, TypeError> {
        let (condition, axes) = self.scalar("select", c)?;
        if condition != Ty::Bool {
            return Err(TypeError::Operand { op: "select", expected: "a bool as its condition", found: condition });
        }
        let (ty, branches) = self.same("select", a, b)?;
        Ok((ty, axes.union(branches)))
    }

    fn broadcast(&self, a: Value, axes: AxisSet) -> Result<Typed, TypeError> {
        let (ty, own) = self.scalar("broadcast", a)?;
        axes.iter().try_for_each(|axis| self.axis(axis))?;
        match own.minus(axes).iter().next() {
            Some(axis) => Err(TypeError::Drops { axis: self.axis_name(axis) }),
            None => Ok((ty, axes)),
        }
    }

    fn combination(&self, op: &Op) -> Result<Typed, TypeError> {
        let axes = self.fields_of(op)?;
        Ok((Ty::Tuple, axes.into_iter().map(|(_, axes)| axes).fold(AxisSet::EMPTY, AxisSet::union)))
    }

    fn field(&self, tuple: Value, k: u32) -> Result<Typed, TypeError> {
        let fields = self.fields_of(&self.node(tuple)?.op)?;
        fields.get(k as usize).copied().ok_or(TypeError::Unknown { kind: "field", index: k })
    }

    /// Type and axes of every field of a scan or a reduction.
    pub fn fields_of(&self, op: &Op) -> Result<Vec<Typed>, TypeError> {
        let (name, axis, operator, elements, init): (_, _, _, _, &[Value]) = match op {
            Op::Reduce { axis, operator, elements } => ("reduce", *axis, *operator, elements, &[]),
            Op::Scan { axis, operator, elements, init, .. } => ("scan", *axis, *operator, elements, init),
            _ => return Err(TypeError::NotATuple),
        };
        self.axis(axis)?;
        let result = if name == "scan" { AxisSet::of(axis) } else { AxisSet::EMPTY };
        let unknown = TypeError::Unknown { kind: "operator", index: operator.0 };
        let operator = self.program.operators.get(operator.0 as usize).ok_or(unknown)?;
        let mut given = self.field_values(name, operator, elements, "elements", "element")?;
        if !init.is_empty() {
            let init = self.field_values(name, operator, init, "initial values", "initial value")?;
            if init.iter().any(|axes| axes.contains(axis)) {
                let axis = self.axis_name(axis);
                return Err(TypeError::Varies { op: name, what: "the initial state", axis });
            }
            given.iter_mut().zip(init).for_each(|(axes, more)| *axes = axes.union(more));
        }
        let given: Vec<AxisSet> = given.into_iter().map(|axes| axes.without(axis)).collect();
        let axes = operator.field_axes(&given);
        Ok(operator.fields.iter().zip(axes).map(|(field, axes)| (field.ty, axes.union(result))).collect())
    }

    fn field_values(
        &self,
        op: &'static str,
        operator: &Operator,
        values: &[Value],
        all: &'static str,
        what: &'static str,
    ) -> Result<Vec<AxisSet>, TypeError> {
        let (fields, given) = (operator.fields.len(), values.len());
        if fields != given {
            return Err(TypeError::Arity { operator: operator.name.clone(), fields, given, what: all });
        }
        let check = |(field, value): (&Field, &Value)| {
            let (found, axes) = self.scalar(op, *value)?;
            if found == field.ty {
                return Ok(axes);
            }
            let (operator, field_name, expected) = (operator.name.clone(), field.name.clone(), field.ty);
            Err(TypeError::FieldType { operator, field: field_name, expected, found, what })
        };
        operator.fields.iter().zip(values).map(check).collect()
    }

    fn end(&self, op: &'static str, axis: Axis, value: Value, empty: Value) -> Result<Typed, TypeError> {
        self.without_axis(op, "the value for an empty axis", axis, empty)?;
        let (ty, axes) = self.same(op, value, empty)?;
        Ok((ty, axes.without(axis)))
    }

    fn shift(&self, axis: Axis, value: Value, fill: Value) -> Result<Typed, TypeError> {
        self.without_axis("shift", "the fill value", axis, fill)?;
        let (ty, axes) = self.same("shift", value, fill)?;
        Ok((ty, axes.with(axis)))
    }

    fn without_axis(&self, op: &'static str, what: &'static str, axis: Axis, value: Value) -> Result<(), TypeError> {
        self.axis(axis)?;
        let varies = self.scalar(op, value)?.1.contains(axis);
        if varies { Err(TypeError::Varies { op, what, axis: self.axis_name(axis) }) } else { Ok(()) }
    }

    fn starts(&self, axis: Axis, list: Axis, offsets: Value) -> Result<Typed, TypeError> {
        self.axis(axis)?;
        self.axis(list)?;
        let (found, axes) = self.scalar("starts", offsets)?;
        if !found.is_int() {
            return Err(TypeError::Operand { op: "starts", expected: "integers", found });
        }
        if axes != AxisSet::of(list) {
            return Err(TypeError::Offsets { axis: self.axis_name(list) });
        }
        Ok((Ty::Bool, AxisSet::of(axis)))
    }

    fn gather(
        &self,
        (axis, to): (Axis, Axis),
        value: Value,
        (index, inverse): (Value, Value),
    ) -> Result<Typed, TypeError> {
        self.axis(axis)?;
        self.axis(to)?;
        for (relation, along) in [(index, to), (inverse, axis)] {
            let (found, axes) = self.scalar("gather", relation)?;
            if found != Ty::I64 {
                return Err(TypeError::Operand { op: "gather", expected: "indices of type i64", found });
            }
            if !AxisSet::of(along).contains_all(axes) {
                return Err(TypeError::Relation { axis: self.axis_name(along) });
            }
        }
        let (ty, axes) = self.scalar("gather", value)?;
        if axes.contains(to) {
            return Err(TypeError::Varies { op: "gather", what: "the value", axis: self.axis_name(to) });
        }
        Ok((ty, axes.without(axis).with(to)))
    }
}

/// Whether the literal is a number of that type.
pub(crate) fn check_literal(literal: Literal, ty: Ty) -> Result<(), TypeError> {
    let fits = match (literal, ty) {
        (Literal::Float(_), ty) => ty.is_float(),
        (Literal::Int(i), Ty::I32) => i32::try_from(i).is_ok(),
        (Literal::Int(i), Ty::U32) => u32::try_from(i).is_ok(),
        (Literal::Int(_), ty) => ty.is_int(),
        (Literal::Bool(_), ty) => ty == Ty::Bool,
    };
    if fits { Ok(()) } else { Err(TypeError::Literal { literal, ty }) }
}

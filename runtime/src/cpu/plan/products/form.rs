//! The form of a sum as products of matrices.

use oplus_codegen::stage::kind::{Product, gauge_rate};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, AxisSet, Op, Operator, Program, Value};
use oplus_dsl::transition::is_sum;
use thiserror::Error;

/// Matrices with fewer rows or columns are multiplied element by element.
const LEAST: usize = 4;

/// Why a sum of products is computed element by element.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(in crate::cpu) enum Refused {
    /// It is no sum of products of tensors, so that nobody asks.
    #[error("it is no sum of products")]
    Other,
    #[error("a payload has all axes of the scores, or lacks the one that is summed")]
    NoMatrices,
    #[error("a condition or factor has axes of both rows and columns")]
    Mixed,
    #[error("the matrices have fewer than {LEAST} rows or columns")]
    Small,
    #[error("what multiplies the sum depends on rows and columns, and the sum is stored")]
    Outside,
}

/// A product of some values that is zero wherever one of the conditions is false.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::cpu) struct Factor {
    pub(in crate::cpu) factors: Vec<Value>,
    pub(in crate::cpu) conditions: Vec<Value>,
}

/// A field's payload: what is summed over the columns.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::cpu) struct Payload {
    pub(in crate::cpu) field: usize,
    /// The factor on the side of the rows.
    pub(in crate::cpu) left: Factor,
    /// The factor on the side of the columns; of the sum of the weights there is none.
    pub(in crate::cpu) right: Option<Factor>,
}

/// The base of a softmax merge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::cpu) struct Gauge {
    pub(in crate::cpu) field: usize,
    pub(in crate::cpu) score: Value,
    /// A weight is 2^(rate·(score − maximum)).
    pub(in crate::cpu) rate: f64,
}

/// A sum as products of matrices.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::cpu) struct Form {
    pub(in crate::cpu) gauge: Option<Gauge>,
    pub(in crate::cpu) payloads: Vec<Payload>,
    /// The factor of the sum that depends on rows and columns.
    pub(in crate::cpu) outside: Factor,
}

impl Factor {
    pub(super) fn axes(&self, program: &Program) -> AxisSet {
        self.values().map(|v| program.node(v).axes).fold(AxisSet::EMPTY, AxisSet::union)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = Value> {
        self.factors.iter().chain(&self.conditions).copied()
    }

    /// Takes over a factor or condition.
    fn take(&mut self, value: Value, is_condition: bool) {
        if is_condition { self.conditions.push(value) } else { self.factors.push(value) }
    }
}

impl Form {
    /// The form of a reduction.
    pub(super) fn of(program: &Program, tuple: Value, sizes: &[usize]) -> Result<Form, Refused> {
        let Op::Reduce { axis, operator, elements } = &program.node(tuple).op else { return Err(Refused::Other) };
        let operator = program.operator(*operator);
        if operator.fields.iter().any(|field| !matches!(field.ty, Ty::F32 | Ty::F64)) {
            return Err(Refused::Other);
        }
        let form = match operator.gauge {
            Some(gauge) if operator.fields.len() > 1 => merge(program, *axis, operator, elements, gauge as usize)?,
            None if is_sum(operator) => sum(program, *axis, elements[0])?,
            _ => return Err(Refused::Other),
        };
        let size = |axes: AxisSet| axes.iter().map(|a| sizes[a.0 as usize]).fold(1, usize::saturating_mul);
        for payload in &form.payloads {
            let Some(right) = &payload.right else { continue };
            let left = match form.gauge {
                Some(gauge) => program.node(gauge.score).axes,
                None => payload.left.axes(program),
            };
            let right = right.axes(program);
            if size(left.minus(right)) < LEAST || size(right.minus(left)) < LEAST {
                return Err(Refused::Small);
            }
        }
        Ok(form)
    }

    /// All values that it is computed from.
    pub(super) fn values(&self) -> Vec<Value> {
        let payloads =
            self.payloads.iter().flat_map(|p| p.left.values().chain(p.right.iter().flat_map(Factor::values)));
        let mut all: Vec<Value> =
            payloads.chain(self.outside.values()).chain(self.gauge.map(|gauge| gauge.score)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    pub(super) fn axes(&self, program: &Program) -> AxisSet {
        self.values().into_iter().map(|v| program.node(v).axes).fold(AxisSet::EMPTY, AxisSet::union)
    }

    /// The axes of the left matrices.
    pub(super) fn weight_axes(&self, program: &Program) -> AxisSet {
        let lefts = self.payloads.iter().map(|payload| payload.left.axes(program)).fold(AxisSet::EMPTY, AxisSet::union);
        self.gauge.map_or(lefts, |gauge| lefts.union(program.node(gauge.score).axes))
    }

    /// The matrices that are multiplied.
    pub(super) fn sides(&self) -> impl Iterator<Item = &Factor> {
        self.payloads.iter().flat_map(|payload| [&payload.left].into_iter().chain(&payload.right))
    }

    /// Whether exactly one of the matrices of a contraction has an axis.
    pub(super) fn has_row_or_column(&self, program: &Program, axis: Axis) -> bool {
        self.sides().filter(|side| side.axes(program).contains(axis)).count() == 1
    }

    pub(super) fn has_outside(&self) -> bool {
        self.outside.values().next().is_some()
    }

    /// Makes the right matrix of a sum the left one.
    pub(super) fn turn(&mut self) {
        for payload in &mut self.payloads {
            if let Some(right) = &mut payload.right {
                std::mem::swap(&mut payload.left, right);
            }
        }
    }
}

/// A sum over an axis.
fn sum(program: &Program, axis: Axis, element: Value) -> Result<Form, Refused> {
    let product = Product::of(program, element);
    let axes = |v: &Value| program.node(*v).axes;
    let along = || product.factors.iter().filter(|v| axes(v).contains(axis));
    if along().count() < 2 {
        return Err(Refused::Other);
    }
    let count = |v: &&Value| axes(v).iter().count();
    let left_axes = along().max_by_key(count).map(axes).unwrap_or_default();
    let right_axes = along().map(axes).filter(|own| !left_axes.contains_all(*own));
    let right_axes = right_axes.fold(AxisSet::EMPTY, AxisSet::union);
    // A sum of products of elements at the same indices.
    if right_axes.is_empty() || right_axes.contains_all(left_axes) {
        return Err(Refused::Other);
    }
    let (mut left, mut right, mut outside) = (Factor::default(), Factor::default(), Factor::default());
    let factors = product.factors.iter().map(|v| (v, false)).chain(product.conditions.iter().map(|v| (v, true)));
    for (value, is_condition) in factors {
        let own = axes(value);
        match () {
            () if left_axes.contains_all(own) => left.take(*value, is_condition),
            () if right_axes.contains_all(own) => right.take(*value, is_condition),
            () if !own.contains(axis) => outside.take(*value, is_condition),
            () => return Err(Refused::Mixed),
        }
    }
    Ok(Form { gauge: None, payloads: vec![Payload { field: 0, left, right: Some(right) }], outside })
}

/// A softmax merge over an axis.
fn merge(
    program: &Program,
    axis: Axis,
    operator: &Operator,
    elements: &[Value],
    gauge: usize,
) -> Result<Form, Refused> {
    let (Some(rate), score) = (gauge_rate(operator, gauge), elements[gauge]) else { return Err(Refused::Other) };
    let rows = program.node(score).axes;
    if !rows.contains(axis) {
        return Err(Refused::Other);
    }
    let others = (0..elements.len()).filter(|field| *field != gauge);
    let payloads = others.map(|field| payload(program, axis, rows, (field, elements[field])));
    let payloads = payloads.collect::<Result<Vec<Payload>, Refused>>()?;
    if payloads.iter().all(|payload| payload.right.is_none()) {
        return Err(Refused::Other);
    }
    Ok(Form { gauge: Some(Gauge { field: gauge, score, rate }), payloads, outside: Factor::default() })
}

/// The payload of a field: a product of weights, whose axes are given, and of factors of rows and of columns.
fn payload(program: &Program, axis: Axis, rows: AxisSet, (field, element): (usize, Value)) -> Result<Payload, Refused> {
    let product = Product::of(program, element);
    let (mut left, mut right) = (Factor::default(), Factor::default());
    for value in product.factors {
        if rows.contains_all(program.node(value).axes) { left.factors.push(value) } else { right.factors.push(value) }
    }
    let columns = right.axes(program);
    for condition in product.conditions {
        match program.node(condition).axes {
            own if rows.contains_all(own) => left.conditions.push(condition),
            own if columns.contains_all(own) => right.conditions.push(condition),
            _ => return Err(Refused::Mixed),
        }
    }
    match right.factors.is_empty() {
        true => Ok(Payload { field, left, right: None }),
        false if !columns.contains(axis) || columns.contains_all(rows) => Err(Refused::NoMatrices),
        false => Ok(Payload { field, left, right: Some(right) }),
    }
}

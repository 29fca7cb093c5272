//! A scan or a reduction as the adjoint sees it, and the states that it went through.

use crate::build::{Builder, Built, Direction};
use crate::elem::Ty;
use crate::ir::{Axis, AxisSet, Binary, Op, Operator, OperatorId, Value};
use crate::typing::TypeError;

use super::sweep::{Sweep, last_index};

/// One scan or reduction of the forward pass.
#[derive(Clone, Debug)]
pub(crate) struct Recurrence {
    /// Its node.
    pub(crate) tuple: Value,
    /// The axis scanned.
    pub(crate) axis: Axis,
    /// The operator.
    pub(crate) operator: Operator,
    /// The axes of its fields without the scan axis.
    pub(crate) fields: Vec<AxisSet>,
    /// One value per field.
    pub(crate) elements: Vec<Value>,
    /// The state before the first element, empty for the identity.
    pub(crate) init: Vec<Value>,
    /// From the last index to the first.
    pub(crate) reverse: bool,
    /// Which states the forward pass gives.
    pub(crate) gives: States,
    id: OperatorId,
}

/// The states that a scan or a reduction gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum States {
    /// s[t], after each element.
    Inclusive,
    /// s[t−1], before each element.
    Exclusive,
    /// s[n−1], after all of them.
    Total,
}

impl Recurrence {
    /// The scan or reduction of that node.
    pub(crate) fn of(b: &Builder, tuple: Value) -> Result<Recurrence, TypeError> {
        let (axis, id, elements, init, reverse, gives) = match b.program().node(tuple).op.clone() {
            Op::Scan { axis, operator, elements, init, reverse, exclusive } => {
                let gives = if exclusive { States::Exclusive } else { States::Inclusive };
                (axis, operator, elements, init, reverse, gives)
            }
            Op::Reduce { axis, operator, elements } => (axis, operator, elements, vec![], false, States::Total),
            _ => return Err(TypeError::NotATuple),
        };
        let operator = b.program().operator(id).clone();
        let axes = |v: Option<&Value>| v.map_or(Ok(AxisSet::EMPTY), |v| b.axes_of(*v));
        let given = |k: usize| Ok(axes(elements.get(k))?.union(axes(init.get(k))?).without(axis));
        let given: Vec<AxisSet> = (0..operator.fields.len()).map(given).collect::<Result<_, TypeError>>()?;
        let fields = operator.field_axes(&given);
        Ok(Recurrence { tuple, axis, operator, fields, elements, init, reverse, gives, id })
    }

    /// How many indices later a shift must move a value so that it appears where the next element is visited.
    pub(crate) fn later(&self) -> i64 {
        if self.reverse { -1 } else { 1 }
    }

    /// Whether a field has a cotangent as part of a state: a float that is not the gauge.
    pub(crate) fn is_active(&self, field: usize) -> bool {
        self.operator.fields[field].ty.is_float() && self.operator.gauge != Some(field as u32)
    }

    /// The axes of a field at every t.
    pub(crate) fn full_axes(&self) -> Vec<AxisSet> {
        self.fields.iter().map(|axes| axes.with(self.axis)).collect()
    }

    /// s[t], field by field.
    pub(crate) fn states_after(&self, sweep: &mut Sweep) -> Result<Vec<Value>, TypeError> {
        match self.gives {
            States::Inclusive => sweep.b.fields(self.tuple),
            States::Exclusive | States::Total => self.scan(&mut sweep.b, false),
        }
    }

    /// s[t−1], field by field: the states of an exclusive scan, or the neighbours of s[t] where the caller has that.
    pub(crate) fn states_before(&self, sweep: &mut Sweep) -> Result<Vec<Value>, TypeError> {
        let mut before = match self.gives {
            States::Exclusive => sweep.b.fields(self.tuple)?,
            States::Inclusive | States::Total => self.scan(&mut sweep.b, true)?,
        };
        for (k, state) in before.iter_mut().enumerate() {
            if self.gives == States::Inclusive {
                let after = sweep.b.field(self.tuple, k as u32)?;
                if sweep.residuals.contains(&after) {
                    let first = self.first_state(&mut sweep.b, k)?;
                    *state = sweep.b.shift(self.axis, self.later(), after, first)?;
                }
            }
            if self.operator.gauge == Some(k as u32) && !self.init.is_empty() {
                *state = self.with_first(&mut sweep.b, *state, self.init[k])?;
            }
        }
        Ok(before)
    }

    /// s[t−1] with its first value, which it has anyway, read from the init: the gauge of a state is a constant when
    /// the adjoint is differentiated in turn, that of the init is not.
    fn with_first(&self, b: &mut Builder, state: Value, init: Value) -> Built {
        let first = if self.reverse { last_index(b, self.axis)? } else { b.number(Ty::I64, 0)? };
        let index = b.index(self.axis)?;
        let at_first = b.binary(Binary::Eq, index, first)?;
        b.select(at_first, init, state)
    }

    /// The state before the first element.
    pub(crate) fn first_state(&self, b: &mut Builder, field: usize) -> Built {
        match self.init.get(field) {
            Some(init) => Ok(*init),
            None => b.constant(self.operator.fields[field].ty, self.operator.identity[field]),
        }
    }

    fn scan(&self, b: &mut Builder, exclusive: bool) -> Result<Vec<Value>, TypeError> {
        let direction = Direction { reverse: self.reverse, exclusive };
        b.scan(self.axis, self.id, &self.elements, &self.init, direction)
    }
}

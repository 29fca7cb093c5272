//! Cotangents under accumulation, and the sums over axes that undo broadcasting.
//!
//! A value x over axes A that is used where the axes are A ∪ E is broadcast over E, so its cotangent is the sum over E
//! of what comes back: x̄ += Σ_E (…). Contributions with the same E are added first and summed once.

use std::collections::HashMap;

use crate::build::{Builder, Built};
use crate::elem::{Elem, Ty};
use crate::ir::{Axis, AxisSet, Binary, Value};
use crate::typing::TypeError;

use super::{linear, rules};

/// Cotangents of values, not yet added up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cotangents {
    terms: HashMap<Value, Vec<Term>>,
}

/// One contribution: the sum of `value` over axes.
#[derive(Clone, Copy, Debug)]
struct Term {
    value: Value,
    over: AxisSet,
}

impl Cotangents {
    /// Adds a contribution to the cotangent of `target`, which was used where the axes are `used`.
    ///
    /// The contribution's own axes are some of those; it is the same along the others.
    pub(crate) fn add(&mut self, b: &Builder, target: Value, value: Value, used: AxisSet) -> Result<(), TypeError> {
        let over = used.minus(b.axes_of(target)?);
        self.terms.entry(target).or_default().push(Term { value, over });
        Ok(())
    }

    /// The cotangent of a value, taken out; `None` when nothing came back.
    pub(crate) fn take(&mut self, b: &mut Builder, target: Value) -> Result<Option<Value>, TypeError> {
        let ty = b.ty(target)?;
        let mut sums: Vec<Term> = vec![];
        for term in self.terms.remove(&target).unwrap_or_default() {
            let value = rules::convert_to(b, term.value, ty)?;
            match sums.iter_mut().find(|sum| sum.over == term.over) {
                Some(sum) => sum.value = rules::add(b, Some(sum.value), value)?,
                None => sums.push(Term { value, over: term.over }),
            }
        }
        let mut total = None;
        for sum in sums {
            let value = sum_over(b, sum.value, sum.over)?;
            total = Some(rules::add(b, total, value)?);
        }
        Ok(total)
    }
}

/// The sum of a value over axes, the last declared first; along an axis that it lacks, the size times the value.
pub(crate) fn sum_over(b: &mut Builder, value: Value, axes: AxisSet) -> Built {
    let mut axes: Vec<Axis> = axes.iter().collect();
    axes.reverse();
    axes.into_iter().try_fold(value, |sum, axis| sum_along(b, sum, axis))
}

fn sum_along(b: &mut Builder, value: Value, axis: Axis) -> Built {
    let ty = b.ty(value)?;
    if b.axes_of(value)?.contains(axis) {
        let sum = b.operator(linear::sum(ty)?);
        return Ok(b.reduce(axis, sum, &[value])?[0]);
    }
    let size = b.size(axis)?;
    let count = b.convert(ty.elem().unwrap_or(Elem::Call), size)?;
    let sum = b.binary(Binary::Mul, count, value)?;
    // Where there is nothing to add, the value belongs to no element and may be infinite.
    let (none, zero) = (b.number(Ty::I64, 0)?, b.float(ty, 0.0)?);
    let is_empty = b.binary(Binary::Eq, size, none)?;
    b.select(is_empty, zero, sum)
}

//! The rule of recurrences of matrices.

use crate::elem::Ty;
use crate::ir::{Axis, AxisSet, MatrixScan, Term, Value};

use super::{Scope, TypeError, Typed};

const NAME: &str = "matrix_scan";

impl Scope<'_> {
    /// Type and axes of the states of a recurrence of matrices.
    pub(super) fn matrix_scan(&self, scan: &MatrixScan) -> Result<Typed, TypeError> {
        self.matrix_axes(scan)?;
        let (ty, _) = self.scalar(NAME, scan.decay)?;
        if !ty.is_float() {
            return Err(TypeError::Operand { op: NAME, expected: "floats", found: ty });
        }
        self.without_axis(NAME, "the initial state", scan.axis, scan.init)?;
        let mut axes = AxisSet::of(scan.axis).with(scan.along);
        for operand in scan.numbers() {
            axes = axes.union(self.same(NAME, scan.decay, operand)?.1);
        }
        if let Some(reset) = scan.reset {
            let (found, more) = self.scalar(NAME, reset)?;
            if found != Ty::Bool {
                return Err(TypeError::Operand { op: NAME, expected: "a bool as its reset", found });
            }
            axes = axes.union(more);
        }
        scan.others().for_each(|other| axes = axes.without(other));
        for other in scan.others() {
            self.only_matrices_have(scan, other)?;
        }
        Ok((ty, axes))
    }

    /// The axes exist, and those of a matrix are two that are not scanned.
    fn matrix_axes(&self, scan: &MatrixScan) -> Result<(), TypeError> {
        self.axis(scan.axis)?;
        self.axis(scan.along)?;
        scan.others().try_for_each(|other| self.axis(other))?;
        let twice = scan.others().chain([scan.axis]).find(|axis| *axis == scan.along);
        match twice.or(scan.others().find(|axis| *axis == scan.axis)) {
            Some(axis) => Err(TypeError::MatrixAxes { axis: self.axis_name(axis) }),
            None => Ok(()),
        }
    }

    fn only_matrices_have(&self, scan: &MatrixScan, other: Axis) -> Result<(), TypeError> {
        let mut rest: Vec<(&str, Value)> =
            vec![("the diagonal", scan.decay), ("the input", scan.input), ("the initial state", scan.init)];
        rest.extend(scan.reset.map(|reset| ("the reset", reset)));
        for term in &scan.terms {
            match *term {
                Term::Pair { column, row } => rest.extend([("a pair", column), ("a pair", row)]),
                Term::Dense { matrix, other: own, .. } if own != other => rest.push(("another matrix", matrix)),
                Term::Dense { .. } => {}
            }
        }
        rest.into_iter().try_for_each(|(what, value)| self.without_axis(NAME, what, other, value))
    }
}

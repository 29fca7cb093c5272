//! Recurrences of matrices.

use crate::elem::Ty;
use crate::ir::{Axis, AxisSet, Binary, MatrixScan, Op, Term, Value};

use super::{Builder, Built};

impl Builder {
    /// All states of a recurrence of matrices; narrower floats are widened.
    pub fn matrix_scan(&mut self, mut scan: MatrixScan) -> Built {
        let mut types = scan.numbers().into_iter().map(|value| self.ty(value)).collect::<Result<Vec<Ty>, _>>()?;
        let first = types.remove(0);
        let common = types.into_iter().try_fold(first, Ty::join).and_then(Ty::elem);
        if let Some(common) = common {
            for operand in scan.numbers_mut() {
                *operand = self.convert(common, *operand)?;
            }
        }
        self.push(Op::MatrixScan(Box::new(scan)), Ty::Tuple, AxisSet::EMPTY)
    }

    /// One step of a recurrence of matrices from a state, without what the step adds: S·M.
    pub fn matrix_step(&mut self, scan: &MatrixScan, state: Value) -> Built {
        let mut total = self.binary(Binary::Mul, scan.decay, state)?;
        for term in &scan.terms {
            let added = match *term {
                Term::Pair { column, row } => {
                    let product = self.binary(Binary::Mul, state, column)?;
                    let read = self.sum(scan.along, product)?;
                    self.binary(Binary::Mul, read, row)?
                }
                Term::Dense { matrix, other, transposed: false } => {
                    let state = self.renamed(scan.along, other, state)?;
                    let product = self.binary(Binary::Mul, state, matrix)?;
                    self.sum(other, product)?
                }
                Term::Dense { matrix, other, transposed: true } => {
                    let product = self.binary(Binary::Mul, state, matrix)?;
                    let sums = self.sum(scan.along, product)?;
                    self.renamed(other, scan.along, sums)?
                }
            };
            total = self.binary(Binary::Add, total, added)?;
        }
        Ok(total)
    }

    /// The state before a step as the step reads it: 0 where it is forgotten.
    pub fn matrix_before(&mut self, scan: &MatrixScan, state: Value) -> Built {
        let Some(reset) = scan.reset else { return Ok(state) };
        let zero = self.float(self.ty(state)?, 0.0)?;
        self.select(reset, zero, state)
    }

    /// A value with the name `to` for its axis `axis`; both have one size.
    pub fn renamed(&mut self, axis: Axis, to: Axis, value: Value) -> Built {
        if !self.axes_of(value)?.contains(axis) {
            return Ok(value);
        }
        let (index, inverse) = (self.index(to)?, self.index(axis)?);
        self.gather((axis, to), value, (index, inverse))
    }

    /// The sum of a value over an axis; the size times the value where it lacks the axis.
    pub fn sum(&mut self, axis: Axis, value: Value) -> Built {
        crate::adjoint::sum_over(self, value, AxisSet::of(axis))
    }
}

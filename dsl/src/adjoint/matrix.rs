//! The adjoint of a recurrence of matrices.
//!
//! With S\[t\] = S\[t−1\]·M\[t\] + X\[t\] and the cotangents that come back from the outputs, G\[t\] to S\[t\] and Z to the last state:
//!
//! ```text
//! Λ[t] = G[t] + Λ[t+1]·M[t+1]ᵀ,   Λ[n] = Z, M[n] = 1      (a recurrence of the transposed matrices, in reverse)
//! X̄[t] = Λ[t],   init̄ = Λ[0]·M[0]ᵀ
//! w̄[t] = S[t−1]·Λ[t]                                      for the diagonal w
//! z̄[t] = S[t−1]·(Σ over K of Λ[t]·b[t])                   for each pair z·bᵀ
//! b̄[t] = (Σ over K of S[t−1]·z[t])·Λ[t]
//! D̄[t, j, k] = S[t−1, j]·Λ[t, k]                          for each matrix D
//! ```
//!
//! Where the recurrence resets, M\[t\] = 0 and S\[t−1\] is read as 0. Each is summed over the axes that its operand lacks. An exclusive recurrence gives S\[t−1\]: what comes back to that is
//! κ\[t\] = G\[t\] + κ\[t+1\]·M\[t\]ᵀ, of which Λ\[t\] = κ\[t+1\] is the exclusive form; init̄ = κ\[0\]. For a recurrence from the last
//! index to the first, read t+1 as the index that is visited after t.

use crate::build::{Builder, Built};
use crate::elem::Ty;
use crate::ir::{Axis, AxisSet, Binary, Literal, MatrixScan, Term, Value};
use crate::typing::TypeError;

use super::sweep::Sweep;

/// Takes the cotangents of the states back to all operands.
pub(super) fn pull_back(sweep: &mut Sweep, states: Value, scan: &MatrixScan) -> Result<(), TypeError> {
    let source = sweep.cotangents.take(&mut sweep.b, states)?;
    let last = sweep.terminal.take(&mut sweep.b, states)?;
    if source.is_none() && last.is_none() {
        return Ok(());
    }
    let zero = sweep.b.float(sweep.b.ty(states)?, 0.0)?;
    let known = Known { source: source.unwrap_or(zero), last };
    let lambda = lambda(&mut sweep.b, scan, known)?;
    let before = before(sweep, states, scan)?;
    let full = sweep.b.axes_of(states)?;
    let before = sweep.b.matrix_before(scan, before)?;
    let pull = Pull { scan, before, lambda, full };
    pull.operands(sweep)?;
    let init = init(&mut sweep.b, scan, known, lambda)?;
    sweep.cotangents.add(&sweep.b, scan.init, init, full.without(scan.axis))
}

/// The cotangents that come back from the outputs.
#[derive(Clone, Copy)]
struct Known {
    /// To each state that is given.
    source: Value,
    /// To the last state.
    last: Option<Value>,
}

/// Λ\[t\], the cotangent of the state after step t.
fn lambda(b: &mut Builder, scan: &MatrixScan, known: Known) -> Built {
    let mut back = transposed(b, scan, known)?;
    if scan.exclusive {
        back.exclusive = true;
        return b.matrix_scan(back);
    }
    let ty = b.ty(scan.decay)?;
    let (zero, one) = (b.float(ty, 0.0)?, b.float(ty, 1.0)?);
    let next = |b: &mut Builder, value: &mut Value, fill: Value| {
        // Without a cotangent of the last state, what its matrix is does not matter; a diagonal of 1 stays one.
        let varies = b.axes_of(*value)?.contains(scan.axis);
        if varies || known.last.is_some() && *value != fill {
            *value = b.shift(scan.axis, -scan.later(), *value, fill)?;
        }
        Ok::<(), TypeError>(())
    };
    next(b, &mut back.decay, one)?;
    for term in &mut back.terms {
        match term {
            Term::Pair { column, row } => {
                next(b, column, zero)?;
                next(b, row, zero)?;
            }
            Term::Dense { matrix, .. } => next(b, matrix, zero)?,
        }
    }
    if let Some(reset) = &mut back.reset {
        // Nothing resets behind the end.
        let fill = b.constant(Ty::Bool, Literal::Bool(false))?;
        *reset = b.shift(scan.axis, -scan.later(), *reset, fill)?;
    }
    b.matrix_scan(back)
}

/// κ\[t\] = G\[t\] + κ\[t+1\]·M\[t\]ᵀ.
fn transposed(b: &mut Builder, scan: &MatrixScan, known: Known) -> Result<MatrixScan, TypeError> {
    let init = known.last.map_or_else(|| b.float(b.ty(scan.decay)?, 0.0), Ok)?;
    let terms = scan.terms.iter().map(|term| term.transposed()).collect();
    Ok(MatrixScan { terms, input: known.source, init, reverse: !scan.reverse, exclusive: false, ..scan.clone() })
}

/// S\[t−1\].
fn before(sweep: &mut Sweep, states: Value, scan: &MatrixScan) -> Built {
    if scan.exclusive {
        return Ok(states);
    }
    if sweep.residuals.contains(&states) {
        return sweep.b.shift(scan.axis, scan.later(), states, scan.init);
    }
    sweep.b.matrix_scan(MatrixScan { exclusive: true, ..scan.clone() })
}

/// The cotangent of the state before the first step.
fn init(b: &mut Builder, scan: &MatrixScan, known: Known, lambda: Value) -> Built {
    let ty = b.ty(scan.decay)?;
    let (zero, one) = (b.float(ty, 0.0)?, b.float(ty, 1.0)?);
    let first = |b: &mut Builder, value: Value, empty: Value| match b.axes_of(value)?.contains(scan.axis) {
        false => Ok(value),
        true if scan.reverse => b.last(scan.axis, value, empty),
        true => b.first(scan.axis, value, empty),
    };
    if scan.exclusive {
        let back = transposed(b, scan, known)?;
        let back = b.matrix_scan(back)?;
        return first(b, back, known.last.unwrap_or(zero));
    }
    let last = known.last.unwrap_or(zero);
    let lambda = first(b, lambda, last)?;
    let mut step = MatrixScan { decay: first(b, scan.decay, one)?, ..scan.clone() };
    for term in &mut step.terms {
        *term = match *term {
            Term::Pair { column, row } => Term::Pair { column: first(b, row, zero)?, row: first(b, column, zero)? },
            Term::Dense { matrix, other, transposed } => {
                Term::Dense { matrix: first(b, matrix, zero)?, other, transposed: !transposed }
            }
        };
    }
    step.reset = None;
    let after = b.matrix_step(&step, lambda)?;
    let after = match scan.reset {
        Some(reset) => {
            let not = b.constant(Ty::Bool, Literal::Bool(false))?;
            let reset = first(b, reset, not)?;
            b.select(reset, zero, after)?
        }
        None => after,
    };
    let factors = std::iter::once(scan.decay).chain(scan.terms.iter().flat_map(Term::values));
    let is_there = |v: Value| Ok(v == one || b.axes_of(v)?.contains(scan.axis));
    let vary: Vec<bool> = factors.map(is_there).collect::<Result<_, TypeError>>()?;
    if vary.into_iter().all(|varies| varies) {
        return Ok(after);
    }
    // A value that does not vary along the axis exists even where there is no step.
    let (size, none) = (b.size(scan.axis)?, b.number(Ty::I64, 0)?);
    let is_empty = b.binary(Binary::Eq, size, none)?;
    b.select(is_empty, last, after)
}

/// The recurrence of the cotangents at every step.
struct Pull<'a> {
    scan: &'a MatrixScan,
    /// S\[t−1\].
    before: Value,
    /// Λ\[t\].
    lambda: Value,
    /// The axes of both.
    full: AxisSet,
}

impl Pull<'_> {
    fn operands(&self, sweep: &mut Sweep) -> Result<(), TypeError> {
        let Pull { scan, before, lambda, full } = *self;
        sweep.cotangents.add(&sweep.b, scan.input, lambda, full)?;
        let decay = sweep.b.binary(Binary::Mul, before, lambda)?;
        sweep.cotangents.add(&sweep.b, scan.decay, decay, full)?;
        for term in &scan.terms {
            match *term {
                Term::Pair { column, row } => {
                    let left = self.read(&mut sweep.b, lambda, row, before)?;
                    sweep.cotangents.add(&sweep.b, column, left, full)?;
                    let right = self.read(&mut sweep.b, before, column, lambda)?;
                    sweep.cotangents.add(&sweep.b, row, right, full)?;
                }
                Term::Dense { matrix, other, transposed } => {
                    let product = self.outer(&mut sweep.b, other, transposed)?;
                    sweep.cotangents.add(&sweep.b, matrix, product, full.with(other))?;
                }
            }
        }
        Ok(())
    }

    /// (Σ over K of `state`·`vector`)·`times`.
    fn read(&self, b: &mut Builder, state: Value, vector: Value, times: Value) -> Built {
        let product = b.binary(Binary::Mul, state, vector)?;
        let sum = b.sum(self.scan.along, product)?;
        b.binary(Binary::Mul, sum, times)
    }

    /// S\[t−1\] along the summed axis of a matrix, times Λ\[t\] along the other one.
    fn outer(&self, b: &mut Builder, other: Axis, transposed: bool) -> Built {
        let (moved, kept) = if transposed { (self.lambda, self.before) } else { (self.before, self.lambda) };
        let moved = b.renamed(self.scan.along, other, moved)?;
        b.binary(Binary::Mul, moved, kept)
    }
}

//! The adjoint of a scan.
//!
//! With s[t] = s[t−1] ⊕ e[t], J_L(t) = ∂s[t]/∂s[t−1], J_R(t) = ∂s[t]/∂e[t] and the cotangents that come back from the
//! outputs, g[t] to s[t] and z to the last state:
//!
//! ```text
//! λ[t]  = g[t] + J_L(t+1)ᵀ·λ[t+1],   λ[n] = z, J_L(n) = 1     (a reverse scan)
//! ē[t]  = J_R(t)ᵀ·λ[t]                                        (a map)
//! init̄  = J_L(0)ᵀ·λ[0]
//! ```
//!
//! An exclusive scan gives x[t] = s[t−1]. What comes back to s[t−1] is κ[t] = x̄[t] + J_L(t)ᵀ·κ[t+1], a reverse scan
//! without any shift, of which λ[t] = κ[t+1] is the exclusive form; init̄ = κ[0].
//!
//! A reduction is treated as an exclusive scan of which only the last state is used: x̄ = 0, κ[n] = z.
//!
//! For a scan from the last index to the first, read t+1 as the index that is visited after t.

use crate::build::Builder;
use crate::ir::{Binary, Value};
use crate::typing::TypeError;

use super::combination::{Axes, Combination, Jacobian};
use super::cotangents::sum_over;
use super::lambda::{Known, solve};
use super::recurrence::{Recurrence, States};
use super::sweep::Sweep;
use super::{AdjointError, gauge, rules};

/// Takes the cotangents of a scan's states back to its elements and its init.
pub(crate) fn pull_back(sweep: &mut Sweep, scan: &Recurrence) -> Result<(), AdjointError> {
    let mut known = Known::default();
    for k in 0..scan.elements.len() {
        let field = sweep.b.field(scan.tuple, k as u32)?;
        known.source.push(sweep.cotangents.take(&mut sweep.b, field)?);
        known.last.push(sweep.terminal.take(&mut sweep.b, field)?);
    }
    pull_back_known(sweep, scan, known)
}

/// [`pull_back`] of cotangents that are known, field by field.
pub(crate) fn pull_back_known(sweep: &mut Sweep, scan: &Recurrence, mut known: Known) -> Result<(), AdjointError> {
    known.keep(|k| scan.is_active(k));
    if known.is_zero() {
        return Ok(());
    }
    let mut step = Step::new(sweep, scan, known)?;
    let lambda = solve(&mut sweep.b, scan, &step.known, &step.jacobian)?;
    step.elements(sweep, &lambda)?;
    step.init(sweep, &lambda)
}

/// One step of a scan, differentiated at (s[t−1], e[t]).
struct Step<'a> {
    scan: &'a Recurrence,
    known: Known,
    combination: Combination,
    /// J_L(t) in the program under construction.
    jacobian: Jacobian,
    before: Vec<Value>,
    after: Vec<Value>,
}

impl Step<'_> {
    fn new<'a>(sweep: &mut Sweep, scan: &'a Recurrence, known: Known) -> Result<Step<'a>, TypeError> {
        let full = scan.full_axes();
        let right = scan.elements.iter().map(|e| sweep.b.axes_of(*e)).collect::<Result<_, _>>()?;
        let axes = Axes { left: full.clone(), right, after: full.clone(), full };
        let mut combination = Combination::new(&sweep.b.program().axes, &scan.operator, &axes)?;
        let local = combination.left_jacobian()?;
        let (before, after) = (scan.states_before(sweep)?, scan.states_after(sweep)?);
        let mut copy = combination.at(&mut sweep.b, &before, &scan.elements, &after)?;
        let mut entry = |v: &Option<Value>| v.map(|v| Ok(copy.run(&mut sweep.b, &[v])?[0])).transpose();
        let jacobian = local.iter().map(|row| row.iter().map(&mut entry).collect());
        let jacobian = jacobian.collect::<Result<_, TypeError>>()?;
        Ok(Step { scan, known, combination, jacobian, before, after })
    }

    /// ē[t] = J_R(t)ᵀ·λ[t].
    fn elements(&mut self, sweep: &mut Sweep, lambda: &[Option<Value>]) -> Result<(), AdjointError> {
        let fields: Vec<usize> = (0..lambda.len()).filter(|j| lambda[*j].is_some()).collect();
        let cotangents = self.combination.element_cotangents(&fields)?;
        let mut copy = self.combination.at(&mut sweep.b, &self.before, &self.scan.elements, &self.after)?;
        let parameters = self.combination.lambda.iter().zip(lambda);
        parameters.for_each(|(param, lambda)| lambda.iter().for_each(|lambda| copy.set(*param, *lambda)));
        for (element, cotangent) in self.scan.elements.iter().zip(cotangents) {
            let Some(cotangent) = cotangent else { continue };
            let cotangent = copy.run(&mut sweep.b, &[cotangent])?[0];
            let axes = sweep.b.axes_of(*element)?;
            sweep.cotangents.add(&sweep.b, *element, cotangent, axes)?;
        }
        Ok(())
    }

    /// init̄ = J_L(0)ᵀ·λ[0] (exclusive: κ[0]), and z where there is no element.
    fn init(&mut self, sweep: &mut Sweep, lambda: &[Option<Value>]) -> Result<(), AdjointError> {
        for (i, init) in self.scan.init.iter().enumerate() {
            let Some(cotangent) = self.init_field(&mut sweep.b, i, lambda)? else { continue };
            sweep.cotangents.add(&sweep.b, *init, cotangent, self.scan.fields[i])?;
            if gauge::acts_on(&self.scan.operator, i) {
                self.init_gauge(sweep, i, cotangent)?;
            }
        }
        Ok(())
    }

    /// m̄ += Σ p·p̄ for the gauge m of the init and its field p.
    fn init_gauge(&self, sweep: &mut Sweep, p: usize, cotangent: Value) -> Result<(), AdjointError> {
        let Some(m) = self.scan.operator.gauge.map(|m| m as usize) else { return Ok(()) };
        let product = sweep.b.binary(Binary::Mul, self.scan.init[p], cotangent)?;
        let term = sum_over(&mut sweep.b, product, self.scan.fields[p].minus(self.scan.fields[m]))?;
        Ok(sweep.cotangents.add(&sweep.b, self.scan.init[m], term, self.scan.fields[m])?)
    }

    /// The cotangent of one field of the init; `None` where there is none, and for the gauge.
    fn init_field(&self, b: &mut Builder, i: usize, lambda: &[Option<Value>]) -> Result<Option<Value>, TypeError> {
        let mut value = if self.scan.gives == States::Exclusive { self.known.source[i] } else { None };
        for (j, lambda) in lambda.iter().enumerate() {
            let (Some(lambda), Some(entry)) = (lambda, self.jacobian[j][i]) else { continue };
            let term = b.binary(Binary::Mul, entry, *lambda)?;
            let term = sum_over(b, term, self.scan.fields[j].minus(self.scan.fields[i]))?;
            let term = rules::convert_to(b, term, self.scan.operator.fields[i].ty)?;
            value = Some(rules::add(b, value, term)?);
        }
        let empty = self.known.last[i];
        let Some(any) = value.or(empty) else { return Ok(None) };
        let zero = rules::zero_of(b, any)?;
        let (value, empty, axis) = (value.unwrap_or(zero), empty.unwrap_or(zero), self.scan.axis);
        let first = if self.scan.reverse { b.last(axis, value, empty)? } else { b.first(axis, value, empty)? };
        Ok(Some(first))
    }
}

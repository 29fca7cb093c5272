//! The adjoint of a reduction, total = e[0] ⊕ … ⊕ e[n−1], with the cotangent z of the total.
//!
//! The derivative of the total by e[t] is a product of Jacobians from t to the end. For many operators it needs no
//! scan, field by field:
//!
//! | total | found by | ē[t] |
//! |---|---|---|
//! | Σ e | J_L = J_R = 1 | z, a broadcast |
//! | Σ e·w(e.m, M), M a gauge | J_L(l, c), J_R(r, c) are one function D(x, c) that telescopes, D(x, c)·D(c, d) = D(x, d) | D(e[t], total)ᵀ·z |
//! | ln Σ exp(e) | J_L = exp(l − c), J_R = exp(r − c) | exp(e[t] − total)·z |
//! | max, min, the value of argmax | J_L is 1 where a condition holds, else 0, and J_R the opposite | z at the winner's index, else 0 |
//!
//! The second row is how flash attention's backward pass comes about: p = exp(s − M) times what comes back, in the
//! [normal gauge](super::normal) where it can. Everything
//! else, as a product (whose elements may be zero) or 2×2 matrices, follows the rule of [scans](super::scan): λ[t] is
//! the suffix product of J_Lᵀ applied to z, ē[t] = J_R(s[t−1], e[t])ᵀ·λ[t].

use crate::ir::{AxisSet, Binary, Literal, Unary, Value};
use crate::typing::TypeError;

use super::combination::{Axes, Combination};
use super::lambda::Known;
use super::recurrence::Recurrence;
use super::sweep::Sweep;
use super::telescope::{Shape, classify};
use super::{AdjointError, rules, scan, winner};

/// Takes the cotangents of a reduction's total back to its elements.
pub(crate) fn pull_back(sweep: &mut Sweep, reduction: &Recurrence) -> Result<(), AdjointError> {
    let n = reduction.elements.len();
    let mut z = vec![];
    for k in 0..n {
        let field = sweep.b.field(reduction.tuple, k as u32)?;
        z.push(sweep.cotangents.take(&mut sweep.b, field)?.filter(|_| reduction.is_active(k)));
    }
    if let Some(normal) = sweep.normals.release(&mut sweep.b, reduction)? {
        telescope(sweep, reduction, &normal.total, &normal.z)?;
    }
    if z.iter().all(Option::is_none) {
        return Ok(());
    }
    let mut combination = Combination::new(&[], &reduction.operator, &Axes::none(n))?;
    let shapes = classify(&mut combination, &reduction.operator)?;
    let of_shape = |shape: fn(&Shape) -> bool| {
        z.iter().zip(&shapes).map(|(z, found)| z.filter(|_| shape(found))).collect::<Vec<_>>()
    };
    let telescoping = of_shape(|s| matches!(s, Shape::Telescoping));
    let total = sweep.b.fields(reduction.tuple)?;
    telescope(sweep, reduction, &total, &telescoping)?;
    for (k, shape) in shapes.iter().enumerate() {
        match (z[k], shape) {
            (Some(z), Shape::LogSumExp) => log_sum_exp(sweep, reduction, k, z)?,
            (Some(z), Shape::Choice(choice)) => winner::pull_back(sweep, reduction, &combination, k, *choice, z)?,
            _ => {}
        }
    }
    let last = of_shape(|s| matches!(s, Shape::General));
    scan::pull_back_known(sweep, reduction, Known { source: vec![None; n], last })
}

/// The combination as it is used when only the total is known: c and λ do not vary along the axis.
fn combination(sweep: &Sweep, reduction: &Recurrence) -> Result<Combination, TypeError> {
    let axes = |v: &Value| sweep.b.axes_of(*v);
    let right = reduction.elements.iter().map(axes).collect::<Result<Vec<AxisSet>, _>>()?;
    let full = reduction.full_axes();
    let axes = Axes { left: full.clone(), right, after: reduction.fields.clone(), full };
    Combination::new(&sweep.b.program().axes, &reduction.operator, &axes)
}

/// ē[t] = D(e[t], total)ᵀ·z, written by the same rule as J_R(l, e[t])ᵀ·λ with the total for c and z for λ.
fn telescope(
    sweep: &mut Sweep,
    reduction: &Recurrence,
    total: &[Value],
    z: &[Option<Value>],
) -> Result<(), AdjointError> {
    let mut combination = combination(sweep, reduction)?;
    let fields: Vec<usize> = (0..z.len()).filter(|j| z[*j].is_some()).collect();
    let cotangents = combination.element_cotangents(&fields)?;
    let mut copy = combination.at(&mut sweep.b, &[], &reduction.elements, total)?;
    z.iter().zip(&combination.lambda).for_each(|(z, lambda)| z.iter().for_each(|z| copy.set(*lambda, *z)));
    for (element, cotangent) in reduction.elements.iter().zip(cotangents) {
        if let Some(cotangent) = cotangent {
            let cotangent = copy.run(&mut sweep.b, &[cotangent])?[0];
            sweep.cotangents.add(&sweep.b, *element, cotangent, sweep.b.axes_of(*element)?)?;
        }
    }
    Ok(())
}

/// ē[t] = exp(e[t] − total)·z, and 0 where e[t] is −∞ (so also where the total is).
fn log_sum_exp(sweep: &mut Sweep, reduction: &Recurrence, k: usize, z: Value) -> Result<(), TypeError> {
    let b = &mut sweep.b;
    let element = reduction.elements[k];
    let total = b.field(reduction.tuple, k as u32)?;
    let difference = b.binary(Binary::Sub, element, total)?;
    let weight = b.unary(Unary::Exp, difference)?;
    let nothing = b.constant(b.ty(element)?, Literal::Float(f64::NEG_INFINITY))?;
    let present = b.binary(Binary::Gt, element, nothing)?;
    let term = b.binary(Binary::Mul, z, weight)?;
    let zero = rules::zero_of(b, term)?;
    let term = b.select(present, term, zero)?;
    let axes = reduction.fields[k].with(reduction.axis);
    sweep.cotangents.add(&sweep.b, element, term, axes)
}

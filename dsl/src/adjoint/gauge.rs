//! Gauges: fields that nothing read from a state depends on, as the running maximum of a softmax.
//!
//! A gauge m acts on the other fields p by factors: l enters a combination as p·exp(κ·(l.m − c.m)), so the state with
//! m + δ and p·exp(−κ·δ) for every p is as good as the state itself. κ is the *charge* of p: 1 for the denominator and
//! the payload of a softmax, ln 2 for one in powers of two, 0 for a field that the gauge leaves alone.
//!
//! As every reading of a state, directly or through further combinations, is the same for both,
//!
//! ```text
//! m̄ = Σₚ κₚ·p·p̄
//! ```
//!
//! for an element as for an initial state. So no λ is needed for the gauge: its cotangent follows from the others', and
//! within the adjoint the gauge of every state is a constant.

use crate::build::{Builder, Built};
use crate::ir::{Binary, Operator, Program, Value};
use crate::typing::TypeError;

use super::AdjointError;
use super::combination::{Axes, Combination};
use super::evaluate::{Samples, at, close, combined};

/// How many sample points the charges are checked at.
const POINTS: usize = 32;

/// The charge of every field, found from ∂cₚ/∂lₚ = exp(κ·(l.m − c.m)) at sample points; `None` without a gauge.
pub(crate) fn charges(operator: &Operator) -> Result<Option<Vec<f64>>, AdjointError> {
    let Some(m) = operator.gauge.map(|m| m as usize) else { return Ok(None) };
    let n = operator.fields.len();
    let mut combination = Combination::new(&[], operator, &Axes::none(n), None)?;
    let jacobian = combination.left_jacobian()?;
    let mut charges = vec![0.0; n];
    for p in (0..n).filter(|p| operator.fields[*p].ty.is_float() && *p != m) {
        let Some(weight) = jacobian[p][p] else { continue };
        charges[p] = charge(operator, m, combination.program(), weight).ok_or_else(|| AdjointError::Gauge {
            operator: operator.name.clone(),
            gauge: operator.fields[m].name.clone(),
            field: operator.fields[p].name.clone(),
        })?;
    }
    Ok(Some(charges))
}

/// The κ with weight = exp(κ·(l.m − c.m)) at all sample points, if there is one.
fn charge(operator: &Operator, m: usize, program: &Program, weight: Value) -> Option<f64> {
    let mut samples = Samples::new();
    let points: Vec<(f64, f64)> = (0..POINTS).map(|_| sample(operator, m, program, weight, &mut samples)).collect();
    let (moved, weight) = points.iter().copied().max_by(|a, b| a.0.abs().total_cmp(&b.0.abs()))?;
    let charge = if moved == 0.0 { 0.0 } else { weight.ln() / moved };
    let nearest = charge.round();
    let charge = if close(charge, nearest) { nearest } else { charge };
    points.iter().all(|(moved, weight)| close(*weight, (charge * moved).exp())).then_some(charge)
}

/// l.m − c.m and the weight at the next sample point.
fn sample(operator: &Operator, m: usize, program: &Program, weight: Value, samples: &mut Samples) -> (f64, f64) {
    let [l, r] = [(); 2].map(|()| samples.point(operator));
    let c = combined(operator, &l, &r);
    let values = at(program, &[l.as_slice(), &r, &c].concat());
    (l[m].as_f64() - c[m].as_f64(), values[weight.0 as usize].as_f64())
}

/// The fields of an element, each times 1 + κ·(unit − 1): the derivative by `unit` at 1 is Σₚ κₚ·p·p̄.
pub(crate) fn scaled(b: &mut Builder, fields: &[Value], charges: &[f64], unit: Value) -> Result<Vec<Value>, TypeError> {
    let one = b.float(b.ty(unit)?, 1.0)?;
    let excess = b.binary(Binary::Sub, unit, one)?;
    let mut scaled = vec![];
    for (field, charge) in fields.iter().zip(charges) {
        let factor = match *charge {
            0.0 => one,
            1.0 => unit,
            charge => {
                let charged = charged(b, excess, charge)?;
                b.binary(Binary::Add, one, charged)?
            }
        };
        scaled.push(if *charge == 0.0 { *field } else { b.binary(Binary::Mul, *field, factor)? });
    }
    Ok(scaled)
}

/// κ·x.
pub(crate) fn charged(b: &mut Builder, x: Value, charge: f64) -> Built {
    let charge = b.float(b.ty(x)?, charge)?;
    b.binary(Binary::Mul, charge, x)
}

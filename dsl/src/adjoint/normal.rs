//! Totals of a reduction in their normal gauge.
//!
//! A softmax's total (m, d, o…) is read through its means Q = o/d and its logarithm n = m + ln d. They are the same in every
//! [gauge](super::gauge), and in the gauge where d is 1 they are the fields themselves: the total is (n, 1, Q). What comes
//! back to Q and n therefore comes back to that state, and neither m nor d is needed:
//!
//! ```text
//! ō = Q̄      d̄ = n̄ − Σ Q̄·Q      ē[t] = D(e[t], (n, 1, Q))ᵀ·(d̄, ō), whose weight is exp(e[t].m − n)
//! ```
//!
//! This is the backward pass of flash attention: n is the log-sum-exp that the forward pass gave, Σ Q̄·Q its delta.
//!
//! The division may be guarded, `if d == 0 { 1 } else { d }`: of nothing, Q is 0 and n is −∞.

use std::collections::HashMap;

use crate::build::{Builder, Built};
use crate::ir::{Binary, Literal, Op, Program, Unary, Value};
use crate::typing::TypeError;

use super::combination::{Axes, Combination};
use super::cotangents::sum_over;
use super::recurrence::Recurrence;
use super::rules;
use super::telescope::{Shape, classify};

/// The cotangents of a total's means and of its logarithm.
#[derive(Clone, Debug)]
pub(crate) struct Normal {
    /// The field d.
    denominator: u32,
    /// d as it is divided by.
    divisor: Value,
    /// For a field o, its mean Q and Q̄.
    means: Vec<(u32, Value, Value)>,
    /// n.
    logarithm: Option<Value>,
    /// n̄.
    logarithm_bar: Option<Value>,
}

/// The cotangents of a total.
#[derive(Clone, Debug)]
pub(crate) struct Released {
    /// The total in its normal gauge.
    pub(crate) total: Vec<Value>,
    /// The cotangents of its fields.
    pub(crate) z: Vec<Option<Value>>,
}

/// The normal forms of all totals.
#[derive(Clone, Debug, Default)]
pub(crate) struct Normals {
    of: HashMap<Value, Normal>,
    /// The fields of a total that telescope, by its tuple.
    shapes: HashMap<Value, Vec<bool>>,
}

/// A value read from a total that is the same in every gauge.
#[derive(Clone, Copy, Debug)]
struct Reading {
    tuple: Value,
    denominator: u32,
    divisor: Value,
    /// The field divided; none for the logarithm.
    mean_of: Option<u32>,
}

impl Normals {
    /// Takes what comes back to the value y if that is a mean or the logarithm of a total.
    pub(crate) fn take(&mut self, b: &Builder, y: Value, bar: Value) -> Result<bool, TypeError> {
        let Some(reading) = reading(b.program(), y) else { return Ok(false) };
        let fields = [Some(reading.denominator), reading.mean_of];
        let shapes = self.telescoping(b, reading.tuple)?;
        if !fields.into_iter().flatten().all(|k| shapes[k as usize]) {
            return Ok(false);
        }
        let Reading { denominator, divisor, .. } = reading;
        let none = Normal { denominator, divisor, means: vec![], logarithm: None, logarithm_bar: None };
        let normal = self.of.entry(reading.tuple).or_insert(none);
        let taken = (normal.denominator, normal.divisor) == (denominator, divisor);
        match reading.mean_of {
            Some(field) if taken => normal.means.push((field, y, bar)),
            None if taken => (normal.logarithm, normal.logarithm_bar) = (Some(y), Some(bar)),
            _ => {}
        }
        Ok(taken)
    }

    /// Whether each field of a total telescopes.
    fn telescoping(&mut self, b: &Builder, tuple: Value) -> Result<Vec<bool>, TypeError> {
        if let Some(known) = self.shapes.get(&tuple) {
            return Ok(known.clone());
        }
        let reduction = Recurrence::of(b, tuple)?;
        let mut combination = Combination::new(&[], &reduction.operator, &Axes::none(reduction.elements.len()))?;
        let shapes = classify(&mut combination, &reduction.operator)?;
        let telescoping: Vec<bool> = shapes.iter().map(|s| matches!(s, Shape::Telescoping)).collect();
        self.shapes.insert(tuple, telescoping.clone());
        Ok(telescoping)
    }

    /// The cotangents of the total of a reduction.
    pub(crate) fn release(&mut self, b: &mut Builder, reduction: &Recurrence) -> Result<Option<Released>, TypeError> {
        let Some(normal) = self.of.remove(&reduction.tuple) else { return Ok(None) };
        let mut total = b.fields(reduction.tuple)?;
        let mut z = vec![None; total.len()];
        let d = normal.denominator as usize;
        let mut d_bar = normal.logarithm_bar;
        for (field, mean, bar) in &normal.means {
            let o = *field as usize;
            z[o] = Some(rules::add(b, z[o], *bar)?);
            let product = b.binary(Binary::Mul, *bar, *mean)?;
            let delta = sum_over(b, product, reduction.fields[o].minus(reduction.fields[d]))?;
            d_bar = Some(match d_bar {
                Some(sum) => b.binary(Binary::Sub, sum, delta)?,
                None => b.unary(Unary::Neg, delta)?,
            });
            total[o] = *mean;
        }
        z[d] = d_bar;
        if let Some(m) = reduction.operator.gauge {
            total[m as usize] = normal.logarithm(b, total[m as usize])?;
        }
        total[d] = b.float(b.ty(total[d])?, 1.0)?;
        Ok(Some(Released { total, z }))
    }
}

impl Normal {
    /// n, the forward pass's own if it has it.
    fn logarithm(&self, b: &mut Builder, m: Value) -> Built {
        if let Some(n) = self.logarithm {
            return Ok(n);
        }
        let ln = b.unary(Unary::Ln, self.divisor)?;
        b.binary(Binary::Add, m, ln)
    }
}

/// Whether a value is a mean o/d of a total.
pub(crate) fn is_mean(program: &Program, value: Value) -> bool {
    reading(program, value).is_some_and(|reading| reading.mean_of.is_some())
}

fn reading(program: &Program, y: Value) -> Option<Reading> {
    let node = program.node(y);
    match node.op {
        Op::Binary(Binary::Div, o, divisor) => {
            let (tuple, field) = total(program, o)?;
            let reading = Reading { tuple, mean_of: Some(field), ..divided(program, tuple, divisor)? };
            (field != reading.denominator && node.axes == program.node(o).axes).then_some(reading)
        }
        Op::Binary(Binary::Add, l, r) => logarithm(program, l, r).or_else(|| logarithm(program, r, l)),
        _ => None,
    }
}

/// m + ln d.
fn logarithm(program: &Program, m: Value, ln: Value) -> Option<Reading> {
    let Op::Unary(Unary::Ln, divisor) = program.node(ln).op else { return None };
    let (Op::Field(tuple, gauge), Op::Reduce { operator, .. }) = (&program.node(m).op, reduction(program, m)?) else {
        return None;
    };
    (program.operator(*operator).gauge == Some(*gauge)).then(|| divided(program, *tuple, divisor))?
}

/// d, or `if d == 0 { 1 } else { d }`, of a total.
fn divided(program: &Program, tuple: Value, divisor: Value) -> Option<Reading> {
    let denominator = match program.node(divisor).op {
        Op::Select(condition, one, d) => {
            let zero = |v: Value| program.node(v).op == Op::Const(Literal::Float(0.0));
            let is_zero = match program.node(condition).op {
                Op::Binary(Binary::Eq, l, r) => (l == d && zero(r)) || (r == d && zero(l)),
                _ => false,
            };
            (is_zero && program.node(one).op == Op::Const(Literal::Float(1.0))).then_some(d)?
        }
        _ => divisor,
    };
    let (own, field) = total(program, denominator)?;
    (own == tuple).then_some(Reading { tuple, denominator: field, divisor, mean_of: None })
}

/// The reduction and the field that a value is, of those that a gauge acts on.
fn total(program: &Program, value: Value) -> Option<(Value, u32)> {
    let (Op::Field(tuple, field), Op::Reduce { operator, .. }) = (&program.node(value).op, reduction(program, value)?)
    else {
        return None;
    };
    super::gauge::acts_on(program.operator(*operator), *field as usize).then_some((*tuple, *field))
}

/// The operation that a field is of.
fn reduction(program: &Program, field: Value) -> Option<&Op> {
    match program.node(field).op {
        Op::Field(tuple, _) => Some(&program.node(tuple).op),
        _ => None,
    }
}

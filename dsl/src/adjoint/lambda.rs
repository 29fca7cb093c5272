//! λ, the cotangents of a scan's states, by the closure of J_L's zero pattern.
//!
//! λᵢ[t] = gᵢ[t] + Σⱼ J_L(t+1)ⱼᵢ·λⱼ[t+1]. Fields that nothing comes back to are not there at all. The others fall into
//! strongly connected components of the graph "J_Lⱼᵢ is not a structural zero"; taken in topological order, what comes
//! from components already solved is part of gᵢ, and a component alone is one of these:
//!
//! | component | λ |
//! |---|---|
//! | Jᵢᵢ = 0 | λᵢ = gᵢ: no scan |
//! | Jᵢᵢ = 1 | λᵢ[t] = gᵢ[t] + λᵢ[t+1]: a sum |
//! | Jᵢᵢ = a, and only the last state has a cotangent z | λᵢ[t] = (Π a over u > t)·z: a product without payload axes |
//! | Jᵢᵢ = a | λᵢ[t] = gᵢ[t] + a[t+1]·λᵢ[t+1]: a scalar affine scan |
//! | k×k | λ[t] = g[t] + A[t+1]·λ[t+1], A = J_Lᵀ: an affine scan of the closure of A's [pattern](super::pattern) |
//!
//! Independent components with the same matrix are one scan with several vectors ([`super::affine`]).

use crate::build::{Builder, Built, Direction};
use crate::elem::Ty;
use crate::ir::{Binary, Literal, Op, Operator, Value};
use crate::typing::TypeError;

use super::combination::Jacobian;
use super::components::components;
use super::cotangents::sum_over;
use super::recurrence::{Recurrence, States};
use super::sweep::last_index;
use super::{AdjointError, linear, rules};

/// The cotangents that come to the states of a scan from outside it, field by field; `None` where there is none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// g[t], to what the scan gives at t.
    pub(crate) source: Vec<Option<Value>>,
    /// z, to the last state.
    pub(crate) last: Vec<Option<Value>>,
}

impl Known {
    /// Forgets what came back to fields that do not take part.
    pub(crate) fn keep(&mut self, takes_part: impl Fn(usize) -> bool) {
        for (k, value) in self.source.iter_mut().enumerate().chain(self.last.iter_mut().enumerate()) {
            *value = value.filter(|_| takes_part(k));
        }
    }

    /// Whether nothing came back.
    pub(crate) fn is_zero(&self) -> bool {
        self.source.iter().chain(&self.last).all(Option::is_none)
    }
}

/// λ of every field, `None` where it is zero. `jacobian` is J_L(t) in the program under construction.
pub(crate) fn solve(
    b: &mut Builder,
    scan: &Recurrence,
    known: &Known,
    jacobian: &Jacobian,
) -> Result<Vec<Option<Value>>, AdjointError> {
    let lambda = vec![None; scan.elements.len()];
    let mut solver = Solver { b, scan, jacobian, known: known.clone(), lambda, done: 0 };
    let active = solver.active();
    let mut left = components(&active, |j, i| jacobian[j][i].is_some());
    while let Some(first) = left.iter().find(|c| solver.is_ready(c, &active)).cloned() {
        let like_first = |c: &Vec<usize>| solver.is_ready(c, &active) && solver.kind(c) == solver.kind(&first);
        let (group, rest): (Vec<_>, Vec<_>) = left.into_iter().partition(like_first);
        left = rest;
        solver.solve(&group)?;
    }
    Ok(solver.lambda)
}

/// λ under way.
pub(super) struct Solver<'a> {
    pub(super) b: &'a mut Builder,
    pub(super) scan: &'a Recurrence,
    jacobian: &'a Jacobian,
    /// The source of a field grows by what comes from components already solved.
    pub(super) known: Known,
    pub(super) lambda: Vec<Option<Value>>,
    /// The fields solved, as a set.
    done: u64,
}

/// The properties that components must have in common to share a scan: the matrix, and whether there is a source.
#[derive(PartialEq, Eq)]
struct Kind {
    matrix: Vec<Option<Value>>,
    driven: bool,
}

impl Solver<'_> {
    /// The fields that something comes back to, directly or through other fields.
    fn active(&self) -> Vec<usize> {
        let n = self.lambda.len();
        let mut active: Vec<bool> =
            (0..n).map(|k| self.known.source[k].is_some() || self.known.last[k].is_some()).collect();
        for _ in 0..n {
            for i in 0..n {
                active[i] |= (0..n).any(|j| active[j] && self.couples(j, i));
            }
        }
        (0..n).filter(|k| active[*k]).collect()
    }

    /// Whether λᵢ depends on λⱼ.
    fn couples(&self, j: usize, i: usize) -> bool {
        self.jacobian[j][i].is_some()
    }

    /// Whether everything outside a component that it depends on is solved.
    fn is_ready(&self, component: &[usize], active: &[usize]) -> bool {
        let outside = |j: &&usize| !component.contains(j) && self.done >> **j & 1 == 0;
        active.iter().filter(outside).all(|j| component.iter().all(|i| !self.couples(*j, *i)))
    }

    fn kind(&self, component: &[usize]) -> Kind {
        Kind { matrix: self.matrix(component), driven: component.iter().any(|i| self.is_driven(*i)) }
    }

    /// A = J_Lᵀ of a component, row by row.
    fn matrix(&self, component: &[usize]) -> Vec<Option<Value>> {
        component.iter().flat_map(|i| component.iter().map(|j| self.jacobian[*j][*i])).collect()
    }

    /// Whether something is added to λᵢ at every step.
    fn is_driven(&self, i: usize) -> bool {
        self.known.source[i].is_some() || (0..self.lambda.len()).any(|j| self.comes_from(j, i))
    }

    fn comes_from(&self, j: usize, i: usize) -> bool {
        self.done >> j & 1 == 1 && self.couples(j, i)
    }

    pub(super) fn is_inclusive(&self) -> bool {
        self.scan.gives == States::Inclusive
    }

    /// The components of a group, which have the same matrix.
    fn solve(&mut self, group: &[Vec<usize>]) -> Result<(), AdjointError> {
        let kind = self.kind(&group[0]);
        group.iter().flatten().try_for_each(|i| self.add_couplings(*i))?;
        match kind.matrix[..] {
            [None] => group.iter().flatten().try_for_each(|i| self.uncoupled(*i))?,
            [Some(a)] if self.is_one(a) => group.iter().flatten().try_for_each(|i| self.sum(*i))?,
            [Some(a)] if !kind.driven => group.iter().flatten().try_for_each(|i| self.product(*i, a))?,
            _ => self.affine_scans(group, &kind.matrix)?,
        }
        self.done = group.iter().flatten().fold(self.done, |set, i| set | 1 << i);
        Ok(())
    }

    fn is_one(&self, a: Value) -> bool {
        self.b.program().node(a).op == Op::Const(Literal::Float(1.0))
    }

    /// gᵢ[t] += J_L(t+1)ⱼᵢ·λⱼ[t+1] for all fields j already solved; in the exclusive form κᵢ gets J_L(t)ⱼᵢ·κⱼ[t+1].
    fn add_couplings(&mut self, i: usize) -> Result<(), TypeError> {
        for j in 0..self.lambda.len() {
            let (Some(lambda), true) = (self.lambda[j], self.comes_from(j, i)) else { continue };
            let Some(entry) = self.jacobian[j][i] else { continue };
            let mut term = self.b.binary(Binary::Mul, entry, lambda)?;
            term = sum_over(self.b, term, self.scan.fields[j].minus(self.scan.fields[i]))?;
            if self.is_inclusive() {
                let zero = rules::zero_of(self.b, term)?;
                term = self.next(term, zero)?;
            }
            let term = rules::convert_to(self.b, term, self.scan.operator.fields[i].ty)?;
            self.known.source[i] = Some(rules::add(self.b, self.known.source[i], term)?);
        }
        Ok(())
    }

    /// The value that the next element visited has.
    pub(super) fn next(&mut self, value: Value, end: Value) -> Built {
        self.b.shift(self.scan.axis, -self.scan.later(), value, end)
    }

    /// λ = g, and z at the last element; in the exclusive form κ[t] = g[t] and λ[t] = κ[t+1].
    fn uncoupled(&mut self, i: usize) -> Result<(), TypeError> {
        self.lambda[i] = match (self.known.source[i], self.known.last[i]) {
            (Some(source), last) if !self.is_inclusive() => {
                let end = last.map_or_else(|| rules::zero_of(self.b, source), Ok)?;
                Some(self.next(source, end)?)
            }
            (source, Some(last)) => {
                let last = self.at_last(last)?;
                Some(rules::add(self.b, source, last)?)
            }
            (source, None) => source,
        };
        Ok(())
    }

    /// A value at the last element visited, zero at all others.
    pub(super) fn at_last(&mut self, value: Value) -> Built {
        let axis = self.scan.axis;
        let end = if self.scan.reverse { self.b.number(Ty::I64, 0)? } else { last_index(self.b, axis)? };
        let index = self.b.index(axis)?;
        let there = self.b.binary(Binary::Eq, index, end)?;
        let zero = rules::zero_of(self.b, value)?;
        self.b.select(there, value, zero)
    }

    /// λ[t] = g[t] + λ[t+1] from z.
    fn sum(&mut self, i: usize) -> Result<(), TypeError> {
        self.lambda[i] = match self.known.source[i] {
            None => self.known.last[i],
            Some(source) => {
                let sum = linear::sum(self.b.ty(source)?)?;
                let last = self.known.last[i];
                Some(self.run_scan(sum, &[source], last.as_slice(), !self.is_inclusive())?[0])
            }
        };
        Ok(())
    }

    /// λ[t] = (a[t+1]·a[t+2]⋯)·z.
    fn product(&mut self, i: usize, a: Value) -> Result<(), TypeError> {
        if let Some(last) = self.known.last[i] {
            let product = linear::product(self.b.ty(a)?)?;
            let weight = self.run_scan(product, &[a], &[], true)?[0];
            self.lambda[i] = Some(self.b.binary(Binary::Mul, weight, last)?);
        }
        Ok(())
    }

    /// A scan against the direction of the forward pass.
    pub(super) fn run_scan(
        &mut self,
        operator: Operator,
        elements: &[Value],
        init: &[Value],
        exclusive: bool,
    ) -> Result<Vec<Value>, TypeError> {
        let operator = self.b.operator(operator);
        let direction = Direction { reverse: !self.scan.reverse, exclusive };
        self.b.scan(self.scan.axis, operator, elements, init, direction)
    }
}

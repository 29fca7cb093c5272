//! The reverse sweep: cotangents from the outputs back to the parameters, node by node.

use std::collections::HashSet;

use crate::build::{Builder, Built};
use crate::elem::Ty;
use crate::ir::{Axis, AxisSet, Binary, Literal, Node, Op, Value};
use crate::typing::TypeError;

use super::AdjointError;
use super::cotangents::Cotangents;
use super::normal::Normals;
use super::recurrence::Recurrence;
use super::{matrix, reduce, rules, scan};

/// A program whose nodes are those of the forward pass first, and of its adjoint after them.
#[derive(Debug)]
pub(crate) struct Sweep {
    /// The program under construction.
    pub(crate) b: Builder,
    /// The cotangents that have come back so far.
    pub(crate) cotangents: Cotangents,
    /// The cotangents of the last state of a scan, by its fields.
    pub(crate) terminal: Cotangents,
    /// The cotangents of totals of reductions in their normal gauge.
    pub(crate) normals: Normals,
    /// Values that the caller has, because they are outputs of the forward pass.
    pub(crate) residuals: HashSet<Value>,
}

impl Sweep {
    /// No cotangents yet.
    pub(crate) fn of(b: Builder) -> Sweep {
        let (cotangents, terminal) = (Cotangents::default(), Cotangents::default());
        Sweep { b, cotangents, terminal, normals: Normals::default(), residuals: HashSet::new() }
    }

    /// Takes the cotangents of all nodes that there are now back to the leaves, where they stay.
    pub(crate) fn run(&mut self) -> Result<(), AdjointError> {
        (0..self.b.program().nodes.len() as u32).rev().try_for_each(|i| self.visit(Value(i)))
    }

    fn visit(&mut self, y: Value) -> Result<(), AdjointError> {
        let Node { op, axes, .. } = self.b.program().node(y).clone();
        match op {
            Op::Scan { .. } => return scan::pull_back(self, &Recurrence::of(&self.b, y)?),
            Op::MatrixScan(recurrence) => return Ok(matrix::pull_back(self, y, &recurrence)?),
            Op::Reduce { .. } => return reduce::pull_back(self, &Recurrence::of(&self.b, y)?),
            Op::Param(_) | Op::Input(_) | Op::Const(_) | Op::Index(_) | Op::Size(_) => return Ok(()),
            Op::Field(..) | Op::Starts { .. } => return Ok(()),
            _ => {}
        }
        let Some(bar) = self.cotangents.take(&mut self.b, y)? else { return Ok(()) };
        match op {
            Op::Last { axis, value, empty } => self.end(axis, value, empty, bar, axes, true)?,
            Op::First { axis, value, empty } => self.end(axis, value, empty, bar, axes, false)?,
            Op::Shift { axis, by, value, fill } => self.shift(axis, by, value, fill, bar, axes)?,
            Op::Gather { axis, to, value, index, inverse } => {
                let back = self.b.gather((to, axis), bar, (inverse, index))?;
                self.cotangents.add(&self.b, value, back, axes.without(to).with(axis))?;
            }
            _ if self.normals.take(&self.b, y, bar)? => {}
            _ => self.map(y, bar, axes)?,
        }
        Ok(())
    }

    /// x̄ᵢ += ȳ·∂y/∂xᵢ.
    fn map(&mut self, y: Value, bar: Value, axes: AxisSet) -> Result<(), TypeError> {
        for (x, partial) in rules::partials(&mut self.b, y)? {
            let term = partial.times(&mut self.b, bar)?;
            self.cotangents.add(&self.b, x, term, axes)?;
        }
        Ok(())
    }

    /// y = x[n−1] (or x[0]): x̄[t] += ȳ at that index; the value for an empty axis gets ȳ if the axis is empty.
    ///
    /// The last state of a scan is not made a one-hot vector: ȳ is where the reverse scan starts from. Where the value
    /// for the empty axis is the scan's own init, that rule also serves the empty axis.
    fn end(
        &mut self,
        axis: Axis,
        value: Value,
        empty: Value,
        bar: Value,
        axes: AxisSet,
        last: bool,
    ) -> Result<(), TypeError> {
        if self.is_final_state(axis, value, empty, last) {
            return self.terminal.add(&self.b, value, bar, axes);
        }
        let b = &mut self.b;
        let zero = rules::zero_of(b, bar)?;
        let index = b.index(axis)?;
        let at = if last { last_index(b, axis)? } else { b.number(Ty::I64, 0)? };
        let there = b.binary(Binary::Eq, index, at)?;
        let one_hot = b.select(there, bar, zero)?;
        self.cotangents.add(b, value, one_hot, axes.with(axis))?;
        let (size, none) = (b.size(axis)?, b.number(Ty::I64, 0)?);
        let nothing = b.binary(Binary::Eq, size, none)?;
        let bar = b.select(nothing, bar, zero)?;
        self.cotangents.add(b, empty, bar, axes)
    }

    /// Whether the value is the state that an inclusive scan over the axis ends with, its init if there is no element.
    fn is_final_state(&self, axis: Axis, value: Value, empty: Value, last: bool) -> bool {
        let program = self.b.program();
        if let Op::MatrixScan(scan) = &program.node(value).op {
            return scan.axis == axis && !scan.exclusive && last != scan.reverse && scan.init == empty;
        }
        let Op::Field(tuple, k) = program.node(value).op else { return false };
        let Op::Scan { axis: scanned, operator, init, reverse, exclusive, .. } = &program.node(tuple).op else {
            return false;
        };
        let starts_from = match init.get(k as usize) {
            Some(init) => *init == empty,
            None => program.node(empty).op == Op::Const(program.operator(*operator).identity[k as usize]),
        };
        *scanned == axis && !exclusive && last != *reverse && starts_from
    }

    /// y[t] = x[t−d], f outside: x̄[t] += ȳ[t+d], f̄ += Σ ȳ over the t that were filled.
    fn shift(
        &mut self,
        axis: Axis,
        by: i64,
        value: Value,
        fill: Value,
        bar: Value,
        axes: AxisSet,
    ) -> Result<(), TypeError> {
        let b = &mut self.b;
        let zero = rules::zero_of(b, bar)?;
        let back = b.shift(axis, by.saturating_neg(), bar, zero)?;
        self.cotangents.add(b, value, back, axes)?;
        let filled = match by {
            1 => b.first(axis, bar, zero)?,
            -1 => b.last(axis, bar, zero)?,
            _ => {
                let outside = outside(b, axis, by)?;
                let masked = b.select(outside, bar, zero)?;
                return self.cotangents.add(b, fill, masked, axes);
            }
        };
        self.cotangents.add(b, fill, filled, axes.without(axis))
    }
}

/// The last index of an axis.
pub(crate) fn last_index(b: &mut Builder, axis: Axis) -> Built {
    let (size, one) = (b.size(axis)?, b.number(Ty::I64, 1)?);
    b.binary(Binary::Sub, size, one)
}

/// Whether t − by lies outside the axis.
fn outside(b: &mut Builder, axis: Axis, by: i64) -> Built {
    let index = b.index(axis)?;
    let by_value = b.constant(Ty::I64, Literal::Int(by))?;
    if by > 0 {
        return b.binary(Binary::Lt, index, by_value);
    }
    let size = b.size(axis)?;
    let end = b.binary(Binary::Add, size, by_value)?;
    b.binary(Binary::Ge, index, end)
}

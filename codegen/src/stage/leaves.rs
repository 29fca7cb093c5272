//! The leaves of a stage's values.

use std::collections::BTreeSet;

use oplus_dsl::ir::{Axis, AxisSet, Op, Value};

use super::cutter::Cutter;
use super::family::Family;
use super::needs::position_axis;

/// The leaves of a stage's values.
#[derive(Default)]
pub(super) struct Leaves {
    /// Parameters of the whole program.
    pub params: BTreeSet<u32>,
    /// Stored values.
    pub read: BTreeSet<Value>,
    /// Axes of indices, sizes and positions.
    pub axes: AxisSet,
}

impl Leaves {
    /// The leaves of some roots and scans.
    pub(super) fn of(cutter: &Cutter<'_>, roots: &[usize], families: &[Family]) -> Leaves {
        let mut leaves = Leaves::default();
        for root in roots.iter().map(|r| &cutter.roots[*r]) {
            leaves.visit(cutter, vec![root.value], &root.read);
        }
        for family in families {
            let own =
                |values: &[Value]| family.fields.iter().filter_map(|k| values.get(*k as usize).copied()).collect();
            leaves.visit(cutter, own(&family.elements), &family.read);
            leaves.visit(cutter, own(&family.init), &family.read);
        }
        leaves
    }

    fn visit(&mut self, cutter: &Cutter<'_>, mut stack: Vec<Value>, read: &BTreeSet<Value>) {
        let mut seen = BTreeSet::new();
        while let Some(value) = stack.pop() {
            if !seen.insert(value) {
                continue;
            }
            match &cutter.program.node(value).op {
                _ if read.contains(&value) => _ = self.read.insert(value),
                Op::Param(p) => _ = self.params.insert(*p),
                Op::Index(axis) | Op::Size(axis) => self.axes = self.axes.with(*axis),
                Op::Field(tuple, _) => stack.extend(cutter.contraction(*tuple, read).map(|sum| sum.element)),
                op => {
                    if let Op::Gather { axis, to, .. } = op {
                        self.axes = self.axes.with(*axis).with(*to);
                    }
                    self.axes = position_axis(cutter.program, value).map_or(self.axes, |axis| self.axes.with(axis));
                    stack.extend(op.operands());
                }
            }
        }
    }
}

/// The axes that a stage needs: in the order of the tensor with the most of them, then of declaration.
pub(super) fn stage_axes(cutter: &Cutter<'_>, roots: &[usize], leaves: &Leaves) -> Vec<Axis> {
    let written = roots.iter().map(|r| &cutter.roots[*r].axes);
    let params = leaves.params.iter().map(|p| &cutter.program.params[*p as usize].axes);
    let read = leaves.read.iter().map(|v| &cutter.roots[cutter.stored[v]].axes);
    let tensors: Vec<&Vec<Axis>> = written.chain(params).chain(read).collect();
    let scanned = roots.iter().filter_map(|r| cutter.roots[*r].home).map(|course| course.axis);
    let all: AxisSet =
        tensors.iter().flat_map(|t| t.iter().copied()).chain(scanned).chain(leaves.axes.iter()).collect();
    let longest = tensors.iter().rev().max_by_key(|t| t.len()).map_or(&[][..], |t| &t[..]);
    let rest = all.iter().filter(|a| !longest.contains(a));
    longest.iter().copied().chain(rest).collect()
}

//! The scans of a stage, before they become one.

use std::collections::BTreeSet;

use oplus_dsl::ir::{Op, OperatorId, Value};

use super::cutter::Cutter;
use super::needs::Context;
use super::product::closure;

/// A scan or reduction of the whole program: all tuples that go through the same states.
#[derive(Clone, Debug)]
pub(super) struct Family {
    /// Its operator.
    pub operator: OperatorId,
    /// Its elements, field by field.
    pub elements: Vec<Value>,
    /// Its initial state; empty for the identity.
    pub init: Vec<Value>,
    /// The values that elements and initial state read from memory.
    pub read: BTreeSet<Value>,
    /// The fields that states need, in order.
    pub fields: Vec<u32>,
}

/// The scans beneath some roots.
pub(super) fn families(cutter: &Cutter<'_>, roots: &[usize]) -> Vec<Family> {
    let mut families: Vec<Family> = vec![];
    for root in roots {
        let root = &cutter.roots[*root];
        let needs = cutter.needs(root.value, &root.read, Context::Here);
        for field in needs.states.iter().chain(&needs.ended).chain(&needs.finals) {
            let Op::Field(tuple, k) = cutter.program.node(*field).op else { continue };
            let own = Family::of(cutter, tuple);
            let known = families.iter().position(|f| f.is(&own)).unwrap_or_else(|| {
                families.push(own);
                families.len() - 1
            });
            families[known].fields.push(k);
        }
    }
    for family in &mut families {
        family.fields = closure(cutter.program.operator(family.operator), family.fields.iter().copied());
    }
    families
}

impl Family {
    /// The family of a tuple.
    pub(super) fn of(cutter: &Cutter<'_>, tuple: Value) -> Family {
        let read = cutter.scans.get(&tuple).map(|s| s.read.clone()).unwrap_or_default();
        let (operator, elements, init) = match &cutter.program.node(tuple).op {
            Op::Scan { operator, elements, init, .. } => (*operator, elements.clone(), init.clone()),
            Op::Reduce { operator, elements, .. } => (*operator, elements.clone(), vec![]),
            _ => (OperatorId(0), vec![], vec![]),
        };
        Family { operator, elements, init, read, fields: vec![] }
    }

    /// Whether another family goes through the same states.
    pub(super) fn is(&self, other: &Family) -> bool {
        (self.operator, &self.elements, &self.init) == (other.operator, &other.elements, &other.init)
    }
}

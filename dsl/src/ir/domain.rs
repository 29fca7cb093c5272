//! The states that an operator is for.

use super::{Node, Op, Value};

/// A set of states: those for which all conditions hold. The default is all states.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Domain {
    /// Nodes of which the conditions are made, without axes; [`Op::Input`] k is field k of the state.
    pub body: Vec<Node>,
    /// The conditions: bools in `body`.
    pub conditions: Vec<Value>,
    /// Whether states are also so small that combining them never exceeds the range of an integer type. Where laws fail
    /// only because an integer wraps, this promise excludes it.
    pub no_overflow: bool,
}

impl Domain {
    /// Whether the domain excludes nothing.
    pub fn is_everything(&self) -> bool {
        self.body.is_empty() && self.conditions.is_empty() && !self.no_overflow
    }

    /// The domain of states in which the field of number k has the number `place(k)`.
    #[must_use]
    pub fn renumbered(&self, place: impl Fn(u32) -> u32) -> Domain {
        let mut domain = self.clone();
        for node in &mut domain.body {
            if let Op::Input(k) = &mut node.op {
                *k = place(*k);
            }
        }
        domain
    }

    /// The states that are in both domains.
    #[must_use]
    pub fn and(&self, other: &Domain) -> Domain {
        let mut both = self.clone();
        let first = self.body.len() as u32;
        let moved = |v: Value| Value(v.0 + first);
        both.body.extend(other.body.iter().map(|node| Node { op: node.op.map_operands(moved), ..node.clone() }));
        both.conditions.extend(other.conditions.iter().map(|v| moved(*v)));
        both.no_overflow |= other.no_overflow;
        both
    }

    /// For every condition, the set of fields that it depends on: bit k for field k.
    pub fn dependencies(&self) -> Vec<u64> {
        let mut of: Vec<u64> = Vec::with_capacity(self.body.len());
        for node in &self.body {
            let own = if let Op::Input(k) = node.op { 1u64.checked_shl(k).unwrap_or(0) } else { 0 };
            let known = |v: &Value| of.get(v.0 as usize).copied().unwrap_or(0);
            of.push(node.op.operands().iter().map(known).fold(own, |all, set| all | set));
        }
        self.conditions.iter().map(|v| of.get(v.0 as usize).copied().unwrap_or(0)).collect()
    }

    /// The conditions that are about a set of fields alone, as a domain of states of these fields. `place` is where a field
    /// of the set goes.
    #[must_use]
    pub(crate) fn restricted(&self, set: u64, place: impl Fn(u32) -> u32) -> Domain {
        let kept = self.conditions.iter().zip(self.dependencies()).filter(|(_, fields)| fields & !set == 0);
        let conditions: Vec<Value> = kept.map(|(condition, _)| *condition).collect();
        let mut needed = vec![false; self.body.len()];
        conditions.iter().for_each(|v| needed[v.0 as usize] = true);
        for i in (0..needed.len()).rev() {
            if needed[i] {
                self.body[i].op.operands().iter().for_each(|v| needed[v.0 as usize] = true);
            }
        }
        let before = needed.iter().scan(0, |count, needed| {
            *count += u32::from(*needed);
            Some(*count - u32::from(*needed))
        });
        let before: Vec<u32> = before.collect();
        let at = |v: Value| Value(before[v.0 as usize]);
        let body = self.body.iter().zip(&needed).filter(|(_, needed)| **needed);
        let body = body.map(|(node, _)| Node { op: node.op.map_operands(at), ..node.clone() }).collect();
        let conditions = conditions.iter().map(|v| at(*v)).collect();
        Domain { body, conditions, no_overflow: self.no_overflow }.renumbered(place)
    }
}

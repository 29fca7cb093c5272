//! Which states are in an operator's domain, and how to get there from one that is not.

use crate::elem::Ty;
use crate::ir::{Literal, Op, Operator, Value};
use crate::rng::Rng;
use crate::scalar;

use super::evaluate::{Number, evaluate};

/// How often one field is moved to the limit of a condition before a state is given up.
const MOVES: usize = 6;

/// The conditions of an operator's domain.
pub(super) struct Membership<'a> {
    operator: &'a Operator,
    identity: Vec<Number>,
    /// For every field, the conditions that are about it alone.
    own: Vec<Vec<Value>>,
    /// The fields that are compared with something, and with what.
    limits: Vec<(usize, Value)>,
}

impl<'a> Membership<'a> {
    pub(super) fn new(operator: &'a Operator) -> Membership<'a> {
        let domain = &operator.domain;
        let dependencies = domain.dependencies();
        let own = |k: usize| {
            let conditions = domain.conditions.iter().zip(&dependencies);
            conditions.filter(|(_, fields)| **fields == 1 << k).map(|(condition, _)| *condition).collect()
        };
        let field = |v: Value| match domain.body[v.0 as usize].op {
            Op::Input(k) => Some(k as usize),
            _ => None,
        };
        let limits = domain.body.iter().filter_map(|node| match node.op {
            Op::Binary(op, a, b) if op.is_comparison() => Some([(field(a), b), (field(b), a)]),
            _ => None,
        });
        let limits = limits.flatten().filter_map(|(field, limit)| Some((field?, limit))).collect();
        let identity = operator.identity.iter().map(|literal| Number::from(*literal)).collect();
        Membership { operator, identity, own: (0..operator.fields.len()).map(own).collect(), limits }
    }

    /// Whether the conditions that are about one field alone hold of its value.
    pub(super) fn admits(&self, k: usize, scalar: Literal) -> bool {
        if self.own[k].is_empty() {
            return true;
        }
        let mut state = self.identity.clone();
        state[k] = scalar.into();
        let values = evaluate(&self.operator.domain.body, &state);
        self.own[k].iter().all(|condition| values[condition.0 as usize].truth() == Some(true))
    }

    /// Whether all conditions certainly hold.
    pub(super) fn contains(&self, state: &[Number]) -> bool {
        let domain = &self.operator.domain;
        let values = evaluate(&domain.body, state);
        domain.conditions.iter().all(|condition| values[condition.0 as usize].truth() == Some(true))
    }

    /// The first condition that certainly does not hold.
    pub(super) fn broken_condition(&self, state: &[Number]) -> Option<usize> {
        let domain = &self.operator.domain;
        let values = evaluate(&domain.body, state);
        domain.conditions.iter().position(|condition| values[condition.0 as usize].truth() == Some(false))
    }

    /// A state of the domain that is like the given one but for fields that are moved to where a condition compares them.
    pub(super) fn repaired(&self, mut state: Vec<Literal>, rng: &mut Rng) -> Option<Vec<Literal>> {
        for _ in 0..MOVES {
            let numbers: Vec<Number> = state.iter().map(|literal| Number::from(*literal)).collect();
            if self.contains(&numbers) {
                return Some(state);
            }
            if self.limits.is_empty() {
                return None;
            }
            let (field, limit) = rng.pick(&self.limits);
            let limit = evaluate(&self.operator.domain.body, &numbers)[limit.0 as usize].literal;
            state[field] = near(limit, self.operator.fields[field].ty, rng);
        }
        None
    }
}

/// The number itself, or one next to it.
fn near(limit: Literal, ty: Ty, rng: &mut Rng) -> Literal {
    let step = rng.below(3) as i64 - 1;
    match limit {
        Literal::Float(x) => Literal::Float(x + step as f64),
        Literal::Int(i) => Literal::Int(scalar::wrap(ty, scalar::widen(ty, i) + i128::from(step))),
        Literal::Bool(_) => limit,
    }
}

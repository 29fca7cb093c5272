//! The states at which laws are tried.

use crate::elem::Ty;
use crate::ir::{Field, Literal, Operator};
use crate::rng::Rng;

use super::evaluate::Number;
use super::member::Membership;
use super::pool::near_literals;

/// Kinds of numbers, the most readable first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    /// Small whole numbers, on which sums and products are exact.
    Whole,
    /// Multiples of 1/4 around 0.
    Fraction,
    /// Positive, not round.
    Positive,
    /// Large of both signs; limits of integers.
    Large,
    /// Near the literals of the operator.
    Literal,
    /// Powers of two, and of integers their neighbours.
    Power,
    /// For every field a kind of its own, or its identity.
    Mixed,
}

/// Every kind, and how many samples of it are taken.
pub(super) const KINDS: [(Kind, usize); 7] = [
    (Kind::Whole, 24),
    (Kind::Fraction, 16),
    (Kind::Positive, 16),
    (Kind::Large, 8),
    (Kind::Literal, 64),
    (Kind::Power, 16),
    (Kind::Mixed, 64),
];

/// How often a number or a state of the domain is looked for before a known one is taken.
const TRIES: usize = 16;

/// Random states of an operator.
pub(super) struct Samples<'a> {
    operator: &'a Operator,
    membership: Membership<'a>,
    /// The numbers near literals, by field, and which is next.
    pools: Vec<(Vec<Literal>, usize)>,
    /// Some states of the domain other than the identity.
    known: Vec<Vec<Literal>>,
    rng: Rng,
}

impl<'a> Samples<'a> {
    pub(super) fn new(operator: &'a Operator) -> Samples<'a> {
        let mut rng = Rng::new(61 + operator.fields.len() as u64);
        let membership = Membership::new(operator);
        let mut pool = |(k, field): (usize, &Field)| {
            let mut pool = near_literals(operator, field.ty, &mut rng);
            pool.retain(|scalar| membership.admits(k, *scalar));
            (pool, 0)
        };
        let pools = operator.fields.iter().enumerate().map(&mut pool).collect();
        let rng = Rng::new(operator.fields.len() as u64);
        Samples { operator, membership, pools, known: vec![], rng }
    }

    /// A state of one kind, of the domain; none if none was ever found.
    pub(super) fn state(&mut self, kind: Kind) -> Option<Vec<Literal>> {
        if self.operator.domain.conditions.is_empty() {
            return Some(self.any_state(kind));
        }
        for _ in 0..TRIES {
            let state = self.any_state(kind);
            let Some(state) = self.membership.repaired(state, &mut self.rng) else { continue };
            if state != self.operator.identity && self.known.len() < 64 {
                self.known.push(state.clone());
            }
            return Some(state);
        }
        (!self.known.is_empty()).then(|| self.rng.pick(&self.known))
    }

    /// Whether a state of the domain other than the identity was found.
    pub(super) fn found_any(&self) -> bool {
        self.operator.domain.conditions.is_empty() || !self.known.is_empty()
    }

    /// The first condition of the domain that certainly does not hold of a state.
    pub(super) fn broken_condition(&self, state: &[Number]) -> Option<usize> {
        self.membership.broken_condition(state)
    }

    /// Whether a state is certainly in the domain.
    pub(super) fn contains(&self, state: &[Number]) -> bool {
        self.membership.contains(state)
    }

    /// A number for the shift of a gauge.
    pub(super) fn shift(&mut self) -> f64 {
        self.rng.between(-2.0, 2.0)
    }

    /// A state of one kind, for each field of which the conditions on this field alone hold where that is found soon.
    fn any_state(&mut self, kind: Kind) -> Vec<Literal> {
        let mut state: Vec<Literal> = vec![];
        for k in 0..self.operator.fields.len() {
            let own = if kind == Kind::Mixed { self.some_kind() } else { Some(kind) };
            let mut scalar = self.scalar(own, k);
            for _ in 0..TRIES {
                if self.membership.admits(k, scalar) {
                    break;
                }
                let near = self.rng.once_in(2) && !self.pools[k].0.is_empty();
                scalar = self.scalar(if near { Some(Kind::Literal) } else { own }, k);
            }
            state.push(scalar);
        }
        state
    }

    /// A kind for one field; none for the identity.
    fn some_kind(&mut self) -> Option<Kind> {
        let kinds = [Kind::Whole, Kind::Fraction, Kind::Positive, Kind::Large, Kind::Literal, Kind::Power];
        if self.rng.once_in(6) { None } else { Some(self.rng.pick(&kinds)) }
    }

    fn scalar(&mut self, kind: Option<Kind>, k: usize) -> Literal {
        let (ty, identity) = (self.operator.fields[k].ty, self.operator.identity[k]);
        match kind {
            _ if ty == Ty::Bool => Literal::Bool(self.rng.once_in(2)),
            None => identity,
            Some(Kind::Literal) if !self.pools[k].0.is_empty() => self.near_literal(k),
            Some(kind) => loop {
                // Counter-examples read better without the identity, which states of mixed kinds have in some fields.
                let scalar =
                    if ty.is_float() { Literal::Float(self.float(kind)) } else { Literal::Int(self.int(kind, ty)) };
                if scalar.as_f64() != identity.as_f64() {
                    return scalar;
                }
            },
        }
    }

    /// One number near a literal after the other, then any of them.
    fn near_literal(&mut self, k: usize) -> Literal {
        let (pool, next) = &mut self.pools[k];
        *next += 1;
        if *next <= pool.len() { pool[*next - 1] } else { pool[self.rng.below(pool.len())] }
    }

    fn float(&mut self, kind: Kind) -> f64 {
        match kind {
            Kind::Whole | Kind::Literal | Kind::Mixed => self.rng.below(7) as f64 - 3.0,
            Kind::Fraction => (self.rng.below(17) as f64 - 8.0) / 4.0,
            Kind::Positive => self.rng.between(0.1, 2.5),
            Kind::Large => self.rng.between(-1.0, 1.0) * 10f64.powi(self.rng.below(5) as i32 + 1),
            Kind::Power => {
                let size = if self.rng.once_in(2) { 20 } else { 126 };
                let power = 2f64.powi(self.rng.below(2 * size + 1) as i32 - size as i32);
                if self.rng.once_in(2) { power } else { -power }
            }
        }
    }

    fn int(&mut self, kind: Kind, ty: Ty) -> i64 {
        let signed = matches!(ty, Ty::I32 | Ty::I64);
        match kind {
            Kind::Large => crate::scalar::wrap(ty, i128::from(self.rng.bits())),
            Kind::Power => {
                let bits = if matches!(ty, Ty::I32 | Ty::U32) { 32 } else { 64 };
                let power = (1i128 << self.rng.below(bits)) + self.rng.below(3) as i128 - 1;
                crate::scalar::wrap(ty, if signed && self.rng.once_in(2) { -power } else { power })
            }
            _ if signed => self.rng.below(9) as i64 - 4,
            _ => self.rng.below(9) as i64,
        }
    }
}

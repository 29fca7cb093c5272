//! The states at which laws are tried.

use crate::elem::Ty;
use crate::ir::{Literal, Operator};
use crate::rng::Rng;

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
}

/// Every kind, and how many samples of it are taken.
pub(super) const KINDS: [(Kind, usize); 4] =
    [(Kind::Whole, 24), (Kind::Fraction, 16), (Kind::Positive, 16), (Kind::Large, 8)];

/// Random states of an operator.
pub(super) struct Samples<'a> {
    operator: &'a Operator,
    /// The number of states of the automaton that each field is part of.
    automata: Vec<Option<usize>>,
    rng: Rng,
}

impl<'a> Samples<'a> {
    pub(super) fn new(operator: &'a Operator) -> Samples<'a> {
        Samples { operator, automata: automata(operator), rng: Rng::new(operator.fields.len() as u64) }
    }

    /// A state of one kind.
    pub(super) fn state(&mut self, kind: Kind) -> Vec<Literal> {
        (0..self.operator.fields.len()).map(|k| self.scalar(kind, k)).collect()
    }

    /// A number for the shift of a gauge.
    pub(super) fn shift(&mut self) -> f64 {
        self.rng.between(-2.0, 2.0)
    }

    /// A scalar other than the identity's, except where there are too few.
    fn scalar(&mut self, kind: Kind, k: usize) -> Literal {
        let (ty, identity) = (self.operator.fields[k].ty, self.operator.identity[k]);
        if ty == Ty::Bool {
            return Literal::Bool(self.rng.once_in(2));
        }
        if let Some(states) = self.automata[k] {
            return Literal::Int(self.rng.below(states) as i64);
        }
        loop {
            let scalar =
                if ty.is_float() { Literal::Float(self.float(kind)) } else { Literal::Int(self.int(kind, ty)) };
            if scalar.as_f64() != identity.as_f64() {
                return scalar;
            }
        }
    }

    fn float(&mut self, kind: Kind) -> f64 {
        match kind {
            Kind::Whole => self.rng.below(7) as f64 - 3.0,
            Kind::Fraction => (self.rng.below(17) as f64 - 8.0) / 4.0,
            Kind::Positive => self.rng.between(0.1, 2.5),
            Kind::Large => self.rng.between(-1.0, 1.0) * 10f64.powi(self.rng.below(5) as i32 + 1),
        }
    }

    fn int(&mut self, kind: Kind, ty: Ty) -> i64 {
        let signed = matches!(ty, Ty::I32 | Ty::I64);
        match kind {
            Kind::Whole | Kind::Fraction if signed => self.rng.below(9) as i64 - 4,
            Kind::Whole | Kind::Fraction | Kind::Positive => self.rng.below(9) as i64,
            Kind::Large => crate::scalar::wrap(ty, i128::from(self.rng.bits())),
        }
    }
}

/// For every field, the number of states if it is part of an automaton: of neighbouring integer fields whose identity
/// is 0, 1, 2, …, at least two.
fn automata(operator: &Operator) -> Vec<Option<usize>> {
    let mut states = vec![None; operator.fields.len()];
    let is = |k: usize, state: i64| operator.fields[k].ty.is_int() && operator.identity[k] == Literal::Int(state);
    for start in 0..states.len() {
        let n = (start..states.len()).take_while(|&k| is(k, (k - start) as i64)).count();
        if n >= 2 {
            states[start..start + n].fill(Some(n));
        }
    }
    states
}

//! The outcome of each law at the states where it was tried.

use crate::elem::Ty;
use crate::ir::{Literal, Operator};
use crate::scalar;

use super::evaluate::{Number, combine};
use super::gauge::{reading, shift};
use super::message::condition;
use super::samples::Samples;
use super::{Counterexample, KINDS, Law, LawError, NamedState, Outside};

/// The outcome of a law for a field so far.
#[derive(Clone, Debug, Default)]
struct Trial {
    tried: usize,
    decided: usize,
    broken: Option<Counterexample>,
}

/// A law is checked if at least one in so many samples decides it; equal states by chance decide a few.
const DECIDED: usize = 16;

/// The laws that hold field by field.
const LAWS: [Law; 4] = [Law::LeftIdentity, Law::RightIdentity, Law::Associativity, Law::Gauge];

pub(super) struct Checker<'a> {
    operator: &'a Operator,
    samples: Samples<'a>,
    identity: Vec<Number>,
    /// By law, then by field.
    trials: [Vec<Trial>; 4],
    /// By condition of the domain.
    outside: Vec<Option<Outside>>,
}

impl<'a> Checker<'a> {
    pub(super) fn new(operator: &'a Operator) -> Checker<'a> {
        let trials = LAWS.map(|_| vec![Trial::default(); operator.fields.len()]);
        let (identity, outside) = (numbers(&operator.identity), vec![None; operator.domain.conditions.len()]);
        Checker { operator, samples: Samples::new(operator), identity, trials, outside }
    }

    /// Tries laws at states of every kind, at every one in `stride` of them; gives how many triples of states that were.
    pub(super) fn try_states(&mut self, laws: &[Law], stride: usize) -> usize {
        let mut count = 0;
        for (kind, samples) in KINDS {
            for _ in 0..samples / stride {
                let [Some(x), Some(y), Some(z)] = [(); 3].map(|()| self.samples.state(kind)) else { return count };
                count += 1;
                self.try_laws(laws, &[x, y, z]);
            }
        }
        count
    }

    fn try_laws(&mut self, laws: &[Law], states: &[Vec<Literal>; 3]) {
        if laws.contains(&Law::Associativity) {
            self.try_identity(&states[0]);
            self.try_associativity(states);
        }
        if laws.contains(&Law::Gauge) {
            self.try_gauge(&states[..2]);
        }
    }

    /// identity ⊕ identity = identity: in this order padding is combined, so NaN here is an error, too.
    pub(super) fn try_identity_alone(&mut self) {
        let combined = combine(self.operator, &self.identity, &self.identity);
        let (identity, operator) = (self.identity.clone(), self.operator);
        let nan = |n: &Number| n.approx().is_some_and(|a| a.x.is_nan());
        let broken = (0..combined.len()).find(|&k| nan(&combined[k]) && !nan(&identity[k]));
        self.compare(Law::LeftIdentity, &[&operator.identity], &combined, &identity);
        if let Some(k) = broken {
            let nan = Literal::Float(f64::NAN).into();
            self.record(Law::LeftIdentity, k, &[&operator.identity], [nan, identity[k]]);
        }
        self.check_inside(&[], &identity);
    }

    fn try_identity(&mut self, state: &[Literal]) {
        let x = numbers(state);
        let (left, right) = (combine(self.operator, &self.identity, &x), combine(self.operator, &x, &self.identity));
        self.compare(Law::LeftIdentity, &[state], &left, &x);
        self.compare(Law::RightIdentity, &[state], &right, &x);
    }

    fn try_associativity(&mut self, states: &[Vec<Literal>; 3]) {
        let [x, y, z] = [0, 1, 2].map(|i| numbers(&states[i]));
        let (xy, yz) = (combine(self.operator, &x, &y), combine(self.operator, &y, &z));
        self.check_inside(&[&states[0], &states[1]], &xy);
        self.check_inside(&[&states[1], &states[2]], &yz);
        let (left, right) = (combine(self.operator, &xy, &z), combine(self.operator, &x, &yz));
        let states: Vec<&[Literal]> = states.iter().map(Vec::as_slice).collect();
        self.compare(Law::Associativity, &states, &left, &right);
    }

    /// Notes a state that should be in the domain and is not.
    fn check_inside(&mut self, operands: &[&[Literal]], state: &[Number]) {
        let wrapped = state.iter().any(|number| number.wrapped);
        if self.outside.is_empty() || self.operator.domain.no_overflow && wrapped {
            return;
        }
        let Some(k) = self.samples.broken_condition(state) else { return };
        let literals: Vec<Literal> = state.iter().map(|number| number.literal).collect();
        let operator = self.operator;
        self.outside[k].get_or_insert_with(|| Outside {
            operator: operator.name.clone(),
            condition: k,
            text: condition(operator, k),
            operands: operands.iter().map(|state| named(operator, state)).collect(),
            state: named(operator, &literals),
            wrapped,
        });
    }

    fn try_gauge(&mut self, states: &[Vec<Literal>]) {
        let Some(m) = self.operator.gauge else { return };
        let [x, y] = [0, 1].map(|i| numbers(&states[i]));
        let [c, d] = [(); 2].map(|()| self.samples.shift());
        let (x_shifted, y_shifted) = (shift(&x, m, c), shift(&y, m, d));
        if !self.samples.contains(&x_shifted) || !self.samples.contains(&y_shifted) {
            return;
        }
        let shifted = combine(self.operator, &x_shifted, &y_shifted);
        let plain = combine(self.operator, &x, &y);
        let states: Vec<&[Literal]> = states.iter().map(Vec::as_slice).collect();
        self.compare(Law::Gauge, &states, &reading(&shifted, m), &reading(&plain, m));
    }

    /// Notes for every field whether the two sides of a law agree.
    fn compare(&mut self, law: Law, states: &[&[Literal]], left: &[Number], right: &[Number]) {
        let about_identity = matches!(law, Law::LeftIdentity | Law::RightIdentity);
        let excused = self.operator.domain.no_overflow && !(about_identity && self.is_small(states[0]));
        for (k, (l, r)) in left.iter().zip(right).enumerate() {
            let trial = &mut self.trials[law as usize][k];
            trial.tried += 1;
            let Some(agree) = l.agrees(*r) else { continue };
            if !agree && excused && (l.wrapped || r.wrapped) {
                continue;
            }
            trial.decided += 1;
            if !agree {
                self.record(law, k, states, [*l, *r]);
            }
        }
    }

    /// Whether the integers of a state, but for those of the identity, lie within a quarter of their types' range.
    fn is_small(&self, state: &[Literal]) -> bool {
        let fields = self.operator.fields.iter().zip(&self.operator.identity).zip(state);
        fields.into_iter().all(|((field, identity), literal)| match literal {
            Literal::Int(i) => {
                let bits = if matches!(field.ty, Ty::I32 | Ty::U32) { 32 } else { 64 };
                literal == identity || scalar::widen(field.ty, *i).unsigned_abs() < 1 << (bits - 2)
            }
            _ => true,
        })
    }

    /// Keeps the first counter-example of a law and a field.
    fn record(&mut self, law: Law, k: usize, states: &[&[Literal]], [left, right]: [Number; 2]) {
        let operator = self.operator;
        let counterexample = || Counterexample {
            operator: operator.name.clone(),
            field: operator.fields[k].name.clone(),
            law,
            states: states.iter().map(|state| named(operator, state)).collect(),
            left: left.literal,
            right: right.literal,
            wrapped: left.wrapped || right.wrapped,
        };
        self.trials[law as usize][k].broken.get_or_insert_with(counterexample);
    }

    /// All that was found wrong. That a proved law was decided nowhere is not.
    pub(super) fn finish(self, proved: &[Law]) -> Result<(), Vec<LawError>> {
        let operator = self.operator;
        let name = || operator.name.clone();
        let mut errors: Vec<LawError> = self.outside.into_iter().flatten().map(LawError::Outside).collect();
        if !self.samples.found_any() {
            errors.push(LawError::Unsampled { operator: name() });
        }
        for (law, trials) in LAWS.into_iter().zip(self.trials) {
            for (trial, field) in trials.into_iter().zip(&operator.fields) {
                let undecided = trial.decided * DECIDED < trial.tried && !proved.contains(&law);
                if let Some(counterexample) = trial.broken {
                    errors.push(LawError::Broken(counterexample));
                } else if undecided {
                    errors.push(LawError::Undecided { operator: name(), field: field.name.clone(), law });
                }
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}

fn numbers(state: &[Literal]) -> Vec<Number> {
    state.iter().map(|literal| Number::from(*literal)).collect()
}

fn named(operator: &Operator, state: &[Literal]) -> NamedState {
    operator.fields.iter().map(|field| field.name.clone()).zip(state.iter().copied()).collect()
}

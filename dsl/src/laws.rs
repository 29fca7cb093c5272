//! The laws of associative operators, checked.
//!
//! An operator must satisfy, for all states x, y, z,
//!
//! ```text
//! identity ⊕ x = x        x ⊕ identity = x        (x ⊕ y) ⊕ z = x ⊕ (y ⊕ z)
//! ```
//!
//! up to rounding, and not make NaN of two identities. [`check`] first tries to prove this by algebra (rational
//! functions and exponentials, over a finite field). Otherwise it samples, in f64 with a bound of the rounding error
//! carried along, so that neither cancellation nor overflow is taken for a broken law; integers and bools are compared
//! exactly. States are small whole numbers first, so that a counter-example is readable.
//!
//! A sampled field has its identity's value only in the identity itself, and a sample on whose way one appears breaks
//! no law: states such as (count 0, mean 5) mean nothing. Where neighbouring integer fields of the identity are
//! 0, 1, …, n − 1, they are taken to be a function of n states, and are sampled among those.
//!
//! A *gauge* m ([`Operator::gauge`]) promises that what is read from a state are the products p·exp(m) with its other
//! floating-point fields p: (m, p) and (m + c, p·exp(−c)) mean the same, for each operand on its own.

mod algebra;
mod approx;
mod evaluate;
mod samples;
#[cfg(test)]
mod tests;

use std::fmt;

use thiserror::Error;

use crate::ir::{Binary, Literal, Operator, Program, Unary};
use crate::verify::{VerifyError, verify};

use approx::Approx;
use evaluate::{Number, combine};
use samples::{KINDS, Samples};

/// How an operator was found to keep the laws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// As identities of rational functions and exponentials.
    Algebra,
    /// At many states.
    Samples,
}

/// A law.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Law {
    /// identity ⊕ x = x.
    LeftIdentity,
    /// x ⊕ identity = x.
    RightIdentity,
    /// (x ⊕ y) ⊕ z = x ⊕ (y ⊕ z).
    Associativity,
    /// p·exp(m) does not change when an operand's (m, p) becomes (m + c, p·exp(−c)).
    Gauge,
}

/// A law that an operator breaks.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum LawError {
    /// The operator is not well formed.
    #[error("{0}")]
    Invalid(VerifyError),
    /// A field breaks a law.
    #[error("{0}")]
    Broken(Counterexample),
    /// A field is NaN or infinite at all samples.
    #[error("field `{field}` of operator `{operator}` cannot be checked: {law} gives NaN or overflows at every sample")]
    Undecided {
        /// The operator.
        operator: String,
        /// The field.
        field: String,
        /// The law.
        law: Law,
    },
}

/// A field, the states at which it breaks a law, and the two sides.
#[derive(Clone, Debug, PartialEq)]
pub struct Counterexample {
    /// The operator.
    pub operator: String,
    /// The field.
    pub field: String,
    /// The law.
    pub law: Law,
    /// The states x, y, z, as far as the law has them, by field.
    pub states: Vec<Vec<(String, Literal)>>,
    /// The field of the left side of the law.
    pub left: Literal,
    /// The field of the right side.
    pub right: Literal,
}

/// Checks the laws of an operator; at most one error for each law and field.
pub fn check(operator: &Operator) -> Result<Evidence, Vec<LawError>> {
    check_form(operator)?;
    let mut checker = Checker::new(operator);
    checker.try_identity_alone();
    if checker.is_clean() && operator.gauge.is_none() && algebra::proves(operator) {
        return Ok(Evidence::Algebra);
    }
    for (kind, count) in KINDS {
        for _ in 0..count {
            let states = [(); 3].map(|()| checker.samples.state(kind));
            checker.try_identity(&states[0]);
            checker.try_associativity(&states);
            if operator.gauge.is_some() {
                checker.try_gauge(&states[..2]);
            }
        }
    }
    checker.finish().map(|()| Evidence::Samples)
}

/// Checks that the operator's gauge, if it has one, is one.
pub fn check_gauge(operator: &Operator) -> Result<(), Vec<LawError>> {
    check_form(operator)?;
    let mut checker = Checker::new(operator);
    if operator.gauge.is_some() {
        for kind in KINDS.into_iter().flat_map(|(kind, count)| std::iter::repeat_n(kind, count)) {
            let states = [(); 2].map(|()| checker.samples.state(kind));
            checker.try_gauge(&states);
        }
    }
    checker.finish()
}

fn check_form(operator: &Operator) -> Result<(), Vec<LawError>> {
    let program = Program {
        name: "laws".to_owned(),
        axes: vec![],
        params: vec![],
        operators: vec![operator.clone()],
        nodes: vec![],
        outputs: vec![],
    };
    verify(&program).map_err(|errors| errors.into_iter().map(LawError::Invalid).collect())
}

/// What became of a law for a field so far.
#[derive(Clone, Debug, Default)]
struct Trial {
    tried: bool,
    decided: bool,
    broken: Option<Counterexample>,
}

const LAWS: [Law; 4] = [Law::LeftIdentity, Law::RightIdentity, Law::Associativity, Law::Gauge];

struct Checker<'a> {
    operator: &'a Operator,
    samples: Samples<'a>,
    identity: Vec<Number>,
    /// By law, then by field.
    trials: [Vec<Trial>; 4],
}

impl<'a> Checker<'a> {
    fn new(operator: &'a Operator) -> Checker<'a> {
        let trials = LAWS.map(|_| vec![Trial::default(); operator.fields.len()]);
        let identity = numbers(&operator.identity);
        Checker { operator, samples: Samples::new(operator), identity, trials }
    }

    /// identity ⊕ identity = identity: in this order padding is combined, so NaN here is an error, too.
    fn try_identity_alone(&mut self) {
        let combined = combine(self.operator, &self.identity, &self.identity);
        let (identity, operator) = (self.identity.clone(), self.operator);
        let nan = |n: &Number| n.approx().is_some_and(|a| a.x.is_nan());
        let broken = (0..combined.len()).find(|&k| nan(&combined[k]) && !nan(&identity[k]));
        self.compare(Law::LeftIdentity, &[&operator.identity], &combined, &identity);
        if let Some(k) = broken {
            self.record(Law::LeftIdentity, k, &[&operator.identity], [Literal::Float(f64::NAN), operator.identity[k]]);
        }
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
        let (left, right) = (combine(self.operator, &xy, &z), combine(self.operator, &x, &yz));
        if left != right && [&xy, &yz, &left, &right].into_iter().any(|state| self.is_partly_identity(state)) {
            return;
        }
        let states: Vec<&[Literal]> = states.iter().map(Vec::as_slice).collect();
        self.compare(Law::Associativity, &states, &left, &right);
    }

    /// Whether some fields have their identity's value, and others do not; bools left aside.
    fn is_partly_identity(&self, state: &[Number]) -> bool {
        let numbers = state.iter().zip(&self.identity).filter(|(n, _)| !matches!(n.literal, Literal::Bool(_)));
        let at: Vec<bool> = numbers.map(|(n, identity)| n.literal.as_f64() == identity.literal.as_f64()).collect();
        at.contains(&true) && at.contains(&false)
    }

    fn try_gauge(&mut self, states: &[Vec<Literal>]) {
        let Some(m) = self.operator.gauge else { return };
        let [x, y] = [0, 1].map(|i| numbers(&states[i]));
        let [c, d] = [(); 2].map(|()| self.samples.shift());
        let shifted = combine(self.operator, &shift(&x, m, c), &shift(&y, m, d));
        let plain = combine(self.operator, &x, &y);
        let states: Vec<&[Literal]> = states.iter().map(Vec::as_slice).collect();
        self.compare(Law::Gauge, &states, &reading(&shifted, m), &reading(&plain, m));
    }

    /// Notes for every field whether the two sides of a law agree.
    fn compare(&mut self, law: Law, states: &[&[Literal]], left: &[Number], right: &[Number]) {
        for (k, (l, r)) in left.iter().zip(right).enumerate() {
            let trial = &mut self.trials[law as usize][k];
            trial.tried = true;
            let Some(agree) = l.agrees(*r) else { continue };
            trial.decided = true;
            if !agree {
                self.record(law, k, states, [l.literal, r.literal]);
            }
        }
    }

    /// Keeps the first counter-example of a law and a field.
    fn record(&mut self, law: Law, k: usize, states: &[&[Literal]], [left, right]: [Literal; 2]) {
        let operator = self.operator;
        let named = |state: &&[Literal]| {
            operator.fields.iter().map(|field| field.name.clone()).zip(state.iter().copied()).collect()
        };
        let counterexample = || Counterexample {
            operator: operator.name.clone(),
            field: operator.fields[k].name.clone(),
            law,
            states: states.iter().map(named).collect(),
            left,
            right,
        };
        self.trials[law as usize][k].broken.get_or_insert_with(counterexample);
    }

    fn is_clean(&self) -> bool {
        self.trials.iter().flatten().all(|trial| trial.broken.is_none())
    }

    fn finish(self) -> Result<(), Vec<LawError>> {
        let operator = self.operator;
        let errors: Vec<LawError> = LAWS
            .into_iter()
            .zip(self.trials)
            .flat_map(|(law, trials)| trials.into_iter().enumerate().map(move |(k, trial)| (law, k, trial)))
            .filter_map(|(law, k, trial)| match trial {
                Trial { broken: Some(counterexample), .. } => Some(LawError::Broken(counterexample)),
                Trial { tried: true, decided: false, .. } => Some(LawError::Undecided {
                    operator: operator.name.clone(),
                    field: operator.fields[k].name.clone(),
                    law,
                }),
                _ => None,
            })
            .collect();
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}

fn numbers(state: &[Literal]) -> Vec<Number> {
    state.iter().map(|literal| Number::from(*literal)).collect()
}

/// (m + c, p·exp(−c)).
fn shift(state: &[Number], m: u32, c: f64) -> Vec<Number> {
    let factor = Approx::unary(Unary::Exp, Approx::exact(-c));
    map_floats(state, |k, p| match k == m as usize {
        true => Approx::binary(Binary::Add, p, Approx::exact(c)),
        false => Approx::binary(Binary::Mul, p, factor),
    })
}

/// p·exp(m) of every field, 0 for m itself.
fn reading(state: &[Number], m: u32) -> Vec<Number> {
    let exponent = state[m as usize].approx().unwrap_or(Approx::exact(0.0));
    let factor = Approx::unary(Unary::Exp, exponent);
    map_floats(state, |k, p| match k == m as usize {
        true => Approx::exact(0.0),
        false => Approx::binary(Binary::Mul, p, factor),
    })
}

fn map_floats(state: &[Number], f: impl Fn(usize, Approx) -> Approx) -> Vec<Number> {
    let map = |(k, number): (usize, &Number)| number.approx().map_or(*number, |p| f(k, p).into());
    state.iter().enumerate().map(map).collect()
}

impl fmt::Display for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Law::LeftIdentity => "identity ⊕ x = x",
            Law::RightIdentity => "x ⊕ identity = x",
            Law::Associativity => "(x ⊕ y) ⊕ z = x ⊕ (y ⊕ z)",
            Law::Gauge => "the invariance of p·exp(m) under (m + c, p·exp(−c))",
        })
    }
}

impl Counterexample {
    /// Whether the combination is no number, of states that are numbers.
    pub fn is_nan(&self) -> bool {
        [self.left, self.right].iter().any(|side| matches!(side, Literal::Float(x) if x.is_nan()))
    }
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counterexample { operator, field, law, left, right, .. } = self;
        match law {
            Law::Associativity => write!(f, "`{operator}` is not associative in field `{field}`: ")?,
            Law::Gauge => write!(f, "field `{field}` of `{operator}` depends on the choice of the gauge: ")?,
            _ if self.is_nan() => write!(f, "the combination of `{operator}` gives NaN in field `{field}`: ")?,
            _ => write!(f, "the identity of `{operator}` is wrong in field `{field}`: ")?,
        }
        for (name, state) in ["x", "y", "z"].into_iter().zip(&self.states) {
            let fields: Vec<String> = state.iter().map(|(field, literal)| format!("{field}: {literal}")).collect();
            write!(f, "{}{name} = ({})", if name == "x" { "with " } else { ", " }, fields.join(", "))?;
        }
        match law {
            Law::Associativity => write!(f, ", (x ⊕ y) ⊕ z gives {left}, but x ⊕ (y ⊕ z) gives {right}"),
            Law::Gauge => write!(f, ", {field}·exp(gauge) of x ⊕ y is {right}, but {left} after shifting the gauges"),
            Law::LeftIdentity => write!(f, ", identity ⊕ x gives {left} instead of {right}"),
            Law::RightIdentity => write!(f, ", x ⊕ identity gives {left} instead of {right}"),
        }
    }
}

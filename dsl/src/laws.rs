//! The laws of associative operators, checked.
//!
//! An operator must satisfy, for all states x, y, z of its domain,
//!
//! ```text
//! identity ⊕ x = x        x ⊕ identity = x        (x ⊕ y) ⊕ z = x ⊕ (y ⊕ z)
//! ```
//!
//! up to rounding, and not make NaN of two identities. The domain ([`crate::ir::Domain`]) is all states of the fields' types
//! unless the operator says otherwise; then the identity must be in it, and x ⊕ y too.
//!
//! [`check`] tries to prove each law by algebra: as an identity of rational functions and exponentials of real numbers,
//! over a finite field, or of sums and products of integers that wrap. What algebra cannot express (order, choices,
//! rounding, logarithms) is sampled, in f64 with a bound of the rounding error carried along, so that neither
//! cancellation nor overflow of floats is taken for a broken law; integers and bools are compared exactly, and integers
//! wrap. Samples are small whole numbers first, so that a counter-example is readable; then fractions, large numbers and
//! powers of two; numbers near every literal that the operator names; and states that have their identity's value in
//! some fields only. A few samples are taken of proved laws too.
//!
//! Where a domain says `no overflow`, a law that fails only because an integer exceeded its type is not broken. The identity
//! must leave room all the same: what it makes of states whose integers lie within a quarter of their type's range counts.
//!
//! A *gauge* m ([`Operator::gauge`]) promises that what is read from a state are the products p·exp(m) with its other
//! floating-point fields p: (m, p) and (m + c, p·exp(−c)) mean the same, for each operand on its own.

pub(crate) mod algebra;
mod approx;
mod checker;
mod evaluate;
mod gauge;
mod member;
mod message;
mod pool;
mod samples;
#[cfg(test)]
mod tests;

use thiserror::Error;

use crate::ir::{Literal, Operator, Program};
use crate::verify::{VerifyError, verify};

use checker::Checker;
pub use message::condition;
use samples::KINDS;

/// How an operator was found to keep the laws.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// The laws that algebra proves.
    pub proved: Vec<Law>,
    /// The other laws that the operator must keep.
    pub sampled: Vec<Law>,
    /// How many samples were taken of each of those: as many triples of states.
    pub samples: usize,
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
    /// x ⊕ y is in the domain.
    Closure,
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
    /// A field is NaN or infinite at nearly all samples.
    #[error(
        "field `{field}` of operator `{operator}` cannot be checked: {law} gives NaN or overflows at nearly every sample"
    )]
    Undecided {
        /// The operator.
        operator: String,
        /// The field.
        field: String,
        /// The law.
        law: Law,
    },
    /// The identity or a combination is not in the domain.
    #[error("{0}")]
    Outside(Outside),
    /// No states of the domain are known.
    #[error("no states were found in the domain of `{operator}`, so its laws cannot be checked")]
    Unsampled {
        /// The operator.
        operator: String,
    },
}

/// A state by its fields.
pub type NamedState = Vec<(String, Literal)>;

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
    pub states: Vec<NamedState>,
    /// The field of the left side of the law.
    pub left: Literal,
    /// The field of the right side.
    pub right: Literal,
    /// Whether an integer exceeded its type on the way to either side.
    pub wrapped: bool,
}

/// A state that should be in a domain and is not.
#[derive(Clone, Debug, PartialEq)]
pub struct Outside {
    /// The operator.
    pub operator: String,
    /// The number of the condition that does not hold.
    pub condition: usize,
    /// The condition as an equation.
    pub text: String,
    /// The states x and y that were combined; none for the identity.
    pub operands: Vec<NamedState>,
    /// The state for which the condition does not hold.
    pub state: NamedState,
    /// Whether an integer exceeded its type on the way to it.
    pub wrapped: bool,
}

/// Checks the laws of an operator; at most one error for each law and field.
pub fn check(operator: &Operator) -> Result<Evidence, Vec<LawError>> {
    check_form(operator)?;
    let mut laws = vec![Law::LeftIdentity, Law::RightIdentity, Law::Associativity];
    laws.extend(operator.gauge.map(|_| Law::Gauge));
    laws.extend((!operator.domain.conditions.is_empty()).then_some(Law::Closure));
    let proved = algebra::proved(operator);
    let sampled: Vec<Law> = laws.iter().copied().filter(|law| !proved.contains(law)).collect();
    let mut checker = Checker::new(operator);
    checker.try_identity_alone();
    let samples = checker.try_states(&laws, if sampled.is_empty() { 8 } else { 1 });
    checker.finish(&proved)?;
    Ok(Evidence { proved, samples: if sampled.is_empty() { 0 } else { samples }, sampled })
}

/// Checks the laws of all operators of a program; the errors of all of them.
pub fn check_program(program: &Program) -> Result<(), Vec<LawError>> {
    let errors: Vec<LawError> =
        program.operators.iter().filter_map(|operator| check(operator).err()).flatten().collect();
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// Checks that the operator's gauge, if it has one, is one.
pub fn check_gauge(operator: &Operator) -> Result<(), Vec<LawError>> {
    check_form(operator)?;
    let mut checker = Checker::new(operator);
    if operator.gauge.is_some() {
        checker.try_states(&[Law::Gauge], 1);
    }
    checker.finish(&[])
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

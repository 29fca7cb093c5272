//! The meaning of an expression before it is a value of the program.

use std::rc::Rc;

use oplus_dsl::ir::{Literal, Value};

/// The meaning of an expression.
#[derive(Clone, Debug)]
pub(super) enum Term {
    /// Reported already; silent from here on.
    Wrong,
    /// A number without a type, or a truth value: it takes the type of what it meets.
    Literal(Literal),
    /// A value of the program.
    Value(Value),
    /// Several terms.
    Tuple(Rc<[Term]>),
    /// The state of a scan or a reduction.
    State(Rc<State>),
}

/// The fields of an operator's state.
#[derive(Debug)]
pub(super) struct State {
    /// The operator's name.
    pub(super) operator: String,
    /// Field names and their terms.
    pub(super) fields: Vec<(String, Term)>,
}

impl State {
    /// The field of a name.
    pub(super) fn field(&self, name: &str) -> Option<&Term> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, term)| term)
    }

    /// The names of all fields.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.fields.iter().map(|(name, _)| name.as_str())
    }

    /// The state with every field mapped.
    pub(super) fn map(&self, mut f: impl FnMut(&Term) -> Term) -> Term {
        let fields = self.fields.iter().map(|(name, term)| (name.clone(), f(term))).collect();
        Term::State(Rc::new(State { operator: self.operator.clone(), fields }))
    }
}

impl Term {
    /// The parts that a tuple pattern takes: a tuple's, or a state's fields.
    pub(super) fn parts(&self) -> Option<Vec<Term>> {
        match self {
            Term::Tuple(parts) => Some(parts.to_vec()),
            Term::State(state) => Some(state.fields.iter().map(|(_, term)| term.clone()).collect()),
            _ => None,
        }
    }

    /// A state of one field is that field; anything else is itself.
    pub(super) fn unwrapped(self) -> Term {
        match self {
            Term::State(state) if state.fields.len() == 1 => state.fields[0].1.clone(),
            other => other,
        }
    }
}

impl From<Option<Value>> for Term {
    fn from(value: Option<Value>) -> Term {
        value.map_or(Term::Wrong, Term::Value)
    }
}

//! The names in sight.

use std::collections::HashMap;

use super::Term;

/// Names and what they mean; a later one hides an earlier one of the same name.
#[derive(Default)]
pub(super) struct Scope {
    /// In the order in which they were declared.
    entries: Vec<(String, Term)>,
    /// The entries of every name, the newest last.
    places: HashMap<String, Vec<usize>>,
}

impl Scope {
    /// Declares a name.
    pub(super) fn push(&mut self, name: &str, term: Term) {
        self.places.entry(name.to_owned()).or_default().push(self.entries.len());
        self.entries.push((name.to_owned(), term));
    }

    /// The meaning of a name.
    pub(super) fn get(&self, name: &str) -> Option<&Term> {
        let place = self.places.get(name)?.last()?;
        self.entries.get(*place).map(|(_, term)| term)
    }

    /// How many declarations there are.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Forgets all declarations but the first so many.
    pub(super) fn truncate(&mut self, len: usize) {
        for (name, _) in self.entries.drain(len.min(self.entries.len())..) {
            self.places.get_mut(&name).map(Vec::pop);
        }
    }

    /// All names.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|(name, _)| name.as_str())
    }
}

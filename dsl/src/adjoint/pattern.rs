//! Patterns of square matrices that products keep: which entries are zero, and which are always equal.
//!
//! The reverse scan composes matrices A = J_Lᵀ. It need not carry all k² entries: an entry that is zero in every
//! product is left out, and entries that are equal (up to sign) in every product are carried once. The complex
//! product [[p, −q], [q, p]] keeps its pattern, so it costs 2 fields and not 4; a quaternion's costs 4 and not 16.
//!
//! [`Pattern::closure`] finds the coarsest such pattern by partition refinement. It starts from the classes of equal
//! entries and looks at a product of two generic matrices: (A·B)ᵢⱼ = Σₘ Aᵢₘ·Bₘⱼ, a sum of products of classes. Where
//! these sums differ within a class the class is split, where the sum of a zero is not empty it becomes a class of its
//! own, until nothing changes. Entries on and off the diagonal are never one class and the diagonal is never left out,
//! so the identity matrix, which the scan starts from, has the pattern too.

use std::collections::BTreeMap;

/// A pattern of k×k matrices that contains the identity and all products.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pattern {
    /// The number of rows.
    pub(crate) size: usize,
    /// Row by row: the class of an entry and whether it is the negative of it; `None` for zeros.
    pub(crate) entries: Vec<Option<Entry>>,
    /// The first entry of each class; it is not negative.
    pub(crate) representatives: Vec<usize>,
}

/// One entry of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Entry {
    /// The class of entries that are equal to it up to sign.
    pub(crate) class: usize,
    /// Whether it is the negative of its class.
    pub(crate) negative: bool,
}

/// A sum of products of two classes, each with how often it is added (negative: subtracted).
pub(crate) type Terms = BTreeMap<(usize, usize), i32>;

impl Pattern {
    /// The coarsest pattern kept by products whose matrices can have these entries: row by row, what makes two
    /// entries equal and whether the entry is the negative of it; `None` for zeros.
    pub(crate) fn closure<K: Ord>(size: usize, given: &[Option<(K, bool)>]) -> Pattern {
        let mut keys = vec![];
        for (at, entry) in given.iter().enumerate() {
            let diagonal = on_diagonal(size, at);
            keys.push(match entry {
                Some((key, negative)) => Some(((diagonal, diagonal && *negative, Some(key)), !diagonal && *negative)),
                None => diagonal.then_some(((true, false, None), false)),
            });
        }
        let mut pattern = Pattern::classify(size, keys);
        loop {
            let refined = pattern.refined();
            if refined.entries == pattern.entries {
                return pattern;
            }
            pattern = refined;
        }
    }

    /// Numbers classes in order of occurrence; signs are relative to the first entry of a class.
    fn classify<K: Ord>(size: usize, keys: Vec<Option<(K, bool)>>) -> Pattern {
        let mut classes: BTreeMap<K, (usize, bool)> = BTreeMap::new();
        let (mut entries, mut representatives) = (vec![], vec![]);
        for (at, key) in keys.into_iter().enumerate() {
            entries.push(key.map(|(key, negative)| {
                let (class, first) = *classes.entry(key).or_insert_with(|| {
                    representatives.push(at);
                    (representatives.len() - 1, negative)
                });
                Entry { class, negative: negative != first }
            }));
        }
        Pattern { size, entries, representatives }
    }

    /// One step of refinement: classes split by what their entries are in a product.
    fn refined(&self) -> Pattern {
        let key = |at: usize| {
            let diagonal = on_diagonal(self.size, at);
            let terms = self.product(at / self.size, at % self.size);
            let negative = match self.entries[at] {
                Some(entry) => entry.negative,
                None => *terms.values().next()? < 0,
            };
            let sign = if negative { -1 } else { 1 };
            let terms: Vec<_> = terms.into_iter().map(|(classes, n)| (classes, sign * n)).collect();
            Some(((diagonal, self.entries[at].map(|e| e.class), terms), negative))
        };
        Pattern::classify(self.size, (0..self.size * self.size).map(key).collect())
    }

    /// Entry (row, column) of a product A·B as a sum of (class of A)·(class of B).
    pub(crate) fn product(&self, row: usize, column: usize) -> Terms {
        let mut terms = Terms::new();
        for m in 0..self.size {
            let factors = (self.entry(row, m), self.entry(m, column));
            if let (Some(a), Some(b)) = factors {
                *terms.entry((a.class, b.class)).or_default() += if a.negative == b.negative { 1 } else { -1 };
            }
        }
        terms.retain(|_, n| *n != 0);
        terms
    }

    /// The entry at a row and a column.
    pub(crate) fn entry(&self, row: usize, column: usize) -> Option<Entry> {
        self.entries[row * self.size + column]
    }

    /// The row and the column of a class's representative.
    pub(crate) fn place(&self, class: usize) -> (usize, usize) {
        (self.representatives[class] / self.size, self.representatives[class] % self.size)
    }
}

fn on_diagonal(size: usize, at: usize) -> bool {
    at / size == at % size
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The closure of a matrix of names, `-` before the negated and `0` for zeros: fields and signs as names again.
    fn closed(rows: &[&str]) -> Vec<String> {
        let entries: Vec<_> = rows.iter().flat_map(|row| row.split_whitespace()).map(parse).collect();
        let pattern = Pattern::closure(rows.len(), &entries);
        let name = |e: &Option<Entry>| match e {
            Some(e) => format!("{}{}", if e.negative { "-" } else { "" }, e.class),
            None => ".".to_owned(),
        };
        pattern.entries.chunks(rows.len()).map(|row| row.iter().map(name).collect::<Vec<_>>().join(" ")).collect()
    }

    fn parse(name: &str) -> Option<(String, bool)> {
        (name != "0").then(|| (name.trim_start_matches('-').to_owned(), name.starts_with('-')))
    }

    #[test]
    fn complex_products_keep_two_entries() {
        assert_eq!(closed(&["p -q", "q p"]), ["0 1", "-1 0"]);
    }

    #[test]
    fn quaternion_products_keep_four_entries() {
        let quaternion = ["a -b -c -d", "b a -d c", "c d a -b", "d -c b a"];
        assert_eq!(closed(&quaternion), ["0 1 2 3", "-1 0 3 -2", "-2 -3 0 1", "-3 2 -1 0"]);
    }

    #[test]
    fn full_matrices_keep_all_entries() {
        assert_eq!(closed(&["a b", "c d"]), ["0 1", "2 3"]);
        assert_eq!(closed(&["a b", "b d"]), ["0 1", "2 3"], "products of symmetric matrices are not symmetric");
    }

    #[test]
    fn equal_entries_on_and_off_the_diagonal_are_two_classes() {
        assert_eq!(closed(&["a a", "a a"]), ["0 1", "1 0"]);
        assert_eq!(closed(&["-a b", "b a"]), ["0 1", "2 3"]);
    }

    #[test]
    fn zeros_that_products_fill_become_entries() {
        assert_eq!(closed(&["a b 0", "0 a b", "0 0 a"]), ["0 1 2", ". 0 1", ". . 0"]);
        assert_eq!(closed(&["0 b", "c 0"]), ["0 1", "2 3"]);
    }
}

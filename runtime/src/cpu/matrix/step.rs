//! The next state of a recurrence: S·M + X.

use super::group::Kind;
use super::loops::{Part, Real, Summing, View, sum};

/// The input of a step.
#[derive(Clone, Copy)]
pub(super) enum Added<'s, T> {
    Value(View<'s, T>),
    Outer(View<'s, T>, View<'s, T>),
}

/// A term of the matrix.
#[derive(Clone, Copy)]
pub(super) enum Term<'s, T> {
    Pair { column: View<'s, T>, row: View<'s, T> },
    Dense { matrix: View<'s, T>, transposed: bool },
}

/// All that a step reads beside the state.
pub(super) struct Step<'s, T> {
    pub(super) decay: Option<View<'s, T>>,
    pub(super) terms: Vec<Term<'s, T>>,
    pub(super) added: Added<'s, T>,
    /// Rows of the state, and their length.
    pub(super) size: (usize, usize),
}

/// The input of one row.
enum Row<'s, T> {
    Same(T),
    Slice(&'s [T]),
    Scaled(T, &'s [T]),
}

impl<T: Real> Step<'_, T> {
    /// Replaces the state by the next one. `reads` has room for a row of each term, or for a state of a dense one.
    #[inline(always)]
    pub(super) fn run(&self, state: &mut [T], reads: &mut Vec<Vec<T>>) {
        let (length, width) = self.size;
        reads.resize(self.terms.len(), vec![]);
        for (term, read) in self.terms.iter().zip(reads.iter_mut()) {
            self.read(term, state, read);
        }
        if self.one_pair(state, reads) {
            return;
        }
        for (k, row) in state.chunks_mut(width.max(1)).take(length).enumerate() {
            self.update(k, row, reads);
        }
    }

    /// The next state for one pair of vectors and an outer product; false for other steps.
    #[inline(always)]
    fn one_pair(&self, state: &mut [T], reads: &[Vec<T>]) -> bool {
        let width = self.size.1;
        let [Term::Pair { row: own, .. }] = &self.terms[..] else { return false };
        let Added::Outer(left, right) = &self.added else { return false };
        let number = |view: &View<'_, T>| view.kind == Kind::Number;
        let is_small = |view: &View<'_, T>| number(view) || view.kind == Kind::Along;
        if !is_small(own) || !self.decay.as_ref().is_none_or(is_small) {
            return false;
        }
        let at = |view: &View<'_, T>, k: usize| if number(view) { view.number } else { view.data[k] };
        let (read, right) = (&reads[0][..width], &right.data[..width]);
        for (k, row) in state.chunks_exact_mut(width).enumerate() {
            let d = self.decay.as_ref().map_or(T::ONE, |decay| at(decay, k));
            let (b, c) = (at(own, k), left.data[k]);
            for ((s, u), x) in row.iter_mut().zip(read).zip(right) {
                *s = d * *s + *u * b + c * *x;
            }
        }
        true
    }

    /// The reading that a term takes of the state before it changes: Σ S·z, or S·D.
    #[inline(always)]
    fn read(&self, term: &Term<'_, T>, state: &[T], read: &mut Vec<T>) {
        let (length, width) = self.size;
        match term {
            Term::Pair { column, .. } => {
                read.resize(width, T::ZERO);
                let own = View { kind: Kind::Whole, data: state, number: T::ZERO };
                sum(read, &[own, *column], Summing { negative: false, along: true, ordered: true }, self.size);
            }
            Term::Dense { matrix, transposed } => {
                read.clear();
                read.resize(length * width, T::ZERO);
                for (k, out) in read.chunks_mut(width.max(1)).take(length).enumerate() {
                    for (j, row) in state.chunks(width.max(1)).take(length).enumerate() {
                        let factor = matrix.data[if *transposed { j * length + k } else { k * length + j }];
                        out.iter_mut().zip(row).for_each(
                            #[inline(always)]
                            |(out, s)| *out = *out + *s * factor,
                        );
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn update(&self, k: usize, row: &mut [T], reads: &[Vec<T>]) {
        let width = self.size.1;
        let decay = self.decay.as_ref().map_or(Part::Same(T::ONE), |decay| decay.row(k, width));
        let added = match &self.added {
            Added::Value(value) => match value.row(k, width) {
                Part::Same(x) => Row::Same(x),
                Part::Slice(x) => Row::Slice(x),
            },
            Added::Outer(a, b) => Row::Scaled(a.data[k], b.data),
        };
        if let ([Term::Pair { row: own, .. }], Part::Same(d)) = (&self.terms[..], decay)
            && let Part::Same(b) = own.row(k, width)
        {
            let both = row.iter_mut().zip(&reads[0]);
            match added {
                Row::Same(x) => both.for_each(
                    #[inline(always)]
                    |(s, u)| *s = d * *s + *u * b + x,
                ),
                Row::Slice(x) => both.zip(x).for_each(
                    #[inline(always)]
                    |((s, u), x)| *s = d * *s + *u * b + *x,
                ),
                Row::Scaled(c, x) => both.zip(x).for_each(
                    #[inline(always)]
                    |((s, u), x)| *s = d * *s + *u * b + c * *x,
                ),
            }
            return;
        }
        match decay {
            Part::Same(d) => row.iter_mut().for_each(
                #[inline(always)]
                |s| *s = d * *s,
            ),
            Part::Slice(d) => row.iter_mut().zip(d).for_each(
                #[inline(always)]
                |(s, d)| *s = *d * *s,
            ),
        }
        for (term, read) in self.terms.iter().zip(reads) {
            match term {
                Term::Pair { row: own, .. } => match own.row(k, width) {
                    Part::Same(b) => row.iter_mut().zip(read).for_each(
                        #[inline(always)]
                        |(s, u)| *s = *s + *u * b,
                    ),
                    Part::Slice(b) => row.iter_mut().zip(read).zip(b).for_each(
                        #[inline(always)]
                        |((s, u), b)| *s = *s + *u * *b,
                    ),
                },
                Term::Dense { .. } => {
                    let own = &read[k * width..][..width];
                    row.iter_mut().zip(own).for_each(
                        #[inline(always)]
                        |(s, x)| *s = *s + *x,
                    );
                }
            }
        }
        match added {
            Row::Same(x) => row.iter_mut().for_each(
                #[inline(always)]
                |s| *s = *s + x,
            ),
            Row::Slice(x) => row.iter_mut().zip(x).for_each(
                #[inline(always)]
                |(s, x)| *s = *s + *x,
            ),
            Row::Scaled(c, x) => row.iter_mut().zip(x).for_each(
                #[inline(always)]
                |(s, x)| *s = *s + c * *x,
            ),
        }
    }
}

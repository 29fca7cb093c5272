//! Recurrences of a matrix that each step multiplies by another one.

use super::{Axis, Op, Operands, Program, Value};

/// All states of S\[t\] = S\[t−1\]·M\[t\] + X\[t\]: see [`super::Op::MatrixScan`].
///
/// A state is a vector along the axis `along` for every index of its other axes: a matrix has two, V and K, of which K is `along`
/// and S·M sums over it. The matrix M is never a value of its own: it is the diagonal `decay` plus [`Term`]s.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MatrixScan {
    /// The axis scanned.
    pub axis: Axis,
    /// The axis of the states that M acts on.
    pub along: Axis,
    /// w, the diagonal of M.
    pub decay: Value,
    /// The parts of M beside its diagonal.
    pub terms: Vec<Term>,
    /// X, what each step adds.
    pub input: Value,
    /// The state before the first step, without the scanned axis.
    pub init: Value,
    /// Where it is true, the step begins at 0 instead of the state before it.
    pub reset: Option<Value>,
    /// From the last index to the first.
    pub reverse: bool,
    /// Give the state before each step instead of after it.
    pub exclusive: bool,
}

/// A term of the matrix of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Term {
    /// `column`·`row`ᵀ: (Σ over `along` of S·`column`)·`row`.
    Pair {
        /// The column vector.
        column: Value,
        /// The row vector.
        row: Value,
    },
    /// A whole matrix, over `along` and an axis of the same size.
    Dense {
        /// The matrix.
        matrix: Value,
        /// Its other axis, which no other operand has.
        other: Axis,
        /// Which of both axes is summed over: `other`, so that the value at k is Σ over j of S\[j\]·`matrix`\[`other` = j, `along` = k\],
        /// or of a transposed one `along`, Σ over j of S\[j\]·`matrix`\[`along` = j, `other` = k\].
        transposed: bool,
    },
}

impl Term {
    /// The values it is made of.
    pub fn values(&self) -> impl Iterator<Item = Value> + use<> {
        let (first, second) = match *self {
            Term::Pair { column, row } => (column, Some(row)),
            Term::Dense { matrix, .. } => (matrix, None),
        };
        std::iter::once(first).chain(second)
    }

    fn values_mut(&mut self) -> impl Iterator<Item = &mut Value> {
        let (first, second) = match self {
            Term::Pair { column, row } => (column, Some(row)),
            Term::Dense { matrix, .. } => (matrix, None),
        };
        std::iter::once(first).chain(second)
    }

    /// The term of the transposed matrix.
    #[must_use]
    pub fn transposed(self) -> Term {
        match self {
            Term::Pair { column, row } => Term::Pair { column: row, row: column },
            Term::Dense { matrix, other, transposed } => Term::Dense { matrix, other, transposed: !transposed },
        }
    }
}

impl MatrixScan {
    /// The numbers it depends on: the diagonal, the terms', what is added, the first state.
    pub fn numbers(&self) -> Operands {
        let terms = self.terms.iter().flat_map(Term::values);
        std::iter::once(self.decay).chain(terms).chain([self.input, self.init]).collect()
    }

    /// [`Self::numbers`], to be replaced.
    pub fn numbers_mut(&mut self) -> Operands<&mut Value> {
        let terms = self.terms.iter_mut().flat_map(Term::values_mut);
        std::iter::once(&mut self.decay).chain(terms).chain([&mut self.input, &mut self.init]).collect()
    }

    /// All values it depends on: [`Self::numbers`], then `reset`.
    pub fn operands(&self) -> Operands {
        self.numbers().into_iter().chain(self.reset).collect()
    }

    /// [`Self::operands`], to be replaced.
    pub fn operands_mut(&mut self) -> Operands<&mut Value> {
        let terms = self.terms.iter_mut().flat_map(Term::values_mut);
        let numbers = std::iter::once(&mut self.decay).chain(terms).chain([&mut self.input, &mut self.init]);
        numbers.chain(&mut self.reset).collect()
    }

    /// The axes that dense matrices have beside `along`.
    pub fn others(&self) -> impl Iterator<Item = Axis> + '_ {
        self.terms.iter().filter_map(|term| match term {
            Term::Dense { other, .. } => Some(*other),
            Term::Pair { .. } => None,
        })
    }

    /// Replaces every axis by what `f` gives for it.
    pub fn map_axes(&mut self, mut f: impl FnMut(Axis) -> Axis) {
        (self.axis, self.along) = (f(self.axis), f(self.along));
        for term in &mut self.terms {
            if let Term::Dense { other, .. } = term {
                *other = f(*other);
            }
        }
    }

    /// How many indices later a shift must move a value so that it appears where the next step is.
    pub fn later(&self) -> i64 {
        if self.reverse { -1 } else { 1 }
    }
}

impl Program {
    /// Whether a state is multiplied by a matrix at every step of some recurrence.
    pub fn has_matrix_scans(&self) -> bool {
        self.nodes.iter().any(|node| matches!(node.op, Op::MatrixScan(_)))
    }
}

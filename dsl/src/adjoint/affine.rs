//! λ of coupled fields: affine scans over the closure of a matrix's pattern.

use crate::build::Built;
use crate::elem::Ty;
use crate::ir::{Op, Unary, Value};
use crate::typing::TypeError;

use super::lambda::{Known, Solver};
use super::pattern::Pattern;
use super::{AdjointError, MAX_FIELDS, linear, rules};

/// The matrix A = J_Lᵀ that the components of a group have in common.
struct Matrix {
    pattern: Pattern,
    /// A value for each class of the pattern.
    entries: Vec<Value>,
    ty: Ty,
}

impl Solver<'_> {
    /// λ[t] = g[t] + A[t+1]·λ[t+1] from z, every component of the group a vector of its own. `matrix` is A row by row.
    ///
    /// It is one scan if the fields of the vectors fit into one operator.
    pub(super) fn affine_scans(&mut self, group: &[Vec<usize>], matrix: &[Option<Value>]) -> Result<(), AdjointError> {
        let size = group[0].len();
        let fields: Vec<usize> = group.concat();
        let matrix = self.closed(size, matrix, &fields)?;
        let room = MAX_FIELDS.saturating_sub(matrix.entries.len()) / size;
        if room == 0 {
            let operator = self.scan.operator.name.clone();
            return Err(AdjointError::TooManyFields { operator, coupled: size });
        }
        let matrix = self.shifted(matrix, &fields)?;
        fields.chunks(room * size).try_for_each(|fields| Ok(self.affine_scan(&matrix, fields)?))
    }

    fn affine_scan(&mut self, matrix: &Matrix, fields: &[usize]) -> Result<(), TypeError> {
        let operator = linear::affine(&matrix.pattern, fields.len() / matrix.pattern.size, matrix.ty)?;
        let mut elements = matrix.entries.clone();
        elements.extend(self.vectors(fields, matrix.ty, |known, i| known.source[i])?);
        let init = self.affine_init(matrix, fields)?;
        let states = self.run_scan(operator, &elements, &init, !self.is_inclusive())?;
        for (i, state) in fields.iter().zip(&states[matrix.entries.len()..]) {
            self.lambda[*i] = Some(rules::convert_to(self.b, *state, self.scan.operator.fields[*i].ty)?);
        }
        Ok(())
    }

    /// The closure of A's pattern, in the widest type of the fields.
    fn closed(&mut self, size: usize, given: &[Option<Value>], fields: &[usize]) -> Result<Matrix, TypeError> {
        let ty = |i: &usize| self.scan.operator.fields[*i].ty;
        let ty = fields.iter().map(ty).reduce(|a, b| a.join(b).unwrap_or(a)).unwrap_or(Ty::Call);
        let signed = |entry: &Option<Value>| {
            entry.map(|v| match self.b.program().node(v).op {
                Op::Unary(Unary::Neg, inner) => (inner, true),
                _ => (v, false),
            })
        };
        let pattern = Pattern::closure(size, &given.iter().map(signed).collect::<Vec<_>>());
        let mut entries = vec![];
        for at in &pattern.representatives {
            entries.push(match given[*at] {
                Some(entry) => rules::convert_to(self.b, entry, ty)?,
                None => self.b.float(ty, 0.0)?,
            });
        }
        Ok(Matrix { pattern, entries, ty })
    }

    /// A[t+1] instead of A[t], with A[n] = 1, in the inclusive form. A matrix that is the same at every t needs no
    /// shift when z enters as part of g[n−1].
    fn shifted(&mut self, mut matrix: Matrix, fields: &[usize]) -> Result<Matrix, TypeError> {
        if !self.is_inclusive() {
            return Ok(matrix);
        }
        let varies = matrix.entries.iter().any(|a| self.b.program().node(*a).axes.contains(self.scan.axis));
        if !varies {
            fields.iter().try_for_each(|i| self.add_last_to_source(*i))?;
            return Ok(matrix);
        }
        for class in 0..matrix.entries.len() {
            let end = self.identity(&matrix, class)?;
            matrix.entries[class] = self.next(matrix.entries[class], end)?;
        }
        Ok(matrix)
    }

    fn add_last_to_source(&mut self, i: usize) -> Result<(), TypeError> {
        if let Some(last) = self.known.last[i].take() {
            let last = self.at_last(last)?;
            self.known.source[i] = Some(rules::add(self.b, self.known.source[i], last)?);
        }
        Ok(())
    }

    /// The entry of the identity matrix that stands for a class.
    fn identity(&mut self, matrix: &Matrix, class: usize) -> Built {
        let (row, column) = matrix.pattern.place(class);
        self.b.number(matrix.ty, i32::from(row == column))
    }

    /// The identity matrix and z; empty when there is no z.
    fn affine_init(&mut self, matrix: &Matrix, fields: &[usize]) -> Result<Vec<Value>, TypeError> {
        if fields.iter().all(|i| self.known.last[*i].is_none()) {
            return Ok(vec![]);
        }
        let classes = 0..matrix.entries.len();
        let mut init: Vec<Value> = classes.map(|class| self.identity(matrix, class)).collect::<Result<_, _>>()?;
        init.extend(self.vectors(fields, matrix.ty, |known, i| known.last[i])?);
        Ok(init)
    }

    fn vectors(
        &mut self,
        fields: &[usize],
        ty: Ty,
        of: impl Fn(&Known, usize) -> Option<Value>,
    ) -> Result<Vec<Value>, TypeError> {
        let mut vectors = vec![];
        for i in fields {
            vectors.push(match of(&self.known, *i) {
                Some(value) => rules::convert_to(self.b, value, ty)?,
                None => self.b.float(ty, 0.0)?,
            });
        }
        Ok(vectors)
    }
}

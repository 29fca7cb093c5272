//! One step: the state is multiplied by the step's matrix, and its input is added.

use oplus_dsl::ir::{Literal, Op, Term, Value};

use super::RecurrenceKernel;
use super::values::{Values, product};
use crate::build::{Builder, zero};
use crate::tile::{Operand, Reg};

impl<'s> RecurrenceKernel<'s> {
    /// Computes a step, its sums and its outputs, and goes on to the state after it.
    pub(super) fn step(&self, b: &mut Builder, values: &mut Values<'_, 's>, states: &[Reg]) {
        values.before = states.iter().map(|state| Operand::from(*state)).collect();
        let given = self.forgotten(b, values);
        values.after = self.next(b, values, &given);
        for readout in &self.form.readouts {
            let sum = self.readout(b, values, readout.element);
            values.know(readout.value, sum);
        }
        self.store_step(b, values);
        let after = values.after.clone();
        states.iter().zip(after).for_each(|(state, next)| b.assign(*state, next));
    }

    /// The state that the step begins with: 0 where it is forgotten.
    fn forgotten(&self, b: &mut Builder, values: &mut Values<'_, 's>) -> Vec<Operand> {
        let before = values.before.clone();
        let Some(reset) = self.scan.scan.reset else { return before };
        let places = before.into_iter().enumerate();
        places
            .map(|(k, state)| {
                let reset = values.of_place(b, reset, k as u32);
                let nothing = zero(b.ty(state));
                b.select(reset, nothing, state)
            })
            .collect()
    }

    fn next(&self, b: &mut Builder, values: &mut Values<'_, 's>, given: &[Operand]) -> Vec<Operand> {
        let scan = self.scan.scan;
        let sums: Vec<Option<Operand>> = scan
            .terms
            .iter()
            .map(|term| match term {
                Term::Pair { column, .. } => {
                    let column = values.of_places(b, *column);
                    Some(self.dot(b, given, &column))
                }
                Term::Dense { .. } => None,
            })
            .collect();
        let mut next = self.decayed(b, values, given);
        for (term, sum) in scan.terms.iter().zip(sums) {
            next = match (term, sum) {
                (Term::Pair { row, .. }, Some(sum)) => {
                    let row = values.of_places(b, *row);
                    row.iter().zip(&next).map(|(row, next)| self.plus_product(b, sum, *row, *next)).collect()
                }
                _ => {
                    let added = self.dense(b, values, term, given);
                    next.iter().zip(added).map(|(next, added)| b.add(*next, added)).collect()
                }
            };
        }
        (0..).zip(next).map(|(k, next)| self.plus(b, values, scan.input, k, next)).collect()
    }

    /// The state times the diagonal of the matrix.
    fn decayed(&self, b: &mut Builder, values: &mut Values<'_, 's>, given: &[Operand]) -> Vec<Operand> {
        let decay = self.scan.scan.decay;
        if self.stage.program.node(decay).op == Op::Const(Literal::Float(1.0)) {
            return given.to_vec();
        }
        let decay = values.of_places(b, decay);
        decay.iter().zip(given).map(|(decay, state)| b.mul(*decay, *state)).collect()
    }

    /// x·y + z.
    fn plus_product(&self, b: &mut Builder, x: Operand, y: Operand, z: Operand) -> Operand {
        if !self.schedule.ordered {
            return b.fma(x, y, z);
        }
        let product = b.mul(x, y);
        b.add(z, product)
    }

    /// A number plus a value at a place.
    fn plus(&self, b: &mut Builder, values: &mut Values<'_, 's>, value: Value, k: u32, sum: Operand) -> Operand {
        if let Some((x, y)) = product(self, value).filter(|_| !self.schedule.ordered) {
            let (x, y) = (values.of_place(b, x, k), values.of_place(b, y, k));
            return b.fma(x, y, sum);
        }
        let value = values.of_place(b, value, k);
        b.add(sum, value)
    }

    /// The sum of a map of states over the row.
    fn readout(&self, b: &mut Builder, values: &mut Values<'_, 's>, element: Value) -> Operand {
        if let Some((x, y)) = product(self, element) {
            let (x, y) = (values.of_places(b, x), values.of_places(b, y));
            return self.dot(b, &x, &y);
        }
        let elements = values.of_places(b, element);
        self.total(b, &elements)
    }
}

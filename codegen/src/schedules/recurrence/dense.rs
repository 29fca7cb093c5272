//! Products of a row of the state and a whole matrix.

use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, Term, Value};

use super::RecurrenceKernel;
use super::values::Values;
use crate::build::{Builder, zero};
use crate::tile::{Operand, Reg, Shuffle};

/// A place of the row's state that a lane holds.
struct LaneState {
    /// Its index along the row, `i64`; where it does not exist, the last index.
    index: Operand,
    state: Operand,
    exists: Operand,
}

impl<'s> RecurrenceKernel<'s> {
    /// The lane's places of the product, summed from the first place of the row to the last.
    pub(super) fn dense(
        &self,
        b: &mut Builder,
        values: &Values<'_, 's>,
        term: &Term,
        given: &[Operand],
    ) -> Vec<Operand> {
        let Term::Dense { matrix, other, transposed } = *term else { return given.to_vec() };
        if transposed {
            self.transposed(b, values, matrix, other, given)
        } else {
            self.straight(b, values, matrix, other, given)
        }
    }

    /// Σ over j of S\[j\]·D\[`other` = j, k\]: each lane takes its columns of all rows.
    fn straight(
        &self,
        b: &mut Builder,
        values: &Values<'_, 's>,
        matrix: Value,
        other: Axis,
        given: &[Operand],
    ) -> Vec<Operand> {
        let nothing = zero(b.ty(given[0]));
        let sums: Vec<Reg> = given.iter().map(|_| b.var(nothing)).collect();
        b.for_(Operand::i32(0), Operand::i32(self.schedule.lanes as i32), Operand::i32(1), |b, lane| {
            for (k, own) in (0..).zip(given) {
                let LaneState { index, state, exists } = self.lane_state(b, lane, k, *own);
                let mut there = values.at_other(other, index);
                for (to, sum) in (0..).zip(&sums) {
                    let factor = there.of_place(b, matrix, to);
                    let next = self.plus_masked(b, state, factor, (*sum).into(), exists);
                    b.assign(*sum, next);
                }
            }
        });
        sums.into_iter().map(Operand::from).collect()
    }

    /// Σ over j of S\[j\]·D\[j, `other` = k\]: all lanes of the row sum the product for each place in turn.
    fn transposed(
        &self,
        b: &mut Builder,
        values: &Values<'_, 's>,
        matrix: Value,
        other: Axis,
        given: &[Operand],
    ) -> Vec<Operand> {
        let nothing = zero(b.ty(given[0]));
        let sums: Vec<Reg> = given.iter().map(|_| b.var(nothing)).collect();
        b.for_(Operand::i32(0), Operand::i32(self.schedule.lanes as i32), Operand::i32(1), |b, lane| {
            for (k, sum) in (0..).zip(&sums) {
                let index = self.index_of(b, lane, k);
                let last = b.sub(self.args.size(self.scan.scan.along), Operand::i64(1));
                let index = b.binary(oplus_dsl::ir::Binary::Min, index, last);
                let mut there = values.at_other(other, index);
                let factors = there.of_places(b, matrix);
                let whole = self.dot(b, given, &factors);
                let own = b.eq(lane, self.position);
                let next = b.select(own, whole, (*sum).into());
                b.assign(*sum, next);
            }
        });
        sums.into_iter().map(Operand::from).collect()
    }

    /// The index along the row of a lane's place, `i64`.
    fn index_of(&self, b: &mut Builder, lane: Operand, place: u32) -> Operand {
        let before = b.mul(lane, Operand::i32(self.schedule.states as i32));
        let index = b.add(before, Operand::i32(place as i32));
        b.convert(Ty::I64, index)
    }

    fn lane_state(&self, b: &mut Builder, lane: Operand, place: u32, own: Operand) -> LaneState {
        let (index, from) = (self.index_of(b, lane, place), b.add(self.first_lane, lane));
        let state = b.shuffle(Shuffle::Index, own, from);
        if !self.schedule.padded {
            return LaneState { index, state, exists: Operand::bool(true) };
        }
        let size = self.args.size(self.scan.scan.along);
        let exists = b.lt(index, size);
        let last = b.sub(size, Operand::i64(1));
        let index = b.select(exists, index, last);
        LaneState { index, state, exists }
    }

    fn plus_masked(&self, b: &mut Builder, x: Operand, y: Operand, sum: Operand, exists: Operand) -> Operand {
        let next = if self.schedule.ordered {
            let product = b.mul(x, y);
            b.add(sum, product)
        } else {
            b.fma(x, y, sum)
        };
        b.select(exists, next, sum)
    }
}

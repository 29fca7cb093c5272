//! ⟨S, D⟩ of a head, by the role of query': a warp's share is the diagonal of the product of its 16 rows of both.

use super::WarpgroupSweep;
use crate::block::layout::{left_rows, right_rows};
use crate::block::matmul::{Factor, mma_two, zeros};
use crate::build::{Builder, zero};
use crate::schedules::chunkwise_backward::ROWS;
use crate::tile::Operand;
use oplus_dsl::Ty;

impl WarpgroupSweep<'_> {
    /// Writes the warp's share of ⟨S, D⟩ of the tiles in a stage.
    pub(super) fn share_energy_by_products(&self, b: &mut Builder, stage: Operand) {
        if !self.has_decay() {
            return;
        }
        let of_warp = b.mul(self.block, ROWS);
        let (row, half) = left_rows(b, self.thread.lane);
        let row = b.add(row, of_warp);
        let of_states = self.states.lanes(b, row, half);
        let (row, half) = right_rows(b, self.thread.lane);
        let row = b.add(row, of_warp);
        let of_duals = self.duals.lanes(b, row, half);
        let states = Factor::of(b, &self.states, &of_states, stage);
        let duals = Factor::of(b, &self.duals, &of_duals, stage);
        let mut products = [zeros(); 2];
        for sixteen in 0..self.states.depth / ROWS {
            let [rows, columns] = [states, duals].map(|factor| factor.four(b, 0, sixteen, false));
            mma_two(b, self.states.elem, &mut products, rows, columns);
        }
        let shares = self.on_diagonal(b, &products);
        let numbers = self.head_numbers(b);
        let undone = numbers.into_iter().flat_map(|own| [own.undone_states, own.undone_duals]);
        let shares = undone.fold(shares, |shares, undone| b.mul(shares, undone));
        self.store_energy(b, Some(shares));
    }

    /// The sum of the thread's numbers on the diagonal of a matrix of 16 × 16, or 0.
    fn on_diagonal(&self, b: &mut Builder, [left, right]: &[[Operand; 4]; 2]) -> Operand {
        let column = self.fragment.column(b);
        let mut shares = zero(Ty::F32);
        for c in 0..2 {
            // Of the upper rows the left columns are on the diagonal, of the lower ones the right columns.
            let both = b.add(left[c], right[2 + c]);
            let own = b.add(column, c as i32);
            let is_on_it = b.eq(self.fragment.group, own);
            shares = b.select(is_on_it, both, shares);
        }
        shares
    }
}

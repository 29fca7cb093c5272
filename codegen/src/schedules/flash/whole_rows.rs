//! Rows of outputs of 16 bits. Each of the four lanes of a row stores eight elements at once, stores of pairs would take as long as
//! several tiles: lanes exchange what they have, or [stage](super::staged_rows) it in shared memory.

use super::finals::{InnerPlace, WideOutput};
use super::sums::Sums;
use super::{COLUMNS, FlashKernel};
use crate::abi::{Tensor, elem};
use crate::block::pair::{Coordinates, Index, Values};
use crate::build::Builder;
use crate::tile::{Memory, Operand, Shuffle};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, Binary};

/// Blocks of 8 places, one for each lane of a row.
const FOUR: u32 = 4;

impl FlashKernel<'_> {
    /// Whether rows of an output along an axis are stored eight elements at a time.
    pub(super) fn stores_whole(&self, output: usize, axis: Axis) -> bool {
        let has_16_bits = elem(self.stage, Tensor::Output(output as u32)).bytes() == Some(2);
        let fits = self.depth_of(axis).is_multiple_of(FOUR * COLUMNS) && !self.schedule.padded;
        has_16_bits && fits && self.schedule.copiers > 0 && self.schedule.vector == COLUMNS
    }

    /// Stores a row of an output of 16 bits.
    pub(super) fn store_whole(&self, b: &mut Builder, values: &Values, sums: &Sums, row: u32, wide: WideOutput) {
        let WideOutput { output, axis } = wide;
        let tensor = Tensor::Output(output as u32);
        let index = values.row(row);
        let mut values = values.clone();
        values.reciprocal = true;
        let origin = self.offset(b, output, index.at);
        let own = b.mul(self.fragment.member, COLUMNS);
        let own = b.convert(Ty::I64, own);
        let origin = b.add(origin, own);
        for first in (0..self.depth_of(axis) / COLUMNS).step_by(FOUR as usize) {
            let pairs = [0, 1, 2, 3].map(|k| {
                let place = InnerPlace { row, block: first + k, column: 0, axis };
                self.packed_places(b, &mut values, sums, output, place)
            });
            let pairs = self.exchange(b, pairs);
            let at = b.add(origin, first * COLUMNS);
            b.store(Memory::Global(self.args.pointer(tensor)), at, &pairs, Some(index.exists));
        }
    }

    /// The two elements of an output that the thread has in a block of 8 places of a row, from its first one on, packed.
    pub(super) fn packed_places(
        &self,
        b: &mut Builder,
        values: &mut Values,
        sums: &Sums,
        output: usize,
        place: InnerPlace,
    ) -> Operand {
        let InnerPlace { row, block, axis, .. } = place;
        let value = self.stage.program.outputs[output].value;
        let exists = values.row(row).exists;
        values.forget_inner();
        let twice = self.fragment.column(b);
        let [low, high] = [0, 1].map(|c| {
            let at = b.add(twice, block * COLUMNS + c);
            let at = b.convert(Ty::I64, at);
            values.set_inner(c, axis, Index { at, exists });
            self.set_sums(b, values, sums, InnerPlace { column: c, ..place });
            values.value(b, value, Coordinates { row: Some(row), column: None, inner: Some(c) })
        });
        b.pack(elem(self.stage, Tensor::Output(output as u32)), low, high)
    }

    /// Gives lane t of each four the packed pairs number t of all four, in the order of the lanes.
    fn exchange(&self, b: &mut Builder, [w, x, y, z]: [Operand; 4]) -> [Operand; 4] {
        let [odd, upper] = [(Binary::Rem, 2), (Binary::Div, 2)].map(|(op, n)| b.binary(op, self.fragment.member, n));
        let [odd, upper] = [odd, upper].map(|bit| b.eq(bit, 1));
        let swap = |b: &mut Builder, is_later: Operand, apart: i32, [first, second]: [Operand; 2]| {
            let sent = b.select(is_later, first, second);
            let got = b.shuffle(Shuffle::Xor, sent, Operand::i32(apart));
            [b.select(is_later, got, first), b.select(is_later, second, got)]
        };
        let [a, c] = [[w, x], [y, z]].map(|two| swap(b, odd, 1, two));
        let [[p, r], [q, s]] = [[a[0], c[0]], [a[1], c[1]]].map(|two| swap(b, upper, 2, two));
        [p, q, r, s]
    }
}

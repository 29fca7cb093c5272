//! The sequence of a block, where several lie one behind the other along time.
//!
//! A list of offsets says where they lie. A block whose stage is that of one sequence begins at the sequence's first time: the block's times are
//! counted from there, and addresses of tensors along time begin there. Blocks number 0 and the last one have the times before all sequences and
//! behind them, which begin at 0, and whose last states no tensor has.

use super::args::Args;
use super::pair::Index;
use crate::abi::{Tensor, elem};
use crate::build::{Builder, zero};
use crate::stage::{Sequences, Stage};
use crate::tile::Operand;
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, Binary};

/// The sequence of a block.
#[derive(Clone, Copy)]
pub(crate) struct Sequence {
    /// The axis along which sequences lie.
    pub time: Axis,
    /// The first time, `i64`.
    pub first: Operand,
    /// The number of times, `i64`.
    pub len: Operand,
    /// Whether it is one of the program's, with a first and a last state.
    pub has_states: Operand,
}

impl Args {
    /// Finds the sequence of the block in the list of offsets, where the stage is that of one sequence: times and addresses are those of the
    /// sequence from here on. Among the outer indices that of the block's sequence, of which there are two more than the program has, becomes
    /// that of the program's.
    pub(crate) fn enter_sequence(&mut self, b: &mut Builder, stage: &Stage, outer: &mut [(Axis, Operand)]) {
        let Some(Sequences { time, axis, list, offsets }) = stage.sequences() else { return };
        let Some((_, place)) = outer.iter_mut().find(|(own, _)| *own == axis) else { return };
        let (number, last) = (*place, b.sub(self.size(axis), 1));
        let tensor = Tensor::Param(offsets);
        let (nothing, memory, stride) =
            (zero(elem(stage, tensor).value()), self.memory(tensor), self.stride(tensor, list));
        let before = b.sub(number, 1);
        let [is_behind, is_before] = [b.binary(Binary::Gt, number, 0), b.lt(number, last)];
        let [first, end] = [(before, is_behind), (number, is_before)].map(|(entry, exists)| {
            let at = b.mul(entry, stride);
            let offset = b.load(memory, at, 1, Some(exists), nothing)[0];
            b.convert(Ty::I64, offset)
        });
        let times = self.size(time);
        let first = b.binary(Binary::Max, first, 0);
        let first = b.binary(Binary::Min, first, times);
        let end = b.select(is_before, end, times);
        let end = b.binary(Binary::Min, end, times);
        let end = b.binary(Binary::Max, end, first);
        let (len, has_states) = (b.sub(end, first), b.and(is_behind, is_before));
        *place = b.select(has_states, before, Operand::i64(0));
        self.sequence = Some(Sequence { time, first, len, has_states });
    }

    /// The index of places that first and last states have: none, where the block's sequence has no such states.
    pub(crate) fn of_states(&self, b: &mut Builder, index: Index) -> Index {
        let exists = self.sequence.map_or(index.exists, |sequence| b.and(index.exists, sequence.has_states));
        Index { exists, ..index }
    }

    /// The first state, which is 0 where the block's sequence has none of its own.
    pub(crate) fn first_or_nothing(&self, b: &mut Builder, first: Operand) -> Operand {
        self.sequence.map_or(first, |sequence| b.select(sequence.has_states, first, zero(Ty::F32)))
    }
}

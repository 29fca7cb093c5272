//! The sequence of a block, where several lie one behind the other along time.
//!
//! A list of offsets says where they lie. A block whose stage is that of one sequence begins at the sequence's first time: the block's times are
//! counted from there, and addresses of tensors along time begin there. Blocks number 0 and the last one have the times before all sequences and
//! behind them, which begin at 0, and whose last states no tensor has.

use crate::build::Builder;
use crate::tile::{Memory, Operand};
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
    /// Its number among the program's, `i64`; 0 where it is none of these.
    pub number: Operand,
    /// Its number among all, `i64`, also those that are none of the program's.
    pub order: Operand,
}

impl Sequence {
    /// The number of the sequence's first tile of so many times, if tiles are numbered sequence after sequence: so each stored tile has a
    /// place of its own.
    pub(crate) fn first_tile(&self, b: &mut Builder, times: u32) -> Operand {
        first_tile(b, self.first, self.order, times)
    }
}

/// A sequence has at most one tile more than whole tiles of its times fit between its first time and that of the next sequence.
fn first_tile(b: &mut Builder, first: Operand, order: Operand, times: u32) -> Operand {
    let before = b.binary(Binary::Div, first, i64::from(times));
    b.add(before, order)
}

/// A block's tile of times among those of all sequences.
#[derive(Clone)]
pub(crate) struct SequenceTile {
    /// The index along every outer axis.
    pub outer: Vec<(Axis, Operand)>,
    /// The number of the block's point of the other outer axes, `i64`.
    pub row: Operand,
    /// The place of what is stored for the tile, and how many places there are, `i64`.
    pub place: Operand,
    pub count: Operand,
    /// The block's part of the tile, `i64`.
    pub part: Operand,
    /// Its first time in the sequence, `i64`, and whether the sequence has it: a place may have no tile.
    pub first: Operand,
    pub exists: Operand,
}

/// A list of offsets in memory.
pub(crate) struct Offsets {
    pub memory: Memory,
    /// The distance of neighbours, `i64`.
    pub stride: Operand,
    /// The 0 of their type.
    pub zero: Operand,
}

impl Offsets {
    /// An offset, `i64`; 0 where there is none.
    fn read(&self, b: &mut Builder, place: Operand, exists: Operand) -> Operand {
        let at = b.mul(place, self.stride);
        let offset = b.load(self.memory, at, 1, Some(exists), self.zero)[0];
        b.convert(Ty::I64, offset)
    }

    /// The number of the sequence, of so many, whose tiles of so many times have the place `place`.
    pub(crate) fn of_tile(
        &self,
        b: &mut Builder,
        place: Operand,
        count: Operand,
        (times, tile): (Operand, u32),
    ) -> Operand {
        let (low, high) = (b.var(Operand::i64(0)), b.var(count));
        b.loop_(|b| {
            let apart = b.sub(high.into(), Operand::Reg(low));
            let is_found = b.binary(Binary::Le, apart, 1);
            b.break_if(is_found);
            let half = b.binary(Binary::Div, apart, 2);
            let middle = b.add(Operand::Reg(low), half);
            let before = b.sub(middle, 1);
            let first = self.read(b, before, Operand::bool(true));
            let first = b.binary(Binary::Max, first, 0);
            let first = b.binary(Binary::Min, first, times);
            let first = first_tile(b, first, middle, tile);
            let is_behind = b.binary(Binary::Le, first, place);
            let (up, down) = (b.select(is_behind, middle, low.into()), b.select(is_behind, high.into(), middle));
            b.assign(low, up);
            b.assign(high, down);
        });
        low.into()
    }

    /// The sequence of number `number` of so many, the first and the last of which are none of the program's, of so many times in all.
    pub(crate) fn sequence(&self, b: &mut Builder, number: Operand, count: Operand, all: (Axis, Operand)) -> Sequence {
        let (time, times) = all;
        let (before, last) = (b.sub(number, 1), b.sub(count, 1));
        let [is_behind, is_before] = [b.binary(Binary::Gt, number, 0), b.lt(number, last)];
        let (first, end) = (self.read(b, before, is_behind), self.read(b, number, is_before));
        let first = b.binary(Binary::Max, first, 0);
        let first = b.binary(Binary::Min, first, times);
        let end = b.select(is_before, end, times);
        let end = b.binary(Binary::Min, end, times);
        let end = b.binary(Binary::Max, end, first);
        let (len, has_states) = (b.sub(end, first), b.and(is_behind, is_before));
        Sequence { time, first, len, has_states, number: b.select(has_states, before, Operand::i64(0)), order: number }
    }
}

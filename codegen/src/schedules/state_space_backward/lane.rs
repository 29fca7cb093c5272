//! A lane's rows and states, and the values that it keeps all the time.
//!
//! Row r of a lane with two rows is row r ⊻ x of them, where x is the highest bit of the lane's position among those that
//! share the rows: the first level of the sum over those lanes then needs no comparison.

use super::StateSpaceBackwardKernel;
use crate::block::lane_sum::Lanes;
use crate::block::reads::constant_along;
use crate::block::state_step::{Evaluator, StateStep};
use crate::build::Builder;
use crate::schedules::state_space::CHUNK;
use crate::schedules::state_space::global::Global;
use crate::schedules::state_space::lane::LanePlace;
use crate::target::WARP;
use crate::tile::{Operand, Shuffle};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Value};

/// The rows of a lane, and the lanes that share them, of which rows may lie apart.
pub(super) const ROWS_APART: (u32, u32) = (2, 4);

/// The coordinates and values that a lane keeps all the time.
pub(super) struct Lane<'k, 's> {
    /// Its position among the lanes of its rows, `i32`.
    pub position: Operand,
    /// Its number among the lanes that have its position, `i32`.
    pub number: Operand,
    /// The distance between positions, in lanes.
    pub stride: u32,
    /// The row in the block of each of the lane's rows, `i32`.
    pub rows: Vec<Operand>,
    /// Whether the row of each of the lane's rows exists.
    pub row_exists: Vec<Operand>,
    /// Whether each state exists.
    pub state_exists: Vec<Operand>,
    /// The evaluator of values that do not change in time, of each of the lane's rows.
    pub constants: Vec<Evaluator<'k>>,
    pub sources: Vec<Global<'k, 's>>,
}

impl<'s> StateSpaceBackwardKernel<'s> {
    /// The lane's coordinates; values without time beneath `roots` are computed here.
    pub(super) fn lane(&self, b: &mut Builder, roots: &[Value]) -> Lane<'_, 's> {
        self.lane_at(b, self.base.frame.warp, self.base.frame.lane, roots)
    }

    /// The lane's coordinates, rematerialised: values that were computed from them before are not kept in registers.
    pub(super) fn rematerialised_lane(&self, b: &mut Builder) -> Lane<'_, 's> {
        let shuffled =
            [self.base.frame.warp, self.base.frame.lane].map(|x| b.shuffle(Shuffle::Index, x, self.base.frame.lane));
        self.lane_at(b, shuffled[0], shuffled[1], &[])
    }

    fn lane_at(&self, b: &mut Builder, warp: Operand, own: Operand, roots: &[Value]) -> Lane<'_, 's> {
        let LanePlace { position, number, stride } = LanePlace::of(b, own, self.schedule.lanes);
        let rows = self.rows(b, warp, position, number);
        let row_exists = rows.iter().map(|row| b.lt(*row, self.base.frame.block.rows)).collect();
        let first = b.mul(position, self.schedule.states);
        let state_exists = (0..self.schedule.states).map(|k| self.base.state_exists(b, first, k)).collect();
        let sources: Vec<Global> = rows.iter().map(|row| Global::timeless(&self.base, *row, first)).collect();
        let constants = sources.iter().map(|source| self.constants(b, source.clone(), roots)).collect();
        Lane { position, number, stride, rows, row_exists, state_exists, constants, sources }
    }

    /// The rows of the block that a lane has.
    fn rows(&self, b: &mut Builder, warp: Operand, position: Operand, number: Operand) -> Vec<Operand> {
        let (rows, lanes) = (self.schedule.rows, self.schedule.lanes);
        let before = b.mul(warp, WARP / lanes * rows);
        if (self.schedule.rows, self.schedule.lanes) == ROWS_APART {
            return rows_apart(b, before, position, number).to_vec();
        }
        let first = b.mul(number, rows);
        let first = b.add(before, first);
        let high = b.binary(Binary::Shr, position, (lanes / rows).trailing_zeros());
        let own_row = |b: &mut Builder, r: u32| {
            let own = b.binary(Binary::Xor, high, r);
            b.add(first, own)
        };
        (0..rows).map(|r| if rows == 1 { first } else { own_row(b, r) }).collect()
    }

    /// A guard that holds where a chunk of the lane's states has room in memory.
    pub(super) fn holds(&self, b: &mut Builder, lane: &Lane, chunk: u32, guard: Operand) -> Operand {
        let first = b.mul(lane.position, self.schedule.states);
        let first = b.add(first, chunk * CHUNK);
        let first = b.convert(Ty::I64, first);
        self.scratch.room.holds(b, first, guard)
    }

    /// The evaluator of values that do not change in time, for a row.
    pub(super) fn constants(&self, b: &mut Builder, mut source: Global, roots: &[Value]) -> Evaluator<'_> {
        let program = &self.form.program;
        let mut constants = Evaluator::new(program, self.form.time, self.form.state);
        for value in constant_along(program, self.form.time, roots.iter().copied()) {
            let states = if program.node(value).axes.contains(self.form.state) { self.schedule.states } else { 1 };
            (0..states).for_each(|state| _ = constants.value(b, &mut source, value, StateStep { state, step: 0 }));
        }
        constants
    }

    /// The sum over the lanes of a row, by row of the lane and step: the lane's steps of its first row.
    pub(super) fn lane_sum(&self, b: &mut Builder, lane: &Lane, lane_rows: &[Vec<Operand>]) -> Vec<Operand> {
        let [own, other] = lane_rows else { return self.lanes(b, lane).sum(b, &lane_rows[0]) };
        let distance = Operand::i32((self.schedule.lanes / 2 * lane.stride) as i32);
        let pairs = own.iter().zip(other);
        let added = pairs.map(|(own, other)| {
            let taken = b.shuffle(Shuffle::Xor, *other, distance);
            b.add(*own, taken)
        });
        let added: Vec<Operand> = added.collect();
        self.lanes(b, lane).sum(b, &added)
    }

    /// The lanes that have the same first row.
    pub(super) fn lanes(&self, b: &mut Builder, lane: &Lane) -> Lanes {
        let count = self.schedule.lanes / self.schedule.rows;
        let position = b.binary(Binary::And, lane.position, count as i32 - 1);
        Lanes { count, stride: lane.stride, position, length: super::SUBTILE }
    }

    /// The number of the lane's first state, `i64`.
    pub(super) fn first_place(&self, b: &mut Builder, lane: &Lane) -> Operand {
        let first = self.first_state(b, lane);
        b.convert(Ty::I64, first)
    }

    /// The row of the lane among all rows of the block's point, `i64`.
    pub(super) fn row_number(&self, b: &mut Builder, row: Operand) -> Operand {
        let row = b.convert(Ty::I64, row);
        b.add(self.base.frame.block.first_row, row)
    }
}

/// The two rows of a lane of four that share them, in an order in which accesses of eight neighbouring lanes meet different banks, be they of
/// whole rows or of the halves of sub-tiles that lanes end with: neighbouring rows lie 16 bytes apart modulo the banks, and so do halves.
/// Bit 1 of a row is the highest bit of the position, bits 2, 0 and 3 are those of the number.
fn rows_apart(b: &mut Builder, before: Operand, position: Operand, number: Operand) -> [Operand; 2] {
    let mut bit = |of: Operand, from: u32, to: u32| {
        let moved = b.binary(Binary::Shr, of, from);
        let bit = b.binary(Binary::And, moved, 1);
        b.mul(bit, 1 << to)
    };
    let bits = [bit(number, 0, 2), bit(number, 1, 0), bit(number, 2, 3)];
    let first = bits.into_iter().fold(before, |row, bit| b.add(row, bit));
    let high = b.binary(Binary::Shr, position, 1);
    [0, 1].map(|r| {
        let own = b.binary(Binary::Xor, high, r);
        let own = b.mul(own, 2);
        b.add(first, own)
    })
}

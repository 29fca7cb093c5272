//! Segments of time, each with blocks of its own: the elements that they combine to.
//!
//! A segment is a number of tiles in the order of the scan. A first kernel walks all of them but the last, each from the
//! identity, and stores the element that its steps combine to; a block of the second applies the elements of the segments before
//! its own to the initial states, in their order, and walks on from there.
//!
//! ```text
//! carries  [segments][points][rows][fields][places]
//! ```
//!
//! Points, rows and places are those of [saved states](super::saved).

use super::saved::{Room, in_whole_chunks, point};
use super::{CHUNK, StateSpaceKernel};
use crate::block::args::Args;
use crate::block::carry::{Fields, assign, select};
use crate::build::{Builder, zero};
use crate::schedules::StateSpace;
use crate::stage::Stage;
use crate::tile::{Memory, Operand, ParamId, Reg, Special};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, Binary, Literal};

/// Chunks per iteration of the loop in the kernel that finds the ends of segments.
const CARRIES_UNROLL: u32 = 4;
/// States of a lane times segments whose elements are loaded at once, and the most such segments.
const LOADED_STATES: u32 = 16;
const MOST_SEGMENTS: u32 = 4;

/// The block's segment.
pub(crate) struct Segment {
    /// Its number in the order of the walk, `i64`.
    pub number: Operand,
    /// The number of its first tile, `i32`.
    pub first: Operand,
    /// Its tiles, `i32`.
    pub tiles: Operand,
    /// Whether it is the last one of the walk.
    pub is_last: Operand,
}

impl Segment {
    /// The segment of the block, if time, of so many tiles, is cut.
    pub(crate) fn find(b: &mut Builder, args: &Args, tile_count: Operand) -> Option<Segment> {
        let each = args.segment_tiles?;
        let number = b.special(Special::BlockY);
        let number = b.convert(Ty::I64, number);
        let first = b.mul(number, each);
        let all = b.convert(Ty::I64, tile_count);
        let left = b.sub(all, first);
        let is_last = b.ge(each, left);
        let tiles = b.binary(Binary::Min, left, each);
        let tiles = b.binary(Binary::Max, tiles, 0);
        let [first, tiles] = [first, tiles].map(|x| b.convert(Ty::I32, x));
        Some(Segment { number, first, tiles, is_last })
    }
}

/// Whether the elements of segments can be stored: they are numbers and flags.
pub fn can_segment(stage: &Stage) -> bool {
    let known = |ty: Ty| matches!(ty, Ty::F32 | Ty::Bool);
    stage.scan().is_some_and(|scan| stage.program.operator(scan.operator).fields.iter().all(|field| known(field.ty)))
}

/// The kernels of a schedule, in order: with segments of time, first the one that finds their ends. It keeps all fields of
/// the elements in registers, and so has fewer for chunks at once.
pub fn with_ends(schedule: &StateSpace) -> Vec<StateSpace> {
    let ends = StateSpace { save: false, ends: true, unroll: schedule.unroll.min(CARRIES_UNROLL), ..*schedule };
    schedule.segmented.then_some(ends).into_iter().chain([*schedule]).collect()
}

/// The length of the ends of all segments but the last, for axes of these sizes; `None` when 63 bits cannot count it.
pub fn ends_len(stage: &Stage, segments: u64, size: impl Fn(Axis) -> i64) -> Option<u64> {
    let fields = stage.program.operator(stage.scan()?.operator).fields.len() as i64;
    let states = in_whole_chunks(size(stage.state_axis()?))?.checked_mul(fields)?;
    let rows = stage.outer_axes().iter().try_fold(1i64, |n, axis| n.checked_mul(size(axis)))?;
    let before = i64::try_from(segments.saturating_sub(1)).ok()?;
    states.checked_mul(rows)?.checked_mul(before).map(|n| n as u64)
}

/// A lane's coordinates among the segment carries.
pub(super) struct CarryCoordinates {
    /// Its row among those of all points, and how many those are, `i64`.
    row: Operand,
    rows: Operand,
    room: Room,
    /// The number of its first state, `i64`.
    first: Operand,
    /// Whether the row exists.
    exists: Operand,
}

impl StateSpaceKernel<'_> {
    /// The coordinates of a row of the block (`i32`) from a state (`i32`) on.
    fn carry_coordinates(&self, b: &mut Builder, row: Operand, state: Operand) -> CarryCoordinates {
        let exists = b.lt(row, self.frame.block.rows);
        let own = b.convert(Ty::I64, row);
        let own = b.add(self.frame.block.first_row, own);
        let row = match self.values.row {
            None => own,
            Some(axis) => {
                let point = point(b, self, self.schedule.rows());
                let before = b.mul(point, self.args.size(axis));
                b.add(before, own)
            }
        };
        let rows = self.args.rows(b, self.stage.outer_axes());
        let states = b.convert(Ty::I64, self.frame.state_count);
        let room = Room::find(b, self.schedule.capacity(), self.schedule.padded, states);
        CarryCoordinates { row, rows, room, first: b.convert(Ty::I64, state), exists }
    }

    /// The indices of the fields of a segment's element: those of the lane's states `access·4` on, one after the other, and whether
    /// there is room for them.
    fn fields_at(
        &self,
        b: &mut Builder,
        coordinates: &CarryCoordinates,
        segment: Operand,
        access: usize,
    ) -> (Vec<Operand>, Operand) {
        let fields = self.monoid.operator.fields.len() as i64;
        let at = b.mul(segment, coordinates.rows);
        let at = b.add(at, coordinates.row);
        let at = b.mul(at, fields);
        let own = b.add(coordinates.first, access as u32 * CHUNK);
        let guard = coordinates.room.holds(b, own, coordinates.exists);
        let of_field = |field: i64| {
            let at = b.add(at, field);
            let at = b.mul(at, coordinates.room.row_len);
            b.add(at, own)
        };
        ((0..fields).map(of_field).collect(), guard)
    }

    /// Stores the elements that the steps of the block's segment combine to.
    pub(crate) fn store_segment_carries(&self, b: &mut Builder, row: Operand, first: Operand, states: &[Vec<Reg>]) {
        let (Some(segment), Some(carries)) = (&self.frame.segment, self.segment_carries) else { return };
        let coordinates = self.carry_coordinates(b, row, first);
        for (access, states) in states.chunks(CHUNK as usize).enumerate() {
            let (indices, guard) = self.fields_at(b, &coordinates, segment.number, access);
            for (field, at) in indices.into_iter().enumerate() {
                let values: Vec<Operand> = states.iter().map(|fields| as_number(b, fields[field].into())).collect();
                b.store(Memory::Global(carries), at, &values, Some(guard));
            }
        }
    }

    /// Applies the elements of the segments before the block's own to its states.
    pub(crate) fn join(&self, b: &mut Builder, row: Operand, first: Operand, states: &[Vec<Reg>]) {
        let (Some(segment), Some(carries)) = (&self.frame.segment, self.segment_carries) else { return };
        let coordinates = self.carry_coordinates(b, row, first);
        // Several segments are loaded at once, fewer where registers are scarce.
        let loaded = if self.bounds.is_some() { LOADED_STATES / 2 } else { LOADED_STATES };
        let at_once = (loaded / self.schedule.states).clamp(1, MOST_SEGMENTS);
        b.for_(Operand::i64(0), segment.number, at_once, |b, first| {
            let of = |k: u32| {
                let number = b.add(first, k);
                let is_before = b.lt(number, segment.number);
                (is_before, self.load_segment_carries(b, carries, &coordinates, number, is_before, states))
            };
            let elements: Vec<_> = (0..at_once).map(of).collect();
            for (is_before, elements) in elements {
                for (regs, element) in states.iter().zip(elements) {
                    let state: Fields = regs.iter().map(|reg| (*reg).into()).collect();
                    let next = self.monoid.apply(b, &state, &element);
                    let next = select(b, is_before, &next, &state);
                    assign(b, regs, &next);
                }
            }
        });
    }

    /// The elements of a segment for the lane's states; undefined where there is no such segment.
    fn load_segment_carries(
        &self,
        b: &mut Builder,
        carries: ParamId,
        coordinates: &CarryCoordinates,
        segment: Operand,
        exists: Operand,
        states: &[Vec<Reg>],
    ) -> Vec<Fields> {
        let mut elements = vec![];
        for (access, states) in states.chunks(CHUNK as usize).enumerate() {
            let (indices, guard) = self.fields_at(b, coordinates, segment, access);
            let guard = b.and(guard, exists);
            let load =
                |at: Operand| b.load(Memory::Global(carries), at, states.len() as u32, Some(guard), zero(Ty::F32));
            let fields: Vec<Vec<Operand>> = indices.into_iter().map(load).collect();
            for k in 0..states.len() {
                let of_state = fields.iter().zip(self.monoid.types());
                elements.push(of_state.map(|(values, ty)| from_number(b, values[k], ty)).collect());
            }
        }
        elements
    }
}

/// A number, or a flag as one.
fn as_number(b: &mut Builder, value: Operand) -> Operand {
    match b.ty(value) {
        Ty::Bool => b.select(value, Operand::Const(Ty::F32, Literal::Float(1.0)), zero(Ty::F32)),
        _ => value,
    }
}

fn from_number(b: &mut Builder, value: Operand, ty: Ty) -> Operand {
    if ty == Ty::Bool { b.ne(value, zero(Ty::F32)) } else { value }
}

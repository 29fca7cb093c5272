//! Assignments: through shared memory the warps that copy tell the warps that walk which rows come next. So the latter need no barrier of
//! their own to find the columns that their rows see, and no division to find their rows.
//!
//! There is an assignment for each stage of the tiles of rows. It is read until the outputs of its rows have been stored.

use super::block_rows::BlockRows;
use super::parameters::GROUP;
use super::visible::{Range, Tiles};
use super::walk::TileLoop;
use super::{FlashKernel, ROWS, outer_axes};
use crate::block::lane_sum::over_lanes;
use crate::block::pair::Values;
use crate::block::ring::RingStage;
use crate::build::Builder;
use crate::tile::{Memory, Operand, SharedId, SharedKind};
use oplus_dsl::ir::{Axis, Binary};
use oplus_dsl::{Elem, Ty};

/// Numbers of an assignment beside those of each warpgroup: whether there are rows, the first of them, and their tiles of columns.
const NUMBERS: u32 = 8;

/// The arrays of assignments.
#[derive(Clone, Copy)]
pub(super) struct Assignments {
    /// The mbarriers that say that an assignment has been made.
    made: SharedId,
    /// The numbers of each assignment, `i32`.
    numbers: SharedId,
    /// Its indices along the outer axes, `i64`.
    outer: SharedId,
    /// The ends of the columns that the rows of a warpgroup see, of every copying warp, `i32`.
    ends: SharedId,
}

/// The rows that walking warps take next.
pub(super) struct Assignment {
    pub rows: BlockRows,
    /// The tiles of columns of the rows.
    pub tiles: Tiles,
    /// The iterations at the beginning whose tiles no row of the thread's warpgroup sees, `i32`; not the last one.
    pub unseen: Operand,
}

impl FlashKernel<'_> {
    /// Declares the arrays of assignments.
    pub(super) fn declare_assignments(&mut self, b: &mut Builder) {
        if !self.schedule.assigns() {
            return;
        }
        let (stages, groups) = (self.schedule.row_stages(), self.schedule.groups());
        let outer = outer_axes(self.form).iter().count().max(1) as u32;
        let ends = groups * self.schedule.copiers;
        self.assignments = Some(Assignments {
            made: b.shared("assigned", SharedKind::Mbarrier, stages),
            numbers: b.shared("assignments", SharedKind::Elem(Elem::I32), stages * (NUMBERS + groups)),
            outer: b.shared("assigned_outer", SharedKind::Elem(Elem::I64), stages * outer),
            ends: b.shared("group_ends", SharedKind::Elem(Elem::I32), ends),
        });
    }

    /// The mbarriers of assignments, at which one thread arrives.
    pub(super) fn assignment_mbarriers(&self) -> Option<(SharedId, u32, u32)> {
        self.assignments.map(|arrays| (arrays.made, self.schedule.row_stages(), 1))
    }

    /// Assigns the rows of the kernel to the walking warps. By the copying warps, once the assignment before in this stage has been read.
    pub(super) fn assign_rows(&self, b: &mut Builder, tile_loop: &TileLoop, stage: Operand) {
        let Some(arrays) = self.assignments else { return };
        let Tiles { first, head, behind, end, tail, count, .. } = tile_loop.iterations.tiles;
        let end = end.unwrap_or(behind);
        let seen = self.ends_of_groups(b, arrays);
        let is_first = b.eq(self.thread.number, 0);
        b.if_(is_first, |b| {
            let unseen: Vec<Operand> = (0..self.schedule.groups())
                .map(|group| self.unseen_of_group(b, &tile_loop.iterations.tiles, seen.as_deref(), group))
                .collect();
            let own = [Operand::i32(1), self.first_row, first, head, behind, end, tail, count];
            self.write_assignment(b, arrays, stage, &[&own[..], &unseen].concat());
        });
    }

    /// Says that there are no more rows.
    pub(super) fn assign_nothing(&self, b: &mut Builder, stage: Operand) {
        let Some(arrays) = self.assignments else { return };
        let is_first = b.eq(self.thread.number, 0);
        b.if_(is_first, |b| {
            let numbers = vec![Operand::i32(0); (NUMBERS + self.schedule.groups()) as usize];
            self.write_assignment(b, arrays, stage, &numbers);
        });
    }

    fn write_assignment(&self, b: &mut Builder, arrays: Assignments, stage: Operand, numbers: &[Operand]) {
        let start = b.mul(stage, numbers.len() as u32);
        for (i, number) in numbers.iter().enumerate() {
            let at = b.add(start, i as u32);
            b.store(Memory::Shared(arrays.numbers), at, &[*number], None);
        }
        let start = b.mul(stage, self.outer.len().max(1) as u32);
        for (i, (_, index)) in self.outer.iter().enumerate() {
            let at = b.add(start, i as u32);
            b.store(Memory::Shared(arrays.outer), at, &[*index], None);
        }
        b.arrive(arrays.made, stage);
    }

    /// Stores the ends of the columns that the rows of each warpgroup see, where rows are assigned.
    pub(super) fn store_ends_of_groups(&self, b: &mut Builder, values: &Values, ranges: &[Range]) {
        let Some(arrays) = self.assignments else { return };
        let rows_of_group = 2 * self.schedule.repeat;
        for group in 0..self.schedule.groups() {
            let own = (group * rows_of_group..(group + 1) * rows_of_group).fold(Operand::i32(0), |end, number| {
                let more = b.binary(Binary::Max, end, ranges[number as usize].to);
                b.select(values.row(number).exists, more, end)
            });
            let end = over_lanes(b, Binary::Max, own, &[4, 8, 16]);
            let at = b.add(self.thread.warp, group * self.schedule.copiers);
            let first = b.eq(self.thread.lane, 0);
            b.store(Memory::Shared(arrays.ends), at, &[end], Some(first));
        }
    }

    /// The ends of the columns that the rows of each warpgroup see; nothing where all rows see all columns.
    fn ends_of_groups(&self, b: &mut Builder, arrays: Assignments) -> Option<Vec<Operand>> {
        if self.form.limits.is_empty() {
            return None;
        }
        let mut of_group = |group: u32| {
            (0..self.schedule.copiers).fold(Operand::i32(0), |end, warp| {
                let at = Operand::i32((group * self.schedule.copiers + warp) as i32);
                let other = b.load1(Memory::Shared(arrays.ends), at);
                b.binary(Binary::Max, end, other)
            })
        };
        Some((0..self.schedule.groups()).map(&mut of_group).collect())
    }

    /// The iterations at the beginning whose tiles no row of a warpgroup sees, but the last one: all where there are no such rows. None
    /// where there are partial tiles before the whole ones.
    fn unseen_of_group(&self, b: &mut Builder, tiles: &Tiles, seen: Option<&[Operand]>, group: u32) -> Operand {
        let last = b.sub(tiles.count, 1);
        let first_row = b.add(self.first_row, group * ROWS * GROUP * self.schedule.repeat);
        let first_row = b.convert(Ty::I64, first_row);
        let is_missing = b.ge(first_row, self.args.size(self.form.row));
        let unseen = match (seen, tiles.end) {
            (Some(seen), Some(end)) => self.unseen_before(b, tiles, end, seen[group as usize]),
            _ => Operand::i32(0),
        };
        let unseen = b.select(is_missing, last, unseen);
        b.binary(Binary::Min, unseen, last)
    }

    fn arrays_of_assignments(&self) -> Assignments {
        self.assignments.expect("persistent blocks have assignments")
    }

    /// Waits for the assignment of a tile of rows; gives whether there are rows.
    pub(super) fn wait_for_assignment(&self, b: &mut Builder, at: RingStage) -> Operand {
        let arrays = self.arrays_of_assignments();
        b.wait(arrays.made, at);
        let first = b.mul(at.index, NUMBERS + self.schedule.groups());
        let exists = b.load1(Memory::Shared(arrays.numbers), first);
        b.ne(exists, 0)
    }

    /// The assignment of a stage, as the walking warps read it, where there are rows.
    pub(super) fn assignment(&self, b: &mut Builder, stage: Operand) -> Assignment {
        let arrays = self.arrays_of_assignments();
        let start = b.mul(stage, NUMBERS + self.schedule.groups());
        let number = |b: &mut Builder, i: u32| {
            let at = b.add(start, i);
            b.load1(Memory::Shared(arrays.numbers), at)
        };
        let [first_row, first, head, behind, end, tail, count] = [1, 2, 3, 4, 5, 6, 7].map(|i| number(b, i));
        let group = b.binary(Binary::Div, self.thread.warp, GROUP);
        let of_group = b.add(start, group);
        let of_group = b.add(of_group, NUMBERS);
        let unseen = b.load1(Memory::Shared(arrays.numbers), of_group);
        let outer = self.assigned_outer(b, arrays, stage);
        let tiles = Tiles { first, head, behind, end: Some(end), tail, before: Operand::i32(0), partial: tail, count };
        Assignment { rows: BlockRows { outer, first_row, part: None }, tiles, unseen }
    }

    fn assigned_outer(&self, b: &mut Builder, arrays: Assignments, stage: Operand) -> Vec<(Axis, Operand)> {
        // In the order of the indices that were written.
        let mut axes: Vec<Axis> = outer_axes(self.form).iter().collect();
        axes.reverse();
        let start = b.mul(stage, axes.len().max(1) as u32);
        let mut index = |(i, axis): (usize, &Axis)| {
            let at = b.add(start, i as u32);
            (*axis, b.load1(Memory::Shared(arrays.outer), at))
        };
        axes.iter().enumerate().map(&mut index).collect()
    }

    /// The kernel at rows.
    pub(super) fn at_rows(&self, rows: BlockRows) -> Self {
        let BlockRows { outer, first_row, part } = rows;
        FlashKernel { outer, first_row, part, ..self.clone() }
    }
}

//! Cutting the memory of a tensor into the disjoint slices that tasks write.
//!
//! A task owns a block of indices along each of the cut axes and all indices of the others. In memory that is a list
//! of slices: the axes are sorted from the largest stride to the smallest; down to the innermost cut axis, every index
//! begins a new slice.

use std::collections::TryReserveError;
use std::ops::Range;

use oplus_dsl::ir::Axis;

use super::CpuError;
use super::loops::PerAxis;
use crate::room::room;

/// An axis of a tensor in memory.
#[derive(Clone, Debug, PartialEq)]
struct Level {
    axis: Axis,
    size: usize,
    stride: usize,
    /// Whether memory runs from the last index to the first.
    flipped: bool,
    /// The cut, if tasks share the axis: its place among the cuts.
    cut: Option<usize>,
}

/// The blocks into which an axis is cut.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cut {
    /// The axis.
    axis: Axis,
    /// Its size.
    size: usize,
    /// The size of a block; the last one may be smaller.
    block: usize,
}

/// How a tensor is shared between tasks. Tasks are numbered over the blocks of all cuts, the last cut fastest.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Partition {
    levels: Vec<Level>,
    cuts: Vec<Cut>,
    /// How many levels begin a new slice at every index, and whether the next level is cut.
    rows: usize,
    /// The element at which memory begins.
    pub(super) start: usize,
}

/// Where the elements of one task lie: for every axis, how far a step leads in the list of slices and in a slice.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Place {
    /// Axis, slices per step, elements per step.
    pub(super) strides: PerAxis<(Axis, isize, isize)>,
    /// Slice and element of index 0, 0, … (which need not be the task's).
    pub(super) origin: (isize, isize),
}

impl Cut {
    /// Blocks of one size, but for the last.
    pub(super) fn even(axis: Axis, size: usize, block: usize) -> Cut {
        Cut { axis, size, block }
    }

    /// How many blocks there are.
    pub(super) fn blocks(&self) -> usize {
        self.size.div_ceil(self.block).max(1)
    }

    /// The indices of a block.
    pub(super) fn block(&self, i: usize) -> Range<usize> {
        i * self.block..self.size.min((i + 1) * self.block)
    }
}

/// An axis of a tensor in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaidAxis {
    pub(super) axis: Axis,
    pub(super) size: usize,
    pub(super) stride: i64,
}

impl Partition {
    /// The partition of a tensor with these axes (size and stride) from element `offset` on. `None` if its elements
    /// interleave in a way that nested slices cannot follow.
    pub(super) fn new(axes: &[LaidAxis], offset: usize, cuts: &[Cut]) -> Option<Partition> {
        let mut start = offset as i64;
        let level = |&LaidAxis { axis, size, stride }: &LaidAxis| {
            start += stride.min(0) * (size as i64 - 1).max(0);
            let cut = cuts.iter().position(|cut| cut.axis == axis && cut.blocks() > 1);
            Level { axis, size, stride: stride.unsigned_abs() as usize, flipped: stride < 0, cut }
        };
        let mut levels: Vec<Level> = axes.iter().filter(|axis| axis.size != 1).map(level).collect();
        levels.sort_by_key(|level| std::cmp::Reverse(level.stride));
        let empty = levels.iter().any(|level| level.size == 0);
        let rows = levels.iter().rposition(|level| level.cut.is_some()).unwrap_or(0);
        (empty || nested(&levels)).then(|| Partition { levels, cuts: cuts.to_vec(), rows, start: start as usize })
    }

    /// How many slices all tasks have together.
    pub(super) fn slices(&self) -> usize {
        let rows: usize = self.levels[..self.rows].iter().map(|level| level.size).product();
        rows * self.levels.get(self.rows).and_then(|level| level.cut).map_or(1, |cut| self.cuts[cut].blocks())
    }

    /// Whether the slices are too short to be worth making.
    pub(super) fn is_in_pieces(&self) -> bool {
        let elements: usize = self.levels.iter().map(|level| level.size).product();
        self.slices() > 4096 && elements / self.slices() < 64
    }

    /// The slices of every task.
    ///
    /// # Errors
    /// [`CpuError::OutOfMemory`].
    pub(super) fn split<'a, T>(&self, memory: &'a mut [T]) -> Result<Vec<Vec<&'a mut [T]>>, CpuError> {
        let count = self.cuts.iter().map(Cut::blocks).product();
        let mut tasks: Vec<Vec<&mut [T]>> = room(count)?;
        tasks.resize_with(count, Vec::new);
        if self.levels.iter().all(|level| level.size > 0) {
            let bytes = self.slices().saturating_mul(size_of::<&[T]>());
            self.split_level(0, memory, 0, &mut tasks).map_err(|_| CpuError::OutOfMemory { bytes })?;
        }
        Ok(tasks)
    }

    fn split_level<'a, T>(
        &self,
        depth: usize,
        mut memory: &'a mut [T],
        task: usize,
        tasks: &mut [Vec<&'a mut [T]>],
    ) -> Result<(), TryReserveError> {
        let Some(level) = self.levels.get(depth).filter(|level| depth < self.rows || level.cut.is_some()) else {
            tasks[task].try_reserve(1)?;
            tasks[task].push(memory);
            return Ok(());
        };
        if depth == self.rows {
            for (part, owner) in self.blocks_in_memory(level) {
                let n = if part.end == level.size { memory.len() } else { part.len() * level.stride };
                let (block, rest) = memory.split_at_mut(n);
                tasks[task + owner].try_reserve(1)?;
                tasks[task + owner].push(block);
                memory = rest;
            }
            return Ok(());
        }
        for (part, owner) in self.blocks_in_memory(level) {
            for i in part {
                let n = if i + 1 == level.size { memory.len() } else { level.stride };
                let (row, rest) = memory.split_at_mut(n);
                self.split_level(depth + 1, row, task + owner, tasks)?;
                memory = rest;
            }
        }
        Ok(())
    }

    /// The blocks of a level in the order of memory, each with what it adds to the number of its task.
    fn blocks_in_memory(&self, level: &Level) -> Vec<(Range<usize>, usize)> {
        let Some(cut) = level.cut else { return vec![(0..level.size, 0)] };
        let weight: usize = self.cuts[cut + 1..].iter().map(Cut::blocks).product();
        let mut blocks: Vec<(Range<usize>, usize)> = (0..self.cuts[cut].blocks())
            .map(|i| (level.in_memory(self.cuts[cut].block(i)), i * weight))
            .filter(|(part, _)| !part.is_empty())
            .collect();
        blocks.sort_by_key(|(part, _)| part.start);
        blocks
    }

    /// Where a task's elements lie.
    pub(super) fn place(&self, task: usize) -> Place {
        let mut place = Place { strides: PerAxis::new(), origin: (0, 0) };
        let mut slices = 1;
        for (depth, level) in self.levels.iter().enumerate().rev() {
            let part = self.part(level, task);
            let (per_slice, per_element) = if depth < self.rows { (slices, 0) } else { (0, level.stride as isize) };
            slices *= if depth < self.rows { part.len() as isize } else { 1 };
            let first = if level.flipped { level.size as isize - 1 } else { 0 } - part.start as isize;
            let sign = if level.flipped { -1 } else { 1 };
            place.origin.0 += first * per_slice;
            place.origin.1 += first * per_element;
            place.strides.push((level.axis, sign * per_slice, sign * per_element));
        }
        place
    }

    /// The indices of a level, in the order of memory, that a task owns.
    fn part(&self, level: &Level, task: usize) -> Range<usize> {
        let Some(cut) = level.cut else { return 0..level.size };
        let weight: usize = self.cuts[cut + 1..].iter().map(Cut::blocks).product();
        level.in_memory(self.cuts[cut].block(task / weight % self.cuts[cut].blocks()))
    }
}

impl Level {
    fn in_memory(&self, indices: Range<usize>) -> Range<usize> {
        if self.flipped { self.size - indices.end..self.size - indices.start } else { indices }
    }
}

/// Whether every axis steps over all that the axes after it reach.
fn nested(levels: &[Level]) -> bool {
    let mut reach = 0;
    levels.iter().rev().all(|level| {
        let clear = level.stride > reach;
        reach += level.stride * (level.size - 1);
        clear
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: Axis = Axis(0);
    const Y: Axis = Axis(1);
    const Z: Axis = Axis(2);

    fn laid(axis: Axis, size: usize, stride: i64) -> LaidAxis {
        LaidAxis { axis, size, stride }
    }

    /// Writes every index through the partition and reads the memory back with the strides.
    fn check(axes: &[LaidAxis], offset: usize, length: usize, cuts: &[Cut]) {
        let partition = Partition::new(axes, offset, cuts).unwrap();
        let mut memory = vec![0; length];
        let mut tasks = partition.split(&mut memory[partition.start..]).unwrap();
        assert_eq!(tasks.iter().map(Vec::len).sum::<usize>(), partition.slices());
        let shape: Vec<usize> = axes.iter().map(|axis| axis.size).collect();
        for (number, index) in indices(&shape).into_iter().enumerate() {
            let at = |axis: Axis| index[axes.iter().position(|a| a.axis == axis).unwrap()];
            let block = |cut: &Cut| (0..cut.blocks()).find(|i| cut.block(*i).contains(&at(cut.axis))).unwrap();
            let task = cuts.iter().fold(0, |task, cut| task * cut.blocks() + block(cut));
            let place = partition.place(task);
            let (mut slice, mut element) = place.origin;
            for (axis, per_slice, per_element) in &place.strides {
                slice += per_slice * at(*axis) as isize;
                element += per_element * at(*axis) as isize;
            }
            tasks[task][slice as usize][element as usize] = number + 1;
        }
        for (number, index) in indices(&shape).into_iter().enumerate() {
            let along: i64 = index.iter().zip(axes).map(|(i, axis)| *i as i64 * axis.stride).sum();
            assert_eq!(memory[(offset as i64 + along) as usize], number + 1, "{index:?}");
        }
    }

    fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
        let Some((n, rest)) = shape.split_first() else { return vec![vec![]] };
        (0..*n).flat_map(|i| indices(rest).into_iter().map(move |tail| [vec![i], tail].concat())).collect()
    }

    #[test]
    fn every_index_is_written_once_by_its_task() {
        let (by_x, by_y, by_z) = (Cut::even(X, 4, 3), Cut::even(Y, 5, 2), Cut::even(Z, 3, 1));
        let cuts =
            [vec![], vec![by_x.clone()], vec![by_y.clone()], vec![by_x.clone(), by_z.clone()], vec![by_z, by_y, by_x]];
        for cuts in cuts {
            check(&[laid(X, 4, 15), laid(Y, 5, 3), laid(Z, 3, 1)], 0, 60, &cuts);
            check(&[laid(Z, 3, 20), laid(X, 4, 1), laid(Y, 5, 4)], 0, 60, &cuts);
            check(&[laid(X, 4, -40), laid(Y, 5, 6), laid(Z, 3, -2)], 150, 200, &cuts);
        }
    }

    #[test]
    fn interleaved_axes_are_refused() {
        assert!(Partition::new(&[laid(X, 3, 2), laid(Y, 3, 3)], 0, &[]).is_none());
        assert!(Partition::new(&[laid(X, 3, 0)], 0, &[]).is_none());
        assert!(Partition::new(&[laid(X, 1, 0), laid(Y, 3, 1)], 0, &[]).is_some());
    }

    #[test]
    fn an_empty_tensor_has_no_slices() {
        let partition = Partition::new(&[laid(X, 0, 1), laid(Y, 5, 1)], 0, &[Cut::even(Y, 5, 2)]).unwrap();
        assert!(partition.split(&mut [0; 5]).unwrap().iter().all(Vec::is_empty));
    }
}

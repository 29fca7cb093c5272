//! The shape of a stage: the order of its axes, its tiles, and the blocks that tasks take.

use oplus_dsl::ir::{Axis, AxisSet};

use super::borders::{Borders, PART};
use super::draft::Draft;

/// How many elements a tile should have: a few registers of them fit the first-level cache.
const TILE: usize = 4096;
/// How many neighbours along contiguous axes a streamed tile should have before it grows along the streamed axis.
const LANES: usize = 512;
/// How many elements a tile along a contiguous streamed axis should have: what happens once per tile costs about as much
/// as a few thousand elements, and the second-level cache holds several registers of such tiles.
const ROW: usize = PART;
/// The least length of a tile along a contiguous streamed axis.
const RUN: usize = 64;
/// How many elements a task should have.
const TASK: usize = 1 << 14;
/// The least length of a chunk of the streamed axis.
const CHUNK: usize = 32;
/// With fewer independent blocks than this, tasks also share the streamed axis.
const BLOCKS: usize = 32;

/// The most rows and columns of a tile whose pairs are weighed, and the least where there are few tasks.
const ROWS: usize = 256;
const COLUMNS: usize = 256;
const FEWEST_ROWS: usize = 32;
/// With fewer tasks than this, tiles have fewer rows.
const TASKS: usize = 8;
/// The most rows and columns of a tile of a plain product, and the least where there are few tasks.
const SIDE: usize = 256;
const FEWEST_SIDE: usize = 64;

/// A tensor that a stage reads or writes: the stride of every axis.
pub(super) type Access = Vec<(Axis, i64)>;

/// The shape of a stage, axes outermost first.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shape {
    pub(super) order: Vec<Axis>,
    /// The size of a tile; tiles at the end of an axis are smaller.
    pub(super) tile: Vec<usize>,
    /// The size of the block that a task takes: whole tiles along parallel axes, everything along axes held whole, and a
    /// chunk of the streamed one.
    pub(super) task: Vec<usize>,
}

impl Shape {
    /// The shape for a stage that reads and writes some tensors; `sizes` are those of the program's axes.
    pub(super) fn new(draft: &Draft, sizes: &[usize], borders: &Borders, accesses: &[Access]) -> Shape {
        if draft.is_tiled {
            return Shape::tiled(draft, sizes, borders, accesses);
        }
        let order = order(draft, sizes, borders, accesses);
        let part = draft.streamed.and_then(|(axis, _)| borders.part(axis, sizes));
        let is_scanned = draft.streamed.is_some_and(|(axis, _)| borders.scanned.contains(axis));
        let sizes: Vec<usize> = order.iter().map(|axis| sizes[axis.0 as usize]).collect();
        let streamed = draft.streamed.and_then(|(axis, _)| order.iter().position(|a| *a == axis));
        let parallel: Vec<usize> = (0..order.len()).filter(|k| draft.parallel.contains(order[*k])).collect();
        let tile = tile(&sizes, streamed, part, &parallel);
        let task = match (streamed, part) {
            (Some(k), Some(part)) => {
                let mut task = tile.clone();
                task[k] = part;
                task
            }
            _ => task(&sizes, &tile, streamed, is_scanned, &parallel),
        };
        Shape { order, tile, task }
    }

    /// The shape for sums of products of matrices: rows, columns, then the axes within them. Tasks have everything along the axis
    /// that is summed.
    fn tiled(draft: &Draft, sizes: &[usize], borders: &Borders, accesses: &[Access]) -> Shape {
        let among = |axes: AxisSet| {
            let draft = Draft { parallel: axes, ..Draft::default() };
            order(&draft, sizes, borders, accesses)
        };
        let (outer, streamed) = (among(draft.parallel), draft.streamed.map(|(axis, _)| axis));
        let order: Vec<Axis> = outer.iter().copied().chain(streamed).chain(among(draft.whole)).collect();
        let sizes: Vec<usize> = order.iter().map(|axis| sizes[axis.0 as usize]).collect();
        let mut tile = sizes.clone();
        let rows: Vec<usize> = (0..outer.len()).collect();
        let fill = if draft.whole.is_empty() { sides } else { rows_of_tile };
        let (mut most, least) = if draft.whole.is_empty() { (SIDE, FEWEST_SIDE) } else { (ROWS, FEWEST_ROWS) };
        loop {
            fill(&mut tile[..outer.len()], &sizes, most);
            let tasks: usize = rows.iter().map(|k| sizes[*k].div_ceil(tile[*k].max(1))).product();
            if most <= least || tasks >= TASKS {
                break;
            }
            most /= 2;
        }
        let mut task = tile.clone();
        if let Some(size) = sizes.get(outer.len()).filter(|_| streamed.is_some()) {
            task[outer.len()] = *size;
            tile[outer.len()] = *size.min(&COLUMNS);
        }
        Shape { order, tile, task }
    }
}

impl Shape {
    /// The size of a task's block along an axis.
    pub(super) fn task_along(&self, axis: Axis) -> usize {
        self.order.iter().position(|a| *a == axis).map_or(1, |k| self.task[k]).max(1)
    }

    /// Gives tasks everything along an axis.
    pub(super) fn keep_whole(&mut self, axis: Option<Axis>, sizes: &[usize]) {
        for (task, own) in self.task.iter_mut().zip(&self.order) {
            if Some(*own) == axis {
                *task = sizes[own.0 as usize];
            }
        }
    }

    /// Gives tasks everything along all axes but one.
    pub(super) fn cut_only(&mut self, axis: Option<Axis>, sizes: &[usize]) {
        for (task, own) in self.task.iter_mut().zip(&self.order) {
            if Some(*own) != axis {
                *task = sizes[own.0 as usize];
            }
        }
    }
}

/// The streamed axis outermost, unless memory runs along it: then innermost. The others as most of memory has them.
/// The length of a scanned axis changes nothing.
fn order(draft: &Draft, sizes: &[usize], borders: &Borders, accesses: &[Access]) -> Vec<Axis> {
    let axes: AxisSet = draft.parallel.union(draft.whole);
    let streamed = draft.streamed.map(|(axis, _)| axis);
    let size = |axis: &Axis| borders.size(*axis, sizes);
    let weight = |access: &Access| access.iter().map(|(axis, _)| size(axis)).fold(1_usize, usize::saturating_mul);
    let contiguity = |axis: &Axis| {
        let along = |access: &&Access| access.iter().any(|(a, stride)| a == axis && stride.abs() == 1);
        let total = accesses.iter().filter(along).map(weight).fold(0, usize::saturating_add);
        match borders.scanned.contains(*axis) && !draft.parallel.contains(*axis) {
            true if borders.along.contains(*axis) => usize::MAX,
            false if size(axis) > 1 => total,
            _ => 0,
        }
    };
    let mut largest: Vec<&Access> = accesses.iter().collect();
    largest.sort_by_key(|access| std::cmp::Reverse(weight(access)));
    let stride = |axis: &Axis| {
        let of = |access: &&&Access| access.iter().any(|(a, stride)| a == axis && *stride != 0);
        let access = largest.iter().find(of);
        access.and_then(|access| access.iter().find(|(a, _)| a == axis)).map_or(0, |(_, stride)| stride.abs())
    };
    let mut order: Vec<Axis> = axes.iter().collect();
    order.sort_by_key(|axis| (contiguity(axis), std::cmp::Reverse(stride(axis))));
    order.sort_by_key(|axis| std::cmp::Reverse(stride(axis)));
    if let Some(innermost) = axes.iter().max_by_key(contiguity).filter(|axis| contiguity(axis) > 0) {
        order.retain(|axis| *axis != innermost);
        order.push(innermost);
    }
    if let Some(streamed) = streamed {
        let is_along = borders.along.contains(streamed);
        let innermost = is_along || order.last().is_none_or(|last| contiguity(&streamed) > contiguity(last));
        order.insert(if innermost { order.len() } else { 0 }, streamed);
    }
    order
}

fn tile(sizes: &[usize], streamed: Option<usize>, part: Option<usize>, parallel: &[usize]) -> Vec<usize> {
    let mut tile: Vec<usize> = sizes.to_vec();
    parallel.iter().chain(&streamed).for_each(|k| tile[*k] = 1);
    let along_memory = streamed.is_some_and(|k| k + 1 == sizes.len());
    if let Some(k) = streamed.filter(|_| along_memory) {
        tile[k] = sizes[k].min(power(ROW / elements(&tile)).max(RUN));
    } else {
        let lanes = if streamed.is_some() { LANES } else { TILE };
        let innermost = parallel.last().filter(|k| **k + 1 == sizes.len());
        if let Some(k) = innermost {
            tile[*k] = sizes[*k].min(room(&tile).clamp(16, lanes));
        }
        grow(&mut tile, sizes, parallel, lanes);
        if let Some(k) = streamed {
            tile[k] = sizes[k].min(power(room(&tile))).min(part.unwrap_or(usize::MAX));
        }
    }
    grow(&mut tile, sizes, parallel, TILE);
    tile
}

/// Makes a tile of rows, at most so many.
fn rows_of_tile(tile: &mut [usize], sizes: &[usize], most: usize) {
    tile.fill(1);
    let rows: Vec<usize> = (0..tile.len()).collect();
    grow(tile, sizes, &rows, most);
}

/// Makes a tile of rows and columns, at most about so many of each: the two innermost axes that are long enough.
fn sides(tile: &mut [usize], sizes: &[usize], most: usize) {
    tile.fill(1);
    let mut long = (0..tile.len()).rev().filter(|k| sizes[*k] > 1);
    let Some(first) = long.next() else { return };
    tile[first] = sizes[first].min(most);
    if let Some(second) = long.next() {
        tile[second] = sizes[second].min(most * most / tile[first]);
    }
}

/// How many times a tile fits into its budget, at least once.
fn room(tile: &[usize]) -> usize {
    (TILE / elements(tile)).max(1)
}

/// The largest power of two that is not larger than a number, at least 1.
fn power(n: usize) -> usize {
    1 << n.max(1).ilog2()
}

fn elements(tile: &[usize]) -> usize {
    tile.iter().product::<usize>().max(1)
}

/// Enlarges a tile along parallel axes, innermost first, while it has fewer than `most` elements and the axes inside
/// are complete.
fn grow(tile: &mut [usize], sizes: &[usize], parallel: &[usize], most: usize) {
    for &k in parallel.iter().rev() {
        let others = tile.iter().product::<usize>().max(1) / tile[k].max(1);
        tile[k] = sizes[k].min((most / others.max(1)).max(tile[k]));
        if tile[k] < sizes[k] {
            return;
        }
    }
}

/// Tasks take several tiles along parallel axes, or a chunk of the streamed axis where there are few such blocks.
/// A scan that has no parts is not cut.
fn task(sizes: &[usize], tile: &[usize], streamed: Option<usize>, is_scanned: bool, parallel: &[usize]) -> Vec<usize> {
    let mut task = tile.to_vec();
    let blocks: usize = parallel.iter().map(|k| sizes[*k].div_ceil(tile[*k].max(1))).product();
    if let Some(k) = streamed {
        let step = tile.iter().product::<usize>() / tile[k].max(1);
        let chunk = (TASK / step.max(1)).max(CHUNK).next_multiple_of(tile[k].max(1));
        let is_cut = !is_scanned && blocks < BLOCKS && sizes[k] > 2 * chunk;
        task[k] = if is_cut { chunk } else { sizes[k] };
        if task[k] < sizes[k] {
            return task;
        }
    }
    for &k in parallel.iter().rev() {
        let elements = task.iter().product::<usize>().max(1);
        let blocks = sizes[k].div_ceil(tile[k].max(1));
        task[k] = sizes[k].min(tile[k].max(1) * (TASK / elements).clamp(1, blocks.max(1)));
        if task[k] < sizes[k] {
            break;
        }
    }
    task
}

#[cfg(test)]
mod tests {
    use oplus_dsl::ir::Program;
    use oplus_dsl::parse::parse;
    use oplus_dsl::testing::texts::SUMS;

    use super::*;
    use crate::cpu::plan::{Layout, Request};

    const B: Axis = Axis(0);
    const L: Axis = Axis(1);

    /// Sums along an axis, or a copy.
    fn program(axis: Option<Axis>) -> Program {
        let copy = "program p { axes B, L; param x: f32[B, L]; %0: f32[B, L] = param x; output y: f32[B, L] = %0; }";
        let text = match axis {
            None => copy.to_owned(),
            Some(L) => SUMS.to_owned(),
            Some(_) => SUMS.replace("(L, ", "(B, ").replace("f32[B] =", "f32[L] ="),
        };
        parse(&text).unwrap()
    }

    fn shape(streamed: Option<Axis>, sizes: [usize; 2], strides: [i64; 2]) -> Shape {
        let parallel = [B, L].into_iter().filter(|axis| Some(*axis) != streamed).collect();
        let draft = Draft { parallel, streamed: streamed.map(|axis| (axis, false)), ..Draft::default() };
        let layout = Layout { offset: 0, strides: strides.to_vec() };
        let program = program(streamed);
        let of = |axes: &Vec<Axis>| Layout { strides: layout.strides[..axes.len()].to_vec(), ..layout.clone() };
        let outputs = program.outputs.iter().map(|output| of(&output.axes)).collect();
        let request = Request { sizes: sizes.to_vec(), inputs: vec![Some(layout.clone())], outputs };
        let borders = Borders::new(&program, &request, false);
        Shape::new(&draft, &sizes, &borders, &[vec![(B, strides[0]), (L, strides[1])]])
    }

    #[test]
    fn a_long_row_is_cut_into_chunks() {
        let shape = shape(Some(L), [1, 1 << 25], [1 << 25, 1]);
        assert_eq!((shape.order, shape.tile, shape.task), (vec![B, L], vec![1, ROW], vec![1, TASK]));
    }

    #[test]
    fn many_rows_are_not() {
        let shape = shape(Some(L), [1000, 20000], [20000, 1]);
        assert_eq!((shape.tile, shape.task), (vec![1, ROW], vec![1, 20000]));
    }

    #[test]
    fn short_rows_share_a_tile_and_tiles_a_task() {
        let shape = shape(Some(L), [1 << 20, 16], [16, 1]);
        assert_eq!((shape.tile, shape.task), (vec![256, 16], vec![1024, 16]));
    }

    #[test]
    fn columns_are_lanes() {
        let shape = shape(Some(L), [1000, 1 << 20], [1, 1000]);
        assert_eq!((shape.order, shape.tile), (vec![L, B], vec![8, 512]));
        assert_eq!(shape.task, [32, 512]);
    }

    #[test]
    fn borders_do_not_depend_on_the_length() {
        for (rows, strides, part) in [(3, [1 << 20, 1], PART), (3, [1, 3], 4096), (1000, [1, 1000], 32)] {
            for length in [part, part + 1, 2 * part, 70_001, 1 << 20] {
                assert_eq!(shape(Some(L), [rows, length], strides).task_along(L), part, "{length} of {rows}");
            }
        }
    }

    #[test]
    fn maps_follow_memory() {
        let shape = shape(None, [3, 1 << 20], [1, 3]);
        assert_eq!((shape.order, shape.tile), (vec![L, B], vec![1365, 3]));
    }

    #[test]
    fn empty_axes_have_a_shape() {
        for sizes in [[0, 5], [5, 0], [0, 0]] {
            for streamed in [None, Some(B), Some(L)] {
                assert_eq!(shape(streamed, sizes, [5, 1]).order.len(), 2);
            }
        }
    }
}

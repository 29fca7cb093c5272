//! The facts of a stage that the numbers of its schedules depend on: a small set of schedules covers every size, stride and alignment.
//!
//! A kernel's schedules have numbers chosen from its element types, its fields and how many tensors it reads; the planner only
//! picks among them. Per stage there are vector schedules for contiguous, aligned tensors, and scalar ones that run anything.

use oplus_dsl::Elem;
use oplus_dsl::ir::Axis;

use super::problem::Problem;
use crate::abi::{Tensor, axes, elem, tensors};
use crate::block::pressure::{temporaries, words_per_element};
use crate::stage::Stage;
use crate::target::Isa;

/// Bytes of shared memory that a persistent block's ring may take: all but what the messages need, or what every
/// device of the instruction set has.
pub(crate) fn ring_bytes(isa: Isa) -> u32 {
    match isa {
        Isa::Sm80 => 88 << 10,
        Isa::Sm90a => 200 << 10,
    }
}

/// The facts of a stage that the numbers of its schedules depend on.
pub(crate) struct Shape {
    /// Registers per element.
    pub words: u32,
    /// Bytes read per point.
    pub read: u32,
    /// Registers of intermediate values.
    pub temporaries: u32,
    /// Whether it computes in f64: every value then takes two registers, and functions take many.
    pub wide: bool,
}

impl Shape {
    /// The shape of a stage.
    pub(crate) fn of(stage: &Stage) -> Shape {
        Shape {
            words: words_per_element(stage),
            read: bytes_per_point(stage).max(1),
            temporaries: temporaries(stage),
            wide: stage.program.params.iter().any(|p| p.elem == Elem::F64),
        }
    }

    /// Elements per thread that take about this many registers.
    pub(crate) fn items(&self, registers: u32) -> u32 {
        let share = match self.wide {
            true if self.temporaries > 0 => 4,
            true if self.words > 6 => 2,
            _ => 1,
        };
        let items = (registers / share / self.words).max(1);
        1 << items.ilog2()
    }
}

/// Bytes that one point of the iteration reads.
fn bytes_per_point(stage: &Stage) -> u32 {
    let Some(axis) = stage.axis() else { return 0 };
    let own = |t: &Tensor| matches!(t, Tensor::Param(_)) && axes(stage, *t).contains(&axis);
    tensors(stage).filter(own).map(|t| elem(stage, t).bytes().unwrap_or(8) as u32).sum()
}

/// Whether an outer axis, not the scan axis, is the last one, and so the one that is contiguous.
pub(crate) fn is_strided(stage: &Stage) -> bool {
    last_outer_axis(stage).is_some_and(|lane| Some(lane) > stage.axis())
}

/// The last outer axis.
pub(crate) fn last_outer_axis(stage: &Stage) -> Option<Axis> {
    stage.outer_axes().iter().last()
}

/// Rows of a stage with axes of these sizes, and elements of a row.
pub(crate) fn rows_and_length(stage: &Stage, sizes: &[i64]) -> (i64, i64) {
    let size = |axis: Axis| sizes[axis.0 as usize];
    (stage.outer_axes().iter().map(size).product(), stage.axis().map_or(1, size))
}

/// Blocks of some rows each along the last outer axis, for every point of the others.
pub(crate) fn blocks_of_rows(problem: &Problem<'_>, rows: u32) -> u64 {
    let width = last_outer_axis(problem.stage).map_or(1, |row| problem.size(row) as u64);
    (problem.rows() / width.max(1)).saturating_mul(width.div_ceil(u64::from(rows)))
}

/// Elements per access along an axis: 16 bytes of the elements that make up most of the bytes; `None` for one.
pub(crate) fn vector(stage: &Stage, axis: Axis) -> Option<u32> {
    let along = |t: &Tensor| axes(stage, *t).contains(&axis);
    let sizes: Vec<usize> = tensors(stage).filter(along).filter_map(|t| elem(stage, t).bytes()).collect();
    let weight = |size: usize| size * sizes.iter().filter(|s| **s == size).count();
    let size = sizes.iter().copied().max_by_key(|s| (weight(*s), *s))?;
    Some((16 / size as u32).clamp(1, 8)).filter(|v| *v > 1)
}

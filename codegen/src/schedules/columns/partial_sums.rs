//! Partial sums over columns: a warp that walks sums each row over its own columns, and stores that as one partial sum.

use super::Layout;
use super::cells::{Cells, Place};
use crate::abi::Tensor;
use crate::block::carry::AroundStep;
use crate::block::lane_sum::Lanes;
use crate::block::point::Point;
use crate::build::{Builder, zero};
use crate::schedules::Columns;
use crate::stage::kind::PartialSum;
use crate::target::WARP;
use crate::tile::{Operand, Special};
use oplus_dsl::Ty;
use oplus_dsl::ir::Value;

/// The number of partial sums over `width` columns: one for every warp.
pub fn partial_sums(schedule: &Columns, width: u64) -> u64 {
    width.div_ceil(u64::from(schedule.threads() * schedule.vector)) * u64::from(schedule.warps)
}

/// The sums over a thread's columns of each output that has partial sums.
pub(super) struct RowSums(Vec<RowSum>);

/// The sums over a thread's columns of an output.
struct RowSum {
    output: u32,
    /// The value that is summed.
    element: Value,
    /// The sum of each row of a chunk.
    rows: Vec<Operand>,
}

impl RowSums {
    /// Nothing summed yet.
    pub(super) fn new(layout: &Layout) -> RowSums {
        let nothing = vec![zero(Ty::F32); layout.schedule.steps as usize];
        let sums = layout.stage.kind().partial_sums().map_or(&[][..], |form| &form.sums);
        let of = |sum: &PartialSum| RowSum { output: sum.output, element: sum.element, rows: nothing.clone() };
        RowSums(sums.iter().map(of).collect())
    }

    /// Sums a row, given the states before and after it.
    pub(super) fn row(
        &mut self,
        b: &mut Builder,
        cells: &Cells,
        row: u32,
        points: &mut [Point],
        states: &[AroundStep<'_>],
    ) {
        for RowSum { element, rows, .. } in &mut self.0 {
            let mut sum: Option<Operand> = None;
            for (v, (point, states)) in points.iter_mut().zip(states).enumerate() {
                let term = cells.value(b, point, row, v as u32, *element, Some(*states));
                let term = b.select(cells.exists, term, zero(b.ty(term)));
                sum = Some(sum.map_or(term, |sum| b.add(sum, term)));
            }
            rows[row as usize] = sum.unwrap_or(zero(Ty::F32));
        }
    }

    /// Sums a chunk's rows over the lanes of the warp, and stores them as the partial sums of a number (`i64`).
    pub(super) fn store(&self, b: &mut Builder, layout: &Layout, cells: &Cells, place: &Place, number: Operand) {
        let (Some(axis), false) = (layout.stage.partial_axis, self.0.is_empty()) else { return };
        let position = b.special(Special::Lane);
        let lanes = Lanes { count: WARP, stride: 1, position, length: layout.schedule.steps };
        let first = lanes.first_step(b);
        let keeps = lanes.keeps(b);
        let row = b.convert(Ty::I64, first);
        let mut indices = place.outer.clone();
        indices.extend([(axis, number), (layout.scan.axis, b.add(place.time, row))]);
        for RowSum { output, rows, .. } in &self.0 {
            let tensor = Tensor::Output(*output);
            let origin = layout.args.offset(b, tensor, &indices);
            for (k, sum) in lanes.sum(b, rows).into_iter().enumerate() {
                let below = cells.row_exists(b, first, k as u32);
                let guard = b.and(below, keeps);
                let step = layout.args.stride(tensor, layout.scan.axis);
                let step = b.mul(step, k);
                let at = b.add(origin, step);
                b.store(layout.args.memory(tensor), at, &[sum], Some(guard));
            }
        }
    }
}

//! Sums over columns, in parts: a warp that walks sums each row over its own columns, and stores that as one part.

use super::Layout;
use super::cells::{Cells, Place};
use crate::abi::Tensor;
use crate::block::lane_sum::Lanes;
use crate::block::point::Point;
use crate::build::{Builder, zero};
use crate::schedules::Columns;
use crate::target::WARP;
use crate::tile::{Operand, Special};
use oplus_dsl::Ty;
use oplus_dsl::ir::Value;

/// Parts of a sum over `width` columns: one for every warp.
pub fn parts(schedule: &Columns, width: u64) -> u64 {
    width.div_ceil(u64::from(schedule.threads() * schedule.vector)) * u64::from(schedule.warps)
}

/// The sums over a thread's columns of each part output, row by row.
pub(super) struct RowSums {
    /// The output, what it sums, and the sum of each row of a chunk.
    outputs: Vec<(u32, Value, Vec<Operand>)>,
}

impl RowSums {
    /// Nothing summed yet.
    pub(super) fn new(layout: &Layout) -> RowSums {
        let nothing = vec![zero(Ty::F32); layout.schedule.steps as usize];
        let sums = layout.stage.kind().partial_sums().map_or(&[][..], |parted| &parted.sums);
        RowSums { outputs: sums.iter().map(|sum| (sum.output, sum.element, nothing.clone())).collect() }
    }

    /// Sums a row, given the states before and after it.
    pub(super) fn row(
        &mut self,
        b: &mut Builder,
        cells: &Cells,
        row: u32,
        points: &mut [Point],
        states: &[(&[Operand], &[Operand])],
    ) {
        for (_, element, sums) in &mut self.outputs {
            let mut sum: Option<Operand> = None;
            for (v, (point, states)) in points.iter_mut().zip(states).enumerate() {
                let term = cells.value(b, point, row, v as u32, *element, Some(*states));
                let term = b.select(cells.exists, term, zero(b.ty(term)));
                sum = Some(sum.map_or(term, |sum| b.add(sum, term)));
            }
            sums[row as usize] = sum.unwrap_or(zero(Ty::F32));
        }
    }

    /// Sums a chunk's rows over the lanes of the warp, and stores them as part number `part` (`i64`).
    pub(super) fn store(&self, b: &mut Builder, layout: &Layout, cells: &Cells, place: &Place, part: Operand) {
        let (Some(axis), false) = (layout.stage.part_axis, self.outputs.is_empty()) else { return };
        let position = b.special(Special::Lane);
        let lanes = Lanes { count: WARP, stride: 1, position, length: layout.schedule.steps };
        let first = lanes.first_step(b);
        let keeps = lanes.keeps(b);
        let row = b.convert(Ty::I64, first);
        let mut indices = place.outer.clone();
        indices.extend([(axis, part), (layout.scan.axis, b.add(place.time, row))]);
        for (output, _, sums) in &self.outputs {
            let tensor = Tensor::Output(*output);
            let origin = layout.args.offset(b, tensor, &indices);
            for (k, sum) in lanes.sum(b, sums).into_iter().enumerate() {
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

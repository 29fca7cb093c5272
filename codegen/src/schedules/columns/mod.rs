//! Columns: lanes along a contiguous axis that is not scanned, time in registers.
//!
//! * *walk*: enough columns to fill the device. A thread walks its columns from one end of time to the other.
//! * *ring*: few columns and much time. Persistent blocks scan tiles of time × columns and look back.
//!
//! Both see a stage as *cells*: rows of time × adjacent columns that one thread holds (`cells`).

mod candidates;
mod cells;
mod look_back;
mod parameters;
mod partial_sums;
mod produce;
mod publish;
mod ring;
mod roles;
mod strategy;
mod walk;

pub use parameters::{Columns, Form};
pub use partial_sums::partial_sums;
pub use ring::HELPERS;

use super::{LowerError, Strategy};
use crate::block::args::Args;
use crate::block::carry::{AroundStep, Fields, Monoid};
use crate::block::point::Point;
use crate::block::reads::used_fields;
use crate::build::Builder;
use crate::stage::{Refusal, Scan, Stage};
use crate::tile::{Kernel, Operand};
use cells::{Cells, Streams};
use oplus_dsl::ir::Axis;
use partial_sums::RowSums;

/// The tile kernel of a stage under a columns schedule.
pub fn lower(stage: &Stage, schedule: &Columns, symbol: &str) -> Result<Kernel, LowerError> {
    let scan = stage.scan().ok_or(LowerError::Kind { schedule: Columns::NAME, refusal: Refusal::NoScan })?;
    let ring = schedule.form == Form::Ring;
    let fits = schedule.lanes.is_power_of_two() && schedule.lanes <= 32 && schedule.steps > 0;
    let is_partial = stage.partial_axis.is_some();
    let sums = !is_partial || !ring && schedule.steps.is_power_of_two() && stage.kind().partial_sums().is_ok();
    let threads = schedule.points > 0 && schedule.threads().is_multiple_of(schedule.points);
    let alone = schedule.points == 1 || !ring && !is_partial;
    let even = !ring || !stage.is_uneven();
    let fits = fits && sums && threads && alone && even && (ring || schedule.stages <= 1);
    if !fits || ring && (schedule.stages > 6 || schedule.group == 0 || schedule.window == 0) {
        return Err(LowerError::parameters(schedule));
    }
    let mut b = Builder::new(symbol, schedule.threads());
    let columns = Layout::declare(&mut b, stage, scan, schedule);
    if ring {
        ring::lower(&mut b, &columns)
    } else {
        walk::lower(&mut b, &columns)
    }
    Ok(b.finish())
}

/// The shared memory of the kernel.
pub fn shared_bytes(stage: &Stage, schedule: &Columns) -> u32 {
    let Some(scan) = stage.scan().filter(|_| schedule.form == Form::Ring) else { return 0 };
    Builder::shared_bytes_of(|b| {
        let columns = Layout::declare(b, stage, scan, schedule);
        ring::Ring::declare(b, &columns);
    })
}

/// A stage laid over columns. Immutable while code is emitted.
struct Layout<'s> {
    stage: &'s Stage,
    scan: Scan<'s>,
    schedule: &'s Columns,
    monoid: Monoid<'s>,
    args: Args,
    streams: Streams,
    /// The axis of the columns.
    lane: Axis,
    /// Sizes of the scan axis and of the lane axis, `i64`.
    len: Operand,
    width: Operand,
}

/// A row of a thread's cells.
struct CellRow<'a> {
    cells: &'a Cells<'a>,
    row: u32,
    /// The scan's elements at the row, one per column.
    elements: &'a [Fields],
}

impl<'s> Layout<'s> {
    fn declare(b: &mut Builder, stage: &'s Stage, scan: Scan<'s>, schedule: &'s Columns) -> Layout<'s> {
        let args = Args::declare(b, stage, schedule.abi(stage));
        let monoid = Monoid::new(stage.program.operator(scan.operator), &used_fields(stage, &scan));
        let lane = Axis(schedule.lane);
        let streams = Streams::new(stage, &scan, schedule);
        let (len, width) = (args.size(scan.axis), args.size(lane));
        Layout { stage, scan, schedule, monoid, args, streams, lane, len, width }
    }

    fn vector(&self) -> u32 {
        self.schedule.vector
    }

    fn point(&self) -> Point<'s> {
        Point::new(&self.stage.program, Some(self.scan.axis))
    }

    /// The state of a column before the first row.
    fn initial(&self, b: &mut Builder, cells: &Cells, column: u32) -> Fields {
        let init = self.monoid.keep(self.scan.init);
        if init.is_empty() {
            return self.monoid.identity_state();
        }
        let mut point = self.point();
        init.iter().map(|value| cells.value(b, &mut point, 0, column, *value, None)).collect()
    }

    /// The states after a row and the outputs at it. `states` are those before it; `sums` takes up the row's sums.
    fn step(
        &self,
        b: &mut Builder,
        CellRow { cells, row, elements }: CellRow,
        points: &mut [Point],
        states: Vec<Fields>,
        sums: &mut RowSums,
    ) -> Vec<Fields> {
        let after: Vec<Fields> =
            states.iter().zip(elements).map(|(state, element)| self.monoid.apply(b, state, element)).collect();
        for (k, output) in self.stage.program.outputs.iter().enumerate() {
            if self.stage.is_final(k) || self.stage.has_partial_sums(k) {
                continue;
            }
            let values: Vec<Operand> = (0..self.vector() as usize)
                .map(|v| {
                    cells.value(
                        b,
                        &mut points[v],
                        row,
                        v as u32,
                        output.value,
                        Some(AroundStep { before: &states[v], after: &after[v] }),
                    )
                })
                .collect();
            cells.store(b, k as u32, row, &values);
        }
        let both = states.iter().zip(&after).map(|(before, after)| AroundStep { before, after });
        let both: Vec<AroundStep> = both.collect();
        sums.row(b, cells, row, points, &both);
        after
    }

    /// The scan's elements at a row, one per column.
    fn elements(&self, b: &mut Builder, cells: &Cells, row: u32, points: &mut [Point]) -> Vec<Fields> {
        (0..self.vector()).map(|v| cells.element(b, &mut points[v as usize], row, v)).collect()
    }
}

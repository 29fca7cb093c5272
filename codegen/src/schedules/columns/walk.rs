//! Walk: each thread scans its columns alone, chunk after chunk of `steps` rows.
//!
//! With `stages` = 1 a chunk's rows are loaded while the one before it is scanned: a thread then always has some on their way.

use super::cells::{Cells, Place};
use super::partial_sums::RowSums;
use super::{CellRow, Layout};
use crate::block::carry::assign;
use crate::build::{Builder, operands};
use crate::tile::{Operand, Special};
use oplus_dsl::Ty;
use oplus_dsl::ir::Axis;

/// A block for every group of columns (fastest) and every point of the other outer axes.
pub(super) fn lower(b: &mut Builder, layout: &Layout) {
    let walk = Walk::find(b, layout);
    let initial = {
        let cells = Cells::without_rows(b, layout, walk.place(Operand::i64(0)), layout.vector());
        (0..layout.vector()).map(|v| layout.initial(b, &cells, v)).collect::<Vec<_>>()
    };
    let states: Vec<Vec<_>> = initial.iter().map(|state| b.vars(state)).collect();
    let ahead = (layout.schedule.stages > 0).then(|| {
        let time = walk.time(b, Operand::i64(0));
        Cells::load(b, layout, walk.place(time), None, true).keep(b)
    });
    let steps = Operand::i64(i64::from(layout.schedule.steps));
    b.for_(Operand::i64(0), layout.len, steps, |b, start| {
        let time = walk.time(b, start);
        let cells = match &ahead {
            None => Cells::load(b, layout, walk.place(time), None, true),
            Some(ahead) => {
                let cells = Cells::kept(b, layout, walk.place(time), ahead);
                let next = b.add(start, steps);
                let next = walk.time(b, next);
                Cells::load(b, layout, walk.place(next), None, true).refill(b, ahead);
                cells
            }
        };
        let mut now: Vec<Vec<Operand>> = states.iter().map(|state| operands(state)).collect();
        let mut sums = RowSums::new(layout);
        for row in layout.scan.in_order(layout.schedule.steps) {
            let mut points: Vec<_> = (0..layout.vector()).map(|_| layout.point()).collect();
            let elements = layout.elements(b, &cells, row, &mut points);
            let own = CellRow { cells: &cells, row, elements: &elements };
            now = layout.step(b, own, &mut points, now, &mut sums);
        }
        sums.store(b, layout, &cells, &walk.place(time), walk.number);
        assign(b, &states.concat(), &now.concat());
    });
    if layout.stage.has_finals() {
        let cells = Cells::without_rows(b, layout, walk.place(Operand::i64(0)), layout.vector());
        for (v, state) in states.iter().enumerate() {
            let state = operands(state);
            cells.store_finals(b, v as u32, &state);
        }
    }
}

/// Where a thread is.
struct Walk<'k, 's> {
    layout: &'k Layout<'s>,
    /// Its first column, `i64`.
    column: Operand,
    /// The index along every outer axis but that of the columns.
    outer: Vec<(Axis, Operand)>,
    /// The number of its warp among those of all columns, `i64`.
    number: Operand,
}

impl<'k, 's> Walk<'k, 's> {
    fn find(b: &mut Builder, layout: &'k Layout<'s>) -> Walk<'k, 's> {
        let schedule = layout.schedule;
        if schedule.points > 1 {
            return Walk::of_several_points(b, layout);
        }
        let [block, thread, warp] = [Special::Block, Special::Thread, Special::Warp].map(|s| b.special(s));
        let [block, thread, warp] = [block, thread, warp].map(|x| b.convert(Ty::I64, x));
        let span = i64::from(schedule.threads() * schedule.vector);
        let groups = b.div_ceil(layout.width, span);
        let [row, group] = b.div_rem(block, groups);
        let first = b.mul(group, schedule.threads());
        let column = b.add(first, thread);
        let column = b.mul(column, schedule.vector);
        let outer = layout.args.indices(b, row, layout.stage.outer_axes().without(layout.lane));
        let first = b.mul(group, schedule.warps);
        let number = b.add(first, warp);
        Walk { layout, column, outer, number }
    }

    /// Where a thread is in a block of several points, each of which has all columns of the axis. Threads without a point have no column.
    fn of_several_points(b: &mut Builder, layout: &'k Layout<'s>) -> Walk<'k, 's> {
        let schedule = layout.schedule;
        let [block, thread] = [Special::Block, Special::Thread].map(|s| b.special(s));
        let [block, thread] = [block, thread].map(|x| b.convert(Ty::I64, x));
        let [own, lane] = b.div_rem(thread, schedule.threads_of_point());
        let first = b.mul(block, schedule.points);
        let point = b.add(first, own);
        let axes = layout.stage.outer_axes().without(layout.lane);
        let points = layout.args.rows(b, axes);
        let exists = b.lt(point, points);
        let column = b.mul(lane, schedule.vector);
        let column = b.select(exists, column, layout.width);
        let point = b.select(exists, point, Operand::i64(0));
        Walk { layout, column, outer: layout.args.indices(b, point, axes), number: Operand::i64(0) }
    }

    fn place(&self, time: Operand) -> Place {
        Place { time, column: self.column, outer: self.outer.clone() }
    }

    /// The first row of the chunk that is `start` rows on in the order of the scan; one without rows beyond the last chunk.
    fn time(&self, b: &mut Builder, start: Operand) -> Operand {
        if !self.layout.scan.reverse {
            return start;
        }
        let steps = i64::from(self.layout.schedule.steps);
        let chunks = b.div_ceil(self.layout.len, steps);
        let total = b.mul(chunks, steps);
        let end = b.sub(total, start);
        let first = b.sub(end, steps);
        let exists = b.ge(first, 0);
        b.select(exists, first, self.layout.len)
    }
}

//! Walk: each thread scans its columns alone.

use super::Layout;
use super::cells::{Cells, Place};
use crate::build::Builder;
use crate::lower::carry::assign;
use crate::tile::{Operand, Special};
use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

/// A block for every group of columns (fastest) and every point of the other outer axes.
pub(super) fn lower(b: &mut Builder, layout: &Layout) {
    let schedule = layout.schedule;
    let [block, thread] = [Special::Block, Special::Thread].map(|s| b.special(s));
    let [block, thread] = [block, thread].map(|x| b.convert(Ty::I64, x));
    let span = i64::from(schedule.threads() * schedule.vector);
    let up = b.add(layout.width, Operand::i64(span - 1));
    let groups = b.binary(Binary::Div, up, Operand::i64(span));
    let row = b.binary(Binary::Div, block, groups);
    let group = b.binary(Binary::Rem, block, groups);
    let first = b.mul(group, Operand::i64(i64::from(schedule.threads())));
    let column = b.add(first, thread);
    let column = b.mul(column, Operand::i64(i64::from(schedule.vector)));
    let outer = layout.args.indices(b, row, layout.stage.outer_axes().without(layout.lane));
    let place = |time| Place { time, column, outer: outer.clone() };
    let initial = {
        let cells = Cells::without_rows(b, layout, place(Operand::i64(0)), layout.vector());
        (0..layout.vector()).map(|v| layout.initial(b, &cells, v)).collect::<Vec<_>>()
    };
    let states: Vec<Vec<_>> = initial.iter().map(|state| state.iter().map(|x| b.var(*x)).collect()).collect();
    let steps = Operand::i64(i64::from(schedule.steps));
    b.for_(Operand::i64(0), layout.len, steps, |b, start| {
        let time = if layout.reverse() {
            let up = b.add(layout.len, Operand::i64(i64::from(schedule.steps) - 1));
            let chunks = b.binary(Binary::Div, up, steps);
            let total = b.mul(chunks, steps);
            let end = b.sub(total, start);
            b.sub(end, steps)
        } else {
            start
        };
        let cells = Cells::load(b, layout, place(time), None, true);
        let mut now: Vec<Vec<Operand>> =
            states.iter().map(|state| state.iter().map(|r| Operand::Reg(*r)).collect()).collect();
        for row in layout.in_order(schedule.steps) {
            let mut points: Vec<_> = (0..schedule.vector).map(|_| layout.point()).collect();
            let elements = layout.elements(b, &cells, row, &mut points);
            now = layout.step(b, &cells, row, &mut points, &elements, now);
        }
        assign(b, &states.concat(), &now.concat());
    });
    if layout.has_finals() {
        let cells = Cells::without_rows(b, layout, place(Operand::i64(0)), layout.vector());
        for (v, state) in states.iter().enumerate() {
            let state: Vec<Operand> = state.iter().map(|r| Operand::Reg(*r)).collect();
            cells.store_finals(b, v as u32, &state);
        }
    }
}

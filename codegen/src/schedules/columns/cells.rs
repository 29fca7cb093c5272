//! Cells: the rows of time and adjacent columns that one thread holds.
//!
//! A parameter is read in one of four ways, by which of the scan axis and the lane axis it has. With both it is a
//! *stream* (a vector of columns per row; through the ring if there is one); with the scan axis alone a scalar per row;
//! with the lane axis alone a vector once; with neither a scalar once.

use super::Layout;
use crate::abi::{Tensor, axes};
use crate::block::args::index_of;
use crate::block::carry::{AroundStep, Fields, select};
use crate::block::point::{Anchor, Leaves, Point, Position};
use crate::block::reads::near;
use crate::build::{Builder, zero};
use crate::schedules::{Columns, Form};
use crate::stage::{Scan, Stage};
use crate::tile::{Expr, Memory, Operand, Reg, SharedId};
use oplus_dsl::ir::{Axis, AxisSet, Binary, Value};
use oplus_dsl::{Elem, Ty};
use std::collections::HashMap;

/// Displacements up to this many rows are read with the tile; farther ones when they are asked for.
const REACH: i64 = 4;

/// The parameters that run along the scan axis.
pub(super) struct Streams {
    pub(super) list: Vec<Stream>,
}

/// A parameter that runs along the scan axis.
pub(super) struct Stream {
    pub(super) param: u32,
    pub(super) name: String,
    pub(super) elem: Elem,
    /// Whether it has the lane axis.
    pub(super) wide: bool,
    /// Whether it passes through the ring.
    pub(super) ring: bool,
    /// Rows before and after that are read as well.
    pub(super) before: u32,
    pub(super) after: u32,
    /// Whether the scan's elements read it.
    pub(super) in_elements: bool,
}

impl Streams {
    pub(super) fn new(stage: &Stage, scan: &Scan, schedule: &Columns) -> Streams {
        let by_elements = near(stage, scan.axis, scan.elements.iter().copied(), REACH);
        let outputs = stage.program.outputs.iter().map(|o| o.value);
        let by_all = near(stage, scan.axis, outputs.chain(scan.elements.iter().copied()), REACH);
        let list = by_all.iter().map(|(param, offsets)| {
            let p = &stage.program.params[*param as usize];
            let wide = p.axes.contains(&Axis(schedule.lane));
            let bytes = p.elem.bytes().unwrap_or(0) as u32 * schedule.vector;
            Stream {
                param: *param,
                name: p.name.clone(),
                elem: p.elem,
                wide,
                ring: wide && schedule.form == Form::Ring && matches!(bytes, 4 | 8 | 16),
                before: -offsets.least as u32,
                after: offsets.greatest as u32,
                in_elements: by_elements.contains_key(param),
            }
        });
        Streams { list: list.collect() }
    }
}

/// The place of a thread's cells.
pub(super) struct Place {
    /// Index of the first row along the scan axis, `i64`.
    pub(super) time: Operand,
    /// Index of the first column along the lane axis, `i64`.
    pub(super) column: Operand,
    /// Index along every other outer axis.
    pub(super) outer: Vec<(Axis, Operand)>,
}

/// A tile in the ring, as a thread reads it.
#[derive(Clone)]
pub(super) struct RingPlace {
    /// The arrays of the streams that pass through the ring, by parameter.
    pub(super) arrays: HashMap<u32, SharedId>,
    /// Stage, the thread's first row and its first column in the tile; `i32`.
    pub(super) stage: Operand,
    pub(super) row: Operand,
    pub(super) column: Operand,
}

/// Registers for rows that are loaded an iteration ahead.
pub(super) struct Ahead {
    /// The registers, each with one of its values.
    regs: Vec<(Reg, Cell)>,
    /// The register of each value.
    places: HashMap<Cell, usize>,
}

/// A value of a stream: parameter, row (which may lie outside) and column.
type Cell = (u32, i64, u32);

/// A thread's part of a tile.
pub(super) struct Cells<'k> {
    layout: &'k Layout<'k>,
    place: Place,
    /// Columns held.
    vector: u32,
    /// Whether the thread's columns exist.
    pub(super) exists: Operand,
    /// Rows of the scan axis from the first one on, `i32`, cut off above those that a thread can hold.
    left: Operand,
    rows: HashMap<Cell, Operand>,
    /// Values of the other parameters by column.
    fixed: HashMap<u32, Vec<Operand>>,
}

impl<'k> Cells<'k> {
    /// Reads the parameters of the scan's elements, or all parameters.
    pub(super) fn load(
        b: &mut Builder,
        layout: &'k Layout<'k>,
        place: Place,
        ring: Option<&RingPlace>,
        all: bool,
    ) -> Cells<'k> {
        let mut cells = Cells::without_rows(b, layout, place, layout.vector());
        for stream in layout.streams.list.iter().filter(|s| all || s.in_elements) {
            let rows = -i64::from(stream.before)..i64::from(layout.schedule.steps + stream.after);
            for row in rows {
                let values = match ring.and_then(|r| r.arrays.get(&stream.param).map(|array| (r, *array))) {
                    Some((ring, array)) => cells.ring_row(b, stream, ring, array, row),
                    None => cells.global_row(b, stream, row),
                };
                for (v, value) in values.into_iter().enumerate() {
                    cells.rows.insert((stream.param, row, v as u32), value);
                }
            }
        }
        cells
    }

    /// Registers that carry the rows from one iteration of a loop to the next. Columns that share a value share its register.
    pub(super) fn keep(&self, b: &mut Builder) -> Ahead {
        let mut keys: Vec<_> = self.rows.keys().copied().collect();
        keys.sort_unstable();
        let mut ahead = Ahead { regs: vec![], places: HashMap::new() };
        for key in keys {
            let column = if self.is_wide(key.0) { key.2 } else { 0 };
            match ahead.places.get(&(key.0, key.1, column)).copied() {
                Some(place) => drop(ahead.places.insert(key, place)),
                None => {
                    ahead.places.insert(key, ahead.regs.len());
                    ahead.regs.push((b.var(self.rows[&key]), key));
                }
            }
        }
        ahead
    }

    /// Gives those registers this place's rows.
    pub(super) fn refill(&self, b: &mut Builder, ahead: &Ahead) {
        ahead.regs.iter().for_each(|(reg, key)| b.assign(*reg, self.rows[key]));
    }

    /// Cells whose rows are those that were kept.
    pub(super) fn kept(b: &mut Builder, layout: &'k Layout<'k>, place: Place, ahead: &Ahead) -> Cells<'k> {
        let mut cells = Cells::without_rows(b, layout, place, layout.vector());
        let now: Vec<Operand> =
            ahead.regs.iter().map(|(reg, _)| b.let_(b.ty((*reg).into()), Expr::Copy((*reg).into()))).collect();
        cells.rows = ahead.places.iter().map(|(key, place)| (*key, now[*place])).collect();
        cells
    }

    fn is_wide(&self, param: u32) -> bool {
        self.layout.streams.list.iter().any(|s| s.param == param && s.wide)
    }

    /// Cells of some columns without rows, for values that do not depend on the scan axis.
    pub(super) fn without_rows(b: &mut Builder, layout: &'k Layout<'k>, place: Place, vector: u32) -> Cells<'k> {
        let exists = b.lt(place.column, layout.width);
        let left = b.sub(layout.len, place.time);
        let left = b.binary(Binary::Min, left, 1 << 20);
        let left = b.convert(Ty::I32, left);
        let (rows, fixed) = (HashMap::new(), HashMap::new());
        let mut cells = Cells { layout, place, vector, exists, left, rows, fixed };
        cells.load_fixed(b);
        cells
    }

    fn load_fixed(&mut self, b: &mut Builder) {
        let layout = self.layout;
        for (i, param) in layout.stage.program.params.iter().enumerate() {
            if !param.axes.iter().all(|a| layout.stage.outer_axes().contains(*a)) {
                continue;
            }
            let wide = param.axes.contains(&layout.lane);
            let offset = self.offset(b, Tensor::Param(i as u32), None);
            let values = self.read(b, i as u32, wide, offset, None);
            self.fixed.insert(i as u32, values);
        }
    }

    fn ring_row(&self, b: &mut Builder, stream: &Stream, ring: &RingPlace, array: SharedId, row: i64) -> Vec<Operand> {
        let schedule = self.layout.schedule;
        let height = (schedule.tile_rows() + stream.before + stream.after) as i32;
        let width = schedule.tile_columns() as i32;
        let base = b.mul(ring.stage, height * width);
        let at = b.add(ring.row, stream.before as i32 + row as i32);
        let at = b.mul(at, width);
        let index = b.add(base, at);
        let index = b.add(index, ring.column);
        b.load(Memory::Shared(array), index, schedule.vector, None, zero(stream.elem.value()))
    }

    fn global_row(&self, b: &mut Builder, stream: &Stream, row: i64) -> Vec<Operand> {
        let offset = self.row_offset(b, Tensor::Param(stream.param), row);
        let inside = if (0..i64::from(self.layout.schedule.steps)).contains(&row) {
            self.row_at_exists(b, row as u32)
        } else {
            let time = b.add(self.place.time, row);
            b.is_within(time, self.layout.len)
        };
        self.read(b, stream.param, stream.wide, offset, Some(inside))
    }

    /// A parameter at an offset, where that exists: one value per column.
    fn read(&self, b: &mut Builder, param: u32, wide: bool, offset: Operand, inside: Option<Operand>) -> Vec<Operand> {
        let memory = self.layout.args.memory(Tensor::Param(param));
        let guard = inside.map_or(self.exists, |inside| b.and(self.exists, inside));
        let elem = b.elem(memory);
        let nothing = zero(elem.value());
        if !wide {
            let value = b.load(memory, offset, 1, Some(guard), nothing)[0];
            return vec![value; self.vector as usize];
        }
        let n = self.vector.min(16 / elem.bytes().unwrap_or(16) as u32);
        let mut values = vec![];
        for from in (0..self.vector).step_by(n as usize) {
            let at = b.add(offset, from);
            values.extend(b.load(memory, at, n, Some(guard), nothing));
        }
        values
    }

    /// The offset of a tensor's element at a row and the thread's first column: all rows share one origin.
    fn row_offset(&self, b: &mut Builder, tensor: Tensor, row: i64) -> Operand {
        let origin = self.offset(b, tensor, Some(self.place.time));
        let stride = self.layout.args.stride(tensor, self.layout.scan.axis);
        let step = b.mul(stride, row);
        b.add(origin, step)
    }

    /// The offset of a tensor's element at a time and the thread's first column.
    fn offset(&self, b: &mut Builder, tensor: Tensor, time: Option<Operand>) -> Operand {
        let layout = self.layout;
        let mut indices = self.place.outer.clone();
        indices.push((layout.lane, self.place.column));
        indices.extend(time.map(|t| (layout.scan.axis, t)));
        layout.args.offset(b, tensor, &indices)
    }

    /// Whether a row exists.
    fn row_at_exists(&self, b: &mut Builder, row: u32) -> Operand {
        self.row_exists(b, Operand::i32(0), row)
    }

    /// Whether the row `further` after row `row` (`i32`) exists.
    pub(super) fn row_exists(&self, b: &mut Builder, row: Operand, further: u32) -> Operand {
        let row = b.add(row, further);
        b.binary(Binary::Gt, self.left, row)
    }

    /// The index of a row along the scan axis, `i64`.
    pub(super) fn time(&self, b: &mut Builder, row: u32) -> Operand {
        b.add(self.place.time, row)
    }

    /// The scan's element at a cell. Where the cell does not exist it is the identity if it would be noticed: in reverse, where it
    /// comes before existing cells, and where a final state is taken after it.
    pub(super) fn element(&self, b: &mut Builder, point: &mut Point, row: u32, column: u32) -> Fields {
        let layout = self.layout;
        let fields: Fields = layout.scan.elements.iter().map(|e| self.value(b, point, row, column, *e, None)).collect();
        if !layout.scan.reverse && !layout.stage.has_finals() {
            return fields;
        }
        let exists = self.row_at_exists(b, row);
        select(b, exists, &fields, &layout.monoid.identity())
    }

    /// Stores the outputs of a column's final state.
    pub(super) fn store_finals(&self, b: &mut Builder, column: u32, states: &[Operand]) {
        let layout = self.layout;
        let mut point = layout.point();
        b.if_(self.exists, |b| {
            for (k, output) in layout.stage.program.outputs.iter().enumerate() {
                if layout.stage.is_final(k) {
                    let mut leaves = FinalLeaves { cells: self, column, states };
                    let value = point.here(b, &mut leaves, output.value);
                    self.store_final(b, k as u32, column, value);
                }
            }
        });
    }

    /// A value at a cell, given the states before and after its row if the value depends on them.
    pub(super) fn value(
        &self,
        b: &mut Builder,
        point: &mut Point,
        row: u32,
        column: u32,
        value: Value,
        states: Option<AroundStep<'_>>,
    ) -> Operand {
        let mut leaves = CellLeaves { cells: self, row, column, states };
        point.here(b, &mut leaves, value)
    }

    /// Stores an output's values at a row where row and columns exist.
    pub(super) fn store(&self, b: &mut Builder, output: u32, row: u32, values: &[Operand]) {
        let layout = self.layout;
        let memory = layout.args.memory(Tensor::Output(output));
        let below = self.row_at_exists(b, row);
        let guard = b.and(below, self.exists);
        let offset = self.row_offset(b, Tensor::Output(output), i64::from(row));
        let n = values.len().min(16 / b.elem(memory).bytes().unwrap_or(16));
        for (k, values) in values.chunks(n).enumerate() {
            let at = b.add(offset, k * n);
            b.store(memory, at, values, Some(guard));
        }
    }

    /// Stores an output without the scan axis at a column.
    fn store_final(&self, b: &mut Builder, output: u32, column: u32, value: Operand) {
        let tensor = Tensor::Output(output);
        let offset = self.offset(b, tensor, None);
        let own = axes(self.layout.stage, tensor);
        let offset = if own.contains(&self.layout.lane) {
            let step = self.layout.args.stride(tensor, self.layout.lane);
            let across = b.mul(step, column);
            b.add(offset, across)
        } else {
            offset
        };
        let guard = self.is_first(b, self.layout.stage.outer_axes(), own, column);
        b.store(self.layout.args.memory(tensor), offset, &[value], guard);
    }

    /// Whether a column is the first along the outer axes that an output lacks, if it lacks any: one column of them stores it.
    fn is_first(&self, b: &mut Builder, outer: AxisSet, own: &[Axis], column: u32) -> Option<Operand> {
        let mut first: Option<Operand> = None;
        for axis in outer.iter().filter(|axis| !own.contains(axis)) {
            let index = self.outer_index(b, axis, column);
            let begins = b.binary(Binary::Eq, index, Operand::i64(0));
            first = Some(first.map_or(begins, |first| b.and(first, begins)));
        }
        first
    }

    /// The index along an axis that is not scanned.
    fn outer_index(&self, b: &mut Builder, axis: Axis, column: u32) -> Operand {
        if axis == self.layout.lane {
            return b.add(self.place.column, column);
        }
        index_of(&self.place.outer, axis)
    }

    /// A parameter at a time that no register holds.
    fn far(&self, b: &mut Builder, param: u32, column: u32, time: Operand) -> Operand {
        let wide = self.layout.stage.program.params[param as usize].axes.contains(&self.layout.lane);
        let inside = b.is_within(time, self.layout.len);
        let offset = self.offset(b, Tensor::Param(param), Some(time));
        self.read(b, param, wide, offset, Some(inside))[column as usize]
    }
}

/// The leaves at one cell.
struct CellLeaves<'a, 'k> {
    cells: &'a Cells<'k>,
    row: u32,
    column: u32,
    states: Option<AroundStep<'a>>,
}

impl Leaves for CellLeaves<'_, '_> {
    fn param(&mut self, b: &mut Builder, param: u32, at: Position) -> Operand {
        let cells = self.cells;
        if let Some(values) = cells.fixed.get(&param) {
            return values[self.column as usize];
        }
        let row = i64::from(self.row) + at.offset;
        let time = match at.anchor {
            Anchor::Here => match cells.rows.get(&(param, row, self.column)) {
                Some(value) => return *value,
                None => b.add(cells.place.time, row),
            },
            _ => at.from_end(b, cells.layout.len),
        };
        cells.far(b, param, self.column, time)
    }

    fn state(&mut self, _: &mut Builder, scan: Value, field: u32, at: Position) -> Operand {
        let layout = self.cells.layout;
        layout.monoid.field_at(&layout.scan, scan, field, at, self.states)
    }

    fn index(&mut self, b: &mut Builder, axis: Axis) -> Operand {
        let cells = self.cells;
        if axis == cells.layout.scan.axis {
            return cells.time(b, self.row);
        }
        cells.outer_index(b, axis, self.column)
    }

    fn size(&mut self, _: &mut Builder, axis: Axis) -> Operand {
        self.cells.layout.args.size(axis)
    }
}

/// The leaves at a column's last cell in the order of the scan, after which the states are `states`.
struct FinalLeaves<'a, 'k> {
    cells: &'a Cells<'k>,
    column: u32,
    states: &'a [Operand],
}

impl FinalLeaves<'_, '_> {
    /// The index of a position along the scan axis.
    fn time(&self, b: &mut Builder, at: Position) -> Operand {
        let layout = self.cells.layout;
        at.at_last(layout.scan.reverse).from_end(b, layout.len)
    }
}

impl Leaves for FinalLeaves<'_, '_> {
    fn param(&mut self, b: &mut Builder, param: u32, at: Position) -> Operand {
        if let Some(values) = self.cells.fixed.get(&param) {
            return values[self.column as usize];
        }
        let time = self.time(b, at);
        self.cells.far(b, param, self.column, time)
    }

    fn state(&mut self, _: &mut Builder, _: Value, field: u32, _: Position) -> Operand {
        self.states[self.cells.layout.monoid.slot(field)]
    }

    fn index(&mut self, b: &mut Builder, axis: Axis) -> Operand {
        if axis == self.cells.layout.scan.axis {
            return self.time(b, Position::HERE);
        }
        self.cells.outer_index(b, axis, self.column)
    }

    fn size(&mut self, _: &mut Builder, axis: Axis) -> Operand {
        self.cells.layout.args.size(axis)
    }
}

//! A tile of a team's rows in registers: loads, neighbours, stores, and the points in it.

use super::{Row, RowsKernel, Stream};
use crate::abi::{Tensor, elem};
use crate::block::args::index_of;
use crate::block::carry::{AroundStep, Fields, select};
use crate::block::point::{Anchor, Leaves, Point, Position};
use crate::build::{Builder, operands, zero};
use crate::tile::{Operand, Reg, Shuffle, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, Value};
use std::collections::HashMap;

/// The values of one row in a tile.
pub(super) struct Tile {
    /// Whether all its elements exist.
    pub(super) whole: Operand,
    /// Index of the lane's first element along the scan axis, `i64`.
    first: Operand,
    /// By parameter, stretch, and place relative to the lane's first element of the stretch.
    values: HashMap<(u32, u32, i64), Operand>,
}

/// A place in a lane: stretch and element of it.
pub(super) type Place = (u32, u32);

impl<'s> RowsKernel<'s> {
    /// Loads the rows' elements that start at `start`.
    pub(super) fn load(&self, b: &mut Builder, rows: &[Row], start: Operand) -> Vec<Tile> {
        let end = b.add(start, self.schedule.tile());
        let whole = b.binary(oplus_dsl::ir::Binary::Le, end, self.len);
        let first = self.first(b, start);
        let slots: Vec<_> = rows.iter().map(|_| self.slots(b)).collect();
        let all = |b: &mut Builder, guarded| {
            for (row, slots) in rows.iter().zip(&slots) {
                for (stream, slots) in self.streams.iter().zip(slots) {
                    self.load_stream(b, row, stream, slots, first, guarded);
                }
            }
        };
        b.if_else(whole, |b| all(b, false), |b| all(b, true));
        rows.iter()
            .zip(slots)
            .map(|(row, slots)| self.gather(b, row, Tile { whole, first, values: HashMap::new() }, slots))
            .collect()
    }

    /// Index of the lane's first element of the tile.
    fn first(&self, b: &mut Builder, start: Operand) -> Operand {
        let span = self.schedule.vectors * self.stretch();
        let before = b.mul(self.warp, span);
        let lane = b.mul(self.lane, self.schedule.vector);
        let place = b.add(before, lane);
        let place = b.convert(Ty::I64, place);
        b.add(start, place)
    }

    /// The registers that receive each stream: stretch by stretch.
    fn slots(&self, b: &mut Builder) -> Vec<Vec<Reg>> {
        let n = self.schedule.vectors * self.schedule.vector;
        let ty = |stream: &Stream| elem(self.stage, Tensor::Param(stream.param)).value();
        self.streams.iter().map(|s| (0..n).map(|_| b.reg(ty(s))).collect()).collect()
    }

    fn load_stream(&self, b: &mut Builder, row: &Row, stream: &Stream, slots: &[Reg], first: Operand, guarded: bool) {
        let tensor = Tensor::Param(stream.param);
        let n = if guarded { 1 } else { self.access(tensor) };
        let otherwise = zero(elem(self.stage, tensor).value());
        for (i, dst) in slots.chunks(n as usize).enumerate() {
            let at = i as u32 * n;
            let place = (at / self.schedule.vector, at % self.schedule.vector);
            let guard = guarded.then(|| self.exists(b, first, place));
            let index = self.offset(b, row, tensor, first, place);
            b.push(Stmt::Load { dst: dst.to_vec(), memory: self.args.memory(tensor), index, guard, otherwise });
        }
    }

    /// The offset of a tensor's element at a place.
    fn offset(&self, b: &mut Builder, row: &Row, tensor: Tensor, first: Operand, (r, v): Place) -> Operand {
        let stride = self.args.stride(tensor, self.scan.axis);
        let along = b.mul(first, stride);
        let start = b.add(row.bases[&tensor], along);
        let further = b.mul(stride, r * self.stretch() + v);
        b.add(start, further)
    }

    fn index(&self, b: &mut Builder, first: Operand, (r, v): Place) -> Operand {
        b.add(first, r * self.stretch() + v)
    }

    /// Whether the element at a place exists: the rest of the row, cut off above a tile, reaches beyond it. One `i32`
    /// compared with constants takes fewer registers than the index of every place.
    pub(super) fn exists(&self, b: &mut Builder, first: Operand, (r, v): Place) -> Operand {
        use oplus_dsl::ir::Binary::{Gt, Min};
        let left = b.sub(self.len, first);
        let left = b.binary(Min, left, self.schedule.tile());
        let left = b.convert(Ty::I32, left);
        b.binary(Gt, left, r * self.stretch() + v)
    }

    // ---- neighbours

    /// The loaded values by place, and their neighbours in other lanes.
    fn gather(&self, b: &mut Builder, row: &Row, mut tile: Tile, slots: Vec<Vec<Reg>>) -> Tile {
        let vector = self.schedule.vector;
        for (stream, slots) in self.streams.iter().zip(slots) {
            for (i, reg) in slots.into_iter().enumerate() {
                let (r, v) = (i as u32 / vector, i as u32 % vector);
                tile.values.insert((stream.param, r, i64::from(v)), reg.into());
            }
            let reach = i64::from(vector);
            for by in stream.offsets.least.max(-reach)..0 {
                self.neighbours(b, row, &mut tile, stream.param, by);
            }
            for by in 1..=stream.offsets.greatest.min(reach) {
                self.neighbours(b, row, &mut tile, stream.param, by);
            }
        }
        tile
    }

    /// The elements `by` places before a lane's first one (by < 0), or `by` after its last one.
    ///
    /// They are the neighbouring lane's of the same stretch; at the end of the lanes, those of the next stretch, which
    /// has rotated there too; at the end of the span they are read from memory.
    fn neighbours(&self, b: &mut Builder, row: &Row, tile: &mut Tile, param: u32, by: i64) {
        let (vector, lanes) = (i64::from(self.schedule.vector), self.schedule.lanes);
        let (place, from, step) = if by < 0 { (by, vector + by, -1) } else { (vector - 1 + by, by - 1, 1) };
        let source = b.add(self.lane, step + lanes as i32);
        let source = b.binary(oplus_dsl::ir::Binary::And, source, lanes as i32 - 1);
        let source = self.team_lane(b, source);
        let edge = b.eq(self.lane, if by < 0 { 0 } else { lanes as i32 - 1 });
        let mut beyond = self.edge(b, row, tile, param, edge, by);
        let stretches: Vec<u32> = (0..self.schedule.vectors).collect();
        let order: Box<dyn Iterator<Item = &u32>> =
            if by < 0 { Box::new(stretches.iter()) } else { Box::new(stretches.iter().rev()) };
        for r in order {
            let own = tile.values[&(param, *r, from)];
            let rotated = b.shuffle(Shuffle::Index, own, source);
            let value = b.select(edge, beyond, rotated);
            tile.values.insert((param, *r, place), value);
            beyond = rotated;
        }
    }

    /// The lane of the warp at a position of the team.
    pub(super) fn team_lane(&self, b: &mut Builder, position: Operand) -> Operand {
        if self.schedule.lanes == crate::target::WARP {
            return position;
        }
        let lane = b.special(crate::tile::Special::Lane);
        let first = b.sub(lane, self.lane);
        b.add(first, position)
    }

    /// The element `by` before the span or after it, in the lane at that end.
    fn edge(&self, b: &mut Builder, row: &Row, tile: &Tile, param: u32, edge: Operand, by: i64) -> Operand {
        let tensor = Tensor::Param(param);
        let last = (self.schedule.vectors - 1, self.schedule.vector - 1);
        let from = if by < 0 { tile.first } else { self.index(b, tile.first, last) };
        let index = b.add(from, by);
        let below = b.lt(index, self.len);
        let inside = if by < 0 { b.ge(index, 0) } else { Operand::bool(true) };
        let inside = b.and(inside, below);
        let guard = b.and(edge, inside);
        let stride = self.args.stride(tensor, self.scan.axis);
        let along = b.mul(index, stride);
        let offset = b.add(row.bases[&tensor], along);
        b.load(self.args.memory(tensor), offset, 1, Some(guard), zero(elem(self.stage, tensor).value()))[0]
    }

    // ---- values

    /// A point at every place of a lane, which starts with what is constant along the row.
    pub(super) fn points(&self, row: &Row<'s>) -> HashMap<Place, Point<'s>> {
        let places = (0..self.schedule.vectors).flat_map(|r| (0..self.schedule.vector).map(move |v| (r, v)));
        places.map(|place| (place, row.point.clone())).collect()
    }

    /// The scan's elements, place by place; the identity where there is none.
    pub(super) fn elements(
        &self,
        b: &mut Builder,
        row: &Row<'s>,
        tile: &Tile,
        points: &mut HashMap<Place, Point<'s>>,
    ) -> HashMap<Place, Fields> {
        let mut elements = HashMap::new();
        for r in 0..self.schedule.vectors {
            for v in 0..self.schedule.vector {
                let mut leaves = TileLeaves { kernel: self, row, tile, place: (r, v), states: None };
                let point = points.get_mut(&(r, v)).expect("there is a point at every place");
                let element: Fields = self.scan.elements.iter().map(|e| point.here(b, &mut leaves, *e)).collect();
                elements.insert((r, v), element);
            }
        }
        if self.scan.reverse || self.stage.has_finals() {
            self.mask(b, tile, &mut elements);
        }
        elements
    }

    /// Puts the identity where there is no element.
    fn mask(&self, b: &mut Builder, tile: &Tile, elements: &mut HashMap<Place, Fields>) {
        let mut places: Vec<Place> = elements.keys().copied().collect();
        places.sort_unstable();
        let regs: Vec<Vec<Reg>> = places.iter().map(|p| elements[p].iter().map(|x| b.var(*x)).collect()).collect();
        let identity = self.monoid.identity();
        b.if_else(
            tile.whole,
            |_| {},
            |b| {
                for (place, regs) in places.iter().zip(&regs) {
                    let exists = self.exists(b, tile.first, *place);
                    let masked = select(b, exists, &elements[place], &identity);
                    regs.iter().zip(masked).for_each(|(reg, x)| b.assign(*reg, x));
                }
            },
        );
        for (place, regs) in places.into_iter().zip(regs) {
            elements.insert(place, operands(&regs));
        }
    }

    /// An output's value at a place, given the states before and after its element.
    pub(super) fn output(
        &self,
        b: &mut Builder,
        RowTile { row, tile }: RowTile<'_, 's>,
        point: &mut Point<'s>,
        place: Place,
        output: u32,
        states: AroundStep<'_>,
    ) -> Operand {
        let mut leaves = TileLeaves { kernel: self, row, tile, place, states: Some(states) };
        point.here(b, &mut leaves, self.stage.program.outputs[output as usize].value)
    }

    /// Stores an output's values of a stretch.
    pub(super) fn store(
        &self,
        b: &mut Builder,
        RowTile { row, tile }: RowTile<'_, 's>,
        output: u32,
        r: u32,
        values: &[Operand],
    ) {
        let tensor = Tensor::Output(output);
        let memory = self.args.memory(tensor);
        let n = self.access(tensor) as usize;
        b.if_else(
            tile.whole,
            |b| {
                for (i, values) in values.chunks(n).enumerate() {
                    let index = self.offset(b, row, tensor, tile.first, (r, (i * n) as u32));
                    b.store(memory, index, values, Some(row.exists));
                }
            },
            |b| {
                for (v, value) in values.iter().enumerate() {
                    let place = (r, v as u32);
                    let exists = self.exists(b, tile.first, place);
                    let guard = b.and(exists, row.exists);
                    let index = self.offset(b, row, tensor, tile.first, place);
                    b.store(memory, index, &[*value], Some(guard));
                }
            },
        );
    }
}

/// A tile of a row.
#[derive(Clone, Copy)]
pub(super) struct RowTile<'t, 's> {
    pub row: &'t Row<'s>,
    pub tile: &'t Tile,
}

/// The leaves at a place.
struct TileLeaves<'k, 's> {
    kernel: &'k RowsKernel<'s>,
    row: &'k Row<'s>,
    tile: &'k Tile,
    place: Place,
    states: Option<AroundStep<'k>>,
}

impl Leaves for TileLeaves<'_, '_> {
    fn param(&mut self, b: &mut Builder, param: u32, at: Position) -> Operand {
        let (r, v) = self.place;
        let near = (param, r, i64::from(v) + at.offset);
        if at.anchor == Anchor::Here {
            if let Some(value) = self.tile.values.get(&near) {
                return *value;
            }
            let here = self.kernel.index(b, self.tile.first, self.place);
            let index = b.add(here, at.offset);
            return self.kernel.far(b, self.row, param, index);
        }
        let index = at.from_end(b, self.kernel.len);
        self.kernel.far(b, self.row, param, index)
    }

    fn state(&mut self, _: &mut Builder, scan: Value, field: u32, at: Position) -> Operand {
        let kernel = self.kernel;
        kernel.monoid.field_at(&kernel.scan, scan, field, at, self.states)
    }

    fn index(&mut self, b: &mut Builder, axis: Axis) -> Operand {
        if axis == self.kernel.scan.axis {
            return self.kernel.index(b, self.tile.first, self.place);
        }
        index_of(&self.row.indices, axis)
    }

    fn size(&mut self, _: &mut Builder, axis: Axis) -> Operand {
        self.kernel.args.size(axis)
    }
}

//! A warp's span of a tile in registers, and the points in it.

use super::streams::Stream;
use super::{LookBackKernel, Tile};
use crate::abi::Tensor;
use crate::block::args::index_of;
use crate::block::carry::{AroundStep, Fields};
use crate::block::point::{Anchor, Leaves, Point, Position};
use crate::block::reads::Offsets;
use crate::build::{Builder, zero};
use crate::tile::{Memory, Operand, Reg, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, Binary, Value};
use std::collections::HashMap;

/// The parameters that a role needs in registers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// The parameters of the scan's elements.
    Elements,
    /// All.
    All,
}

/// A warp's span of a tile, or a stretch of it.
pub(super) struct Span<'k> {
    kernel: &'k LookBackKernel<'k>,
    /// Index of the lane's first element along the scan axis, `i64`.
    index: Operand,
    /// Elements of the row from there on, `i32`, cut off above a tile. Comparing it with constants is cheaper than
    /// comparing every element's index.
    left: Operand,
    /// Whether all elements of the tile exist.
    pub(super) whole: Operand,
    /// The number of stretches.
    pub(super) stretches: u32,
    /// Values by parameter, stretch, and place relative to the lane's first element of the stretch.
    values: HashMap<(u32, u32, i64), Operand>,
    row: Row,
}

/// Values that do not change along a row.
pub(super) struct Row {
    indices: Vec<(Axis, Operand)>,
    params: HashMap<u32, Operand>,
    bases: HashMap<u32, Operand>,
}

impl<'k> LookBackKernel<'k> {
    /// Elements of a stretch.
    pub(super) fn stretch(&self) -> u32 {
        32 * self.schedule.vector
    }

    /// The values along a row that do not depend on the scan axis.
    pub(super) fn row(&self, b: &mut Builder, row: Operand) -> Row {
        let indices = self.args.row_indices(b, row);
        let (mut params, mut bases) = (HashMap::new(), HashMap::new());
        for (i, param) in self.stage.program.params.iter().enumerate() {
            let tensor = Tensor::Param(i as u32);
            let base = self.args.offset(b, tensor, &indices);
            bases.insert(i as u32, base);
            if param.axes.iter().all(|a| self.stage.outer_axes().contains(*a)) {
                params.insert(i as u32, b.load1(self.args.memory(tensor), base));
            }
        }
        Row { indices, params, bases }
    }

    /// The span of scan warp `span` (`i32`), from stage `stage` of the ring where tiles pass through it.
    pub(super) fn load_span(
        &'k self,
        b: &mut Builder,
        tile: &Tile,
        span: Operand,
        stage: Operand,
        need: Need,
    ) -> Span<'k> {
        let first = b.mul(span, self.schedule.vectors * self.stretch());
        self.load_stretches(b, tile, first, self.schedule.vectors, stage, need)
    }

    /// Loads one stretch of a span (`i32`).
    pub(super) fn load_stretch(
        &'k self,
        b: &mut Builder,
        tile: &Tile,
        span: Operand,
        stretch: Operand,
        stage: Operand,
        need: Need,
    ) -> Span<'k> {
        let first = b.mul(span, self.schedule.vectors);
        let number = b.add(first, stretch);
        let first = b.mul(number, self.stretch());
        self.load_stretches(b, tile, first, 1, stage, need)
    }

    /// Loads so many stretches from the tile's element `first` (`i32`) on.
    fn load_stretches(
        &'k self,
        b: &mut Builder,
        tile: &Tile,
        first: Operand,
        stretches: u32,
        stage: Operand,
        need: Need,
    ) -> Span<'k> {
        let row = self.row(b, tile.row);
        let lane = b.mul(self.block.lane, self.schedule.vector);
        let place = b.add(first, lane);
        let wide = b.convert(Ty::I64, place);
        let index = b.add(tile.start, wide);
        let left = b.sub(self.len, index);
        let left = b.binary(Binary::Min, left, self.schedule.tile());
        let left = b.convert(Ty::I32, left);
        let (whole, values) = (tile.whole, HashMap::new());
        let mut span = Span { kernel: self, index, left, whole, stretches, values, row };
        for (k, stream) in self.streams.list.iter().enumerate() {
            let offsets = if need == Need::All { Some(stream.offsets) } else { stream.element_offsets };
            if let Some(offsets) = offsets {
                if self.bulk() {
                    span.read_ring(b, k, offsets, stage, place);
                } else {
                    span.read_global(b, stream, offsets);
                }
            }
        }
        span
    }

    /// The leaves of values that a row has once: values that do not depend on the scan axis, and those at the row's last element in the
    /// order of the scan, after which the states are `states`.
    pub(super) fn row_leaves(&'k self, b: &mut Builder, row: Operand, states: &'k [Operand]) -> RowLeaves<'k> {
        RowLeaves { kernel: self, row: self.row(b, row), states }
    }

    /// Stores the outputs of a row's final state.
    pub(super) fn store_finals(&self, b: &mut Builder, row: Operand, states: &[Operand]) {
        let mut leaves = self.row_leaves(b, row, states);
        let mut point = Point::new(&self.stage.program, Some(self.scan.axis));
        for (k, output) in self.stage.program.outputs.iter().enumerate() {
            if self.stage.is_final(k) {
                let tensor = Tensor::Output(k as u32);
                let value = point.here(b, &mut leaves, output.value);
                let offset = self.args.offset(b, tensor, &leaves.row.indices);
                b.store(self.args.memory(tensor), offset, &[value], None);
            }
        }
    }
}

impl<'k> Span<'k> {
    /// Reads a stream from the ring. It has no vectors that begin behind the end of the row; vectors that end there are filled with
    /// zeros.
    fn read_ring(&mut self, b: &mut Builder, k: usize, offsets: Offsets, stage: Operand, place: Operand) {
        let kernel = self.kernel;
        let stream = &kernel.streams.list[k];
        let memory = Memory::Shared(kernel.shared.ring[k]);
        let size = stream.before + kernel.schedule.tile() + stream.after;
        let start = b.mul(stage, size);
        let start = b.add(start, stream.before);
        let start = b.add(start, place);
        let index =
            |b: &mut Builder, r: u32, from: i64| b.add(start, i64::from(r * kernel.stretch()) as i32 + from as i32);
        self.own(b, stream, |span, b, (r, from), dst, guarded| {
            let index = index(b, r, i64::from(from));
            let guard = guarded.then(|| span.exists(b, r, from));
            b.push(Stmt::Load { dst, memory, index, guard, otherwise: zero(stream.elem.value()) });
        });
        let nothing = zero(stream.elem.value());
        self.outside(b, stream, offsets, |span, b, r, place| {
            let index = index(b, r, place);
            let near = if place < 0 { 0 } else { kernel.schedule.vector - stream.access(kernel.schedule) };
            let exists = span.exists(b, r, near);
            b.load(memory, index, 1, Some(exists), nothing)[0]
        });
    }

    fn read_global(&mut self, b: &mut Builder, stream: &Stream, offsets: Offsets) {
        let kernel = self.kernel;
        let tensor = Tensor::Param(stream.param);
        let (origin, memory) = (self.origin(b, tensor), kernel.args.memory(tensor));
        let nothing = zero(stream.elem.value());
        self.own(b, stream, |span, b, (r, from), dst, guarded| {
            let accesses = if guarded { dst.chunks(1) } else { dst.chunks(dst.len()) };
            for (v, dst) in (from..).zip(accesses) {
                let index = span.further(b, tensor, origin, i64::from(r * kernel.stretch() + v));
                let guard = guarded.then(|| span.exists(b, r, v));
                b.push(Stmt::Load { dst: dst.to_vec(), memory, index, guard, otherwise: nothing });
            }
        });
        let base = self.row.bases[&stream.param];
        self.outside(b, stream, offsets, |span, b, r, place| {
            let index = span.index(b, r, 0);
            let index = b.add(index, place);
            kernel.guarded(b, stream.param, base, index)
        });
    }

    /// The lane's own elements, by accesses of at most 16 bytes: `load` gets the stretch and the first element of it,
    /// the registers, and whether some elements may not exist.
    fn own(
        &mut self,
        b: &mut Builder,
        stream: &Stream,
        load: impl Fn(&Self, &mut Builder, (u32, u32), Vec<Reg>, bool),
    ) {
        let mut accesses: Vec<((u32, u32), Vec<Reg>)> = vec![];
        for r in 0..self.stretches {
            let regs: Vec<Reg> = (0..self.kernel.schedule.vector).map(|_| b.reg(stream.elem.value())).collect();
            let places = regs.iter().enumerate().map(|(v, reg)| ((stream.param, r, v as i64), Operand::Reg(*reg)));
            self.values.extend(places);
            let n = stream.access(self.kernel.schedule);
            accesses
                .extend((0..).step_by(n as usize).map(|from| (r, from)).zip(regs.chunks(n as usize).map(Vec::from)));
        }
        let all = |b: &mut Builder, guarded| {
            accesses.iter().for_each(|(place, regs)| load(self, b, *place, regs.clone(), guarded));
        };
        b.if_else(self.whole, |b| all(b, false), |b| all(b, true));
    }

    /// The neighbours before and after them.
    fn outside(
        &mut self,
        b: &mut Builder,
        stream: &Stream,
        offsets: Offsets,
        load: impl Fn(&Self, &mut Builder, u32, i64) -> Operand,
    ) {
        let vector = i64::from(self.kernel.schedule.vector);
        for r in 0..self.stretches {
            for place in (offsets.least..0).chain(vector..vector + offsets.greatest) {
                let value = load(self, b, r, place);
                self.values.insert((stream.param, r, place), value);
            }
        }
    }

    /// The index of an element along the scan axis, `i64`.
    pub(super) fn index(&self, b: &mut Builder, r: u32, v: u32) -> Operand {
        b.add(self.index, r * self.kernel.stretch() + v)
    }

    /// Whether an element exists.
    pub(super) fn exists(&self, b: &mut Builder, r: u32, v: u32) -> Operand {
        b.binary(Binary::Gt, self.left, r * self.kernel.stretch() + v)
    }

    /// The offset of the lane's first element of a tensor, `i64`.
    pub(super) fn origin(&self, b: &mut Builder, tensor: Tensor) -> Operand {
        let mut indices = self.row.indices.clone();
        indices.push((self.kernel.scan.axis, self.index));
        self.kernel.args.offset(b, tensor, &indices)
    }

    /// The offset `n` elements further along the row. Added to the origin as a constant where the stride is 1, so that
    /// all of a lane's accesses share one address.
    pub(super) fn further(&self, b: &mut Builder, tensor: Tensor, origin: Operand, n: i64) -> Operand {
        let stride = self.kernel.args.stride(tensor, self.kernel.scan.axis);
        let step = b.mul(stride, n);
        b.add(origin, step)
    }

    /// The scan's element at a place.
    pub(super) fn element(&self, b: &mut Builder, point: &mut Point, r: u32, v: u32) -> Fields {
        let mut leaves = SpanLeaves { span: self, r, v, states: None };
        self.kernel.scan.elements.iter().map(|e| point.here(b, &mut leaves, *e)).collect()
    }

    /// An output's value at a place, given the states before and after its element.
    pub(super) fn output(
        &self,
        b: &mut Builder,
        point: &mut Point,
        r: u32,
        v: u32,
        value: Value,
        states: AroundStep<'_>,
    ) -> Operand {
        let mut leaves = SpanLeaves { span: self, r, v, states: Some(states) };
        point.here(b, &mut leaves, value)
    }
}

impl LookBackKernel<'_> {
    /// The offset of a tensor's element `index` along the row that starts at `base`.
    fn along(&self, b: &mut Builder, tensor: Tensor, base: Operand, index: Operand) -> Operand {
        let step = self.args.offset(b, tensor, &[(self.scan.axis, index)]);
        b.add(base, step)
    }

    /// One element of a parameter where it exists, zero elsewhere.
    fn guarded(&self, b: &mut Builder, param: u32, base: Operand, index: Operand) -> Operand {
        let tensor = Tensor::Param(param);
        let memory = self.args.memory(tensor);
        let exists = b.is_within(index, self.len);
        let offset = self.along(b, tensor, base, index);
        let nothing = zero(b.elem(memory).value());
        b.load(memory, offset, 1, Some(exists), nothing)[0]
    }

    /// A parameter at a position that no register holds.
    fn far(&self, b: &mut Builder, row: &Row, param: u32, index: Operand) -> Operand {
        self.guarded(b, param, row.bases[&param], index)
    }
}

/// The leaves at one place of a span.
struct SpanLeaves<'a, 'k> {
    span: &'a Span<'k>,
    r: u32,
    v: u32,
    /// States before and after the place's element, once they are known.
    states: Option<AroundStep<'a>>,
}

impl Leaves for SpanLeaves<'_, '_> {
    fn param(&mut self, b: &mut Builder, param: u32, at: Position) -> Operand {
        let span = self.span;
        if let Some(value) = span.row.params.get(&param) {
            return *value;
        }
        let place = i64::from(self.v) + at.offset;
        match (at.anchor, span.values.get(&(param, self.r, place))) {
            (Anchor::Here, Some(value)) => *value,
            (Anchor::Here, None) => {
                let index = span.index(b, self.r, self.v);
                let index = b.add(index, at.offset);
                span.kernel.far(b, &span.row, param, index)
            }
            _ => {
                let index = at.from_end(b, span.kernel.len);
                span.kernel.far(b, &span.row, param, index)
            }
        }
    }

    fn state(&mut self, _: &mut Builder, scan: Value, field: u32, at: Position) -> Operand {
        let kernel = self.span.kernel;
        kernel.monoid.field_at(&kernel.scan, scan, field, at, self.states)
    }

    fn index(&mut self, b: &mut Builder, axis: Axis) -> Operand {
        let span = self.span;
        if axis == span.kernel.scan.axis {
            return span.index(b, self.r, self.v);
        }
        index_of(&span.row.indices, axis)
    }

    fn size(&mut self, _: &mut Builder, axis: Axis) -> Operand {
        self.span.kernel.args.size(axis)
    }
}

/// The leaves of a row, at its last element.
pub(super) struct RowLeaves<'k> {
    kernel: &'k LookBackKernel<'k>,
    row: Row,
    states: &'k [Operand],
}

impl RowLeaves<'_> {
    /// The index of a position along the scan axis.
    fn at(&self, b: &mut Builder, at: Position) -> Operand {
        at.at_last(self.kernel.scan.reverse).from_end(b, self.kernel.len)
    }
}

impl Leaves for RowLeaves<'_> {
    fn param(&mut self, b: &mut Builder, param: u32, at: Position) -> Operand {
        if let Some(value) = self.row.params.get(&param) {
            return *value;
        }
        let index = self.at(b, at);
        self.kernel.far(b, &self.row, param, index)
    }

    fn state(&mut self, _: &mut Builder, _: Value, field: u32, _: Position) -> Operand {
        self.states[self.kernel.monoid.slot(field)]
    }

    fn index(&mut self, b: &mut Builder, axis: Axis) -> Operand {
        if axis == self.kernel.scan.axis {
            return self.at(b, Position::HERE);
        }
        index_of(&self.row.indices, axis)
    }

    fn size(&mut self, _: &mut Builder, axis: Axis) -> Operand {
        self.kernel.args.size(axis)
    }
}

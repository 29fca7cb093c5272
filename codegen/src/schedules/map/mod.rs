//! Maps: every thread computes its own points, `vector` adjacent ones along the lane axis at a time.
//!
//! Points are numbered with the lane axis fastest, in *chunks* of `vector`. A block takes 32·warps·vectors consecutive
//! chunks, a thread every 32·warps-th of them.

mod parameters;
mod strategy;

pub use parameters::Map;

use super::{LowerError, Strategy};
use crate::abi::{Tensor, elem};
use crate::block::args::{Args, index_of};
use crate::block::point::{Anchor, Leaves, Point, Position};
use crate::block::reads::constant_along;
use crate::build::{Builder, zero};
use crate::stage::{Refusal, Stage};
use crate::target::WARP;
use crate::tile::{Kernel, Operand, Reg, Special, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, AxisSet, Binary, Op, Value};
use std::collections::{HashMap, HashSet};

/// The tile kernel of a stage without a scan.
pub fn lower(stage: &Stage, schedule: &Map, symbol: &str) -> Result<Kernel, LowerError> {
    let parameters = LowerError::parameters(schedule);
    let known = (schedule.lane as usize) < stage.program.axes.len();
    if !known || ![1, 2, 4, 8].contains(&schedule.vector) || schedule.warps == 0 || schedule.warps > WARP {
        return Err(parameters);
    }
    if stage.axis().is_some() {
        return Err(LowerError::Kind { schedule: Map::NAME, refusal: Refusal::Scanned });
    }
    let mut b = Builder::new(symbol, schedule.warps * WARP);
    let args = Args::declare(&mut b, stage, schedule.abi(stage));
    let lane = Axis(schedule.lane);
    MapKernel { stage, schedule, args, lane, position: stage.position_axis() }.body(&mut b);
    Ok(b.finish())
}

/// Everything about the kernel that does not change while its body is emitted.
struct MapKernel<'s> {
    stage: &'s Stage,
    schedule: &'s Map,
    args: Args,
    lane: Axis,
    position: Option<Axis>,
}

/// A thread's chunk.
struct Chunk {
    /// Whether the chunk exists.
    exists: Operand,
    /// Whether all its points do.
    whole: Operand,
    /// The index along every axis of the chunk's first point.
    indices: Vec<(Axis, Operand)>,
    /// The parameters that adjacent points read at adjacent addresses, point by point.
    values: HashMap<u32, Vec<Reg>>,
}

impl<'s> MapKernel<'s> {
    fn body(&self, b: &mut Builder) {
        let threads = i64::from(self.schedule.warps * WARP);
        let outer = self.stage.outer_axes().without(self.lane);
        let (chunks, per_line) = self.chunks(b, outer);
        let [block, thread, blocks] = [Special::Block, Special::Thread, Special::Blocks].map(|s| {
            let x = b.special(s);
            b.convert(Ty::I64, x)
        });
        let share = Operand::i64(threads * i64::from(self.schedule.vectors));
        let [first, step] = [block, blocks].map(|x| b.mul(x, share));
        b.for_(first, chunks, step, |b, first| {
            let own = b.add(first, thread);
            let chunks: Vec<Chunk> = (0..self.schedule.vectors)
                .map(|k| {
                    let number = b.add(own, i64::from(k) * threads);
                    self.load(b, number, chunks, per_line, outer)
                })
                .collect();
            chunks.iter().for_each(|chunk| self.compute(b, chunk));
        });
    }

    /// The number of chunks, in all and along the lane axis.
    fn chunks(&self, b: &mut Builder, outer: AxisSet) -> (Operand, Operand) {
        let vector = i64::from(self.schedule.vector);
        let width = self.width(b);
        let per_line = b.div_ceil(width, vector);
        let lines = self.args.rows(b, outer);
        (b.mul(lines, per_line), per_line)
    }

    /// Points along the lane axis: one if no output has it.
    fn width(&self, _: &mut Builder) -> Operand {
        if self.stage.outer_axes().contains(self.lane) { self.args.size(self.lane) } else { Operand::i64(1) }
    }

    /// The chunk of a number, its parameters loaded.
    fn load(&self, b: &mut Builder, number: Operand, chunks: Operand, per_line: Operand, outer: AxisSet) -> Chunk {
        let exists = b.lt(number, chunks);
        let (line, place) = if outer.is_empty() {
            (Operand::i64(0), number)
        } else {
            (b.binary(Binary::Div, number, per_line), b.binary(Binary::Rem, number, per_line))
        };
        let column = b.mul(place, self.schedule.vector);
        let mut indices = self.args.indices(b, line, outer);
        indices.push((self.lane, column));
        let end = b.add(column, self.schedule.vector);
        let width = self.width(b);
        let inside = b.binary(Binary::Le, end, width);
        let whole = b.and(inside, exists);
        let mut chunk = Chunk { exists, whole, indices, values: HashMap::new() };
        let streams = self.streams();
        for param in &streams {
            let ty = elem(self.stage, Tensor::Param(*param)).value();
            chunk.values.insert(*param, (0..self.schedule.vector).map(|_| b.reg(ty)).collect());
        }
        b.if_else(
            whole,
            |b| streams.iter().for_each(|p| self.load_stream(b, &chunk, *p, false)),
            |b| streams.iter().for_each(|p| self.load_stream(b, &chunk, *p, true)),
        );
        chunk
    }

    /// The parameters with the lane axis that are read at the point.
    fn streams(&self) -> Vec<u32> {
        let moved = |p: &u32| self.stage.views[*p as usize].iter().any(|v| v.axis == self.lane);
        let params = 0..self.stage.program.params.len() as u32;
        let wide = |p: &u32| self.stage.program.params[*p as usize].axes.contains(&self.lane);
        let written = self.stage.outer_axes().contains(self.lane);
        params.filter(|p| written && wide(p) && !moved(p) && self.is_read_here(*p)).collect()
    }

    /// Whether a parameter is used other than beneath positions along the lane axis.
    fn is_read_here(&self, param: u32) -> bool {
        let mut stack: Vec<Value> = self.stage.program.outputs.iter().map(|o| o.value).collect();
        let mut seen = HashSet::new();
        while let Some(value) = stack.pop() {
            if !seen.insert(value) {
                continue;
            }
            match &self.stage.program.node(value).op {
                Op::Param(p) if *p == param => return true,
                Op::First { axis, empty, .. } | Op::Last { axis, empty, .. } if *axis == self.lane => {
                    stack.push(*empty)
                }
                Op::Starts { .. } | Op::Gather { .. } => {}
                op => stack.extend(op.operands()),
            }
        }
        false
    }

    fn load_stream(&self, b: &mut Builder, chunk: &Chunk, param: u32, guarded: bool) {
        let tensor = Tensor::Param(param);
        let n = if guarded { 1 } else { self.access(tensor) };
        let otherwise = zero(elem(self.stage, tensor).value());
        for (i, dst) in chunk.values[&param].chunks(n as usize).enumerate() {
            let v = i as u32 * n;
            let guard = guarded.then(|| self.exists(b, chunk, v));
            let index = self.offset(b, tensor, chunk, v);
            b.push(Stmt::Load { dst: dst.to_vec(), memory: self.args.memory(tensor), index, guard, otherwise });
        }
    }

    /// Whether point v of a chunk exists.
    fn exists(&self, b: &mut Builder, chunk: &Chunk, v: u32) -> Operand {
        let index = self.index(b, chunk, self.lane, v);
        let width = self.width(b);
        let inside = b.lt(index, width);
        b.and(inside, chunk.exists)
    }

    fn index(&self, b: &mut Builder, chunk: &Chunk, axis: Axis, v: u32) -> Operand {
        let found = index_of(&chunk.indices, axis);
        if axis == self.lane { b.add(found, v) } else { found }
    }

    /// The offset of a tensor's element at point v of a chunk.
    fn offset(&self, b: &mut Builder, tensor: Tensor, chunk: &Chunk, v: u32) -> Operand {
        let start = self.args.offset(b, tensor, &chunk.indices);
        let stride = self.args.stride(tensor, self.lane);
        let further = b.mul(stride, v);
        b.add(start, further)
    }

    /// Elements per access of a tensor.
    fn access(&self, tensor: Tensor) -> u32 {
        self.schedule.vector.min(16 / elem(self.stage, tensor).bytes().unwrap_or(16) as u32)
    }

    /// The outputs at a chunk's points.
    fn compute(&self, b: &mut Builder, chunk: &Chunk) {
        let outputs = || self.stage.program.outputs.iter().map(|o| o.value);
        let mut shared = Point::new(&self.stage.program, self.position);
        let here = outputs().filter(|value| !self.is_gather(*value));
        for value in constant_along(&self.stage.program, self.lane, here) {
            if !self.is_starts(value) {
                shared.here(b, &mut MapLeaves { kernel: self, chunk, v: 0, list: None, inside: None }, value);
            }
        }
        let mut points: Vec<Point> = (0..self.schedule.vector).map(|_| shared.clone()).collect();
        for (output, value) in outputs().enumerate() {
            let values: Vec<Operand> = (0..self.schedule.vector)
                .map(|v| match &self.stage.program.node(value).op {
                    Op::Starts { list, offsets, .. } => self.starts(b, chunk, v, *list, *offsets),
                    Op::Gather { axis, value, index, .. } => self.gathered(b, chunk, v, *axis, *value, *index),
                    _ => {
                        let mut leaves = MapLeaves { kernel: self, chunk, v, list: None, inside: None };
                        points[v as usize].here(b, &mut leaves, value)
                    }
                })
                .collect();
            self.store(b, chunk, Tensor::Output(output as u32), &values);
        }
    }

    fn is_starts(&self, value: Value) -> bool {
        matches!(self.stage.program.node(value).op, Op::Starts { .. })
    }

    fn is_gather(&self, value: Value) -> bool {
        matches!(self.stage.program.node(value).op, Op::Gather { .. })
    }

    /// The value at the index of its axis that another value is at the point; zero where that is none.
    fn gathered(&self, b: &mut Builder, chunk: &Chunk, v: u32, axis: Axis, value: Value, index: Value) -> Operand {
        let mut here = MapLeaves { kernel: self, chunk, v, list: None, inside: Some(self.exists(b, chunk, v)) };
        let index = Point::new(&self.stage.program, self.position).here(b, &mut here, index);
        let size = self.args.size(axis);
        let inside = b.is_within(index, size);
        let exists = self.exists(b, chunk, v);
        let guard = b.and(inside, exists);
        let place = b.select(inside, index, Operand::i64(0));
        let mut there = MapLeaves { kernel: self, chunk, v, list: Some((axis, place)), inside: Some(guard) };
        let value = Point::new(&self.stage.program, self.position).here(b, &mut there, value);
        let nothing = zero(b.ty(value));
        b.select(inside, value, nothing)
    }

    fn store(&self, b: &mut Builder, chunk: &Chunk, tensor: Tensor, values: &[Operand]) {
        let memory = self.args.memory(tensor);
        let n = self.access(tensor);
        b.if_else(
            chunk.whole,
            |b| {
                for (i, values) in values.chunks(n as usize).enumerate() {
                    let index = self.offset(b, tensor, chunk, i as u32 * n);
                    b.store(memory, index, values, None);
                }
            },
            |b| {
                for (v, value) in (0..).zip(values) {
                    let guard = self.exists(b, chunk, v);
                    let index = self.offset(b, tensor, chunk, v);
                    b.store(memory, index, &[*value], Some(guard));
                }
            },
        );
    }

    /// Whether the sorted offsets name the point's index, by bisection: `low` becomes the first place whose offset is
    /// not below the index.
    fn starts(&self, b: &mut Builder, chunk: &Chunk, v: u32, list: Axis, offsets: Value) -> Operand {
        let axis = self.position.unwrap_or(self.lane);
        let index = self.index(b, chunk, axis, v);
        let (low, high) = (b.var(Operand::i64(0)), b.var(self.args.size(list)));
        let at = |b: &mut Builder, place: Operand| {
            let mut leaves = MapLeaves { kernel: self, chunk, v, list: Some((list, place)), inside: None };
            let offset = Point::new(&self.stage.program, self.position).here(b, &mut leaves, offsets);
            b.convert(Ty::I64, offset)
        };
        b.loop_(|b| {
            let done = b.ge(low.into(), high);
            b.break_if(done);
            let sum = b.add(low.into(), high);
            let middle = b.binary(Binary::Div, sum, 2);
            let offset = at(b, middle);
            let below = b.lt(offset, index);
            let after = b.add(middle, 1);
            let next_low = b.select(below, after, low.into());
            let next_high = b.select(below, high.into(), middle);
            b.assign(low, next_low);
            b.assign(high, next_high);
        });
        let size = self.args.size(list);
        let found = b.lt(low.into(), size);
        let named = b.var(Operand::bool(false));
        b.if_(found, |b| {
            let offset = at(b, low.into());
            let equal = b.eq(offset, index);
            b.assign(named, equal);
        });
        named.into()
    }
}

/// The leaves at point v of a chunk.
struct MapLeaves<'k, 's> {
    kernel: &'k MapKernel<'s>,
    chunk: &'k Chunk,
    v: u32,
    /// A place along an axis that is not the point's: in a list of offsets, or where a gather reads.
    list: Option<(Axis, Operand)>,
    /// Of a gather, whether there is such a place.
    inside: Option<Operand>,
}

impl MapLeaves<'_, '_> {
    /// A parameter at a position that no register holds.
    fn far(&self, b: &mut Builder, param: u32, at: Position) -> Operand {
        let kernel = self.kernel;
        let tensor = Tensor::Param(param);
        let mut indices: Vec<(Axis, Operand)> = self.chunk.indices.clone();
        let lane = kernel.index(b, self.chunk, kernel.lane, self.v);
        indices.retain(|(axis, _)| *axis != kernel.lane);
        indices.push((kernel.lane, lane));
        indices.retain(|(axis, _)| self.list.is_none_or(|(list, _)| list != *axis));
        indices.extend(self.list);
        let mut guard = match (self.inside, self.list) {
            (Some(inside), _) => inside,
            (None, Some(_)) => self.chunk.exists,
            (None, None) => kernel.exists(b, self.chunk, self.v),
        };
        if let Some(axis) = kernel.position.filter(|_| at.anchor != Anchor::Here) {
            let size = kernel.args.size(axis);
            let index = at.from_end(b, size);
            let inside = b.is_within(index, size);
            guard = b.and(guard, inside);
            indices.retain(|(a, _)| *a != axis);
            indices.push((axis, index));
        }
        let offset = kernel.args.offset(b, tensor, &indices);
        let nothing = zero(elem(kernel.stage, tensor).value());
        b.load(kernel.args.memory(tensor), offset, 1, Some(guard), nothing)[0]
    }
}

impl Leaves for MapLeaves<'_, '_> {
    fn param(&mut self, b: &mut Builder, param: u32, at: Position) -> Operand {
        let is_here = at == Position::HERE && self.list.is_none() && self.inside.is_none();
        let held = self.chunk.values.get(&param).filter(|_| is_here);
        match held {
            Some(values) => values[self.v as usize].into(),
            None => self.far(b, param, at),
        }
    }

    fn state(&mut self, _: &mut Builder, _: Value, _: u32, _: Position) -> Operand {
        unreachable!("a map has no states")
    }

    fn index(&mut self, b: &mut Builder, axis: Axis) -> Operand {
        match self.list {
            Some((list, place)) if list == axis => place,
            _ => self.kernel.index(b, self.chunk, axis, self.v),
        }
    }

    fn size(&mut self, _: &mut Builder, axis: Axis) -> Operand {
        self.kernel.args.size(axis)
    }
}

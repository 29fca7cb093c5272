//! The copy warps: tiles of inputs come in, outputs go out.

use super::evaluate::{Evaluator, Place};
use super::global::Global;
use super::pieces::{Piece, Shape};
use super::tiles::{Tile, params_beneath};
use super::{CHUNK, StatesKernel, Time, height};
use crate::abi::{Tensor, axes};
use crate::build::Builder;
use crate::tile::{Mbarrier, Memory, Operand, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Op, Value};

/// The named barrier of the copy warps.
const BARRIER: u32 = 1;

impl StatesKernel<'_> {
    /// Tile after tile: the stage's last tile goes out, the next one comes in.
    pub(super) fn copy_role(&self, b: &mut Builder) {
        let thread = self.copy_thread(b);
        let at = self.cursor(b, 0);
        let stages = Operand::i32(self.schedule.stages as i32);
        let turns = b.add(self.tile_count, stages);
        b.for_(Operand::i32(0), turns, Operand::i32(1), |b, number| {
            let again = b.ge(number, stages);
            b.if_(again, |b| {
                let before = b.sub(number, stages);
                let time = self.time(b, before);
                let turn = b.binary(Binary::Xor, at.parity.into(), Operand::i32(1));
                self.drain(b, (at.stage.into(), turn), &time, thread);
                if !self.keeps_pieces() {
                    b.push(Stmt::Barrier { id: BARRIER, threads: self.schedule.copy_warps * crate::schedule::WARP });
                }
            });
            let more = b.lt(number, self.tile_count);
            b.if_(more, |b| {
                let time = self.time(b, number);
                self.fill(b, at.stage.into(), &time, thread);
            });
            self.advance(b, &at);
        });
    }

    /// Arrivals of each copy thread when it has filled a tile: for its copies, and for what it has stored and read.
    pub(super) fn arrivals_per_thread(&self) -> u32 {
        1 + u32::from(self.values.tiles.iter().any(|tile| self.copied(tile).is_some()))
    }

    /// The parameter that a tile is a plain copy of.
    fn copied(&self, tile: &Tile) -> Option<u32> {
        let Op::Param(param) = self.stage.program.node(tile.value).op else { return None };
        (self.stage.program.params[param as usize].elem.bytes() == Some(4)).then_some(param)
    }

    /// Whether the thread that takes an output's piece away fills just that piece again, in every tile that outputs read.
    fn keeps_pieces(&self) -> bool {
        let shared = self.values.tiles.iter().filter(|tile| !tile.states);
        let tiles = shared.map(|tile| self.tile_shape(tile));
        let outputs = self.body_outputs().map(|k| self.output_shape(k));
        let mut shapes = tiles.chain(outputs);
        let first = shapes.next();
        shapes.all(|shape| Some(shape) == first)
    }

    fn fill(&self, b: &mut Builder, stage: Operand, time: &Time, thread: Operand) {
        for (i, tile) in self.values.tiles.iter().enumerate() {
            let shape = self.tile_shape(tile);
            self.each_piece(b, shape, thread, |b, pieces| match self.copied(tile) {
                Some(param) => {
                    pieces.iter().for_each(|piece| self.copy_piece(b, (i, stage), time, (param, piece), shape))
                }
                None => self.store_pieces(b, (i, stage), time, pieces, shape),
            });
        }
        let full = Mbarrier { array: self.full, index: stage };
        if self.arrivals_per_thread() > 1 {
            b.push(Stmt::CopyAsyncArrive(full));
        }
        b.push(Stmt::MbarrierArrive(full));
    }

    /// How a tile is cut: along the axis in which its first parameter is contiguous.
    fn tile_shape(&self, tile: &Tile) -> Shape {
        let program = &self.stage.program;
        let time = self.scan.axis;
        let timed = params_beneath(program, tile.value).into_iter().map(Tensor::Param);
        let across = timed.map(|t| axes(self.stage, t)).find(|axes| axes.contains(&time));
        let across = self.schedule.vector == 1 && across.is_some_and(|axes| axes.last() != Some(&time));
        let width = match self.copied(tile) {
            Some(_) => self.schedule.vector.min(CHUNK),
            None => self.schedule.vector,
        };
        Shape { height: height(self.schedule, tile), steps: self.schedule.steps, width, across }
    }

    /// The row of the block and the state that a row of a tile is for, `i32`.
    fn row_and_state(&self, b: &mut Builder, tile: &Tile, row: Operand) -> (Operand, Operand) {
        if !tile.states {
            return (if tile.rows { row } else { Operand::i32(0) }, Operand::i32(0));
        }
        let [states, lanes, capacity] =
            [self.schedule.states, self.schedule.lanes, self.schedule.capacity()].map(|n| Operand::i32(n as i32));
        let (own, slot) = if tile.rows {
            (b.binary(Binary::Div, row, capacity), b.binary(Binary::Rem, row, capacity))
        } else {
            (Operand::i32(0), row)
        };
        let lane = b.binary(Binary::Rem, slot, lanes);
        let k = b.binary(Binary::Div, slot, lanes);
        let first = b.mul(lane, states);
        (own, b.add(first, k))
    }

    /// The values at a piece of a tile.
    fn source(&self, b: &mut Builder, tile: &Tile, time: &Time, piece: &Piece, width: u32) -> Global<'_, '_> {
        let place = self.row_and_state(b, tile, piece.row);
        let column = b.convert(Ty::I64, piece.column);
        let step = b.add(time.first, column);
        let exists = b.lt(piece.column, time.steps);
        Global::at(self, place, (step, exists), width)
    }

    fn copy_piece(
        &self,
        b: &mut Builder,
        (i, stage): (usize, Operand),
        time: &Time,
        (param, piece): (u32, &Piece),
        shape: Shape,
    ) {
        b.if_(piece.held, |b| {
            let source = self.source(b, &self.values.tiles[i], time, piece, shape.width);
            let (from_index, exists) = source.offset(b, Tensor::Param(param), 0);
            let to_index = self.element(b, shape.height, stage, piece.row, piece.column);
            let (to, from) = (self.tiles[i], self.args.pointer(Tensor::Param(param)));
            b.push(Stmt::CopyAsync { to, to_index, from, from_index, elements: shape.width, guard: Some(exists) });
        });
    }

    /// Loads of all pieces first, then what is computed from them.
    fn store_pieces(&self, b: &mut Builder, (i, stage): (usize, Operand), time: &Time, pieces: &[Piece], shape: Shape) {
        let tile = &self.values.tiles[i];
        let beneath = params_beneath(&self.stage.program, tile.value);
        let mut sources: Vec<Global> = pieces.iter().map(|p| self.source(b, tile, time, p, shape.width)).collect();
        sources.iter_mut().for_each(|source| source.preload(b, &beneath));
        for (piece, source) in pieces.iter().zip(&mut sources) {
            b.if_(piece.held, |b| {
                let values = self.steps_of(b, source, tile.value, shape.width);
                let to = self.element(b, shape.height, stage, piece.row, piece.column);
                self.store_shared(b, Memory::Shared(self.tiles[i]), to, &values);
            });
        }
    }

    /// A value at all steps of a piece.
    fn steps_of(&self, b: &mut Builder, source: &mut Global, value: Value, width: u32) -> Vec<Operand> {
        let mut evaluator = Evaluator::new(&self.stage.program, self.scan.axis, self.values.state);
        (0..width).map(|step| evaluator.value(b, source, value, Place { state: 0, step })).collect()
    }

    fn store_shared(&self, b: &mut Builder, memory: Memory, at: Operand, values: &[Operand]) {
        for (k, part) in values.chunks(CHUNK as usize).enumerate() {
            let at = b.add(at, Operand::i32((k as u32 * CHUNK) as i32));
            b.store(memory, at, part, None);
        }
    }
}

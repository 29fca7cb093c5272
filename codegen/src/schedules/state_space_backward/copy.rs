//! The copy warps: they bring tiles in and take sums of the block and outputs away.

use super::zero::Fill;
use super::{StateSpaceBackwardKernel, height};
use crate::abi::{Tensor, axes};
use crate::block::ring::Ring;
use crate::build::Builder;
use crate::schedules::Pass;
use crate::schedules::state_space::copy::{Anchors, BARRIER, Copier};
use crate::schedules::state_space::global::{Global, Steps};
use crate::schedules::state_space::pieces::{Piece, Shape};
use crate::schedules::state_space::tiles::{Tile, params_beneath};
use crate::schedules::state_space::{CHUNK, Time};
use crate::tile::{Memory, Operand, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Literal, Op};
use std::collections::HashMap;

impl StateSpaceBackwardKernel<'_> {
    /// Goes from tile to tile: takes the stage's last tile away and brings the next one in.
    pub(super) fn copy_role(&self, b: &mut Builder) {
        let base = &self.base;
        let teams = self.schedule.teams();
        let team = if teams == 1 { Operand::i32(0) } else { base.team(b) };
        let thread = base.copy_thread(b);
        let anchors = self.anchors(b, thread);
        let copier = Copier { thread, anchors: &anchors };
        let at = Ring::cursor(b, team, 0);
        let half = b.var(Operand::i32(0));
        let stages = Operand::i32(self.schedule.stages as i32);
        let iterations = b.add(base.own_tiles(), stages);
        b.for_(team, iterations, teams, |b, number| {
            let refills = b.ge(number, stages);
            b.if_(refills, |b| {
                let before = b.sub(number, stages);
                let time = base.time(b, before);
                if let Some(sums) = &self.row_sums {
                    self.take_sums(b, sums, thread, half, &time);
                }
                let drained = at.here().before(b);
                b.wait(base.done, drained);
                b.push(Stmt::SyncWarp);
                self.drain(b, at.stage.into(), &time, copier);
                if !self.keeps_pieces() {
                    b.push(Stmt::Barrier { id: BARRIER, threads: self.schedule.team_threads() });
                }
            });
            let more = b.lt(number, base.own_tiles());
            b.if_(more, |b| {
                let time = base.time(b, number);
                self.fill(b, at.stage.into(), &time, copier);
            });
            base.ring().advance_by(b, &at, teams);
        });
    }

    fn fill(&self, b: &mut Builder, stage: Operand, time: &Time, copier: Copier) {
        let shapes: Vec<Shape> = self.tiles.tiles.iter().map(|tile| self.tile_shape(tile)).collect();
        // No registers are set aside for loads: walking warps leave few.
        self.base.fill_tiles(b, stage, &shapes, 0, time, copier, |b, i, pieces, sources| {
            self.store_pieces(b, i, stage, pieces, sources, shapes[i]);
        });
    }

    /// Stores what is computed from loaded pieces, and the tile's filling where they do not exist.
    fn store_pieces(
        &self,
        b: &mut Builder,
        i: usize,
        stage: Operand,
        pieces: &[Piece],
        mut sources: Vec<Global>,
        shape: Shape,
    ) {
        let (base, parts, tile) = (&self.base, self.parts, &self.tiles.tiles[i]);
        let plain = matches!(parts.program.node(tile.value).op, Op::Param(_));
        for (piece, source) in pieces.iter().zip(&mut sources) {
            b.if_(piece.held, |b| {
                let mut values = base.steps_of(b, source, tile.value, shape.width);
                if !plain {
                    let exists = self.piece_exists(b, tile, source);
                    let other = if self.tiles.fills[i] == Fill::One { 1.0 } else { 0.0 };
                    let other = Operand::Const(Ty::F32, Literal::Float(other));
                    values = values.into_iter().map(|v| b.select(exists, v, other)).collect();
                }
                let to = base.element(b, shape.height, stage, piece.row, piece.column);
                base.store_shared(b, Memory::Shared(base.tiles[i]), to, &values);
            });
        }
    }

    /// Whether the row, the state and the steps of a piece exist.
    fn piece_exists(&self, b: &mut Builder, tile: &Tile, source: &Global) -> Operand {
        let mut exists = source.steps.exists;
        if tile.rows {
            let inside = b.lt(source.row, self.base.block.rows);
            exists = b.and(exists, inside);
        }
        if tile.states {
            let inside = b.lt(source.state, self.base.state_count);
            exists = b.and(exists, inside);
        }
        exists
    }

    /// Writes the outputs of a tile that has been walked.
    fn drain(&self, b: &mut Builder, stage: Operand, time: &Time, copier: Copier) {
        let Copier { thread, anchors } = copier;
        let base = &self.base;
        for (k, array) in self.bodies().zip(&self.outputs) {
            let (shape, tensor) = (self.output_shape(k), Tensor::Output(k as u32));
            base.each_piece(b, shape, 1, thread, |b, pieces| {
                for piece in pieces {
                    b.if_(piece.held, |b| {
                        let column = b.convert(Ty::I64, piece.column);
                        let step = b.add(time.first, column);
                        let exists = b.lt(piece.column, time.steps);
                        let mut to =
                            Global::at(base, piece.row, Operand::i32(0), Steps { first: step, exists }, shape.width);
                        to.known = anchors.offsets(b, base, time, piece);
                        let (offset, exists) = to.offset(b, tensor, 0);
                        let from = base.element(b, shape.height, stage, piece.row, piece.column);
                        let values = self.steps(b, Memory::Shared(*array), from, shape.width);
                        b.store(base.args.memory(tensor), offset, &values, Some(exists));
                    });
                }
            });
        }
    }

    /// Steps of a row of a tile, from an element on.
    pub(super) fn steps(&self, b: &mut Builder, memory: Memory, from: Operand, count: u32) -> Vec<Operand> {
        let zero = crate::build::zero(b.elem(memory).value());
        let mut values = vec![];
        for first in (0..count).step_by(CHUNK as usize) {
            let at = b.add(from, first);
            values.extend(b.load(memory, at, (count - first).min(CHUNK), None, zero));
        }
        values
    }

    /// The outputs at every row and step, in the pass that writes them.
    fn bodies(&self) -> impl Iterator<Item = usize> {
        let walks = self.schedule.pass == Pass::Walk;
        self.parts.bodies().filter(move |_| walks)
    }

    fn anchors(&self, b: &mut Builder, thread: Operand) -> Anchors {
        let mut anchors = Anchors(HashMap::new());
        let program = &self.parts.program;
        for tile in &self.tiles.tiles {
            let Op::Param(param) = program.node(tile.value).op else { continue };
            let shape = self.tile_shape(tile);
            anchors.add(b, &self.base, Tensor::Param(param), tile, shape, thread);
        }
        for k in self.bodies() {
            let rows = Tile { value: program.outputs[k].value, rows: true, states: false };
            let shape = self.output_shape(k);
            anchors.add(b, &self.base, Tensor::Output(k as u32), &rows, shape, thread);
        }
        anchors
    }

    /// Whether the thread that takes an output's piece away fills just that piece again, in a pass that has outputs: where tiles
    /// are taken by teams there are none.
    fn keeps_pieces(&self) -> bool {
        if self.outputs.is_empty() {
            return true;
        }
        let shared = self.tiles.tiles.iter().filter(|tile| !tile.states);
        let tiles = shared.map(|tile| self.tile_shape(tile));
        let mut shapes = tiles.chain(self.bodies().map(|k| self.output_shape(k)));
        let first = shapes.next();
        shapes.all(|shape| Some(shape) == first)
    }

    /// How a tile is cut: along the axis in which its first parameter is contiguous.
    fn tile_shape(&self, tile: &Tile) -> Shape {
        let program = &self.parts.program;
        let beneath = params_beneath(program, tile.value).into_iter().map(Tensor::Param);
        let across = beneath.map(|t| axes(self.base.stage, t)).find(|axes| axes.contains(&self.parts.time));
        let across = self.schedule.vector == 1 && across.is_some_and(|axes| axes.last() != Some(&self.parts.time));
        let width = match self.base.copied(tile) {
            Some(_) => self.schedule.vector.min(CHUNK),
            None => self.schedule.vector,
        };
        Shape { height: height(self.schedule, tile), steps: self.schedule.steps, width, across }
    }

    fn output_shape(&self, k: usize) -> Shape {
        let output = &self.parts.program.outputs[k];
        let across = self.schedule.vector == 1 && output.axes.last() != Some(&self.parts.time);
        let bytes = output.elem.bytes().unwrap_or(16) as u32;
        let width = self.schedule.vector.min(16 / bytes);
        Shape { height: self.schedule.block_rows(), steps: self.schedule.steps, width, across }
    }
}

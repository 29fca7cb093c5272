//! The copy warps: they bring tiles of inputs in and take outputs away.
//!
//! A team of them takes every `teams`-th tile, and with it always the same stages of the ring. While a team waits for
//! its loads, or for the walk, the others copy: with few rows the memory's latency is longer than the walk of a tile.

use super::anchors::{Anchors, Offsets};
use super::global::{Global, RowState};
use super::output_constants::Constants;
use super::pieces::{Piece, Shape};
use super::tiles::{Tile, params_beneath};
use super::{CHUNK, StateSpaceKernel, TileAt, Time};
use crate::abi::{Tensor, axes};
use crate::block::ring::Ring;
use crate::block::state_step::{Evaluator, StateStep};
use crate::build::{Builder, zero};
use crate::tile::{Memory, Operand, Stmt};
use oplus_dsl::ir::{Binary, Value};
use std::cell::RefCell;

/// The named barrier of the first team of copy warps; the others' follow.
pub(crate) const BARRIER: u32 = 1;
/// The registers that the loads of all tiles may take at once, so that they are all on their way.
const EARLY: u32 = 32;

/// A thread that copies.
#[derive(Clone, Copy)]
pub(crate) struct Copier<'a> {
    /// Its number in its team, `i32`.
    pub thread: Operand,
    pub anchors: &'a Anchors,
    pub constants: &'a Constants,
}

/// The memory that a tile is brought into.
#[derive(Clone, Copy)]
pub(crate) struct Destination {
    /// The tile's number among those of the kernel.
    pub tile: usize,
    pub stage: Operand,
    pub shape: Shape,
}

impl StateSpaceKernel<'_> {
    /// Goes from tile to tile: takes the outputs of the stage's last tile away, and brings the next tile in.
    pub(super) fn copy_role(&self, b: &mut Builder) {
        let (thread, team) = (self.copy_thread(b), self.team(b));
        let anchors = self.anchors(b, thread, self.body_outputs());
        let constants = self.constants_of_outputs(b, thread);
        let copier = Copier { thread, anchors: &anchors, constants: &constants };
        let [stages, teams] = [self.schedule.stages, self.schedule.teams].map(|n| Operand::i32(n as i32));
        let iterations = b.add(self.own_tiles(), stages);
        // Where registers are scarce, stage and phase follow from the number of a tile.
        let cursor = (!self.spares_registers()).then(|| Ring::cursor(b, team, 0));
        b.for_(team, iterations, teams, |b, number| {
            let at = match &cursor {
                Some(cursor) => cursor.here(),
                None => self.ring().at(b, number),
            };
            let refills = b.ge(number, stages);
            b.if_(refills, |b| {
                let before = b.sub(number, stages);
                let time = self.time(b, before);
                let drained = at.before(b);
                self.for_tile(b, time, |b, time| self.drain(b, drained, time, copier));
                if !self.keeps_pieces(self.body_outputs()) {
                    self.meet(b, team);
                }
            });
            let more = self.is_there_more(b, number, iterations);
            b.if_(more, |b| {
                let time = self.time(b, number);
                self.for_tile(b, time, |b, time| {
                    let tile = TileAt { stage: at.index, time: *time };
                    self.fill(b, &tile, copier);
                });
            });
            if let Some(cursor) = &cursor {
                self.ring().advance_by(b, cursor, self.schedule.teams);
            }
        });
    }

    /// Whether the block walks a tile of that number: so many iterations fill its tiles and take the last ones away.
    fn is_there_more(&self, b: &mut Builder, number: Operand, iterations: Operand) -> Operand {
        // The number of tiles is not kept in a register beside that of iterations.
        let filled = b.add(number, self.schedule.stages);
        b.lt(filled, iterations)
    }

    /// Lets the threads of a team wait for one another.
    fn meet(&self, b: &mut Builder, team: Operand) {
        let threads = self.schedule.team_threads();
        for k in 0..self.schedule.teams {
            let own = b.eq(team, k);
            b.if_(own, |b| b.push(Stmt::Barrier { id: BARRIER + k, threads }));
        }
    }

    /// The arrivals of each copy thread when it has filled a tile: for its copies, and for what it has stored and read.
    pub(crate) fn arrivals_per_thread(&self) -> u32 {
        1 + u32::from(self.values.tiles.iter().any(|tile| tile.copied(&self.stage.program).is_some()))
    }

    /// Whether every thread that takes a piece of one of these outputs away fills the same piece again, in all tiles that outputs read.
    pub(crate) fn keeps_pieces(&self, outputs: impl Iterator<Item = usize>) -> bool {
        let shared = self.values.tiles.iter().filter(|tile| !tile.states);
        let tiles = shared.map(|tile| self.tile_shape(tile));
        let outputs = outputs.map(|k| self.output_shape(k));
        let mut shapes = tiles.chain(outputs);
        let first = shapes.next();
        shapes.all(|shape| Some(shape) == first)
    }

    fn fill(&self, b: &mut Builder, at: &TileAt, copier: Copier) {
        let shapes: Vec<Shape> = self.values.tiles.iter().map(|tile| self.tile_shape(tile)).collect();
        self.fill_tiles(b, at, &shapes, EARLY, copier, |b, to, pieces, sources| {
            self.store_pieces(b, to, pieces, sources);
        });
    }

    /// Brings tiles of these shapes into a stage; `store` computes and writes the tiles that are no plain copies. The loads of all tiles
    /// are in flight at once, as far as they fit `early_registers` registers.
    pub(crate) fn fill_tiles(
        &self,
        b: &mut Builder,
        at: &TileAt,
        shapes: &[Shape],
        early_registers: u32,
        copier: Copier,
        store: impl Fn(&mut Builder, Destination, &[Piece], Vec<Global>),
    ) {
        let Copier { thread, anchors, .. } = copier;
        let TileAt { stage, ref time } = *at;
        let (mut early, mut registers) = (vec![], 0);
        for (number, (tile, shape)) in self.values.tiles.iter().zip(shapes).enumerate() {
            let to = Destination { tile: number, stage, shape: *shape };
            let beneath = params_beneath(&self.stage.program, tile.value);
            let tensors: Vec<Tensor> = beneath.iter().copied().map(Tensor::Param).collect();
            let offsets = RefCell::new(Offsets::of(anchors, &tensors));
            let sources = |b: &mut Builder, pieces: &[Piece]| {
                if self.branches_between_pieces(beneath.len()) {
                    // Offsets that were found behind a branch are not known behind the next.
                    *offsets.borrow_mut() = Offsets::of(anchors, &tensors);
                }
                let source = |piece| {
                    let mut source = self.source(b, tile, time, piece, shape.width);
                    source.known = offsets.borrow_mut().at(b, self, time, piece);
                    source
                };
                pieces.iter().map(source).collect::<Vec<_>>()
            };
            let own = self.registers_of_loads(*shape, &beneath);
            if tile.copied(&self.stage.program).is_none() && registers + own <= early_registers {
                let pieces = self.few_pieces(b, *shape, thread).unwrap_or_default();
                let mut sources = sources(b, &pieces);
                sources.iter_mut().for_each(|source| source.preload(b, &beneath));
                early.push((to, pieces, sources));
                registers += own;
                continue;
            }
            self.each_piece(b, *shape, beneath.len(), thread, |b, pieces| {
                let mut sources = sources(b, pieces);
                if let Some(param) = tile.copied(&self.stage.program) {
                    return self.copy_pieces(b, to, param, pieces, &sources);
                }
                sources.iter_mut().for_each(|source| source.preload(b, &beneath));
                store(b, to, pieces, sources);
            });
        }
        for (to, pieces, sources) in early {
            store(b, to, &pieces, sources);
        }
        if self.arrivals_per_thread() > 1 {
            b.arrive_with_copies(self.frame.full, stage);
        }
        b.arrive(self.frame.full, stage);
    }

    /// The shape that cuts a tile into pieces, along the axis in which its first parameter is contiguous.
    pub(crate) fn tile_shape(&self, tile: &Tile) -> Shape {
        let program = &self.stage.program;
        let time = self.scan.axis;
        let timed = params_beneath(program, tile.value).into_iter().map(Tensor::Param);
        let across = timed.map(|t| axes(self.stage, t)).find(|axes| axes.contains(&time));
        let across = self.schedule.vector == 1 && across.is_some_and(|axes| axes.last() != Some(&time));
        let width = match tile.copied(&self.stage.program) {
            Some(_) => self.schedule.vector.min(CHUNK),
            None => self.schedule.vector,
        };
        Shape { height: self.layouts.tile(tile).height, steps: self.schedule.steps, width, across }
    }

    /// The row of the block and the state that a row of a tile is for, `i32`.
    fn row_and_state(&self, b: &mut Builder, tile: &Tile, row: Operand) -> RowState {
        if !tile.states {
            return RowState::first_of(if tile.rows { row } else { Operand::i32(0) });
        }
        let [states, lanes, capacity] =
            [self.schedule.states, self.schedule.lanes, self.schedule.capacity()].map(|n| Operand::i32(n as i32));
        let (own, number) = if tile.rows {
            (b.binary(Binary::Div, row, capacity), b.binary(Binary::Rem, row, capacity))
        } else {
            (Operand::i32(0), row)
        };
        let lane = b.binary(Binary::Rem, number, lanes);
        let k = b.binary(Binary::Div, number, lanes);
        let first = b.mul(lane, states);
        RowState { row: own, state: b.add(first, k) }
    }

    /// The values at a piece of a tile.
    pub(super) fn source(
        &self,
        b: &mut Builder,
        tile: &Tile,
        time: &Time,
        piece: &Piece,
        width: u32,
    ) -> Global<'_, '_> {
        let from = self.row_and_state(b, tile, piece.row);
        Global::at(b, self, from, time, piece, width)
    }

    fn copy_pieces(&self, b: &mut Builder, to: Destination, param: u32, pieces: &[Piece], sources: &[Global]) {
        let Destination { tile, stage, shape } = to;
        let layout = self.layouts.tile(&self.values.tiles[tile]);
        for (piece, source) in pieces.iter().zip(sources) {
            b.if_(piece.held, |b| {
                let (from_index, exists) = source.offset(b, Tensor::Param(param), 0);
                let to_index = self.element(b, layout, stage, piece.row, piece.column);
                let (to, from) = (self.tiles[tile], self.args.pointer(Tensor::Param(param)));
                let guard = Some(exists).filter(|exists| *exists != Operand::bool(true));
                b.push(Stmt::CopyAsync { to, to_index, from, from_index, elements: shape.width, guard });
            });
        }
    }

    /// The registers that a thread's loads of a tile take; a number above all limits if its pieces are too many.
    fn registers_of_loads(&self, shape: Shape, beneath: &[u32]) -> u32 {
        let bytes = |param: &u32| self.stage.program.params[*param as usize].elem.bytes().unwrap_or(4) as u32;
        let each: u32 = beneath.iter().map(bytes).sum();
        self.piece_count(shape).map_or(u32::MAX / 2, |count| (count * shape.width * each).div_ceil(4))
    }

    /// Stores the values computed from loaded pieces.
    fn store_pieces(&self, b: &mut Builder, to: Destination, pieces: &[Piece], mut sources: Vec<Global>) {
        let Destination { tile, stage, shape } = to;
        let (value, layout) = (self.values.tiles[tile].value, self.layouts.tile(&self.values.tiles[tile]));
        for (piece, source) in pieces.iter().zip(&mut sources) {
            b.if_(piece.held, |b| {
                let values = self.steps_of(b, source, value, shape.width);
                let to = self.element(b, layout, stage, piece.row, piece.column);
                self.store_shared(b, Memory::Shared(self.tiles[tile]), to, &values);
            });
        }
    }

    /// A value at all steps of a piece.
    pub(crate) fn steps_of(&self, b: &mut Builder, source: &mut Global, value: Value, width: u32) -> Vec<Operand> {
        let mut evaluator = Evaluator::new(&self.stage.program, self.scan.axis, self.values.state);
        (0..width).map(|step| evaluator.value(b, source, value, StateStep { state: 0, step })).collect()
    }

    pub(crate) fn store_shared(&self, b: &mut Builder, memory: Memory, at: Operand, values: &[Operand]) {
        for (k, access) in values.chunks(CHUNK as usize).enumerate() {
            let at = b.add(at, k as u32 * CHUNK);
            b.store(memory, at, access, None);
        }
    }
}

/// Steps of a row of a tile, from an element on.
pub(crate) fn load_steps(b: &mut Builder, memory: Memory, from: Operand, count: u32) -> Vec<Operand> {
    let zero = zero(b.elem(memory).value());
    let mut values = vec![];
    for first in (0..count).step_by(CHUNK as usize) {
        let at = b.add(from, first);
        values.extend(b.load(memory, at, (count - first).min(CHUNK), None, zero));
    }
    values
}

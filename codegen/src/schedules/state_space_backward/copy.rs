//! The copy warps: they bring tiles in and take sums of the block and outputs away.

use super::StateSpaceBackwardKernel;
use super::zero::Fill;
use crate::abi::Tensor;
use crate::block::ring::Ring;
use crate::build::Builder;
use crate::schedules::Pass;
use crate::schedules::state_space::anchors::Offsets;
use crate::schedules::state_space::copy::{BARRIER, Copier, Destination, load_steps};
use crate::schedules::state_space::global::{Global, RowState};
use crate::schedules::state_space::output_constants::Constants;
use crate::schedules::state_space::pieces::{Piece, Shape};
use crate::schedules::state_space::tiles::Tile;
use crate::schedules::state_space::{TileAt, Time};
use crate::tile::{Memory, Operand, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Literal, Op};

impl StateSpaceBackwardKernel<'_> {
    /// Goes from tile to tile: takes the stage's last tile away and brings the next one in.
    pub(super) fn copy_role(&self, b: &mut Builder) {
        let base = &self.base;
        let teams = self.schedule.teams();
        let team = if teams == 1 { Operand::i32(0) } else { base.team(b) };
        let thread = base.copy_thread(b);
        let anchors = base.anchors(b, thread, self.bodies());
        let constants = Constants::default();
        let copier = Copier { thread, anchors: &anchors, constants: &constants };
        let places = self.row_sums.as_ref().and_then(|sums| self.sum_places(b, sums, thread));
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
                    self.take_sums(b, sums, (thread, places.as_deref()), half, &time);
                }
                let drained = at.here().before(b);
                b.wait(base.frame.done, drained);
                b.push(Stmt::SyncWarp);
                base.for_tile(b, time, |b, time| self.drain(b, at.stage.into(), time, copier));
                if !self.keeps_pieces() {
                    b.push(Stmt::Barrier { id: BARRIER, threads: self.schedule.team_threads() });
                }
            });
            let more = b.lt(number, base.own_tiles());
            b.if_(more, |b| {
                let time = base.time(b, number);
                base.for_tile(b, time, |b, time| {
                    let tile = TileAt { stage: at.stage.into(), time: *time };
                    self.fill(b, &tile, copier);
                });
            });
            base.ring().advance_by(b, &at, teams);
        });
    }

    fn fill(&self, b: &mut Builder, at: &TileAt, copier: Copier) {
        let shapes: Vec<Shape> = self.tiles.tiles.iter().map(|tile| self.base.tile_shape(tile)).collect();
        // No registers are set aside for loads: walking warps leave few.
        self.base.fill_tiles(b, at, &shapes, 0, copier, |b, to, pieces, sources| {
            self.store_pieces(b, to, pieces, sources);
        });
    }

    /// Stores the values computed from loaded pieces, and the tile's filling where they do not exist.
    fn store_pieces(&self, b: &mut Builder, to: Destination, pieces: &[Piece], mut sources: Vec<Global>) {
        let Destination { tile: number, stage, shape } = to;
        let (base, form, tile) = (&self.base, self.form, &self.tiles.tiles[number]);
        let layout = base.layouts.tile(tile);
        let plain = matches!(form.program.node(tile.value).op, Op::Param(_));
        for (piece, source) in pieces.iter().zip(&mut sources) {
            b.if_(piece.held, |b| {
                let mut values = base.steps_of(b, source, tile.value, shape.width);
                if !plain {
                    let exists = self.piece_exists(b, tile, source);
                    let other = if self.tiles.fills[number] == Fill::One { 1.0 } else { 0.0 };
                    let other = Operand::Const(Ty::F32, Literal::Float(other));
                    values = values.into_iter().map(|v| b.select(exists, v, other)).collect();
                }
                let to = base.element(b, layout, stage, piece.row, piece.column);
                base.store_shared(b, Memory::Shared(base.tiles[number]), to, &values);
            });
        }
    }

    /// Whether the row, the state and the steps of a piece exist.
    fn piece_exists(&self, b: &mut Builder, tile: &Tile, source: &Global) -> Operand {
        let mut exists = source.steps.exists;
        if tile.rows {
            let inside = b.lt(source.row, self.base.frame.block.rows);
            exists = b.and(exists, inside);
        }
        if tile.states {
            let inside = b.lt(source.state, self.base.frame.state_count);
            exists = b.and(exists, inside);
        }
        exists
    }

    /// Writes the outputs of a tile that has been walked.
    fn drain(&self, b: &mut Builder, stage: Operand, time: &Time, copier: Copier) {
        let Copier { thread, anchors, .. } = copier;
        let base = &self.base;
        for (k, array) in self.bodies().zip(&self.outputs) {
            let (shape, tensor) = (base.output_shape(k), Tensor::Output(k as u32));
            let tensors = [tensor];
            let mut offsets = Offsets::of(anchors, &tensors);
            base.each_piece(b, shape, 1, thread, |b, pieces| {
                for piece in pieces {
                    b.if_(piece.held, |b| {
                        let mut to = Global::at(b, base, RowState::first_of(piece.row), time, piece, shape.width);
                        to.known = offsets.at(b, base, time, piece);
                        let (offset, exists) = to.offset(b, tensor, 0);
                        let from = base.element(b, base.layouts.row_tile(), stage, piece.row, piece.column);
                        let values = load_steps(b, Memory::Shared(*array), from, shape.width);
                        b.store(base.args.memory(tensor), offset, &values, Some(exists));
                    });
                }
            });
        }
    }

    /// The outputs at every row and step, in the pass that writes them.
    fn bodies(&self) -> impl Iterator<Item = usize> {
        let walks = self.schedule.pass == Pass::Walk;
        self.form.bodies().filter(move |_| walks)
    }

    /// Whether the thread that takes an output's piece away fills just that piece again, in a pass that has outputs: where tiles
    /// are taken by teams there are none.
    fn keeps_pieces(&self) -> bool {
        self.outputs.is_empty() || self.base.keeps_pieces(self.bodies())
    }
}

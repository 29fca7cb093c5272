//! The warps that copy: the rows of a block, and the tiles of columns.

use super::super::FlashKernel;
use super::course::{Course, Visit};
use crate::abi::Tensor;
use crate::block::copy::Source;
use crate::block::layout::Tile;
use crate::block::ring::RingStage;
use crate::build::Builder;
use crate::tile::{Operand, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

/// Rows after which the places of pieces repeat.
const EIGHT: u32 = 8;

impl FlashKernel<'_> {
    /// Copies the rows of the block and all tiles of columns.
    pub(super) fn copy_across(&self, b: &mut Builder) {
        let number = b.var(Operand::i32(0));
        self.each_point(b, |kernel, b, course, round| {
            let read = RingStage::only(b, round.into()).before(b);
            b.wait(kernel.rows_empty, read);
            let source = kernel.source(&kernel.outer);
            for tile in &kernel.row_tiles {
                kernel.copy_tile(b, tile, &source, kernel.first_row, Operand::i32(0));
            }
            kernel.each_visit(b, course, number, |b, visit| kernel.copy_visit(b, course, visit));
        });
    }

    fn source<'s>(&'s self, outer: &'s [(oplus_dsl::ir::Axis, Operand)]) -> Source<'s> {
        Source {
            args: &self.args,
            outer,
            threads: self.schedule.copying(),
            thread: self.thread.number,
            vector: self.schedule.vector,
            padded: false,
            fenced: true,
            rolled: false,
        }
    }

    /// Copies the tiles of a visit, once they have been left; numbers of columns come with the first of them.
    fn copy_visit(&self, b: &mut Builder, _course: &Course, visit: &Visit) {
        let outer = self.outer_of(b, visit);
        let source = self.source(&outer);
        let first = b.mul(visit.tile, self.schedule.columns);
        let filled = self.ring().at(b, visit.number);
        let left = filled.before(b);
        for (ring, tile) in self.column_tiles.iter().enumerate() {
            let at = b.add(left.index, ring as u32 * self.schedule.stages);
            b.wait(self.empty, RingStage { index: at, ..left });
            if ring == 0 {
                for vector in &self.vectors {
                    let origin = self.args.offset(b, Tensor::Param(vector.param), &outer);
                    vector.fill(b, &source, self.form.column, origin, first, filled.index);
                }
            }
            self.copy_tile(b, tile, &source, first, filled.index);
        }
    }

    /// Starts the copies of a tile's rows from `first` on into a stage, and arrives there. Few threads copy many pieces each, with few
    /// registers: a loop over eight rows at a time, within which a thread's places are always the same.
    fn copy_tile(&self, b: &mut Builder, tile: &Tile, source: &Source, first: Operand, stage: Operand) {
        let tensor = Tensor::Param(tile.param);
        let (pieces, threads) = (tile.pieces(), source.threads);
        let [row, piece] = b.div_rem(source.thread, pieces);
        let start = b.mul(stage, tile.len());
        let size = b.convert(Ty::I32, self.args.size(tile.along));
        let left = b.sub(size, first);
        let left = b.sub(left, row);
        let stride = self.args.stride(tensor, tile.along);
        let origin = tile.origin(b, source);
        let from_row = b.add(first, row);
        let from_row = b.convert(Ty::I64, from_row);
        let of_row = b.mul(from_row, stride);
        let of_piece = b.mul(piece, tile.piece());
        let of_piece = b.convert(Ty::I64, of_piece);
        let own = b.add(of_row, of_piece);
        let from = b.add(origin, own);
        let each = threads / pieces;
        let places: Vec<(u32, Operand, Operand)> = (0..EIGHT / each)
            .map(|k| {
                let further = k * each;
                let row = b.add(row, further);
                let place = tile.piece_index(b, row, piece);
                let beside = b.mul(stride, i64::from(further));
                (further, b.add(place, start), b.add(from, beside))
            })
            .collect();
        b.for_(Operand::i32(0), tile.rows, EIGHT, |b, down| {
            let rows = b.convert(Ty::I64, down);
            let of_rows = b.mul(rows, stride);
            let of_panel = b.mul(down, tile.panel());
            for (further, to, from) in &places {
                let row = b.add(down, *further);
                let exists = b.binary(Binary::Gt, left, row);
                let (to_index, from_index) = (b.add(*to, of_panel), b.add(*from, of_rows));
                let (to, from, elements) = (tile.array, self.args.pointer(tensor), tile.piece());
                b.push(Stmt::CopyAsync { to, to_index, from, from_index, elements, guard: Some(exists) });
            }
        });
        b.arrive_with_copies(tile.full, stage);
    }
}

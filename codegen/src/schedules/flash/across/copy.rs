//! The warps that copy: the rows of a block, and the tiles of columns.

use super::super::FlashKernel;
use super::course::Visit;
use crate::abi::Tensor;
use crate::block::copy::Source;
use crate::block::layout::Tile;
use crate::block::ring::RingStage;
use crate::build::Builder;
use crate::tile::{Operand, Reg, SharedId, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, Binary};

/// Rows after which the places of pieces repeat.
const EIGHT: u32 = 8;
/// Rows that a pass of the loop over a tile copies.
const PASS: u32 = 32;

impl FlashKernel<'_> {
    /// Copies the rows of the block and all tiles of columns.
    pub(super) fn copy_across(&self, b: &mut Builder) {
        let number = b.var(Operand::i32(0));
        let start = b.var(Operand::i32(0));
        self.each_point(b, |kernel, b, course, round| {
            b.assign(start, number.into());
            // The first tiles of columns are on their way before all warps have left the rows of the point before.
            kernel.each_visit(b, course, number, |b, visit| {
                kernel.copy_visit(b, visit);
                let is_first = b.eq(visit.number, Operand::Reg(start));
                b.if_(is_first, |b| kernel.copy_rows(b, round));
            });
            let has_none = b.eq(number.into(), Operand::Reg(start));
            b.if_(has_none, |b| kernel.copy_rows(b, round));
        });
    }

    /// Copies the rows of the block.
    fn copy_rows(&self, b: &mut Builder, round: Reg) {
        let filled = RingStage::only(b, round.into());
        let read = filled.before(b);
        b.wait(self.rows_empty, read);
        let source = self.source(&self.outer);
        self.row_tiles.iter().for_each(|tile| self.copy_tile(b, tile, &source, self.first_row, filled));
        self.row_tiles.iter().for_each(|tile| self.hand_tile_over(b, tile, filled));
    }

    /// The source of copies at outer indices.
    pub(super) fn source<'s>(&'s self, outer: &'s [(Axis, Operand)]) -> Source<'s> {
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
    fn copy_visit(&self, b: &mut Builder, visit: &Visit) {
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
            self.copy_tile(b, tile, &source, first, filled);
        }
        self.column_tiles.iter().for_each(|tile| self.hand_tile_over(b, tile, filled));
    }

    /// Starts the copies of a tile's rows from `first` on into a stage. Few threads copy many pieces each, with few registers: a loop
    /// in which a thread's places are always the same, and whose offset grows by eight rows at a time.
    fn copy_tile(&self, b: &mut Builder, tile: &Tile, source: &Source, first: Operand, filled: RingStage) {
        let tensor = Tensor::Param(tile.param);
        let (pieces, threads) = (tile.pieces(), source.threads);
        let [row, piece] = b.div_rem(source.thread, pieces);
        let start = b.mul(filled.index, tile.len());
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
        let from = b.var(from);
        let each = threads / pieces;
        let places: Vec<(u32, Operand)> = (0..EIGHT / each)
            .map(|k| {
                let row = b.add(row, k * each);
                let place = tile.piece_index(b, row, piece);
                (k * each, b.add(place, start))
            })
            .collect();
        let step = b.mul(stride, i64::from(each));
        b.for_(Operand::i32(0), tile.rows, PASS, |b, down| {
            let of_panel = b.mul(down, tile.panel());
            for eight in (0..PASS).step_by(EIGHT as usize) {
                for (further, to) in &places {
                    let row = b.add(down, eight + further);
                    let exists = b.binary(Binary::Gt, left, row);
                    let to_index = b.add(*to, of_panel);
                    let to_index = b.add(to_index, eight * tile.panel());
                    let (to, pointer, elements) = (tile.array, self.args.pointer(tensor), tile.piece());
                    let from_index = from.into();
                    b.push(Stmt::CopyAsync { to, to_index, from: pointer, from_index, elements, guard: Some(exists) });
                    let next = b.add(from.into(), step);
                    b.assign(from, next);
                }
            }
        });
        b.arrive_with_copies(self.landed(tile), filled.index);
    }

    /// Hands a tile over to those who walk, once its copies have landed. Warpgroups read what this fence has ordered.
    fn hand_tile_over(&self, b: &mut Builder, tile: &Tile, filled: RingStage) {
        b.wait(self.landed(tile), filled);
        b.push(Stmt::FenceAsync);
        b.arrive(tile.full, filled.index);
    }

    /// The mbarriers that say that a tile's copies have landed.
    fn landed(&self, tile: &Tile) -> SharedId {
        let mut tiles = self.row_tiles.iter().chain(&self.column_tiles).map(|own| own.array);
        let number = tiles.position(|array| array == tile.array).unwrap_or(0);
        self.arrays().landed[number]
    }
}

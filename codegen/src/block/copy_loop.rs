//! Copies to a tile by few threads, which copy many pieces each with few registers.

use super::copy::Source;
use super::layout::{EIGHT, Tile};
use crate::abi::Tensor;
use crate::build::Builder;
use crate::tile::{Operand, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

/// Rows after which the places of pieces repeat.
const REPEAT: u32 = EIGHT as u32;
/// Rows that an iteration of the loop copies.
const ROWS: u32 = 32;

impl Tile {
    /// Starts the copies of the rows from `first` (`i32`) on into a stage, in a loop: the places of a thread are the same in each iteration,
    /// and its offset grows by some rows from piece to piece. Vectors are whole pieces, the stride along rows is 1, and the number of threads
    /// divides eight rows into equal shares.
    pub(crate) fn start_copies_in_loop(&self, b: &mut Builder, source: &Source, first: Operand, stage: Operand) {
        let tensor = Tensor::Param(self.param);
        let (pieces, threads) = (self.pieces(), source.threads);
        let [row, piece] = b.div_rem(source.thread, pieces);
        let start = b.mul(stage, self.len());
        let size = b.convert(Ty::I32, source.args.size(self.along));
        let left = b.sub(size, first);
        let left = b.sub(left, row);
        let stride = source.args.stride(tensor, self.along);
        let origin = self.origin(b, source);
        let from_row = b.add(first, row);
        let from_row = b.convert(Ty::I64, from_row);
        let of_row = b.mul(from_row, stride);
        let of_piece = b.mul(piece, self.piece());
        let of_piece = b.convert(Ty::I64, of_piece);
        let own = b.add(of_row, of_piece);
        let from = b.add(origin, own);
        let from = b.var(from);
        let each = threads / pieces;
        let places: Vec<(u32, Operand)> = (0..REPEAT / each)
            .map(|k| {
                let row = b.add(row, k * each);
                let place = self.piece_index(b, row, piece);
                (k * each, b.add(place, start))
            })
            .collect();
        let step = b.mul(stride, i64::from(each));
        b.for_(Operand::i32(0), self.rows, ROWS, |b, down| {
            let of_panel = b.mul(down, self.panel());
            for eight in (0..ROWS).step_by(REPEAT as usize) {
                for (further, to) in &places {
                    let row = b.add(down, eight + further);
                    let exists = b.binary(Binary::Gt, left, row);
                    let to_index = b.add(*to, of_panel);
                    let to_index = b.add(to_index, eight * self.panel());
                    let (to, pointer, elements) = (self.array, source.args.pointer(tensor), self.piece());
                    let from_index = from.into();
                    b.push(Stmt::CopyAsync { to, to_index, from: pointer, from_index, elements, guard: Some(exists) });
                    let next = b.add(from.into(), step);
                    b.assign(from, next);
                }
            }
        });
    }
}

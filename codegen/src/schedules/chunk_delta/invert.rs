//! The inverse of a chunk's system, by substitution. The identity is left out: it is added in `f32`.

use oplus_dsl::Ty;

use super::ahead::TilePlace;
use super::{COLUMNS, DeltaKernel, PITCH, ROWS};
use crate::block::layout::Tile;
use crate::block::split_tile::{piece_of_eight, place_of_two, store_two};
use crate::build::{Builder, f32, zero};
use crate::tile::{Memory, Operand, Shuffle, Stmt};
use oplus_dsl::Elem;
use oplus_dsl::ir::Binary;

/// Elements of a row that are read at once.
const ACCESS: u32 = 4;

impl DeltaKernel<'_> {
    /// Writes the inverse of 1 − A, less 1, of the warp's chunk, where steps read the state: a lane has a column of it.
    pub(in crate::schedules) fn invert(&self, b: &mut Builder, place: &TilePlace) {
        let Some(tile) = &self.inverses else { return };
        b.push(Stmt::SyncWarp);
        let column = b.binary(Binary::Rem, self.thread.lane, Operand::i32(ROWS as i32));
        let mut inverse: Vec<Operand> = vec![];
        let first_row = b.mul(self.thread.warp, Operand::i32(ROWS as i32));
        let system = b.mul(first_row, Operand::i32(PITCH as i32));
        for row in 0..ROWS {
            let is_own = b.eq(column, Operand::i32(row as i32));
            let mut sum = b.select(is_own, f32(1.0), f32(0.0));
            for first in (0..row).step_by(ACCESS as usize) {
                let index = b.add(system, Operand::i32((row * PITCH + first) as i32));
                let four = b.load(Memory::Shared(self.systems), index, ACCESS, None, zero(Ty::F32));
                for (factor, known) in four.iter().zip(&inverse[first as usize..]) {
                    sum = b.fma(*factor, *known, sum);
                }
            }
            inverse.push(sum);
        }
        let [piece, within] = b.div_rem(column, COLUMNS);
        let is_first = b.lt(self.thread.lane, Operand::i32(ROWS as i32));
        let start = b.mul(place.pairs.index, Operand::i32(tile.len() as i32));
        let start = b.add(start, within);
        if self.elem() == Elem::F32 {
            return self.store_split_inverse(b, tile, place, column, &inverse);
        }
        for (row, element) in (0..).zip(inverse) {
            let own = b.add(first_row, Operand::i32(row));
            let index = tile.piece_index(b, own, piece);
            let index = b.add(index, start);
            let is_own = b.eq(column, Operand::i32(row));
            let element = b.select(is_own, f32(0.0), element);
            b.store(Memory::Shared(tile.array), index, &[element], Some(is_first));
        }
    }

    /// Writes an inverse of which each lane has a column: every even lane has its neighbour's for a pair.
    fn store_split_inverse(
        &self,
        b: &mut Builder,
        tile: &Tile,
        place: &TilePlace,
        column: Operand,
        inverse: &[Operand],
    ) {
        let [eight, within] = b.div_rem(column, COLUMNS);
        let (piece, within) = (piece_of_eight(b, tile, eight), place_of_two(b, tile, within));
        let start = b.mul(place.pairs.index, tile.len());
        let start = b.add(start, within);
        let odd = b.binary(Binary::And, self.thread.lane, ROWS as i32 + 1);
        let is_first = b.eq(odd, 0);
        let first_row = b.mul(self.thread.warp, ROWS);
        for (row, element) in (0..).zip(inverse) {
            let is_own = b.eq(column, Operand::i32(row));
            let element = b.select(is_own, f32(0.0), *element);
            let other = b.shuffle(Shuffle::Xor, element, Operand::i32(1));
            let own = b.add(first_row, Operand::i32(row));
            let index = tile.piece_index(b, own, piece);
            let index = b.add(index, start);
            store_two(b, tile, index, [element, other], Some(is_first));
        }
    }
}

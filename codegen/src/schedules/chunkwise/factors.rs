//! Factors of products of matrices, and one product of fragments.

use crate::build::Builder;
use crate::schedules::flash::tile::{Lanes, Tile};
use crate::tile::{Operand, Stmt};
use oplus_dsl::{Elem, Ty};

/// A number for every element that the thread has of blocks of 16 × 8, side by side.
pub(crate) type Blocks = Vec<[Operand; 4]>;

/// A tile's stage and its lanes.
#[derive(Clone, Copy)]
pub(crate) struct Factor<'a> {
    pub tile: &'a Tile,
    pub lanes: &'a Lanes,
    /// The first element of the stage.
    pub start: Operand,
}

impl<'a> Factor<'a> {
    /// The factor in a stage.
    pub(crate) fn of(b: &mut Builder, tile: &'a Tile, lanes: &'a Lanes, stage: Operand) -> Factor<'a> {
        Factor { tile, lanes, start: b.mul(stage, Operand::i32(tile.len() as i32)) }
    }

    /// Four matrices from row `first`, a multiple of 8, and 16 elements number `sixteen` on.
    pub(crate) fn four(self, b: &mut Builder, first: u32, sixteen: u32, transposed: bool) -> [Operand; 4] {
        let index = self.tile.index(b, self.lanes, first, sixteen);
        let index = b.add(index, self.start);
        load_four(b, self.tile, index, transposed)
    }
}

/// Four matrices whose rows lanes name by this index.
pub(crate) fn load_four(b: &mut Builder, tile: &Tile, index: Operand, transposed: bool) -> [Operand; 4] {
    let registers = b.load_matrix(tile.array, index, 4, transposed);
    [registers[0], registers[1], registers[2], registers[3]]
}

/// Adds a product to a block.
pub(crate) fn mma(b: &mut Builder, elem: Elem, sums: &mut [Operand; 4], rows: [Operand; 4], columns: [Operand; 2]) {
    let dst = [0; 4].map(|_| b.reg(Ty::F32));
    b.push(Stmt::Mma { elem, dst, a: rows, b: columns, c: *sums });
    *sums = dst.map(Operand::Reg);
}

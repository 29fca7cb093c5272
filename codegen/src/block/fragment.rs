//! Fragments of matrices, factors in shared memory, and the product of fragments.
//!
//! A fragment of a left factor has 16 rows, one of a right factor 8 columns, and a thread has four numbers of their block of sums.

use super::layout::{Lanes, Tile, TileStage};
use crate::build::{Builder, zero};
use crate::tile::{Operand, Reg, Stmt};
use oplus_dsl::{Elem, Ty};

/// Rows of a fragment.
pub(crate) const ROWS: u32 = 16;
/// Columns of a fragment.
pub(crate) const COLUMNS: u32 = 8;

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
        Factor { tile, lanes, start: b.mul(stage, tile.len()) }
    }

    /// The tile's stage, which warpgroups read without lanes.
    pub(crate) fn stage(self) -> TileStage<'a> {
        TileStage { tile: self.tile, start: self.start }
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

/// Adds the products of a left factor with two fragments of columns, side by side, to two blocks.
pub(crate) fn mma_two(
    b: &mut Builder,
    elem: Elem,
    sums: &mut [[Operand; 4]],
    rows: [Operand; 4],
    [x, y, z, w]: [Operand; 4],
) {
    mma(b, elem, &mut sums[0], rows, [x, y]);
    mma(b, elem, &mut sums[1], rows, [z, w]);
}

/// A block of zeros.
pub(crate) fn zeros() -> [Operand; 4] {
    [zero(Ty::F32); 4]
}

/// Registers that start as blocks of sums.
pub(crate) fn block_vars(b: &mut Builder, blocks: &[[Operand; 4]]) -> Vec<[Reg; 4]> {
    blocks.iter().map(|block| block.map(|sum| b.var(sum))).collect()
}

/// Registers for a warpgroup's sums of so many columns.
pub(crate) fn new_sums(b: &mut Builder, columns: u32) -> Vec<[Reg; 4]> {
    (0..columns / COLUMNS).map(|_| [0; 4].map(|_| b.reg(Ty::F32))).collect()
}

/// The numbers of all blocks.
pub(crate) fn block_numbers(blocks: &mut Blocks) -> Vec<&mut Operand> {
    blocks.iter_mut().flatten().collect()
}

/// The values of blocks of registers.
pub(crate) fn block_values(regs: &[[Reg; 4]]) -> Blocks {
    regs.iter().map(|block| block.map(Operand::Reg)).collect()
}

/// Assigns blocks of sums to registers.
pub(crate) fn assign_blocks(b: &mut Builder, regs: &[[Reg; 4]], blocks: &[[Operand; 4]]) {
    regs.iter().flatten().zip(blocks.iter().flatten()).for_each(|(reg, sum)| b.assign(*reg, *sum));
}

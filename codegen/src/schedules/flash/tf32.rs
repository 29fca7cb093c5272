//! Products of `f32` by split tf32: tensor cores multiply the high and low parts of both factors, but not low parts with one another.

use super::sums::SharedSums;
use super::{COLUMNS, FlashKernel, Grid};
use crate::block::layout::{Lanes, Tile};
use crate::block::matmul::{mma, zeros};
use crate::block::tf32::{factor_parts, mma_low_parts};
use crate::build::Builder;
use crate::tile::{Memory, Operand};
use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

/// Blocks of sums that are multiplied at once: as many as registers have room for.
const BLOCKS_AT_ONCE: usize = 16;

/// A stage of a leaf's tile, with the lanes that read it.
#[derive(Clone, Copy)]
pub(super) struct LeafTile<'a> {
    pub tile: &'a Tile,
    pub lanes: &'a [Lanes],
    /// The index at which the stage begins.
    pub start: Operand,
}

impl FlashKernel<'_> {
    /// Adds Σ weight·leaf over the columns of a stage to sums in shared memory, which `shrink` scales first. Where a fragment of
    /// weights has its columns t and t + 4 those of pairs are 2t and 2t + 1, and so are the rows of the leaf: the lanes
    /// are those of both.
    pub(super) fn accumulate_split(
        &self,
        b: &mut Builder,
        leaf: LeafTile,
        weights: &[Vec<[Operand; 4]>],
        sums: &SharedSums,
        shrink: &[Operand],
    ) {
        let within = b.binary(Binary::Rem, self.fragment.group, 4);
        let leaf = LeafTile { start: b.add(leaf.start, within), ..leaf };
        let blocks: Vec<u32> = (0..leaf.tile.depth / COLUMNS).collect();
        for (k, weights) in weights.iter().enumerate() {
            // Each block has numbers of two rows of the thread.
            let shrink = shrink.get(2 * k..2 * k + 2).map(|rows| [rows[0], rows[0], rows[1], rows[1]]);
            for some in blocks.chunks(BLOCKS_AT_ONCE) {
                let products = self.products_of_blocks(b, leaf, weights, some);
                for (block, product) in some.iter().zip(products) {
                    sums.add(b, k as u32 * blocks.len() as u32 + block, product, shrink);
                }
            }
        }
    }

    /// Σ weight·leaf for some blocks of the leaf's axis.
    fn products_of_blocks(
        &self,
        b: &mut Builder,
        LeafTile { tile, lanes, start }: LeafTile,
        weights: &[[Operand; 4]],
        blocks: &[u32],
    ) -> Grid {
        let mut products = vec![zeros(); blocks.len()];
        for (eight, weights) in weights.iter().enumerate() {
            let weights = factor_parts(b, self.elem(), *weights);
            for (block, product) in blocks.iter().zip(&mut products) {
                let leaf = [0, 1].map(|r| {
                    let index = tile.index(b, &lanes[r], eight as u32 * COLUMNS, *block);
                    let index = b.add(index, start);
                    let value = b.load1(Memory::Shared(tile.array), index);
                    b.bits(Ty::U32, value)
                });
                let leaf = factor_parts(b, self.elem(), leaf);
                mma_low_parts(b, product, &weights, &leaf);
                mma(b, self.elem(), product, weights[0], leaf[0]);
            }
        }
        products
    }
}

/// Adds the sums of products with low parts to those of high parts; added piece by piece, tensor cores would cut them off.
pub(super) fn with_low_products(b: &mut Builder, grid: &Grid, low_products: &Grid) -> Grid {
    let both = grid.iter().zip(low_products);
    both.map(|(sums, low)| std::array::from_fn(|i| b.add(sums[i], low[i]))).collect()
}

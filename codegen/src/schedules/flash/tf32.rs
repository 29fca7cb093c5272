//! Products of `f32` by split tf32: of a high and a low part of each factor tensor cores multiply all but both low parts.

use super::sums::SharedSums;
use super::tile::{Lanes, Tile};
use super::{COLUMNS, FlashKernel, Grid};
use crate::build::{Builder, zero};
use crate::tile::{Memory, Operand, Stmt};
use oplus_dsl::ir::{Binary, Literal};
use oplus_dsl::{Elem, Ty};

/// The registers of a factor, whole or as its high and low part.
pub(super) type FactorParts<const N: usize> = Vec<[Operand; N]>;

/// How many blocks of sums are multiplied at once: as many as registers have room for.
const BLOCKS_AT_ONCE: usize = 16;

/// Half of the last place of 11 bits, by which numbers are rounded.
pub(crate) const HALF: Operand = Operand::Const(Ty::U32, Literal::Int(0x1000));

impl FlashKernel<'_> {
    /// Adds Σ weight·leaf over the columns of a stage to sums in shared memory, which `shrink` scales first. Where a fragment of
    /// weights has its columns t and t + 4 those of pairs are 2t and 2t + 1, and so are the rows of the leaf: `lanes` are
    /// those of both.
    pub(super) fn accumulate_split(
        &self,
        b: &mut Builder,
        tile: &Tile,
        lanes: &[Lanes],
        (weights, sums, shrink): (&[Vec<[Operand; 4]>], &SharedSums, &[Operand]),
        start: Operand,
    ) {
        let within = b.binary(Binary::Rem, self.group, Operand::i32(4));
        let start = b.add(start, within);
        let blocks: Vec<u32> = (0..tile.depth / COLUMNS).collect();
        for (k, weights) in weights.iter().enumerate() {
            // Each block has numbers of two rows of the thread.
            let shrink = shrink.get(2 * k..2 * k + 2).map(|rows| [rows[0], rows[0], rows[1], rows[1]]);
            for some in blocks.chunks(BLOCKS_AT_ONCE) {
                let products = self.products_of_blocks(b, (tile, lanes, start), weights, some);
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
        (tile, lanes, start): (&Tile, &[Lanes], Operand),
        weights: &[[Operand; 4]],
        blocks: &[u32],
    ) -> Grid {
        let mut products = vec![[zero(Ty::F32); 4]; blocks.len()];
        for (eight, weights) in weights.iter().enumerate() {
            let weights = self.factor_parts(b, *weights);
            for (block, product) in blocks.iter().zip(&mut products) {
                let leaf = [0, 1].map(|r| {
                    let index = tile.index(b, &lanes[r], eight as u32 * COLUMNS, *block);
                    let index = b.add(index, start);
                    let value = b.load1(Memory::Shared(tile.array), index);
                    b.bits(Ty::U32, value)
                });
                let leaf = self.factor_parts(b, leaf);
                self.mma_low_parts(b, product, &weights, &leaf);
                self.mma(b, product, weights[0], leaf[0]);
            }
        }
        products
    }

    /// A factor as products read it: itself, or of `f32` its high and low part ([`split`]).
    pub(super) fn factor_parts<const N: usize>(&self, b: &mut Builder, registers: [Operand; N]) -> FactorParts<N> {
        if self.elem() != Elem::F32 {
            return vec![registers];
        }
        split(b, registers, HALF).to_vec()
    }

    /// Adds the product of two factors.
    pub(super) fn mma(&self, b: &mut Builder, sums: &mut [Operand; 4], rows: [Operand; 4], columns: [Operand; 2]) {
        let dst = [0; 4].map(|_| b.reg(Ty::F32));
        b.push(Stmt::Mma { elem: self.elem(), dst, a: rows, b: columns, c: *sums });
        *sums = dst.map(Operand::Reg);
    }

    /// Adds the two products of one factor's low part with the other's high part, if factors are split.
    pub(super) fn mma_low_parts(
        &self,
        b: &mut Builder,
        sums: &mut [Operand; 4],
        rows: &FactorParts<4>,
        columns: &FactorParts<2>,
    ) {
        if let ([high, low], [column_high, column_low]) = (&rows[..], &columns[..]) {
            self.mma(b, sums, *low, *column_high);
            self.mma(b, sums, *high, *column_low);
        }
    }
}

/// Splits numbers in a high part, the nearest number of 11 bits, and a low part, what is left; `half` is [`HALF`]. If high parts
/// were cut off instead of rounded, low parts would have the sign of their factors, and the product of low parts, which is left
/// out, would be a bias.
pub(crate) fn split<const N: usize>(b: &mut Builder, registers: [Operand; N], half: Operand) -> [[Operand; N]; 2] {
    let high = registers.map(|x| {
        let nearest = b.add(x, half);
        b.binary(Binary::And, nearest, Operand::u32(!0x1fff))
    });
    let low = |i: usize| {
        let [x, high] = [registers[i], high[i]].map(|bits| b.bits(Ty::F32, bits));
        let low = b.sub(x, high);
        b.bits(Ty::U32, low)
    };
    [high, std::array::from_fn(low)]
}

/// Adds the sums of products with low parts to those of high parts; added piece by piece, tensor cores would cut them off.
pub(super) fn with_low_products(b: &mut Builder, grid: &Grid, low_products: &Grid) -> Grid {
    let both = grid.iter().zip(low_products);
    both.map(|(sums, low)| std::array::from_fn(|i| b.add(sums[i], low[i]))).collect()
}

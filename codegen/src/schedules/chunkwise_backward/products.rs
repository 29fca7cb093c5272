//! The products of a chunk's pairs of times.

use super::half_states::SavedMatrix;
use super::partials::{Partials, QueryBlock};
use super::rates::Decays;
use super::tf32::Left;
use super::walk::{AllViews, Head, Sums};
use super::{ChunkwiseBackward, ChunkwiseBackwardKernel, GradientSweep, MOST_DEPTH, ROWS, TIMES};
use crate::block::layout::{Tile, right_rows};
use crate::block::matmul::{
    Blocks, block_values, load_four, mma_two, multiply, multiply_in_time, piece_index, scale_rows,
};
use crate::block::two_parts::low_parts;
use crate::build::{Builder, zero};
use crate::schedules::chunkwise::decay::with_rounding_errors;
use crate::schedules::chunkwise::{COLUMNS, zeros};
use crate::stage::kind::Cotangent;
use crate::tile::{Expr, Memory, Operand, Reg, SharedId, Stmt};
use oplus_dsl::{Elem, Ty};

/// The sixteens of a row of times or of the width.
const SIXTEENS: u32 = TIMES / ROWS;

impl ChunkwiseBackwardKernel<'_> {
    /// Computes M and the weights of G as a factor, and adds E to the sums over heads.
    pub(super) fn weigh(&self, b: &mut Builder, head: &Head, partials: &mut Partials) -> Blocks {
        let Head { views, stage, decays, sums } = *head;
        let scores = if self.scores.is_some() { vec![] } else { self.scores_of(b, &views.deep) };
        let mut products: Blocks = vec![zeros(); sums.pairs.len()];
        let left = views.wide.halves.left(b, &self.values, stage);
        let right = views.wide.halves.right(b, &self.cotangents, stage);
        multiply(b, &mut products, left, right);
        let scores = |b: &mut Builder, block: usize| match self.scores {
            Some(array) => self.own(b, array, block as u32),
            None => scores[block],
        };
        self.weigh_pairs(b, decays, &sums.pairs, partials, &products, scores)
    }

    /// The first term of value', from D.
    pub(super) fn through_duals(&self, b: &mut Builder, head: &Head, partials: &mut Partials) -> Blocks {
        let Head { views, stage, decays, .. } = *head;
        let mut found: Blocks = vec![zeros(); (TIMES / 2 / COLUMNS) as usize];
        let left = views.deep.halves.left(b, &self.keys, Operand::i32(0));
        let right = views.states().halves.right(b, &self.duals, stage);
        multiply(b, &mut found, left, right);
        let to_end = self.times_undone(b, decays.to_end, SavedMatrix::Duals, stage);
        for (k, block) in (0..).zip(&mut found) {
            let values = self.own_block(b, &self.values, stage, k);
            for (r, found) in block.iter_mut().enumerate() {
                *found = b.mul(*found, to_end[r / 2]);
                partials.add_value(b, r / 2, [*found, values[r]]);
            }
        }
        partials.scale_values(b, decays);
        found
    }

    /// The second term of value', from later times.
    pub(super) fn through_pairs(&self, b: &mut Builder, head: &Head, found: &mut Blocks) {
        let Head { views, stage, .. } = *head;
        let left = views.weights().halves.left(b, &self.weights, Operand::i32(0));
        let right = views.wide.halves.in_time(b, &self.cotangents, stage);
        if self.is_tf32 {
            return self.add_rows(b, found, Left { factor: left, views: views.weights() }, right);
        }
        for sixteen in 0..SIXTEENS {
            let left = left.four(b, 0, sixteen, false);
            multiply_in_time(b, found, left, right, sixteen);
        }
    }

    /// Adds the first term of key' of a head.
    pub(super) fn add_keys(&self, b: &mut Builder, head: &Head) {
        if !self.needs(Cotangent::Keys) {
            return;
        }
        let Head { views, stage, decays, .. } = *head;
        let scales = [0, 1].map(|h| b.mul(decays.to_end[h], decays.rows[h][1]));
        let scales = self.times_undone(b, scales, SavedMatrix::Duals, stage);
        let left = views.wide.halves.left(b, &self.values, stage);
        let right = views.states().halves.in_time(b, &self.duals, stage);
        if self.is_tf32 {
            return self.add_tf32_keys(b, scales, Left { factor: left, views: &views.wide }, right);
        }
        let add = |b: &mut Builder, (): &mut ()| {
            let mut found = self.kept(b, self.key_sums, self.deep_blocks());
            for sixteen in 0..SIXTEENS {
                let packed = left.four(b, 0, sixteen, false);
                let packed = scale_rows(b, self.values.elem, packed, scales);
                multiply_in_time(b, &mut found, packed, right, sixteen);
            }
            for (block, found) in (0..).zip(&found) {
                self.store_own(b, self.key_sums, block, found);
            }
        };
        if self.adds_keys_apart() {
            self.rematerialiser.apart(b, &mut (), |()| vec![], add);
        } else {
            add(b, &mut ());
        }
    }

    /// Whether the products for key' of the greatest depth stand [apart](crate::block::rematerialise::Rematerialiser::apart): nothing
    /// stands between them and those for value' and query' where nothing is forgotten, and resets of packed sequences, or their ends, take
    /// registers.
    fn adds_keys_apart(&self) -> bool {
        let ChunkwiseBackward { depth, wide, vector, .. } = *self.schedule;
        let is_scarce = match self.form.states.decay {
            None => wide,
            Some(decay) => decay.reset.is_some() && (wide || vector == 1),
        };
        depth == MOST_DEPTH && (is_scarce || self.tile.is_some())
    }

    /// Adds the first term of query' of a head.
    pub(super) fn add_queries(&self, b: &mut Builder, head: &Head, partials: &mut Partials) {
        let Head { views, stage, decays, sums } = *head;
        let scales = [0, 1].map(|h| b.mul(decays.from_start[h], decays.rows[h][2]));
        let scales = self.times_undone(b, scales, SavedMatrix::States, stage);
        let left = views.wide.halves.left(b, &self.cotangents, stage);
        let right = views.states().halves.in_time(b, &self.states, stage);
        if self.is_tf32 {
            return self.add_tf32_queries(b, head, scales, partials, Left { factor: left, views: &views.wide }, right);
        }
        let packed: Vec<_> = (0..SIXTEENS).map(|sixteen| left.four(b, 0, sixteen, false)).collect();
        for pair in 0..self.schedule.depth / 2 / ROWS {
            let queries = [0, 1].map(|k| self.own_block(b, &self.queries, Operand::i32(0), 2 * pair + k));
            let mut found = [zeros(); 2];
            for (sixteen, left) in packed.iter().enumerate() {
                let columns = right.four(b, sixteen as u32 * ROWS, pair, true);
                mma_two(b, self.values.elem, &mut found, *left, columns);
            }
            for (number, (found, queries)) in (2 * pair..).zip(found.into_iter().zip(queries)) {
                self.add_query(b, sums, partials, QueryBlock { number, found, scales, queries });
            }
        }
    }

    /// Adds a block of that term, once its rows are scaled.
    pub(super) fn add_query(&self, b: &mut Builder, sums: &Sums, partials: &mut Partials, block: QueryBlock) {
        let QueryBlock { number, found, scales, queries } = block;
        let in_shared = number.checked_sub(self.query_blocks.registers);
        let in_shared = self.query_sums.zip(in_shared);
        let mut kept = in_shared.map(|(array, block)| self.own(b, array, block));
        for r in 0..4 {
            let term = b.mul(found[r], scales[r / 2]);
            partials.add_query(b, r / 2, [term, queries[r]]);
            if let Some(block) = sums.queries.get(number as usize) {
                let sum = b.add(block[r].into(), term);
                b.assign(block[r], sum);
            }
            if let Some(kept) = &mut kept {
                kept[r] = b.add(kept[r], term);
            }
        }
        if let Some(((array, block), kept)) = in_shared.zip(kept) {
            self.store_own(b, array, block, &kept);
        }
    }

    /// The sums of key' and the products of E, summed over heads, and queries.
    pub(super) fn finish_keys(&self, b: &mut Builder, views: &AllViews) -> Blocks {
        let left = views.weights().halves.left(b, &self.weights, Operand::i32(0));
        let right = views.deep.halves.in_time(b, &self.queries, Operand::i32(0));
        let mut found = self.kept(b, self.key_sums, self.deep_blocks());
        if self.is_tf32 {
            self.add_rows(b, &mut found, Left { factor: left, views: views.weights() }, right);
            return found;
        }
        for sixteen in 0..SIXTEENS {
            let left = left.four(b, 0, sixteen, false);
            multiply_in_time(b, &mut found, left, right, sixteen);
        }
        found
    }

    /// The sums of query' and the products of E, transposed, and keys.
    pub(super) fn finish_queries(&self, b: &mut Builder, views: &AllViews, query_sums: &[[Reg; 4]]) -> Blocks {
        let (row, half) = right_rows(b, self.thread.lane);
        let lanes = (!self.is_tf32).then(|| self.weights.lanes_at(b, row, half, self.block));
        let right = views.deep.halves.in_time(b, &self.keys, Operand::i32(0));
        let mut found = block_values(query_sums);
        if let Some(array) = self.query_sums {
            found.extend(self.kept(b, array, self.query_blocks.shared));
        }
        let Some(lanes) = lanes else {
            self.add_columns(b, &mut found, right);
            return found;
        };
        for sixteen in 0..SIXTEENS {
            let index = b.add(lanes, sixteen * ROWS * TIMES);
            let left = load_four(b, &self.weights, index, true);
            multiply_in_time(b, &mut found, left, right, sixteen);
        }
        found
    }
}

impl GradientSweep<'_> {
    /// From M, adds E to the sums over heads and E·G to shares; the weights of G, which `scores` gives for a block.
    pub(super) fn weigh_pairs(
        &self,
        b: &mut Builder,
        decays: &Decays,
        pairs: &[[Reg; 4]],
        partials: &mut Partials,
        products: &Blocks,
        scores: impl Fn(&mut Builder, usize) -> [Operand; 4],
    ) -> Blocks {
        let (row, half, column) = (self.first_row(b), self.half_of(b, TIMES), self.fragment.column(b));
        let column = b.add(half, column);
        let weigh = |(block, products): (usize, &[Operand; 4])| {
            self.load_late(b);
            let mut weights = scores(b, block);
            let columns = self.columns(b, decays, block as u32);
            let rounding_errors = self.rounding_errors(b, decays, block as u32);
            for (r, weight) in weights.iter_mut().enumerate() {
                let (h, c) = (r / 2, 2 * block + r % 2);
                let [own, gain, _] = decays.rows[h];
                let [later, back] = columns[r % 2];
                let apart = b.sub(later, own);
                let apart =
                    with_rounding_errors(b, apart, rounding_errors.map(|(own, columns)| (columns[r % 2], own[h])));
                let decay = b.let_(Ty::F32, Expr::Exp2Fast(apart));
                let decay = if self.has_back_gains() { b.mul(decay, back) } else { decay };
                let j = b.add(row, h as u32 * COLUMNS);
                let i = b.add(column, (block as u32 * COLUMNS) as i32 + (r % 2) as i32);
                let is_later = b.ge(i, j);
                let decay = b.select(is_later, decay, zero(Ty::F32));
                let product = b.mul(products[r], gain);
                if self.schedule.warpgroups {
                    let sum = b.fma(product, decay, pairs[block][r].into());
                    b.assign(pairs[block][r], sum);
                    *weight = b.mul(*weight, decay);
                    partials.add_pair(b, h, c, [product, *weight]);
                    continue;
                }
                let product = b.mul(product, decay);
                let sum = b.add(pairs[block][r].into(), product);
                b.assign(pairs[block][r], sum);
                partials.add_pair(b, h, c, [product, *weight]);
                *weight = b.mul(*weight, decay);
            }
            if self.keys.low.is_some() {
                // Kept to the end, they would take registers that weights in two parts need.
                let two: Vec<_> = partials.columns.drain(2 * block..).collect();
                self.store_block_columns(b, block, &two);
                partials.columns.resize(2 * block + 2, None);
            }
            weights
        };
        let weights = products.iter().enumerate().map(weigh).collect();
        if self.keys.low.is_some() {
            partials.columns.clear();
        }
        weights
    }

    /// Keeps loads behind this place where factors are in two parts: those of all blocks at once would take registers.
    pub(super) fn load_late(&self, b: &mut Builder) {
        if self.keys.low.is_some() {
            b.push(Stmt::SyncWarp);
        }
    }

    /// Whether gains' may differ from 1. Warps do not ask.
    fn has_back_gains(&self) -> bool {
        !self.schedule.warpgroups || !self.form.cotangents.gain.is_empty()
    }

    /// Keeps a block of four numbers for every pair of the thread in an array, in elements of its own.
    pub(super) fn store_own(&self, b: &mut Builder, array: SharedId, block: u32, four: &[Operand; 4]) {
        let index = self.own_index(b, block);
        b.store(Memory::Shared(array), index, four, None);
    }

    /// Reads the numbers that the thread has kept.
    pub(super) fn own(&self, b: &mut Builder, array: SharedId, block: u32) -> [Operand; 4] {
        let index = self.own_index(b, block);
        let four = b.load(Memory::Shared(array), index, 4, None, zero(Ty::F32));
        [four[0], four[1], four[2], four[3]]
    }

    fn own_index(&self, b: &mut Builder, block: u32) -> Operand {
        let own = b.mul(self.thread.number, 4);
        b.add(own, block * 4 * self.schedule.sharing())
    }

    /// Writes weights of the warp's times j and the times i of its half as factors.
    pub(super) fn store_weights(&self, b: &mut Builder, weights: &Blocks) {
        self.store_pairs(b, &self.weights, weights);
    }

    /// Writes weights of the warp's times j and the times i of its half to a tile.
    pub(super) fn store_pairs(&self, b: &mut Builder, tile: &Tile, weights: &Blocks) {
        if tile.elem == Elem::F32 {
            return self.store_tf32_pairs(b, tile, weights);
        }
        let (row, column) = (self.first_row(b), self.fragment.column(b));
        let half = self.half_of(b, TIMES / COLUMNS);
        for h in 0..2 {
            let row = b.add(row, h as u32 * COLUMNS);
            for (k, block) in weights.iter().enumerate() {
                let piece = b.add(half, k);
                let index = piece_index(b, tile, row, piece);
                let index = b.add(index, column);
                let two = [block[2 * h], block[2 * h + 1]];
                b.store(Memory::Shared(tile.array), index, &two, None);
                if let Some(low) = tile.low {
                    let low_part = low_parts(b, &two);
                    b.store(Memory::Shared(low), index, &low_part, None);
                }
            }
        }
    }

    /// The elements of a tile over times at the warp's times, in block number k of the columns of its half.
    pub(super) fn own_block(&self, b: &mut Builder, tile: &Tile, stage: Operand, k: u32) -> [Operand; 4] {
        let (row, column) = (self.first_row(b), self.fragment.column(b));
        let start = b.mul(stage, tile.len());
        let half = b.mul(self.half, tile.depth / 2 / COLUMNS);
        let piece = b.add(half, k);
        tile.whole_block(b, start, row, piece, column)
    }

    /// The sums over the heads so far that an array has.
    pub(super) fn kept(&self, b: &mut Builder, array: SharedId, blocks: u32) -> Blocks {
        (0..blocks).map(|block| self.own(b, array, block)).collect()
    }
}

//! Products of a chunk whose factors are scaled channel by channel.

use super::Steps;
use crate::block::lane_sum::over_lanes;
use crate::block::layout::{Tile, left_rows, right_rows};
use crate::block::matmul::{
    Blocks, Factor, assign_blocks, block_values, block_vars, load_four, mma_two, multiply_in_time, scale_rows,
};
use crate::block::pair::Values;
use crate::build::{Builder, zero};
use crate::schedules::chunkwise::channels::Scale;
use crate::schedules::chunkwise::{COLUMNS, zeros};
use crate::schedules::chunkwise_backward::walk::Head;
use crate::schedules::chunkwise_backward::{BLOCKS, ChunkwiseBackwardKernel, ROWS, TIMES};
use crate::stage::kind::Cotangent;
use crate::tile::{Memory, Operand, SharedId, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

/// The sixteens of a row of times or of the width.
const SIXTEENS: u32 = TIMES / ROWS;

/// A factor of products over times, in a block of times that scales it.
#[derive(Clone, Copy)]
struct ScaledBlock<'a> {
    factor: Factor<'a>,
    block: Operand,
    scale: Scale,
}

impl ChunkwiseBackwardKernel<'_> {
    /// value' at the warp's times and the places of the width of its half; calls a function when the warp has read D.
    pub(super) fn channel_values(
        &self,
        b: &mut Builder,
        own: &Steps,
        head: &Head,
        then: impl FnOnce(&mut Builder),
    ) -> Blocks {
        let mut found: Blocks = vec![zeros(); (TIMES / 2 / COLUMNS) as usize];
        if self.is_tf32 {
            self.add_tf32_duals(b, own, &mut found);
            then(b);
            return self.add_tf32_cotangents(b, head, found);
        }
        let right = own.views.deep.halves.right(b, &self.duals, Operand::i32(0));
        let left = self.scaled_left(b, own, Operand::i32(TIMES as i32));
        for (sixteen, left) in (0..).zip(left) {
            for pair in 0..found.len() / 2 {
                let columns = right.four(b, pair as u32 * ROWS, sixteen, false);
                mma_two(b, self.keys.elem, &mut found[2 * pair..], left, columns);
            }
        }
        then(b);
        let (row, piece) = left_rows(b, self.thread.lane);
        let first = self.border(b, 0);
        let row = b.add(first, row);
        let right = head.views.wide.halves.in_time(b, &self.cotangents, Operand::i32(0));
        let last = Operand::i32(BLOCKS as i32);
        self.through_blocks(b, found, self.block, last, |b, found, later| {
            let index = self.weights.lanes_at(b, row, piece, later);
            let left = load_four(b, &self.weights, index, false);
            let right = self.of_block(b, right, later);
            multiply_in_time(b, found, left, right, 0);
        })
    }

    /// A right factor over times from those of a block on.
    pub(super) fn of_block<'f>(&self, b: &mut Builder, right: Factor<'f>, block: Operand) -> Factor<'f> {
        let by = b.mul(block, ROWS * right.tile.panel());
        Factor { start: b.add(right.start, by), ..right }
    }

    /// Adds the products of blocks of times, one after the other.
    pub(super) fn through_blocks(
        &self,
        b: &mut Builder,
        sums: Blocks,
        from: Operand,
        to: Operand,
        add: impl FnOnce(&mut Builder, &mut Blocks, Operand),
    ) -> Blocks {
        let regs = block_vars(b, &sums);
        b.for_(from, to, 1, |b, block| {
            let mut sums = block_values(&regs);
            add(b, &mut sums, block);
            assign_blocks(b, &regs, &sums);
        });
        block_values(&regs)
    }

    /// The thread's channel among those of a pair of blocks of its half, and among the columns of a block.
    pub(super) fn channels_of(&self, b: &mut Builder, block: u32) -> (Operand, Operand) {
        let half = self.half_of(b, self.schedule.depth);
        let first = b.add(half, block * COLUMNS);
        let column = self.fragment.column(b);
        (b.add(first, self.fragment.group), b.add(first, column))
    }

    /// Adds weights·(queries or keys, scaled) of a block of times.
    fn add_scaled(&self, b: &mut Builder, own: &Steps, sums: &mut Blocks, weights: [Operand; 4], scaled: ScaledBlock) {
        let ScaledBlock { factor, block, scale } = scaled;
        let first = b.mul(block, ROWS);
        let right = self.of_block(b, factor, block);
        for pair in 0..sums.len() as u32 / 2 {
            let packed = right.four(b, 0, pair, true);
            let (channel, _) = self.channels_of(b, 2 * pair);
            let columns = self.scaled_in_time(b, own.arrays, packed, first, channel, scale);
            mma_two(b, self.keys.elem, &mut sums[2 * pair as usize..], weights, columns);
        }
    }

    /// The first term of key' or query': the product over all of the width, which is given or that of the tiles, times the powers
    /// of sums from one row to another.
    fn through_states(
        &self,
        b: &mut Builder,
        own: &Steps,
        kind: Cotangent,
        given: Option<Blocks>,
        from: Operand,
        to: Operand,
    ) -> Blocks {
        let mut found = given.unwrap_or_else(|| {
            let mut found: Blocks = vec![zeros(); self.deep_blocks() as usize];
            self.add_states(b, own, kind, &mut found);
            found
        });
        for (block, found) in (0..).zip(&mut found) {
            self.load_block_late(b);
            let (_, channel) = self.channels_of(b, block);
            let [from, to] = [from, to].map(|row| own.arrays.sums.at(b, row, channel, 2));
            for (r, found) in found.iter_mut().enumerate() {
                let power = to[r % 2].since(b, from[r % 2]).power(b);
                *found = b.mul(*found, power);
            }
        }
        found
    }

    /// Adds the product of the warp's rows of a tile over the width, with gains, and states or their cotangents.
    pub(super) fn add_states(&self, b: &mut Builder, own: &Steps, kind: Cotangent, found: &mut Blocks) {
        let (none, is_key) = (Operand::i32(0), kind == Cotangent::Keys);
        let (tile, states) = if is_key { (&self.values, &self.duals) } else { (&self.cotangents, &self.states) };
        let stage = if is_key { none } else { self.stage_of_cotangents(none) };
        let row = self.first_row(b);
        let gains = [0, COLUMNS].map(|by| {
            let at = b.add(row, by);
            b.load1(Memory::Shared(self.rates[if is_key { 1 } else { 2 }]), at)
        });
        if self.is_tf32 {
            let left = own.views.wide.halves.left(b, tile, stage);
            return self.add_tf32_states(b, own, left, states, gains, found);
        }
        let left = own.views.wide.halves.left(b, tile, stage);
        let right = own.views.deep.halves.in_time(b, states, none);
        for sixteen in 0..SIXTEENS {
            let packed = left.four(b, 0, sixteen, false);
            let packed = scale_rows(b, tile.elem, packed, gains);
            multiply_in_time(b, found, packed, right, sixteen);
        }
    }

    /// The powers of the thread's times and channels of a block.
    fn own_powers(&self, b: &mut Builder, own: &Steps, block: u32, scale: Scale) -> [Operand; 4] {
        let (row, (_, channel)) = (self.first_row(b), self.channels_of(b, block));
        let [[x, y], [z, w]] = [0, COLUMNS].map(|by| {
            let time = b.add(row, by);
            self.powers(b, own.arrays, time, channel, scale)
        });
        [x, y, z, w]
    }

    /// The thread's numbers of a block in an array of times and channels.
    fn block_at(&self, b: &mut Builder, block: u32) -> [Operand; 2] {
        let (row, (_, channel)) = (self.first_row(b), self.channels_of(b, block));
        [0, COLUMNS].map(|by| {
            let row = b.add(row, by);
            self.channel_index(b, row, channel)
        })
    }

    /// Computes key' and stores it; leaves −key·key' for the decays.
    pub(super) fn channel_keys(
        &self,
        b: &mut Builder,
        own: &Steps,
        given: Option<Blocks>,
        values: &Values,
        first: Operand,
    ) {
        let none = Operand::i32(0);
        let through = self.through_states(b, own, Cotangent::Keys, given, own.end, Operand::i32(TIMES as i32));
        let scale = Scale::Until(own.end);
        if self.has_channels() {
            self.store_terms(b, own, (&self.keys, &through), scale, (own.arrays.end_terms, self.block));
        }
        let found = match self.is_tf32 {
            true => self.add_tf32_later(b, own, through),
            false => self.add_later(b, own, through),
        };
        self.store_leaving(b, own, &found, scale);
        let found = self.with_own(b, own, &found, self.key_sums, scale);
        if self.needs(Cotangent::Keys) {
            self.store_depth(b, values, first, Cotangent::Keys, &found);
        }
        if self.has_channels() {
            self.store_product(b, &found, |b, block, r, found| {
                let keys = self.own_block(b, &self.keys, none, block);
                let product = b.mul(keys[r], found);
                b.sub(zero(Ty::F32), product)
            });
        }
    }

    /// Computes query' and stores it; leaves query·query' − key·key' for the decays.
    pub(super) fn channel_queries(
        &self,
        b: &mut Builder,
        own: &Steps,
        given: Option<Blocks>,
        values: &Values,
        first: Operand,
    ) {
        let none = Operand::i32(0);
        let through = self.through_states(b, own, Cotangent::Queries, given, none, own.start);
        let found = match self.is_tf32 {
            true => self.add_tf32_earlier(b, own, through),
            false => self.add_earlier(b, own, through),
        };
        let found = self.with_own(b, own, &found, own.arrays.own_queries, Scale::Since(own.start));
        if self.needs(Cotangent::Queries) {
            self.store_depth(b, values, first, Cotangent::Queries, &found);
        }
        if self.has_channels() {
            let of_block: Vec<_> = (0..self.deep_blocks()).map(|block| self.block_at(b, block)).collect();
            self.store_product(b, &found, |b, block, r, found| {
                let queries = self.own_block(b, &self.queries, none, block);
                let at = b.add(of_block[block as usize][r / 2], r % 2);
                let before = b.load1(Memory::Shared(self.key_sums), at);
                b.fma(queries[r], found, before)
            });
        }
    }

    /// Adds M·queries of later blocks to key', scaled to the end of the warp's times.
    fn add_later(&self, b: &mut Builder, own: &Steps, through: Blocks) -> Blocks {
        let (row, piece) = left_rows(b, self.thread.lane);
        let start = self.border(b, 0);
        let row = b.add(start, row);
        let right = own.views.deep.halves.in_time(b, &self.queries, Operand::i32(0));
        let next = b.add(self.block, 1);
        let last = Operand::i32(BLOCKS as i32);
        self.through_blocks(b, through, next, last, |b, found, later| {
            let index = own.arrays.pairs.lanes_at(b, row, piece, later);
            let left = load_four(b, &own.arrays.pairs, index, false);
            let scale = Scale::Since(own.end);
            self.add_scaled(b, own, found, left, ScaledBlock { factor: right, block: later, scale });
        })
    }

    /// Adds M·keys of earlier blocks to query', scaled to the start of the warp's times.
    fn add_earlier(&self, b: &mut Builder, own: &Steps, through: Blocks) -> Blocks {
        let (row, piece) = right_rows(b, self.thread.lane);
        let lanes = own.arrays.pairs.lanes_at(b, row, piece, self.block);
        let right = own.views.deep.halves.in_time(b, &self.keys, Operand::i32(0));
        self.through_blocks(b, through, Operand::i32(0), self.block, |b, found, earlier| {
            self.store_passing(b, own, found, earlier);
            let rows = b.mul(earlier, ROWS * TIMES);
            let index = b.add(lanes, rows);
            let left = load_four(b, &own.arrays.pairs, index, true);
            let scale = Scale::Until(own.start);
            self.add_scaled(b, own, found, left, ScaledBlock { factor: right, block: earlier, scale });
        })
    }

    /// Sums scaled to the thread's times, with the sums of pairs of its block.
    fn with_own(&self, b: &mut Builder, own: &Steps, found: &Blocks, array: SharedId, scale: Scale) -> Blocks {
        let mut all = vec![];
        for (block, found) in (0..).zip(found) {
            self.load_block_late(b);
            let powers = self.own_powers(b, own, block, scale);
            let of_block = self.block_at(b, block);
            let [x, y] = of_block.map(|at| b.load(Memory::Shared(array), at, 2, None, zero(Ty::F32)));
            let add = [x[0], x[1], y[0], y[1]];
            all.push([0, 1, 2, 3].map(|r: usize| b.fma(found[r], powers[r], add[r])));
        }
        all
    }

    /// Keeps loads for a block of channels behind this place where registers are scarce: those of all blocks at once would take those
    /// that the sums over slices need.
    fn load_block_late(&self, b: &mut Builder) {
        if self.has_few_registers() {
            b.push(Stmt::SyncWarp);
        }
    }

    /// Writes a map of the thread's numbers over the sums that pairs of its block have added to key'.
    fn store_product(
        &self,
        b: &mut Builder,
        found: &Blocks,
        map: impl Fn(&mut Builder, u32, usize, Operand) -> Operand,
    ) {
        for (block, found) in (0..).zip(found) {
            self.load_block_late(b);
            let products = [0, 1, 2, 3].map(|r: usize| map(b, block, r, found[r]));
            for (h, at) in self.block_at(b, block).into_iter().enumerate() {
                b.store(Memory::Shared(self.key_sums), at, &products[2 * h..2 * h + 2], None);
            }
        }
    }

    /// Writes the sums over the warp's times of keys or queries by terms of their cotangents, which are scaled, to a row of an array.
    pub(super) fn store_terms(
        &self,
        b: &mut Builder,
        own: &Steps,
        (factor, terms): (&Tile, &Blocks),
        scale: Scale,
        (array, number): (SharedId, Operand),
    ) {
        let is_first = b.eq(self.fragment.group, 0);
        let from = b.mul(number, self.schedule.depth);
        for (block, terms) in (0..).zip(terms) {
            self.load_block_late(b);
            let powers = self.own_powers(b, own, block, scale);
            let factors = self.own_block(b, factor, Operand::i32(0), block);
            let products = [0, 1, 2, 3].map(|r: usize| {
                let first = b.mul(terms[r], powers[r]);
                b.mul(first, factors[r])
            });
            let two = [0, 1].map(|c: usize| {
                let both = b.add(products[c], products[2 + c]);
                over_lanes(b, Binary::Add, both, &[4, 8, 16])
            });
            let (_, channel) = self.channels_of(b, block);
            let at = b.add(from, channel);
            b.store(Memory::Shared(array), at, &two, Some(is_first));
        }
    }
}

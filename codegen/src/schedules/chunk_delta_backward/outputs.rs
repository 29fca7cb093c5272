//! The outputs over the width and over the depth.

use super::TIMES;
use super::common::Place;
use super::gradients::{Gradients, Part, Sixteen, Sums};
use super::steps::Share;
use crate::block::layout::TileStage;
use crate::block::matmul::COLUMNS;
use crate::block::output::{StoredOutput, store_one, store_two, store_two_blocks};
use crate::block::pair::{Coordinates, Values};
use crate::block::split_tile::block_of;
use crate::build::{Builder, f32};
use crate::schedules::chunk_delta::ELEMENTS;
use crate::stage::kind::{DeltaCotangent, DeltaSum};
use crate::tile::Operand;
use oplus_dsl::Elem;

/// A thread's shares of sums over the depth, at its two times.
pub(super) struct DeepShares {
    /// Of each total.
    pub totals: Vec<[Operand; 2]>,
    /// Of the sums of products with the state before the 64 times and with the cotangent after them.
    pub first: [[Operand; 2]; 3],
}

impl Gradients<'_> {
    /// Sets the thread's two times as rows.
    fn set_rows(&self, b: &mut Builder, values: &mut Values, place: &Place) {
        let row = self.first_row(b);
        let row = b.add(place.first, row);
        for h in 0..2 {
            let at = b.add(row, Operand::i32((h * COLUMNS) as i32));
            values.set_row(h, self.index_along(b, at, self.form.states.time));
        }
    }

    /// The elements of a tile's stage at the warp's times, in a block of the columns of its half.
    pub(super) fn own_block(&self, b: &mut Builder, of: TileStage, block: u32) -> [Operand; 4] {
        let (row, column) = (self.first_row(b), self.fragment.column(b));
        let half = self.half_of(b, of.tile.depth / COLUMNS);
        let eight = b.add(half, Operand::i32(block as i32));
        block_of(b, of, row, eight, column)
    }

    /// Stores the maps of p at a part of the width.
    pub(super) fn store_wide(&self, b: &mut Builder, place: &Place, part: Part) {
        let (width, depth) = (self.form.states.width, self.form.states.depth);
        if self.form.outputs_of(DeltaCotangent::OverWidth).next().is_none() {
            return;
        }
        let place = self.rematerialised_place(b, place);
        let mut values = self.values(&place);
        self.set_rows(b, &mut values, &place);
        let (half, column) = (self.half_of(b, TIMES), self.fragment.column(b));
        let column = b.add(half, column);
        let first = b.mul(part.number, Operand::i32(TIMES as i32));
        let column = b.add(first, column);
        for first in (0..TIMES / 2 / COLUMNS).step_by(self.blocks_at_once() as usize) {
            let mut values = values.clone();
            let blocks = (first..first + self.blocks_at_once()).zip(0..).map(|(block, k)| {
                for c in 0..2 {
                    let at = b.add(column, Operand::i32((block * COLUMNS + c) as i32));
                    values.set_column(2 * k + c, self.index_along(b, at, width));
                }
                [&self.tiles.products, &self.tiles.cotangents].map(|tile| {
                    let of = TileStage::of(b, tile, part.stage);
                    self.own_block(b, of, block)
                })
            });
            let blocks: Vec<[[Operand; 4]; 2]> = blocks.collect();
            for h in 0..2 {
                let at = |column| Coordinates { row: Some(h), column: Some(column), inner: None };
                for (column, element) in (0..).zip(0..2 * blocks.len()) {
                    let [products, given] = blocks[element / 2].map(|block| block[2 * h as usize + element % 2]);
                    values.set_param(self.tiles.cotangents.param, at(column), given);
                    self.third().set_sum(b, &mut values, DeltaSum::Rows, products, at(column));
                }
                for output in self.form.outputs_of(DeltaCotangent::OverWidth) {
                    self.store_blocks(b, &mut values, &self.third().stored(output, width, depth), at);
                }
            }
        }
    }

    /// Stores the maps of sums over the width, and writes the thread's shares of sums over the depth.
    pub(super) fn deep(&self, b: &mut Builder, place: &Place, sums: &Sums) {
        let totals = vec![[f32(0.0); 2]; self.form.totals.len()];
        let mut shares = DeepShares { totals, first: [[f32(0.0); 2]; 3] };
        if self.keeps_sums {
            let sums = self.rematerialised(b).finish_sums(b, sums, &mut shares);
            for pair in 0..self.pairs() {
                self.fence(b);
                let (own, two) = (self.rematerialised(b), sums.of_pair(pair));
                own.store_deep(b, place, &mut shares.totals, pair, &two);
            }
        } else {
            for pair in 0..self.pairs() {
                // The assembler reads no factors before it needs them.
                b.barrier();
                self.rematerialised(b).deep_pair(b, place, pair, &mut shares);
            }
        }
        let own = self.rematerialised(b);
        own.store_first(b, &shares.first);
        own.store_totals(b, &shares.totals);
    }

    /// Computes and stores 16 places of the depth of the warp's half.
    fn deep_pair(&self, b: &mut Builder, place: &Place, pair: u32, shares: &mut DeepShares) {
        let [wide, deep] = [&self.tiles.errors, &self.tiles.states].map(|tile| self.views(b, tile));
        let mut own = self.through_states(b, &wide, &deep, pair);
        if let Some(decays) = self.decays(b) {
            for (own, decays) in own.iter_mut().zip(decays) {
                *own = own.map(|block| [0, 1, 2, 3].map(|r: usize| b.mul(block[r], decays[r / 2])));
            }
        }
        self.add_first(b, &mut shares.first, pair, &own);
        self.apart(
            b,
            &mut own,
            |own| own.iter_mut().flatten().flatten().collect(),
            |b, own| self.add_pairs(b, pair, own),
        );
        let totals = &mut shares.totals;
        if self.adds_totals_apart() {
            // An assembler adds terms as late as it can, and keeps them beside the next products.
            self.rematerialiser.apart(
                b,
                totals,
                |totals| totals.iter_mut().flatten().collect(),
                |b, totals| self.store_deep(b, place, totals, pair, &own),
            );
        } else {
            self.store_deep(b, place, totals, pair, &own);
        }
    }

    /// Whether sums over the depth are added to behind a branch that is always taken: where addresses of single elements leave the fewest
    /// registers to two blocks on a multiprocessor.
    fn adds_totals_apart(&self) -> bool {
        let is_narrow = self.schedule.vector == 1 && self.tiles.keys.elem == Elem::Bf16 && self.schedule.depth == 64;
        is_narrow && self.form.states.decays()
    }

    /// Stores the maps of sums over the width at 16 places of the depth of the warp's half, and adds to totals.
    fn store_deep(&self, b: &mut Builder, place: &Place, totals: &mut [[Operand; 2]], pair: u32, sums: &[Sixteen; 3]) {
        let place = self.rematerialised_place(b, place);
        let mut values = self.values(&place);
        self.set_rows(b, &mut values, &place);
        let (width, depth) = (self.form.states.width, self.form.states.depth);
        let (half, column) = (self.half_of(b, self.schedule.depth), self.fragment.column(b));
        let column = b.add(half, column);
        for first in (0..2).step_by(self.blocks_at_once() as usize) {
            let mut values = values.clone();
            for k in 0..self.blocks_at_once() {
                let block = 2 * pair + first + k;
                for c in 0..2 {
                    let at = b.add(column, Operand::i32((block * COLUMNS + c) as i32));
                    values.set_inner(2 * k + c, depth, self.index_along(b, at, depth));
                }
                let sums = sums.map(|own| own[(first + k) as usize]);
                if self.rematerialises_thread_per_block() {
                    self.rematerialised(b).set_block(b, &mut values, totals, block, k, &sums);
                } else {
                    self.set_block(b, &mut values, totals, block, k, &sums);
                }
            }
            for h in 0..2 {
                let at = |column| Coordinates { row: Some(h), column: None, inner: Some(column) };
                for output in self.form.outputs_of(DeltaCotangent::OverDepth) {
                    self.store_blocks(b, &mut values, &self.third().stored(output, depth, width), at);
                }
            }
        }
    }

    /// Whether the thread's coordinates are rematerialised for each block of eight columns: with decays there are no registers to keep them beside
    /// products.
    fn rematerialises_thread_per_block(&self) -> bool {
        !self.keeps_sums && self.tiles.keys.elem != Elem::F32 && self.form.states.decays()
    }

    /// How many neighbouring blocks of columns are stored at once: two of 16 bits fill a sector of memory.
    fn blocks_at_once(&self) -> u32 {
        if self.keeps_sums && self.tiles.keys.elem != Elem::F32 { 2 } else { 1 }
    }

    /// Stores an output at the columns of [these blocks](Self::blocks_at_once), in a row.
    fn store_blocks(
        &self,
        b: &mut Builder,
        values: &mut Values,
        stored: &StoredOutput,
        at: impl Fn(u32) -> Coordinates,
    ) {
        let two = |k: u32| [0, 1].map(|c| at(2 * k + c));
        match self.blocks_at_once() {
            2 => store_two_blocks(b, values, stored, [0, 1].map(two), self.fragment.member),
            _ => store_two(b, values, stored, two(0)),
        }
    }

    /// Sets what outputs over the depth are maps of, in a block of columns, which has number `k` of the values; and adds to totals.
    fn set_block(
        &self,
        b: &mut Builder,
        values: &mut Values,
        totals: &mut [[Operand; 2]],
        block: u32,
        k: u32,
        sums: &[[Operand; 4]; 3],
    ) {
        let given = [&self.tiles.keys, &self.tiles.queries, self.tiles.columns()];
        let given = given.map(|tile| (tile.param, self.own_block(b, TileStage::only(tile), block)));
        for (h, c) in ELEMENTS {
            let here = Coordinates { row: Some(h as u32), column: None, inner: Some(2 * k + c as u32) };
            given.iter().for_each(|(param, own)| values.set_param(*param, here, own[2 * h + c]));
            for (sum, own) in [DeltaSum::Queries, DeltaSum::Columns, DeltaSum::Keys].into_iter().zip(sums) {
                self.third().set_sum(b, values, sum, own[2 * h + c], here);
            }
            self.add_totals(b, values, totals, here, h);
        }
    }

    /// Stores the outputs at one of the lane's times.
    pub(super) fn store_at(
        &self,
        b: &mut Builder,
        values: &mut Values,
        here: Coordinates,
        shares: &[(Share, Operand)],
    ) {
        for (share, value) in shares {
            match share {
                Share::Total(node) => values.set(*node, here, *value),
                Share::Energy => self.third().set_sum(b, values, DeltaSum::Energy, *value, here),
            }
        }
        for output in self.form.outputs_of(DeltaCotangent::OverTime) {
            store_one(b, values, self.stage, &self.args, output, here);
        }
    }
}

//! Where sums over the parts of the width stay in registers: the tiles of 64 times of a block, and the parts of their width, one after the
//! other. Parts are copied ahead, also those of the next tile.

use super::common::Place;
use super::gradients::{Gradients, Part, Sums};
use super::outputs::DeepShares;
use super::{BLOCKS, TIMES};
use crate::block::matmul::{Blocks, COLUMNS, ROWS, assign_blocks, block_values, block_vars, zeros};
use crate::block::ring::{Cursor, Ring, RingStage};
use crate::build::{Builder, zero};
use crate::tile::{Operand, Reg, Special, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

/// The numbers of a block's tiles: every `step`-th one from `first` to `end`. All `i32`.
#[derive(Clone, Copy)]
struct Numbers {
    first: Operand,
    end: Operand,
    step: Operand,
}

/// The part of the width that is copied next: the number of its tile, its own, and its stage.
struct NextPart {
    tile: Reg,
    part: Reg,
    at: Cursor,
}

/// The sums over the parts of a tile, in registers, and where in shared memory its next part is.
struct PartSums {
    sums: Sums,
    regs: Vec<Reg>,
    at: Cursor,
}

/// Starts the copies of a part after the one of a number, whose stage is free: of this place, part and stage.
type Fetch<'a> = &'a dyn Fn(&mut Builder, &Place, Part);

impl Gradients<'_> {
    /// Goes through the tiles of the block.
    pub(super) fn walk(&self, b: &mut Builder) {
        if !self.schedule.persistent || self.tile.is_some() {
            return self.walk_one(b);
        }
        let ring_of_depth = Ring::of(1);
        let numbers = self.numbers(b);
        let [first, none] = [numbers.first, Operand::i32(0)].map(|number| b.var(number));
        let next = NextPart { tile: first, part: none, at: Ring::cursor(b, Operand::i32(0), 0) };
        for _ in 0..self.tiles.stages {
            self.fetch_next(b, numbers, &next);
        }
        let mut sums = self.part_sums(b);
        let of_depth = Ring::cursor(b, Operand::i32(0), 0);
        b.for_(numbers.first, numbers.end, numbers.step, |b, number| {
            self.tile(b, &mut sums, number, of_depth.here(), &|b, _, _| self.fetch_next(b, numbers, &next));
            ring_of_depth.advance(b, &of_depth);
        });
    }

    /// Goes through the parts of the block's only tile.
    fn walk_one(&self, b: &mut Builder) {
        let number = b.special(Special::Block);
        let own = self.rematerialised(b);
        let place = own.third().place(b, &self.tile, None, Some(number));
        let parts = b.convert(Ty::I32, place.parts);
        let stages = self.tiles.stages;
        for stage in (0..stages).map(|stage| Operand::i32(stage as i32)) {
            let exists = b.lt(stage, parts);
            b.if_(exists, |b| own.fetch_part(b, &place, stage, stage));
        }
        let mut sums = self.part_sums(b);
        self.tile(b, &mut sums, number, RingStage::FIRST, &|b, place, part| {
            let following = b.add(part.number, stages);
            let parts = b.convert(Ty::I32, place.parts);
            let exists = b.lt(following, parts);
            b.if_(exists, |b| {
                // Of the number of parts only the half that is not zero is kept.
                let place = Place { parts: b.convert(Ty::I64, parts), ..place.clone() };
                self.rematerialised(b).fetch_part(b, &place, following, part.stage);
            });
        });
    }

    /// Computes and stores the outputs of a tile. After every part it starts other copies.
    fn tile(&self, b: &mut Builder, all: &mut PartSums, number: Operand, of_depth: RingStage, fetch: Fetch<'_>) {
        let PartSums { sums, regs, at } = all;
        let own = self.rematerialised(b);
        let place = own.third().place(b, &self.tile, None, Some(number));
        own.fetch_deep(b, &place);
        let values = own.values(&place);
        // The first warp has read the rates of the tile before.
        b.push(Stmt::SyncWarp);
        own.store_rates(b, &values, &place);
        regs.iter().for_each(|reg| b.assign(*reg, zero(Ty::F32)));
        let parts = b.convert(Ty::I32, place.parts);
        b.for_(Operand::i32(0), parts, Operand::i32(1), |b, part| {
            own.wait_part(b, at.here());
            let part = Part { number: part, stage: at.stage.into() };
            self.rematerialised(b).prepare_part(b, part.stage);
            sums.all_mut().zip(&*regs).for_each(|(sum, reg)| *sum = Operand::Reg(*reg));
            own.rematerialised(b).part(b, &place, part, sums);
            sums.all().zip(&*regs).for_each(|(sum, reg)| b.assign(*reg, *sum));
            // From here on no thread reads the tiles of this part.
            b.barrier();
            fetch(b, &place, part);
            Ring::of(self.tiles.stages).advance(b, at);
        });
        sums.all_mut().zip(&*regs).for_each(|(sum, reg)| *sum = Operand::Reg(*reg));
        self.rematerialised(b).after_parts(b, &place, sums, of_depth);
    }

    /// Registers for the sums of the parts of a tile.
    fn part_sums(&self, b: &mut Builder) -> PartSums {
        let at = Ring::cursor(b, Operand::i32(0), 0);
        let sums = self.zero_sums();
        let regs = sums.all().map(|sum| b.var(*sum)).collect();
        PartSums { sums, regs, at }
    }

    /// The sums over no part.
    fn zero_sums(&self) -> Sums {
        let [deep, pairs] = [self.schedule.depth, TIMES].map(|n| vec![zeros(); (n / 2 / COLUMNS) as usize]);
        let deep = [deep.clone(), deep.clone(), deep];
        Sums { deep, given: pairs.clone(), moved: pairs, energy: zero(Ty::F32) }
    }

    /// The tiles of the block.
    fn numbers(&self, b: &mut Builder) -> Numbers {
        let rule = &self.form.states;
        let points = self.args.rows(b, rule.outer);
        let tiles = b.div_ceil(self.args.size(rule.time), TIMES);
        let all = b.mul(points, tiles);
        let (first, step) = (b.special(Special::Block), b.special(Special::Blocks));
        Numbers { first, end: b.convert(Ty::I32, all), step }
    }

    /// Starts the copies of the next part, if there is one.
    fn fetch_next(&self, b: &mut Builder, numbers: Numbers, next: &NextPart) {
        let (tile, part) = (next.tile.into(), next.part.into());
        let exists = b.lt(tile, numbers.end);
        b.if_(exists, |b| {
            let own = self.rematerialised(b);
            let place = own.third().place(b, &self.tile, None, Some(tile));
            own.fetch_part(b, &place, part, next.at.stage.into());
            Ring::of(self.tiles.stages).advance(b, &next.at);
            let parts = b.convert(Ty::I32, place.parts);
            let following = b.add(part, 1);
            let is_last = b.ge(following, parts);
            let further = b.add(tile, numbers.step);
            let (part, tile) = (b.select(is_last, Operand::i32(0), following), b.select(is_last, further, tile));
            b.assign(next.part, part);
            b.assign(next.tile, tile);
        });
    }

    /// Adds the products of a part of the width to sums: 16 places of the width after the other.
    pub(super) fn add_part(&self, b: &mut Builder, stage: Operand, sums: &mut Sums) {
        let (tiles, elem) = (&self.tiles, self.tiles.keys.elem);
        let (wide, deep) = (self.views(b, &tiles.errors), self.views(b, &tiles.states));
        let lefts = [&tiles.cotangents, &tiles.products, &tiles.errors].map(|tile| wide.left(b, tile, stage));
        let [states, duals] = [&tiles.states, &tiles.duals].map(|tile| deep.in_time(b, tile, stage));
        let errors = wide.right(b, &tiles.errors, stage);
        for sixteen in 0..BLOCKS {
            self.fence(b);
            let lefts = lefts.map(|left| left.parts(b, 0, sixteen, false));
            for pair in 0..self.pairs() {
                self.load_late(b);
                let [states, duals] = [states, duals].map(|right| right.parts(b, sixteen * ROWS, pair, true));
                for ((sums, left), right) in sums.deep.iter_mut().zip(lefts).zip([states, states, duals]) {
                    left.multiply(b, elem, &mut sums[2 * pair as usize..][..2], right);
                }
            }
            // Lanes of single elements would be kept for all products.
            let own = (self.schedule.vector == 1).then(|| self.rematerialised(b).views(b, &tiles.errors));
            let errors = own.as_ref().map_or(errors, |own| own.right(b, &tiles.errors, stage));
            for pair in 0..TIMES / 2 / ROWS {
                let earlier = errors.parts(b, pair * ROWS, sixteen, false);
                for (sums, left) in [&mut sums.given, &mut sums.moved].into_iter().zip(lefts) {
                    left.multiply(b, elem, &mut sums[2 * pair as usize..][..2], earlier);
                }
            }
        }
    }

    /// Adds the products over pairs of times to sums over all parts, and the thread's shares of sums over the depth.
    pub(super) fn finish_sums(&self, b: &mut Builder, sums: &Sums, shares: &mut DeepShares) -> Sums {
        let mut sums = Sums { deep: sums.deep.clone(), given: vec![], moved: vec![], energy: sums.energy };
        if let Some(decays) = self.decays(b) {
            for (own, decays) in sums.deep.iter_mut().zip(decays) {
                own.iter_mut().for_each(|block| *block = [0, 1, 2, 3].map(|r: usize| b.mul(block[r], decays[r / 2])));
            }
        }
        for pair in 0..self.pairs() {
            let two = sums.of_pair(pair);
            self.add_first(b, &mut shares.first, pair, &two);
        }
        self.add_all_pairs(b, &mut sums.deep);
        sums
    }

    /// Adds the products over pairs of times, without those of which all weights are 0.
    fn add_all_pairs(&self, b: &mut Builder, sums: &mut [Blocks; 3]) {
        let views = self.pair_views(b);
        let regs = [0, 1, 2].map(|k: usize| block_vars(b, &sums[k]));
        for sixteen in 0..BLOCKS {
            let is_earlier = b.ge(self.block, sixteen);
            b.if_(is_earlier, |b| {
                let [mut queries, mut columns] = [0, 1].map(|k: usize| block_values(&regs[k]));
                self.add_earlier(b, &views, sixteen, 0..self.pairs(), [&mut queries, &mut columns]);
                assign_blocks(b, &regs[0], &queries);
                assign_blocks(b, &regs[1], &columns);
            });
            let is_later = b.binary(Binary::Le, self.block, sixteen);
            b.if_(is_later, |b| {
                let mut keys = block_values(&regs[2]);
                self.add_later(b, &views, sixteen, 0..self.pairs(), &mut keys);
                assign_blocks(b, &regs[2], &keys);
            });
        }
        *sums = regs.map(|regs| block_values(&regs));
    }
}

//! Copies ahead of a walk over prepared tiles: four warps copy tiles while the others walk those before.

use super::ahead::{TilePlace, Tiles};
use super::stored::{Stored, StoredIn};
use super::{DeltaKernel, TIMES};
use crate::block::layout::Tile;
use crate::build::Builder;
use crate::tile::Operand;
use oplus_dsl::ir::Binary;
use oplus_dsl::{Elem, Ty};

/// The tensors and the prepared tiles that a block copies.
struct Copies<'a> {
    tiles: Tiles,
    /// Tiles that are copied from tensors, each with the offset at which its tensor begins for the block.
    tensors: Vec<(&'a Tile, Operand)>,
    /// The number of the block's first prepared tile, `i64`.
    first: Operand,
    /// The layout of prepared tiles, and the memory that they are in.
    stored: &'a Stored<'a>,
    from: StoredIn,
}

impl DeltaKernel<'_> {
    /// Goes through the tiles ahead of the walk. It copies prepared tiles, vectors and values. Vectors that are not yet factors
    /// are turned into factors when they have been copied.
    pub(in crate::schedules) fn copy_ahead(&self, b: &mut Builder, tiles: Tiles, stored: &Stored, from: StoredIn) {
        let source = self.source();
        let copied = self.tiles().filter(|tile| self.is_copied(tile));
        let tensors = copied.map(|tile| (tile, self.origin(b, tile, &source))).collect();
        let copies = Copies { tiles, tensors, first: self.first_prepared(b, tiles), stored, from };
        if self.makes_factors() {
            self.copy_and_make_factors(b, &copies);
        } else {
            self.copy_only(b, &copies);
        }
    }

    /// Copies tiles that are factors already.
    fn copy_only(&self, b: &mut Builder, copies: &Copies<'_>) {
        b.for_(Operand::i32(0), copies.tiles.count, Operand::i32(1), |b, number| {
            let place = self.start_copies(b, copies, number);
            // Slots in which factors are handed over are free, too: all warps have walked the tile before.
            b.arrive(self.ready, place.pairs.index);
        });
    }

    /// Copies tiles, and makes factors of those that have arrived. One tile is walked, and one has its factors made, while the copies of others
    /// are on their way.
    fn copy_and_make_factors(&self, b: &mut Builder, copies: &Copies<'_>) {
        let behind = self.schedule.stages.saturating_sub(2) as i32;
        let end = b.add(copies.tiles.count, behind);
        b.for_(Operand::i32(0), end, Operand::i32(1), |b, number| {
            let is_left = b.lt(number, copies.tiles.count);
            b.if_(is_left, |b| {
                self.start_copies(b, copies, number);
            });
            let number = b.sub(number, behind);
            let is_copied = b.binary(Binary::Ge, number, Operand::i32(0));
            b.if_(is_copied, |b| {
                let place = self.tile_place(b, number);
                self.wait_for(b, self.deep_tiles(), &place);
                self.prepare(b, &place);
                b.arrive(self.ready, place.pairs.index);
            });
        });
    }

    /// Starts the copies of the tile of a number as soon as the one in its place has been walked.
    fn start_copies(&self, b: &mut Builder, copies: &Copies<'_>, number: Operand) -> TilePlace {
        let Copies { tiles, tensors, first, stored, from } = copies;
        let place = self.tile_place(b, number);
        let before = place.pairs.before(b);
        b.wait(self.walked, before);
        self.fetch(b, tensors, number, *tiles);
        let own = tiles.place(b, number);
        let own = b.convert(Ty::I64, own);
        let own = b.add(*first, own);
        stored.copy(b, *from, self.thread.number, own, &place);
        b.arrive_with_copies(self.ready, place.pairs.index);
        place
    }

    /// Whether the warps that copy ahead of the walk make factors of the vectors that they have copied.
    fn makes_factors(&self) -> bool {
        self.channels.is_none() && (self.elem() == Elem::F32 || self.copies_half())
    }

    /// The number of the first prepared tile of the block's recurrence, `i64`.
    fn first_prepared(&self, b: &mut Builder, tiles: Tiles) -> Operand {
        let outer = self.form.outer.minus(self.stage.axis_of_sequences());
        let row = self.args.number_of(b, outer, &self.outer);
        if let Some(first) = self.args.first_tile(b, self.stage, row, TIMES) {
            return first;
        }
        let count = b.convert(Ty::I64, tiles.count);
        b.mul(row, count)
    }
}

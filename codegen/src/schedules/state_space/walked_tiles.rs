//! The tiles of time that a block walks: their numbers, their steps, and the ring of stages that they go through.
//!
//! A role that goes from tile to tile keeps the stage and its phase in registers beside the number of the tile. Where registers are
//! scarce, stage and phase follow from the number, and the bounds of the block's segment are read from shared memory.

use super::{StateSpaceKernel, Time, has_flags};
use crate::block::ring::Ring;
use crate::build::Builder;
use crate::tile::{Operand, Shuffle, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

/// The places of the bounds of a segment in shared memory.
const FIRST: usize = 0;
const COUNT: usize = 1;

impl StateSpaceKernel<'_> {
    /// The tiles that the block walks, `i32`.
    pub(crate) fn own_tiles(&self) -> Operand {
        self.frame.segment.as_ref().map_or(self.frame.tile_count, |segment| segment.tiles)
    }

    /// The tile of that number among those that the block walks.
    pub(crate) fn time(&self, b: &mut Builder, number: Operand) -> Time {
        let number = self.frame.segment.as_ref().map_or(number, |segment| b.add(segment.first, number));
        self.time_of(b, number)
    }

    /// The tile of that number among those of all segments.
    pub(crate) fn time_of(&self, b: &mut Builder, number: Operand) -> Time {
        let number = if self.scan.reverse {
            let last = b.sub(self.frame.tile_count, 1);
            b.sub(last, number)
        } else {
            number
        };
        let steps = Operand::i64(i64::from(self.schedule.steps));
        let number = b.convert(Ty::I64, number);
        let first = b.mul(number, steps);
        let left = b.sub(self.frame.len, first);
        let left = b.binary(Binary::Min, left, steps);
        Time { first, steps: b.convert(Ty::I32, left), is_whole: false }
    }

    /// Goes through the tiles of the block's segment: waits for each, walks it, and reports that it has been walked. `walk` takes the
    /// stage, and the number of the tile in the segment.
    pub(crate) fn each_tile(&self, b: &mut Builder, mut walk: impl FnMut(&mut Builder, Operand, Operand)) {
        if self.spares_registers() {
            return self.each_numbered_tile(b, walk);
        }
        let at = Ring::cursor(b, Operand::i32(0), 0);
        b.for_(Operand::i32(0), self.own_tiles(), 1, |b, number| {
            b.wait(self.frame.full, at.here());
            b.push(Stmt::SyncWarp);
            walk(b, at.stage.into(), number);
            // Each lane arrives for its own accesses.
            b.arrive(self.frame.done, at.stage.into());
            self.ring().advance_by(b, &at, 1);
        });
    }

    /// Goes through the tiles with one number in a register, from which stages and phases follow: the tile's own where flags take registers as
    /// well, and otherwise, or where the number of tiles is in shared memory, minus the tiles that are left.
    fn each_numbered_tile(&self, b: &mut Builder, mut walk: impl FnMut(&mut Builder, Operand, Operand)) {
        let (ring, count) = (self.ring(), self.own_tiles());
        let counts_down = self.bounds.is_some() || !has_flags(self.stage);
        let nothing = Operand::i32(0);
        let (from, to) = if counts_down { (b.sub(nothing, count), nothing) } else { (nothing, count) };
        let number = |b: &mut Builder, counted: Operand| {
            if !counts_down {
                return counted;
            }
            let count = self.bound_again(b, COUNT).unwrap_or(count);
            b.add(counted, count)
        };
        b.for_(from, to, 1, |b, counted| {
            let own = number(b, counted);
            let at = ring.at(b, own);
            b.wait(self.frame.full, at);
            b.push(Stmt::SyncWarp);
            walk(b, at.index, own);
            // No compiler looks through a shuffle, and so none keeps the stage in a register during the walk.
            let counted = b.shuffle(Shuffle::Index, counted, self.frame.lane);
            let own = number(b, counted);
            let stage = ring.stage(b, own);
            b.arrive(self.frame.done, stage);
        });
    }

    /// Writes the first tile of the block's segment, and how many there are, by one thread; a barrier follows.
    pub(crate) fn store_bounds(&self, b: &mut Builder) {
        let (Some(bounds), Some(segment)) = (self.bounds, &self.frame.segment) else { return };
        let numbers = [segment.first, segment.tiles].map(|number| b.convert(Ty::I64, number));
        bounds.store(b, &numbers);
    }

    /// One of those two numbers, read again from shared memory: behind a barrier of the warp it is a new number to the compiler.
    fn bound_again(&self, b: &mut Builder, place: usize) -> Option<Operand> {
        let bounds = self.bounds?;
        b.push(Stmt::SyncWarp);
        let number = bounds.read(b, place);
        Some(b.convert(Ty::I32, number))
    }

    /// The tile of that number among those that the block walks, where the number of the first one is read again.
    pub(crate) fn time_again(&self, b: &mut Builder, number: Operand) -> Time {
        let Some(first) = self.bound_again(b, FIRST) else { return self.time(b, number) };
        let number = b.add(first, number);
        self.time_of(b, number)
    }

    /// Whether many threads share the registers, and flags of steps, or saved states beside segments of time, take some of them.
    pub(crate) fn spares_registers(&self) -> bool {
        self.is_crowded() && (has_flags(self.stage) || self.schedule.save && self.schedule.segmented)
    }
}

//! The loops of the warps of a persistent block over tiles, whichever tiles they are.

use super::{Cursor, Persistent};
use crate::build::Builder;
use crate::tile::{Memory, Operand};

impl Persistent {
    /// The reducers, which come after `scanners` warps: `reduce` takes a tile, the number of the reducer, the stage and
    /// the slot.
    pub fn reduce_tiles(
        &self,
        b: &mut Builder,
        scanners: u32,
        reduce: impl FnOnce(&mut Builder, Operand, Operand, (Operand, Operand)),
    ) {
        let at = self.cursor(b, 0);
        let own = b.sub(self.warp, scanners);
        b.loop_(|b| {
            let tile = self.next_tile(b, &at);
            let more = b.ge(tile, 0);
            let slot = self.slot(b, at.count.into()).index;
            b.if_(more, |b| reduce(b, tile, own, (at.ring.stage.into(), slot)));
            self.elected(b, |b| {
                let first = b.eq(own, 0);
                b.if_(first, |b| b.store(Memory::Shared(self.reduced_tile), slot, &[tile], None));
            });
            b.arrive(self.reduced, slot);
            b.if_(more, |b| b.arrive(self.empty, at.ring.stage.into()));
            let ends = b.lt(tile, 0);
            b.break_if(ends);
            self.advance(b, &at);
        });
    }

    /// The publisher: `publish` takes a tile that is reduced, and its slot.
    pub fn publish_tiles(&self, b: &mut Builder, publish: impl FnOnce(&mut Builder, Operand, Operand)) {
        let at = self.cursor(b, 0);
        b.loop_(|b| {
            let slot = self.slot(b, at.count.into());
            b.wait(self.reduced, slot);
            let slot = slot.index;
            let tile = b.load1(Memory::Shared(self.reduced_tile), slot);
            let more = b.ge(tile, 0);
            b.if_(more, |b| publish(b, tile, slot));
            b.arrive(self.published, slot);
            let ends = b.lt(tile, 0);
            b.break_if(ends);
            self.advance(b, &at);
        });
    }

    /// The scanners: `scan` takes a tile.
    pub fn scan_tiles(&self, b: &mut Builder, scan: impl FnOnce(&mut Builder, Operand, &Cursor)) {
        let at = self.cursor(b, 0);
        b.loop_(|b| {
            let tile = self.next_tile(b, &at);
            let ends = b.lt(tile, 0);
            b.break_if(ends);
            scan(b, tile, &at);
            self.advance(b, &at);
        });
    }
}

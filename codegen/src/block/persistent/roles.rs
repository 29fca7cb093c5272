//! The loops of the warps of a persistent block over tiles, whichever tiles they are.

use super::{Cursor, Persistent};
use crate::build::Builder;
use crate::tile::{Memory, Operand};

impl Persistent {
    /// The reducers, which come after `scanners` warps: `reduce` takes a tile, which of the reducers does, the stage and
    /// the slot.
    pub fn reduce_tiles(
        &self,
        b: &mut Builder,
        scanners: u32,
        reduce: impl FnOnce(&mut Builder, Operand, Operand, (Operand, Operand)),
    ) {
        let at = self.cursor(b, 0);
        let own = b.sub(self.warp, Operand::i32(scanners as i32));
        b.loop_(|b| {
            let tile = self.next_tile(b, &at);
            let more = b.ge(tile, Operand::i32(0));
            let (slot, _) = self.slot(b, at.count.into());
            b.if_(more, |b| reduce(b, tile, own, (at.stage.into(), slot)));
            self.elected(b, |b| {
                let first = b.eq(own, Operand::i32(0));
                b.if_(first, |b| b.store(Memory::Shared(self.reduced_tile), slot, &[tile], None));
            });
            self.arrive_warp(b, self.reduced, slot);
            b.if_(more, |b| self.arrive_warp(b, self.empty, at.stage.into()));
            let ends = b.lt(tile, Operand::i32(0));
            b.break_if(ends);
            self.advance(b, &at);
        });
    }

    /// The publisher: `publish` takes a tile that is reduced, and its slot.
    pub fn publish_tiles(&self, b: &mut Builder, publish: impl FnOnce(&mut Builder, Operand, Operand)) {
        let at = self.cursor(b, 0);
        b.loop_(|b| {
            let (slot, parity) = self.slot(b, at.count.into());
            self.wait(b, self.reduced, slot, parity);
            let tile = b.load1(Memory::Shared(self.reduced_tile), slot);
            let more = b.ge(tile, Operand::i32(0));
            b.if_(more, |b| publish(b, tile, slot));
            self.arrive_warp(b, self.published, slot);
            let ends = b.lt(tile, Operand::i32(0));
            b.break_if(ends);
            self.advance(b, &at);
        });
    }

    /// The scanners: `scan` takes a tile.
    pub fn scan_tiles(&self, b: &mut Builder, scan: impl FnOnce(&mut Builder, Operand, &Cursor)) {
        let at = self.cursor(b, 0);
        b.loop_(|b| {
            let tile = self.next_tile(b, &at);
            let ends = b.lt(tile, Operand::i32(0));
            b.break_if(ends);
            scan(b, tile, &at);
            self.advance(b, &at);
        });
    }
}

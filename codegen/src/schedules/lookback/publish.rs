//! The publisher: scans the spans' aggregates of a tile and publishes the tile's aggregate.

use super::LookBackKernel;
use crate::block::carry::{Fields, WarpAxis, select, to_words};
use crate::block::messages::padded;
use crate::block::persistent::{load_fields, store_fields};
use crate::build::Builder;
use crate::schedules::Fold;
use crate::tile::{Operand, Shuffle, Stmt};
use oplus_dsl::Ty;

impl LookBackKernel<'_> {
    pub(super) fn publish_role(&self, b: &mut Builder) {
        self.block.publish_tiles(b, |b, tile, slot| self.publish_tile(b, tile, slot));
    }

    fn publish_tile(&self, b: &mut Builder, tile: Operand, slot: Operand) {
        let spans = self.schedule.scan_warps;
        let base = b.mul(slot, spans);
        let own = b.lt(self.block.lane, spans);
        let lane = b.select(own, self.block.lane, Operand::i32(0));
        let index = b.add(base, lane);
        let loaded = load_fields(b, &self.shared.spans, index);
        let span = select(b, own, &loaded, &self.monoid.identity());
        let inclusive = self.monoid.warp_scan(b, span, &self.all_lanes());
        let exclusive = self.monoid.warp_shift(b, &inclusive, &self.all_lanes());
        // Idle lanes have read the first lane's span.
        b.push(Stmt::SyncWarp);
        b.if_(own, |b| store_fields(b, &self.shared.spans, index, &exclusive));
        let last = Operand::i32(spans as i32 - 1);
        let total: Fields = inclusive.iter().map(|x| b.shuffle(Shuffle::Index, *x, last)).collect();
        self.block.elected(b, |b| {
            let values = to_words(b, &total);
            let index = self.message(b, tile);
            let tag = self.block.tag(b);
            b.push(Stmt::Publish { messages: self.block.messages, index, values, tag, guard: None });
            if self.schedule.fold == Fold::Strict || self.stage.has_finals() {
                store_fields(b, &self.shared.totals, slot, &total);
            }
        });
    }

    /// All lanes as one time axis, in the order of the scan.
    pub(super) fn all_lanes(&self) -> WarpAxis {
        WarpAxis { position: self.block.lane, count: 32, stride: 1, reverse: false }
    }

    /// Message words from one tile to the next.
    pub(super) fn message_step(&self) -> i64 {
        i64::from(padded(self.words))
    }

    /// The first message word of a tile, `i64`.
    pub(super) fn message(&self, b: &mut Builder, tile: Operand) -> Operand {
        let tile = b.convert(Ty::I64, tile);
        b.mul(tile, self.message_step())
    }
}

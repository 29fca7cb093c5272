//! The reducers: the aggregate of every scan warp's span, as far ahead of the scanners as the ring allows.

use super::span::Need;
use super::{Form, LookBackKernel, Tile};
use crate::block::carry::{Fields, select};
use crate::block::persistent::store_fields;
use crate::build::Builder;
use crate::tile::{Operand, Shuffle};
use oplus_dsl::ir::Binary;

impl LookBackKernel<'_> {
    /// Reducer w takes the spans of scan warps w, w + reducers, … of each tile.
    pub(super) fn reduce_role(&self, b: &mut Builder) {
        self.block.reduce_tiles(b, self.schedule.scan_warps, |b, tile, own, (stage, slot)| {
            let place = self.tile(b, tile);
            self.reduce_tile(b, &place, own, slot, stage);
        });
    }

    fn reduce_tile(&self, b: &mut Builder, tile: &Tile, own: Operand, slot: Operand, stage: Operand) {
        let (spans, step) = (Operand::i32(self.schedule.scan_warps as i32), self.schedule.reduce_warps as i32);
        b.for_(own, spans, step, |b, span| {
            let total = match self.form {
                Form::Fast => self.reduce_span(b, tile, span, stage),
                Form::Short => self.reduce_by_stretches(b, tile, span, stage),
            };
            self.block.elected(b, |b| {
                let index = self.span_index(b, slot, span);
                store_fields(b, &self.shared.spans, index, &total);
            });
        });
    }

    /// The place of a span's aggregate, in the order of the scan.
    pub(super) fn span_index(&self, b: &mut Builder, slot: Operand, span: Operand) -> Operand {
        let base = b.mul(slot, self.schedule.scan_warps);
        let order =
            if self.scan.reverse { b.sub(Operand::i32(self.schedule.scan_warps as i32 - 1), span) } else { span };
        b.add(base, order)
    }

    fn reduce_span(&self, b: &mut Builder, tile: &Tile, span: Operand, stage: Operand) -> Fields {
        let span = self.load_span(b, tile, span, stage, Need::Elements);
        let places = self.places(b, &span, self.masks_aggregates());
        let totals = places.iter().map(|stretch| self.stretch_total(b, stretch)).collect();
        self.reduce_stretches(b, totals, 1)
    }

    /// Whether missing elements must be identities in aggregates: in reverse they come first, and a row's final state
    /// is taken from its last tile's aggregate.
    pub(super) fn masks_aggregates(&self) -> bool {
        self.scan.reverse || self.stage.has_finals()
    }

    /// The ordered combination over lanes and stretches. Lanes divide the stretches among themselves while they reduce them: those whose
    /// `distance` bit is set keep the later half, so that 8 stretches take 12 shuffles instead of 40.
    fn reduce_stretches(&self, b: &mut Builder, totals: Vec<Fields>, distance: i32) -> Fields {
        let upper = self.is_upper(b, distance);
        let half = totals.len() / 2;
        if half > 0 {
            let shared = (0..half).map(|k| {
                let mine = select(b, upper, &totals[k + half], &totals[k]);
                let sent = select(b, upper, &totals[k], &totals[k + half]);
                self.pair(b, &mine, &sent, distance, upper)
            });
            let shared: Vec<Fields> = shared.collect();
            let own = self.reduce_stretches(b, shared, distance * 2);
            return self.pair(b, &own, &own, distance, upper);
        }
        let only = totals.into_iter().next().unwrap_or_else(|| self.monoid.identity());
        if distance >= 32 {
            return only;
        }
        let both = self.pair(b, &only, &only, distance, upper);
        self.reduce_stretches(b, vec![both], distance * 2)
    }

    /// Whether the lane is the later one, by index, of two at a distance.
    pub(super) fn is_upper(&self, b: &mut Builder, distance: i32) -> Operand {
        let bit = b.binary(Binary::And, self.block.lane, distance);
        b.ne(bit, 0)
    }

    /// Combines the lane's value with the value of the lane at `distance`, in the order of the scan.
    pub(super) fn pair(
        &self,
        b: &mut Builder,
        mine: &[Operand],
        sent: &[Operand],
        distance: i32,
        upper: Operand,
    ) -> Fields {
        let received: Fields = sent.iter().map(|x| b.shuffle(Shuffle::Xor, *x, Operand::i32(distance))).collect();
        let (first, second) = if self.scan.reverse { (mine, &received[..]) } else { (&received[..], mine) };
        let l = select(b, upper, first, second);
        let r = select(b, upper, second, first);
        self.monoid.combine(b, &l, &r)
    }
}

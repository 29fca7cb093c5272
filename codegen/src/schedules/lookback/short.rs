//! The short form: spans stretch by stretch in a loop, with the combinations of the fast form in their order.
//!
//! The fast form has all stretches of a span in flight at once, each with its own instructions; a driver takes more than twice as long
//! to compile it. The short form has no code of its own for whole tiles: all accesses are guarded.

use super::span::Need;
use super::{LookBackKernel, Tile};
use crate::block::carry::{Fields, assign, select};
use crate::block::ring::RingStage;
use crate::build::{Builder, operands};
use crate::tile::{Operand, Reg};

/// The span up to one of its stretches.
struct Before<'a> {
    /// The state before the span.
    state: &'a [Operand],
    /// The sum of the earlier stretches.
    sum: &'a Carried,
    /// Whether there are no earlier stretches.
    is_first: Operand,
}

/// A state that a loop carries.
struct Carried(Vec<Reg>);

impl Carried {
    fn new(b: &mut Builder, fields: &[Operand]) -> Carried {
        Carried(b.vars(fields))
    }

    fn now(&self) -> Fields {
        operands(&self.0)
    }
}

impl LookBackKernel<'_> {
    /// Scans a warp's span of a tile, once the state before it is known.
    pub(super) fn scan_by_stretches(&self, b: &mut Builder, tile: &Tile, stage: Operand, slot: RingStage) -> Operand {
        let state = self.before_span(b, slot);
        let kept = b.var(Operand::bool(true));
        let sum = Carried::new(b, &self.monoid.identity());
        let count = Operand::i32(self.schedule.vectors as i32);
        b.for_(Operand::i32(0), count, 1, |b, number| {
            let stretch = if self.scan.reverse {
                let last = b.sub(count, 1);
                b.sub(last, number)
            } else {
                number
            };
            let first = b.eq(number, 0);
            let before = Before { state: &state, sum: &sum, is_first: first };
            self.scan_stretch(b, tile, stretch, stage, &before, kept);
        });
        b.arrive(self.block.empty, stage);
        if self.monoid.at_risk().is_empty() { Operand::bool(true) } else { b.all(kept.into()) }
    }

    /// Scans a stretch, given the span before it.
    fn scan_stretch(
        &self,
        b: &mut Builder,
        tile: &Tile,
        stretch: Operand,
        stage: Operand,
        before: &Before<'_>,
        kept: Reg,
    ) {
        let span = self.load_stretch(b, tile, self.block.warp, stretch, stage, Need::All);
        let mut places = self.places(b, &span, self.scan.reverse);
        let total = self.stretch_total(b, &places[0]);
        let inclusive = self.monoid.warp_scan(b, total, &self.lanes());
        let (exclusive, total) = self.exclusive_and_total(b, &inclusive);
        let [prefix, after] = [exclusive, total].map(|next| {
            let both = self.monoid.combine(b, &before.sum.now(), &next);
            select(b, before.is_first, &next, &both)
        });
        assign(b, &before.sum.0, &after);
        let state = self.monoid.apply(b, before.state, &prefix);
        let here = self.monoid.are_states(b, &state);
        let here = b.and(kept.into(), here);
        b.assign(kept, here);
        let values = self.finish_stretch(b, &span, &mut places[0], state, 0);
        let outputs = self.running_outputs(b, &span);
        self.store(b, &span, &outputs, 0, &values, true);
    }

    /// The aggregate of a span, in the first lane: that of each stretch, kept by the lane of its number, then theirs.
    pub(super) fn reduce_by_stretches(&self, b: &mut Builder, tile: &Tile, span: Operand, stage: Operand) -> Fields {
        let kept = Carried::new(b, &self.monoid.identity());
        let count = self.schedule.vectors;
        b.for_(Operand::i32(0), count, 1, |b, stretch| {
            let held = self.load_stretch(b, tile, span, stretch, stage, Need::Elements);
            let places = self.places(b, &held, self.masks_aggregates());
            let total = self.stretch_total(b, &places[0]);
            let total = self.pair_all(b, total, 32);
            let own = b.eq(self.block.lane, stretch);
            let total = select(b, own, &total, &kept.now());
            assign(b, &kept.0, &total);
        });
        self.pair_all(b, kept.now(), count)
    }

    /// The combination of the values of every `count` neighbouring lanes, a power of two.
    fn pair_all(&self, b: &mut Builder, value: Fields, count: u32) -> Fields {
        (0..count.ilog2()).map(|level| 1 << level).fold(value, |value, distance| {
            let upper = self.is_upper(b, distance);
            self.pair(b, &value, &value, distance, upper)
        })
    }
}

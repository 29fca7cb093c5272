//! The scanners: the local scan of a span, then the carry, then the outputs.

use super::span::{Need, Span};
use super::{Form, LookBackKernel, Tile};
use crate::abi::Tensor;
use crate::block::carry::{AroundStep, Fields, WarpAxis};
use crate::block::persistent::load_fields;
use crate::block::point::Point;
use crate::block::ring::RingStage;
use crate::build::{Builder, operands};
use crate::tile::{Memory, Operand, Shuffle};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Unary};

/// A place of a span that is scanned: its element and what was computed on the way.
pub(super) struct Place<'p> {
    point: Point<'p>,
    element: Fields,
}

impl LookBackKernel<'_> {
    pub(super) fn scan_role(&self, b: &mut Builder) {
        self.block.scan_tiles(b, |b, tile, at| {
            let place = self.tile(b, tile);
            let slot = self.block.slot(b, at.count.into());
            let kept = match self.form {
                Form::Fast => self.scan_tile(b, &place, at.ring.stage.into(), slot),
                Form::Short => self.scan_by_stretches(b, &place, at.ring.stage.into(), slot),
            };
            self.step_if_lost(b, at.count.into(), kept);
        });
    }

    /// Scans a tile; gives whether no state before a stretch of the warp's span is lost.
    fn scan_tile(&self, b: &mut Builder, tile: &Tile, stage: Operand, slot: RingStage) -> Operand {
        let span = self.load_span(b, tile, self.block.warp, stage, Need::All);
        b.arrive(self.block.empty, stage);
        let mut places = self.places(b, &span, self.scan.reverse);
        let prefixes = self.local_prefixes(b, &places);
        let state = self.before_span(b, slot);
        let outputs = self.running_outputs(b, &span);
        let states: Vec<Fields> = prefixes.iter().map(|prefix| self.monoid.apply(b, &state, prefix)).collect();
        let kept = self.all_states(b, &states);
        let mut values = vec![vec![]; places.len()];
        for r in self.scan.in_order(self.schedule.vectors) {
            let state = states[r as usize].clone();
            values[r as usize] = self.finish_stretch(b, &span, &mut places[r as usize], state, r);
            if tile.whole != Operand::bool(false) {
                self.store(b, &span, &outputs, r, &values[r as usize], false);
            }
        }
        let partial = b.unary(Unary::Not, tile.whole);
        b.if_(partial, |b| {
            for (r, values) in (0..).zip(&values) {
                self.store(b, &span, &outputs, r, values, true);
            }
        });
        kept
    }

    /// The state before the warp's span, once it is known.
    pub(super) fn before_span(&self, b: &mut Builder, slot: RingStage) -> Fields {
        b.wait(self.block.published, slot);
        b.wait(self.block.carried, slot);
        let slot = slot.index;
        let carry = load_fields(b, &self.shared.carry, slot);
        let index = self.span_index(b, slot, self.block.warp);
        let before = load_fields(b, &self.shared.spans, index);
        self.monoid.apply(b, &carry, &before)
    }

    /// Whether no state before a stretch is lost, in any lane.
    fn all_states(&self, b: &mut Builder, states: &[Fields]) -> Operand {
        let mut all = Operand::bool(true);
        for state in states {
            let there = self.monoid.are_states(b, state);
            all = b.and(all, there);
        }
        if all == Operand::bool(true) { all } else { b.all(all) }
    }

    /// Unless all states of the warp's span are `kept`, steps through the tile up to the span's end and stores the span's outputs.
    fn step_if_lost(&self, b: &mut Builder, count: Operand, kept: Operand) {
        if kept == Operand::bool(true) {
            return;
        }
        let lost = b.unary(Unary::Not, kept);
        b.if_(lost, |b| {
            // Another lane's number, so that no register holds the slot meanwhile.
            let count = b.shuffle(Shuffle::Index, count, Operand::i32(0));
            let slot = self.block.slot(b, count).index;
            let carry = load_fields(b, &self.shared.carry, slot);
            let lost = self.monoid.has_states(b, &carry);
            b.if_(lost, |b| self.step_span(b, &carry, slot));
        });
    }

    fn step_span(&self, b: &mut Builder, carry: &[Operand], slot: Operand) {
        // Computed in this branch, so that no register holds it meanwhile.
        let tile = b.load1(Memory::Shared(self.block.drawn_tile), slot);
        let tile = self.tile(b, tile);
        let state = b.vars(carry);
        let size = Operand::i32((self.schedule.vectors * self.stretch()) as i32);
        let first = b.mul(self.block.warp, size);
        let [first, size] = [first, size].map(|x| b.convert(Ty::I64, x));
        let first = b.add(tile.start, first);
        let end = b.add(first, size);
        let tile_end = b.add(tile.start, self.schedule.tile());
        let range = if self.scan.reverse { first..tile_end } else { tile.start..end };
        self.steps(b, tile.row).walk(b, &state, range, |b, index| self.owns(b, index, first, end));
    }

    /// Whether an index lies in the span from `first` to `end` and is one of the lane's, which has stored there before.
    fn owns(&self, b: &mut Builder, index: Operand, first: Operand, end: Operand) -> Operand {
        let (above, below) = (b.ge(index, first), b.lt(index, end));
        let inside = b.and(above, below);
        let place = b.sub(index, first);
        let place = b.convert(Ty::I32, place);
        let vector = b.binary(Binary::Div, place, self.schedule.vector);
        let lane = b.binary(Binary::And, vector, 31);
        let own = b.eq(lane, self.block.lane);
        b.and(inside, own)
    }

    /// The outputs that have the scan axis, each with the offset of the lane's first element.
    pub(super) fn running_outputs(&self, b: &mut Builder, span: &Span) -> Vec<(u32, Operand)> {
        let outputs = (0..self.stage.program.outputs.len()).filter(|k| !self.stage.is_final(*k)).map(|k| k as u32);
        outputs.map(|k| (k, span.origin(b, Tensor::Output(k)))).collect()
    }

    /// The scan's element at every place of a span, stretch by stretch; where there is none anything, or the identity
    /// if `masked`.
    pub(super) fn places<'p>(&'p self, b: &mut Builder, span: &Span, masked: bool) -> Vec<Vec<Place<'p>>> {
        let place = |b: &mut Builder, r: u32, v: u32| {
            let mut point = Point::new(&self.stage.program, Some(self.scan.axis));
            let element = span.element(b, &mut point, r, v);
            Place { point, element }
        };
        let stretches = (0..span.stretches).map(|r| (0..self.schedule.vector).map(|v| place(b, r, v)).collect());
        let mut places: Vec<Vec<Place>> = stretches.collect();
        if masked {
            self.mask(b, span, &mut places);
        }
        places
    }

    fn mask(&self, b: &mut Builder, span: &Span, places: &mut [Vec<Place>]) {
        let mut all: Vec<_> = vec![];
        for (r, stretch) in (0..).zip(places) {
            for (v, place) in (0..).zip(stretch) {
                let regs = b.vars(&place.element);
                place.element = operands(&regs);
                all.push(((r, v), regs));
            }
        }
        let identity = self.monoid.identity();
        let replace = |b: &mut Builder| {
            for ((r, v), regs) in &all {
                let exists = span.exists(b, *r, *v);
                for (reg, nothing) in regs.iter().zip(&identity) {
                    let kept = b.select(exists, Operand::Reg(*reg), *nothing);
                    b.assign(*reg, kept);
                }
            }
        };
        b.if_else(span.whole, |_| {}, replace);
    }

    /// The combination of a lane's elements in a stretch.
    pub(super) fn stretch_total(&self, b: &mut Builder, stretch: &[Place]) -> Fields {
        let elements: Vec<Fields> =
            self.scan.in_order(self.schedule.vector).map(|v| stretch[v as usize].element.clone()).collect();
        self.monoid.fold(b, &elements)
    }

    /// The combination of the span's elements before the lane's own, for every stretch.
    fn local_prefixes(&self, b: &mut Builder, places: &[Vec<Place>]) -> Vec<Fields> {
        let lanes = self.lanes();
        let mut scanned = vec![];
        for stretch in places {
            let total = self.stretch_total(b, stretch);
            scanned.push(self.monoid.warp_scan(b, total, &lanes));
        }
        let mut prefixes = vec![vec![]; places.len()];
        let mut sum: Option<Fields> = None;
        for r in self.scan.in_order(self.schedule.vectors) {
            let inclusive = &scanned[r as usize];
            let (exclusive, total) = self.exclusive_and_total(b, inclusive);
            prefixes[r as usize] = sum.as_ref().map_or(exclusive.clone(), |s| self.monoid.combine(b, s, &exclusive));
            sum = Some(sum.map_or(total.clone(), |s| self.monoid.combine(b, &s, &total)));
        }
        prefixes
    }

    /// The lanes as a time axis, in the order of the scan.
    pub(super) fn lanes(&self) -> WarpAxis {
        WarpAxis { position: self.block.lane, count: 32, stride: 1, reverse: self.scan.reverse }
    }

    /// The combination of the lanes before this one, and of all lanes, from the scanned totals of a stretch.
    pub(super) fn exclusive_and_total(&self, b: &mut Builder, inclusive: &[Operand]) -> (Fields, Fields) {
        let lanes = self.lanes();
        let exclusive = self.monoid.warp_shift(b, inclusive, &lanes);
        let last = Operand::i32(lanes.last() as i32);
        (exclusive, inclusive.iter().map(|x| b.shuffle(Shuffle::Index, *x, last)).collect())
    }

    /// The values of the outputs that follow from the states of one stretch, output by output.
    pub(super) fn finish_stretch(
        &self,
        b: &mut Builder,
        span: &Span,
        places: &mut [Place],
        state: Fields,
        r: u32,
    ) -> Vec<Fields> {
        let outputs = &self.stage.program.outputs;
        let mut values = vec![vec![Operand::i32(0); places.len()]; outputs.len()];
        let mut state = state;
        for v in self.scan.in_order(self.schedule.vector) {
            let Place { point, element } = &mut places[v as usize];
            let after = self.monoid.apply(b, &state, element);
            for (k, output) in outputs.iter().enumerate() {
                if !self.stage.is_final(k) {
                    values[k][v as usize] =
                        span.output(b, point, r, v, output.value, AroundStep { before: &state, after: &after });
                }
            }
            state = after;
        }
        values
    }

    /// Stores the values of a stretch, output by output, by vectors if the tile is whole; `singly` element by element
    /// where they exist.
    pub(super) fn store(
        &self,
        b: &mut Builder,
        span: &Span,
        outputs: &[(u32, Operand)],
        r: u32,
        values: &[Fields],
        singly: bool,
    ) {
        for (k, origin) in outputs {
            let tensor = Tensor::Output(*k);
            let memory = self.args.memory(tensor);
            let n = if singly { 1 } else { 16 / b.elem(memory).bytes().unwrap_or(16) };
            for (v, values) in (0..).step_by(n).zip(values[*k as usize].chunks(n)) {
                let guard = if singly { span.exists(b, r, v) } else { span.whole };
                let offset = span.further(b, tensor, *origin, i64::from(r * self.stretch() + v));
                b.store(memory, offset, values, Some(guard));
            }
        }
    }
}

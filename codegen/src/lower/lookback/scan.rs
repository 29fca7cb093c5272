//! The scanners: the local scan of a span, then the carry, then the outputs.

use super::span::{Need, Source, Span};
use super::{LookBackKernel, Tile};
use crate::abi::Tensor;
use crate::build::Builder;
use crate::lower::carry::{Fields, WarpAxis};
use crate::lower::persistent::load_fields;
use crate::lower::point::Point;
use crate::tile::{Operand, Shuffle, Stmt};

/// A place of a span that is scanned: its element and what was computed on the way.
struct Place<'p> {
    point: Point<'p>,
    element: Fields,
}

impl LookBackKernel<'_> {
    pub(super) fn scan_role(&self, b: &mut Builder) {
        let at = self.block.cursor(b, 0);
        b.loop_(|b| {
            let tile = self.block.next_tile(b, &at);
            let ends = b.lt(tile, Operand::i32(0));
            b.break_if(ends);
            let place = self.tile(b, tile);
            let (slot, parity) = self.block.slot(b, at.count.into());
            let (fast, slow) = self.sources(at.stage.into());
            let stage = at.stage.into();
            b.if_else(
                place.whole,
                |b| self.scan_tile(b, &place, stage, (slot, parity), &fast),
                |b| self.scan_tile(b, &place, stage, (slot, parity), &slow),
            );
            self.block.advance(b, &at);
        });
    }

    fn scan_tile(
        &self,
        b: &mut Builder,
        tile: &Tile,
        stage: Operand,
        (slot, parity): (Operand, Operand),
        source: &Source,
    ) {
        let guarded = matches!(source, Source::Global { guarded: true });
        let span = self.load_span(b, tile, self.block.warp, source, Need::All);
        b.push(Stmt::SyncWarp);
        self.block.elected(b, |b| self.block.arrive(b, self.block.empty, stage));
        let mut places = self.places(b, &span, guarded);
        let prefixes = self.local_prefixes(b, &places);
        self.block.wait(b, self.block.published, slot, parity);
        self.block.wait(b, self.block.carried, slot, parity);
        let carry = load_fields(b, &self.shared.carry, slot);
        let index = self.span_index(b, slot, self.block.warp);
        let before = load_fields(b, &self.shared.spans, index);
        let state = self.monoid.apply(b, &carry, &before);
        for r in self.in_order(self.schedule.vectors) {
            let state = self.monoid.apply(b, &state, &prefixes[r as usize]);
            self.finish_stretch(b, &span, &mut places[r as usize], state, r, guarded);
        }
    }

    fn places(&self, b: &mut Builder, span: &Span, guarded: bool) -> Vec<Vec<Place<'_>>> {
        let place = |b: &mut Builder, r: u32, v: u32| {
            let mut point = Point::new(&self.stage.program, Some(self.scan.axis));
            let element = span.element(b, &mut point, r, v, guarded);
            Place { point, element }
        };
        let stretches = (0..self.schedule.vectors).map(|r| (0..self.schedule.vector).map(|v| place(b, r, v)).collect());
        stretches.collect()
    }

    /// For every stretch, what the span's earlier elements combine to, as this lane sees it.
    fn local_prefixes(&self, b: &mut Builder, places: &[Vec<Place>]) -> Vec<Fields> {
        let lanes = WarpAxis { position: self.block.lane, count: 32, stride: 1, reverse: self.reverse() };
        let mut scanned = vec![];
        for stretch in places {
            let elements: Vec<Fields> =
                self.in_order(self.schedule.vector).map(|v| stretch[v as usize].element.clone()).collect();
            let total = self.monoid.fold(b, &elements);
            scanned.push(self.monoid.warp_scan(b, total, &lanes));
        }
        let mut prefixes = vec![vec![]; places.len()];
        let mut sum: Option<Fields> = None;
        for r in self.in_order(self.schedule.vectors) {
            let inclusive = &scanned[r as usize];
            let exclusive = self.monoid.warp_shift(b, inclusive, &lanes);
            let last = Operand::i32(lanes.last() as i32);
            let total: Fields = inclusive.iter().map(|x| b.shuffle(Shuffle::Index, *x, last)).collect();
            prefixes[r as usize] = sum.as_ref().map_or(exclusive.clone(), |s| self.monoid.combine(b, s, &exclusive));
            sum = Some(sum.map_or(total.clone(), |s| self.monoid.combine(b, &s, &total)));
        }
        prefixes
    }

    /// The states of one stretch and the outputs that follow from them.
    fn finish_stretch(&self, b: &mut Builder, span: &Span, places: &mut [Place], state: Fields, r: u32, guarded: bool) {
        let outputs = &self.stage.program.outputs;
        let mut values = vec![vec![Operand::i32(0); places.len()]; outputs.len()];
        let mut state = state;
        for v in self.in_order(self.schedule.vector) {
            let Place { point, element } = &mut places[v as usize];
            let after = self.monoid.apply(b, &state, element);
            for (k, output) in outputs.iter().enumerate() {
                if !self.stage.is_final(k) {
                    values[k][v as usize] = span.output(b, point, (r, v), output.value, (&state, &after));
                }
            }
            state = after;
        }
        for (k, values) in values.iter().enumerate() {
            if !self.stage.is_final(k) {
                self.store(b, span, k as u32, r, values, guarded);
            }
        }
    }

    fn store(&self, b: &mut Builder, span: &Span, output: u32, r: u32, values: &[Operand], guarded: bool) {
        let origin = span.origin(b, Tensor::Output(output));
        let memory = self.pointer(Tensor::Output(output));
        let elem = b.elem(memory);
        let n = if guarded { 1 } else { values.len().min(16 / elem.bytes().unwrap_or(16)) };
        for (k, part) in values.chunks(n).enumerate() {
            let v = (k * n) as u32;
            let guard = guarded.then(|| span.exists(b, r, v));
            let offset = span.further(b, Tensor::Output(output), origin, i64::from(r * self.stretch() + v));
            b.store(memory, offset, part, guard);
        }
    }
}

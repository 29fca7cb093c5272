//! The look-ahead warp: folds other tiles' aggregates onto the block's running carry.

use super::LookBackKernel;
use crate::build::Builder;
use crate::lower::carry::{Fields, assign, from_words, select};
use crate::lower::persistent::{load_fields, store_fields};
use crate::schedule::Fold;
use crate::tile::{Memory, Operand, PollEntry, Reg, Shuffle, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

/// What the look-ahead warp carries from tile to tile.
struct Carry {
    /// The state before tile `next` of the current row (`i32` tile number).
    state: Vec<Reg>,
    next: Reg,
    /// The current row, `i32`; −1 at first.
    row: Reg,
}

/// One window of messages being polled: `window` chunks of 32 tiles.
struct Window {
    /// First tile, `i32`.
    first: Operand,
    /// The tile whose carry is wanted, `i32`.
    tile: Operand,
    /// Chunks folded so far, `i32`.
    folded: Reg,
    /// Per chunk, this lane's message.
    entries: Vec<PollEntry>,
    tag: Operand,
}

impl LookBackKernel<'_> {
    pub(super) fn look_ahead_role(&self, b: &mut Builder) {
        let at = self.block.cursor(b, 0);
        let carry = self.carry(b);
        let tag = self.block.tag(b);
        b.loop_(|b| {
            let (slot, parity) = self.block.slot(b, at.count.into());
            self.block.wait(b, self.block.drawn, slot, parity);
            let tile = b.load1(Memory::Shared(self.block.drawn_tile), slot);
            let ends = b.lt(tile, Operand::i32(0));
            b.break_if(ends);
            self.enter_row(b, &carry, tile);
            let state = self.fold_until(b, &carry, tile, tag);
            self.block.elected(b, |b| {
                let state: Fields = state.iter().map(|r| Operand::Reg(*r)).collect();
                store_fields(b, &self.shared.carry, slot, &state);
            });
            self.take_own(b, &carry, &state, tile, (slot, parity));
            self.block.arrive_warp(b, self.block.carried, slot);
            self.block.advance(b, &at);
        });
    }

    fn carry(&self, b: &mut Builder) -> Carry {
        let state = self.monoid.identity_state().into_iter().map(|x| b.var(x)).collect();
        let [next, row] = [0, -1].map(|v| b.var(Operand::i32(v)));
        Carry { state, next, row }
    }

    /// At the first tile of another row the carry is the row's initial state.
    fn enter_row(&self, b: &mut Builder, carry: &Carry, tile: Operand) {
        let row = b.binary(Binary::Div, tile, self.row_tiles);
        let other = b.ne(row, carry.row.into());
        b.if_(other, |b| {
            b.assign(carry.row, row);
            let first = b.mul(row, self.row_tiles);
            b.assign(carry.next, first);
            let row = b.convert(Ty::I64, row);
            let initial = self.initial(b, row);
            assign(b, &carry.state, &initial);
        });
    }

    /// The state before `tile`. The carry moves up to the last complete block of 32 tiles.
    fn fold_until(&self, b: &mut Builder, carry: &Carry, tile: Operand, tag: Operand) -> Vec<Reg> {
        let state: Vec<Reg> = carry.state.iter().map(|r| b.var((*r).into())).collect();
        let step = Operand::i32(32 * self.schedule.window as i32);
        let start = b.var(carry.next.into());
        b.for_(start.into(), tile, step, |b, first| {
            let window = self.window(b, first, tile, tag);
            let chunks = b.sub(tile, first);
            let chunks = b.add(chunks, Operand::i32(31));
            let chunks = b.binary(Binary::Shr, chunks, Operand::i32(5));
            let chunks = b.binary(Binary::Min, chunks, Operand::i32(self.schedule.window as i32));
            b.loop_(|b| {
                let (messages, entries) = (self.block.messages, window.entries.clone());
                b.push(Stmt::Poll { messages, entries, tag: window.tag });
                for chunk in 0..self.schedule.window {
                    self.fold_if_ready(b, carry, &state, &window, chunk, chunks);
                }
                let done = b.eq(window.folded.into(), chunks);
                b.break_if(done);
            });
        });
        state
    }

    /// Lane l polls tiles first + 32·chunk + l; those that are not wanted count as present.
    fn window(&self, b: &mut Builder, first: Operand, tile: Operand, tag: Operand) -> Window {
        let own = b.add(first, self.block.lane);
        let base = self.message(b, own);
        let entries = (0..self.schedule.window).map(|chunk| {
            let place = b.add(own, Operand::i32(32 * chunk as i32));
            let wanted = b.lt(place, tile);
            let missing = b.sub(tag, Operand::u32(1));
            let start = b.select(wanted, missing, tag);
            let index = b.add(base, Operand::i64(32 * i64::from(chunk) * self.message_step()));
            let values = (0..self.words).map(|_| b.var(Operand::u32(0))).collect();
            let tags = (0..self.words).map(|_| b.var(start)).collect();
            PollEntry { index, values, tags }
        });
        let entries = entries.collect();
        let folded = b.var(Operand::i32(0));
        Window { first, tile, folded, entries, tag }
    }

    /// Folds a chunk when it is the next one and all its messages are there.
    fn fold_if_ready(
        &self,
        b: &mut Builder,
        carry: &Carry,
        state: &[Reg],
        window: &Window,
        chunk: u32,
        chunks: Operand,
    ) {
        let next = b.eq(window.folded.into(), Operand::i32(chunk as i32));
        let exists = b.binary(Binary::Gt, chunks, Operand::i32(chunk as i32));
        let due = b.and(next, exists);
        b.if_(due, |b| {
            let entry = &window.entries[chunk as usize];
            let mut present = Operand::bool(true);
            for tag in &entry.tags {
                let here = b.eq((*tag).into(), window.tag);
                present = b.and(present, here);
            }
            let complete = b.all(present);
            b.if_(complete, |b| {
                b.assign(window.folded, Operand::i32(chunk as i32 + 1));
                let place = b.add(window.first, Operand::i32(32 * chunk as i32));
                self.fold_chunk(b, carry, state, entry, place, window.tile);
            });
        });
    }

    fn fold_chunk(
        &self,
        b: &mut Builder,
        carry: &Carry,
        state: &[Reg],
        entry: &PollEntry,
        first: Operand,
        tile: Operand,
    ) {
        let words: Fields = entry.values.iter().map(|r| Operand::Reg(*r)).collect();
        let aggregate = from_words(b, &self.monoid.types(), &words);
        let left = b.sub(tile, first);
        let count = b.binary(Binary::Min, left, Operand::i32(32));
        let exists = b.lt(self.block.lane, count);
        let aggregate = select(b, exists, &aggregate, &self.monoid.identity());
        if self.schedule.fold == Fold::Strict {
            return self.fold_strictly(b, state, &aggregate, count);
        }
        let inclusive = self.monoid.warp_scan(b, aggregate, &self.all_lanes());
        let last = b.sub(count, Operand::i32(1));
        let block: Fields = inclusive.iter().map(|x| b.shuffle(Shuffle::Index, *x, last)).collect();
        self.step(b, state, &block);
        let full = b.eq(count, Operand::i32(32));
        b.if_(full, |b| {
            let now: Fields = state.iter().map(|r| Operand::Reg(*r)).collect();
            assign(b, &carry.state, &now);
            let next = b.add(first, Operand::i32(32));
            b.assign(carry.next, next);
        });
    }

    /// One tile after the other, left to right.
    fn fold_strictly(&self, b: &mut Builder, state: &[Reg], aggregate: &[Operand], count: Operand) {
        b.for_(Operand::i32(0), count, Operand::i32(1), |b, lane| {
            let next: Fields = aggregate.iter().map(|x| b.shuffle(Shuffle::Index, *x, lane)).collect();
            self.step(b, state, &next);
        });
    }

    fn step(&self, b: &mut Builder, state: &[Reg], element: &[Operand]) {
        let now: Fields = state.iter().map(|r| Operand::Reg(*r)).collect();
        let next = self.monoid.apply(b, &now, element);
        assign(b, state, &next);
    }

    /// What follows from the block's own tile: the carry of a strict fold, and after a row's last tile its final state.
    /// Before the carry is passed on, for from then on the slot may be used again.
    fn take_own(
        &self,
        b: &mut Builder,
        carry: &Carry,
        state: &[Reg],
        tile: Operand,
        (slot, parity): (Operand, Operand),
    ) {
        let after = b.add(tile, Operand::i32(1));
        let state: Fields = state.iter().map(|r| Operand::Reg(*r)).collect();
        if self.schedule.fold == Fold::Strict {
            let next = self.apply_own(b, &state, (slot, parity));
            assign(b, &carry.state, &next);
            b.assign(carry.next, after);
        }
        if self.has_finals() {
            let place = b.binary(Binary::Rem, after, self.row_tiles);
            let last = b.eq(place, Operand::i32(0));
            b.if_(last, |b| {
                let next = self.apply_own(b, &state, (slot, parity));
                let row = b.convert(Ty::I64, carry.row.into());
                self.block.elected(b, |b| self.store_finals(b, row, &next));
            });
        }
    }

    /// The state after the block's own tile, once its aggregate is known.
    fn apply_own(&self, b: &mut Builder, state: &[Operand], (slot, parity): (Operand, Operand)) -> Fields {
        self.block.wait(b, self.block.published, slot, parity);
        let own = load_fields(b, &self.shared.totals, slot);
        self.monoid.apply(b, state, &own)
    }
}

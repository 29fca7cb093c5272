//! The look-ahead warp: folds other tiles' aggregates onto the block's running carry.

use super::LookBackKernel;
use crate::block::carry::{Fields, assign, from_words, select};
use crate::block::messages::{are_present, awaited};
use crate::block::persistent::{load_fields, store_fields};
use crate::block::ring::RingStage;
use crate::build::{Builder, operands};
use crate::schedules::Fold;
use crate::tile::{Memory, Operand, PollEntry, Reg, Shuffle, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Unary};

/// The carry of the look-ahead warp from tile to tile.
struct Carry {
    /// The state before tile `next` of the current row (`i32` tile number).
    state: Vec<Reg>,
    next: Reg,
    /// The current row, `i32`; −1 at first.
    row: Reg,
}

/// One window of messages being polled: up to `window` chunks of 32 tiles. The first of them is folded when it is
/// complete; then the others move up, so that one copy of the fold serves all.
struct Window {
    /// First tile of the next chunk, `i32`.
    first: Reg,
    /// The end of the window, `i32`.
    end: Operand,
    /// The tile whose carry is wanted, `i32`.
    tile: Operand,
    /// This lane's message of the next chunk, `i64`.
    message: Reg,
    /// This lane's message of each chunk, as far as it has come.
    chunks: Vec<PollEntry>,
    tag: Operand,
}

impl LookBackKernel<'_> {
    pub(super) fn look_ahead_role(&self, b: &mut Builder) {
        let at = self.block.cursor(b, 0);
        let carry = self.carry(b);
        let tag = self.block.tag(b);
        b.loop_(|b| {
            let slot = self.block.slot(b, at.count.into());
            b.wait(self.block.drawn, slot);
            let tile = b.load1(Memory::Shared(self.block.drawn_tile), slot.index);
            let ends = b.lt(tile, 0);
            b.break_if(ends);
            self.enter_row(b, &carry, tile);
            let state = self.fold_until(b, &carry, tile, tag);
            self.block.elected(b, |b| {
                let state = operands(&state);
                store_fields(b, &self.shared.carry, slot.index, &state);
            });
            self.take_own(b, &carry, &state, tile, slot);
            b.arrive(self.block.carried, slot.index);
            self.block.advance(b, &at);
        });
    }

    fn carry(&self, b: &mut Builder) -> Carry {
        let state = b.vars(&self.monoid.identity_state());
        let [next, row] = [0, -1].map(|v| b.var(Operand::i32(v)));
        Carry { state, next, row }
    }

    /// At the first tile of another row the carry is the row's initial state.
    fn enter_row(&self, b: &mut Builder, carry: &Carry, tile: Operand) {
        let (row, _) = self.place(b, tile);
        let other = b.ne(row, carry.row);
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
            let end = b.add(first, step);
            let end = b.binary(Binary::Min, end, tile);
            let window = self.window(b, first, end, tile, tag);
            b.loop_(|b| {
                self.poll(b, &window);
                self.fold_ready(b, carry, &state, &window);
                let done = b.ge(window.first.into(), end);
                b.break_if(done);
            });
        });
        state
    }

    /// Lane l polls tiles first + 32·chunk + l; those that are not wanted count as present.
    fn window(&self, b: &mut Builder, first: Operand, end: Operand, tile: Operand, tag: Operand) -> Window {
        let own = b.add(first, self.block.lane);
        let message = self.message(b, own);
        let chunks = (0..self.schedule.window).map(|chunk| {
            let place = b.add(own, 32 * chunk as i32);
            let wanted = b.lt(place, tile);
            // Its index is set when it is polled.
            awaited(b, Operand::i64(0), self.words, wanted, tag)
        });
        let chunks = chunks.collect();
        Window { first: b.var(first), end, tile, message: b.var(message), chunks, tag }
    }

    /// Message words from one chunk to the next.
    fn chunk_step(&self) -> i64 {
        32 * self.message_step()
    }

    /// Loads the messages that are missing.
    fn poll(&self, b: &mut Builder, window: &Window) {
        let entries = (0..).zip(&window.chunks).map(|(k, chunk)| {
            let index = b.add(window.message.into(), k * self.chunk_step());
            PollEntry { index, ..chunk.clone() }
        });
        let entries = entries.collect();
        b.push(Stmt::Poll { messages: self.block.messages, entries, tag: window.tag });
    }

    /// Folds chunks in their order as long as all messages of the next one are there.
    fn fold_ready(&self, b: &mut Builder, carry: &Carry, state: &[Reg], window: &Window) {
        let Some(next) = window.chunks.first() else { return };
        b.loop_(|b| {
            let exists = b.lt(window.first.into(), window.end);
            let present = are_present(b, exists, &next.tags, window.tag);
            let complete = b.all(present);
            let waits = b.unary(Unary::Not, complete);
            b.break_if(waits);
            self.fold_chunk(b, carry, state, &next.values, window.first.into(), window.tile);
            self.move_up(b, window);
        });
    }

    /// Goes on to the next chunk of the window; the last place gets a chunk that is not wanted.
    fn move_up(&self, b: &mut Builder, window: &Window) {
        for pair in window.chunks.windows(2) {
            let [to, from] = [&pair[0], &pair[1]].map(|chunk| chunk.values.iter().chain(&chunk.tags));
            to.zip(from).for_each(|(to, from)| b.assign(*to, (*from).into()));
        }
        if let Some(last) = window.chunks.last() {
            last.tags.iter().for_each(|to| b.assign(*to, window.tag));
        }
        let first = b.add(window.first.into(), 32);
        b.assign(window.first, first);
        let message = b.add(window.message.into(), self.chunk_step());
        b.assign(window.message, message);
    }

    fn fold_chunk(&self, b: &mut Builder, carry: &Carry, state: &[Reg], words: &[Reg], first: Operand, tile: Operand) {
        let words = operands(words);
        let aggregate = from_words(b, &self.monoid.types(), &words);
        let left = b.sub(tile, first);
        let count = b.binary(Binary::Min, left, 32);
        let exists = b.lt(self.block.lane, count);
        let aggregate = select(b, exists, &aggregate, &self.monoid.identity());
        let before: Vec<Reg> = state.iter().map(|r| b.var((*r).into())).collect();
        if self.schedule.fold == Fold::Strict {
            self.fold_strictly(b, state, &aggregate, count);
            return self.step_if_lost_between(b, carry, &before, state, first, count);
        }
        let inclusive = self.monoid.warp_scan(b, aggregate, &self.all_lanes());
        let last = b.sub(count, 1);
        let block: Fields = inclusive.iter().map(|x| b.shuffle(Shuffle::Index, *x, last)).collect();
        self.step(b, state, &block);
        self.step_if_lost_between(b, carry, &before, state, first, count);
        let full = b.eq(count, 32);
        b.if_(full, |b| {
            let now = operands(state);
            assign(b, &carry.state, &now);
            let next = b.add(first, 32);
            b.assign(carry.next, next);
        });
    }

    /// One tile after the other, left to right.
    fn fold_strictly(&self, b: &mut Builder, state: &[Reg], aggregate: &[Operand], count: Operand) {
        b.for_(Operand::i32(0), count, 1, |b, lane| {
            let next: Fields = aggregate.iter().map(|x| b.shuffle(Shuffle::Index, *x, lane)).collect();
            self.step(b, state, &next);
        });
    }

    /// Where the state behind `count` tiles from `first` on is lost, steps through them from the state before.
    fn step_if_lost_between(
        &self,
        b: &mut Builder,
        carry: &Carry,
        before: &[Reg],
        state: &[Reg],
        first: Operand,
        count: Operand,
    ) {
        let [old, new] = [before, state].map(operands);
        let lost = self.monoid.loses(b, &old, &new);
        b.if_(lost, |b| {
            assign(b, state, &old);
            let row_first = b.mul(carry.row.into(), self.row_tiles);
            let order = b.sub(first, row_first);
            let order = if self.scan.reverse {
                let end = b.add(order, count);
                b.sub(self.row_tiles, end)
            } else {
                order
            };
            let [order, count, row] = [order, count, carry.row.into()].map(|x| b.convert(Ty::I64, x));
            let tile = Operand::i64(i64::from(self.schedule.tile()));
            let [from, len] = [order, count].map(|tiles| b.mul(tiles, tile));
            let end = b.add(from, len);
            self.steps(b, row).walk(b, state, from..end, |_, _| Operand::bool(false));
        });
    }

    fn step(&self, b: &mut Builder, state: &[Reg], element: &[Operand]) {
        let now = operands(state);
        let next = self.monoid.apply(b, &now, element);
        assign(b, state, &next);
    }

    /// Takes the results of the block's own tile: the carry of a strict fold, and after a row's last tile its final state. This comes
    /// before the carry is passed on: the slot may be used again afterwards.
    fn take_own(&self, b: &mut Builder, carry: &Carry, state: &[Reg], tile: Operand, slot: RingStage) {
        let after = b.add(tile, 1);
        let state = operands(state);
        if self.schedule.fold == Fold::Strict {
            let next = self.apply_own(b, carry, &state, tile, slot);
            assign(b, &carry.state, &next);
            b.assign(carry.next, after);
        }
        if self.stage.has_finals() {
            let next_row = b.add(carry.row.into(), 1);
            let end = b.mul(next_row, self.row_tiles);
            let last = b.eq(after, end);
            b.if_(last, |b| {
                let next = self.apply_own(b, carry, &state, tile, slot);
                let row = b.convert(Ty::I64, carry.row.into());
                self.block.elected(b, |b| self.store_finals(b, row, &next));
            });
        }
    }

    /// The state after the block's own tile, once its aggregate is known.
    fn apply_own(&self, b: &mut Builder, carry: &Carry, state: &[Operand], tile: Operand, slot: RingStage) -> Fields {
        b.wait(self.block.published, slot);
        let own = load_fields(b, &self.shared.totals, slot.index);
        let next = self.monoid.apply(b, state, &own);
        if self.monoid.at_risk().is_empty() {
            return next;
        }
        let [before, after] = [state, &next].map(|state| b.vars(state));
        self.step_if_lost_between(b, carry, &before, &after, tile, Operand::i32(1));
        operands(&after)
    }
}

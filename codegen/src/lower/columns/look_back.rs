//! The look-back warps: the state before a tile, one column per lane.

use super::cells::{Cells, Place};
use super::ring::{LOOKERS, PRODUCERS, Ring, Tile};
use crate::build::Builder;
use crate::lower::carry::{Fields, assign, from_words, to_words, words};
use crate::lower::persistent::{load_fields, store_fields};
use crate::tile::{Memory, Operand, PollEntry, Reg, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

/// Messages of a column that are being polled.
struct Wanted {
    entries: Vec<PollEntry>,
    tag: Operand,
}

impl Ring<'_> {
    /// Warp n takes the block's tiles n, n + [`LOOKERS`], …
    pub(super) fn look_back_role(&self, b: &mut Builder) {
        let schedule = self.layout.schedule;
        let earlier = schedule.warps + schedule.reduce_warps + PRODUCERS + 1;
        let first = b.sub(self.block.warp, Operand::i32(earlier as i32));
        let count = b.var(first);
        let tag = self.block.tag(b);
        b.loop_(|b| {
            let (slot, parity) = self.block.slot(b, count.into());
            self.block.wait(b, self.block.published, slot, parity);
            let tile = b.load1(Memory::Shared(self.block.published_tile), slot);
            let ends = b.lt(tile, Operand::i32(0));
            b.break_if(ends);
            let place = self.tile(b, tile);
            self.each_column(b, |b, column| self.settle(b, &place, slot, column, tag));
            b.push(Stmt::SyncWarp);
            self.block.elected(b, |b| self.block.arrive(b, self.block.carried, slot));
            let next = b.add(count.into(), Operand::i32(LOOKERS as i32));
            b.assign(count, next);
        });
    }

    /// The state of one column before a tile, and what its group's last tile publishes.
    fn settle(&self, b: &mut Builder, tile: &Tile, slot: Operand, column: Operand, tag: Operand) {
        let schedule = self.layout.schedule;
        let size = Operand::i32(schedule.group as i32);
        let group = b.binary(Binary::Div, tile.order, size);
        let within = b.binary(Binary::Rem, tile.order, size);
        let ends = b.eq(within, Operand::i32(schedule.group as i32 - 1));
        let base = self.slot_columns(b, slot);
        let index = b.add(base, column);
        let own = load_fields(b, &self.totals, index);
        let earlier = self.earlier_tiles(b, tile, within, column, tag);
        let total: Fields = earlier.as_ref().map_or(own.clone(), |e| self.layout.monoid.combine(b, e, &own));
        let messages = self.block.messages;
        if schedule.group > 1 {
            let values = to_words(b, &total);
            let index = self.group_message(b, tile.scan, group, column);
            b.push(Stmt::Publish { messages, index, values, tag, guard: Some(ends) });
        }
        let before = self.state_before(b, tile, group, column, tag);
        let state = earlier.map_or(before.clone(), |e| self.layout.monoid.apply(b, &before, &e));
        store_fields(b, &self.carry, index, &state);
        let after = self.layout.monoid.apply(b, &before, &total);
        let values = to_words(b, &after);
        let next = b.add(group, Operand::i32(1));
        let index = self.state_message(b, tile.scan, next, column);
        b.push(Stmt::Publish { messages, index, values, tag, guard: Some(ends) });
        if self.layout.has_finals() {
            let count = b.add(tile.order, Operand::i32(1));
            let last = b.eq(count, self.time_tiles);
            b.if_(last, |b| self.column(b, tile, column).store_finals(b, 0, &after));
        }
    }

    /// The aggregate of the group's tiles before this one; `None` when groups are single tiles.
    fn earlier_tiles(
        &self,
        b: &mut Builder,
        tile: &Tile,
        within: Operand,
        column: Operand,
        tag: Operand,
    ) -> Option<Fields> {
        let others = self.layout.schedule.group - 1;
        if others == 0 {
            return None;
        }
        let start = b.sub(tile.order, within);
        let base = self.aggregate_message(b, tile.scan, start, column);
        let entries = (0..others).map(|m| {
            let wanted = b.binary(Binary::Gt, within, Operand::i32(m as i32));
            let index = b.add(base, Operand::i64(i64::from(m) * self.message_step()));
            entry(b, index, self.words, wanted, tag)
        });
        let wanted = Wanted { entries: entries.collect(), tag };
        self.poll_until(b, &wanted, |b, wanted| {
            wanted.entries.iter().fold(Operand::bool(true), |all, e| {
                let here = present(b, e, wanted.tag);
                b.and(all, here)
            })
        });
        let types = self.layout.monoid.types();
        let sum: Vec<Reg> = self.layout.monoid.identity().into_iter().map(|x| b.var(x)).collect();
        for (m, entry) in wanted.entries.iter().enumerate() {
            let wanted = b.binary(Binary::Gt, within, Operand::i32(m as i32));
            b.if_(wanted, |b| {
                let next = from_words(b, &types, &values(entry));
                let now: Fields = sum.iter().map(|r| Operand::Reg(*r)).collect();
                let next = if m == 0 { next } else { self.layout.monoid.combine(b, &now, &next) };
                assign(b, &sum, &next);
            });
        }
        Some(sum.into_iter().map(Operand::Reg).collect())
    }

    /// The state before a group: that before some earlier group, then the aggregates of the groups between.
    fn state_before(&self, b: &mut Builder, tile: &Tile, group: Operand, column: Operand, tag: Operand) -> Fields {
        let initial = self.initial(b, tile, column);
        let state: Vec<Reg> = initial.iter().map(|x| b.var(*x)).collect();
        let later = b.binary(Binary::Gt, group, Operand::i32(0));
        b.if_(later, |b| self.resume(b, tile, group, column, (tag, &initial, &state)));
        state.into_iter().map(Operand::Reg).collect()
    }

    fn resume(
        &self,
        b: &mut Builder,
        tile: &Tile,
        group: Operand,
        column: Operand,
        (tag, initial, state): (Operand, &[Operand], &[Reg]),
    ) {
        let window = self.layout.schedule.window as usize;
        let state_types = self.layout.monoid.state_types();
        let (mut aggregates, mut starts) = (vec![], vec![]);
        let aggregate_base = self.group_message(b, tile.scan, group, column);
        let state_base = self.state_message(b, tile.scan, group, column);
        for m in 0..window {
            let before = b.sub(group, Operand::i32(m as i32 + 1));
            let exists = b.ge(before, Operand::i32(0));
            let back = Operand::i64((m as i64 + 1) * self.message_step());
            let index = b.sub(aggregate_base, back);
            aggregates.push(entry(b, index, self.words, exists, tag));
            let later = b.binary(Binary::Gt, before, Operand::i32(0));
            let index = b.sub(state_base, back);
            let start = entry(b, index, words(&state_types), later, tag);
            let known = to_words(b, initial);
            for (reg, word) in start.values.iter().zip(known) {
                b.assign(*reg, word);
            }
            starts.push(start);
        }
        let chosen = b.var(Operand::i32(0));
        let entries = aggregates.into_iter().chain(starts).collect();
        let wanted = Wanted { entries, tag };
        self.poll_until(b, &wanted, |b, wanted| choose(b, wanted, window, chosen));
        let types = self.layout.monoid.types();
        for m in (0..window).rev() {
            let starts = b.eq(chosen.into(), Operand::i32(m as i32));
            b.if_(starts, |b| {
                let known = from_words(b, &state_types, &values(&wanted.entries[window + m]));
                assign(b, state, &known);
            });
            let follows = b.ge(chosen.into(), Operand::i32(m as i32));
            b.if_(follows, |b| {
                let element = from_words(b, &types, &values(&wanted.entries[m]));
                let now: Fields = state.iter().map(|r| Operand::Reg(*r)).collect();
                let next = self.layout.monoid.apply(b, &now, &element);
                assign(b, state, &next);
            });
        }
    }

    /// Polls until the condition holds.
    fn poll_until(
        &self,
        b: &mut Builder,
        wanted: &Wanted,
        mut condition: impl FnMut(&mut Builder, &Wanted) -> Operand,
    ) {
        b.loop_(|b| {
            let (messages, entries) = (self.block.messages, wanted.entries.clone());
            b.push(Stmt::Poll { messages, entries, tag: wanted.tag });
            let done = condition(b, wanted);
            b.break_if(done);
        });
    }

    /// The state of a column before the first tile of its scan.
    fn initial(&self, b: &mut Builder, tile: &Tile, column: Operand) -> Fields {
        let cells = self.column(b, tile, column);
        self.layout.initial(b, &cells, 0)
    }

    /// One column of a tile without its rows.
    fn column(&self, b: &mut Builder, tile: &Tile, column: Operand) -> Cells<'_> {
        let wide = b.convert(Ty::I64, column);
        let first = b.add(tile.column, wide);
        let place = Place { time: Operand::i64(0), column: first, outer: tile.outer.clone() };
        Cells::without_rows(b, self.layout, place, 1)
    }
}

/// A message to be polled; one that is not wanted counts as present.
fn entry(b: &mut Builder, index: Operand, words: u32, wanted: Operand, tag: Operand) -> PollEntry {
    let missing = b.sub(tag, Operand::u32(1));
    let start = b.select(wanted, missing, tag);
    let values = (0..words).map(|_| b.var(Operand::u32(0))).collect();
    let tags = (0..words).map(|_| b.var(start)).collect();
    PollEntry { index, values, tags }
}

fn values(entry: &PollEntry) -> Fields {
    entry.values.iter().map(|r| Operand::Reg(*r)).collect()
}

fn present(b: &mut Builder, entry: &PollEntry, tag: Operand) -> Operand {
    entry.tags.iter().fold(Operand::bool(true), |all, own| {
        let here = b.eq((*own).into(), tag);
        b.and(all, here)
    })
}

/// Looks for the nearest known state from which all aggregates are there; remembers it in `chosen`.
fn choose(b: &mut Builder, wanted: &Wanted, window: usize, chosen: Reg) -> Operand {
    let (mut reachable, mut found) = (Operand::bool(true), Operand::bool(false));
    for m in 0..window {
        let aggregate = present(b, &wanted.entries[m], wanted.tag);
        reachable = b.and(reachable, aggregate);
        let state = present(b, &wanted.entries[window + m], wanted.tag);
        let usable = b.and(reachable, state);
        let already = b.unary(oplus_dsl::ir::Unary::Not, found);
        let first = b.and(usable, already);
        let number = b.select(first, Operand::i32(m as i32), chosen.into());
        b.assign(chosen, number);
        found = b.binary(Binary::Or, found, usable);
    }
    found
}

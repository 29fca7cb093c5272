//! The look-back warps: the state before a tile, one column per lane.

use super::cells::{Cells, Place};
use super::ring::{LOOKERS, PRODUCERS, Ring, Tile};
use crate::block::carry::{Fields, assign, from_words, to_words, words};
use crate::block::messages::{are_present, awaited};
use crate::block::persistent::{load_fields, store_fields};
use crate::build::{Builder, operands};
use crate::tile::{Memory, Operand, PollEntry, Reg, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Unary};

/// The position of a tile in its scan.
struct GroupPosition {
    /// Its group, and its number within; `i32`.
    group: Operand,
    within: Operand,
    /// Whether it is the last of its group, and the last of the scan.
    ends: Operand,
    last: Operand,
    /// Whether the warp has to wait for the tile's own aggregate.
    follows: Operand,
    tag: Operand,
}

/// A column of the tile of a slot, `i32`.
struct Column {
    slot: Operand,
    column: Operand,
}

/// The messages of a column that lead to the state before a tile.
struct Wanted {
    /// Aggregates of the group's earlier tiles.
    earlier: Vec<PollEntry>,
    /// Aggregates of the groups before, nearest first, and the state before each of them.
    aggregates: Vec<PollEntry>,
    starts: Vec<PollEntry>,
    tag: Operand,
}

impl Ring<'_> {
    /// Warp n takes the block's tiles n, n + [`LOOKERS`], … It looks while a tile is being loaded.
    pub(super) fn look_back_role(&self, b: &mut Builder) {
        let schedule = self.layout.schedule;
        let earlier = schedule.warps + schedule.reduce_warps + PRODUCERS + 1;
        let first = b.sub(self.block.warp, earlier);
        let count = b.var(first);
        let tag = self.block.tag(b);
        b.loop_(|b| {
            let slot = self.block.slot(b, count.into());
            b.wait(self.block.drawn, slot);
            let tile = b.load1(Memory::Shared(self.block.drawn_tile), slot.index);
            let ends = b.lt(tile, 0);
            b.break_if(ends);
            let place = self.tile(b, tile);
            let position = self.position(b, &place, tag);
            // Before the carry is passed on, for from then on the slot may be used again.
            b.if_(position.follows, |b| b.wait(self.block.published, slot));
            self.each_column(b, |b, column| self.settle(b, &place, &position, slot.index, column));
            b.arrive(self.block.carried, slot.index);
            let next = b.add(count.into(), LOOKERS);
            b.assign(count, next);
        });
    }

    fn position(&self, b: &mut Builder, tile: &Tile, tag: Operand) -> GroupPosition {
        let size = Operand::i32(self.layout.schedule.group as i32);
        let [group, within] = b.div_rem(tile.order, size);
        let ends = b.eq(within, self.layout.schedule.group as i32 - 1);
        let count = b.add(tile.order, 1);
        let last = b.eq(count, self.time_tiles);
        let follows = if self.layout.stage.has_finals() { b.binary(Binary::Or, ends, last) } else { ends };
        GroupPosition { group, within, ends, last, follows, tag }
    }

    /// The state of one column before a tile, and what follows from the tile's own aggregate.
    fn settle(&self, b: &mut Builder, tile: &Tile, position: &GroupPosition, slot: Operand, column: Operand) {
        let base = self.slot_columns(b, slot);
        let index = b.add(base, column);
        let initial = self.initial(b, tile, column);
        let wanted = self.wanted(b, tile, position, column, &initial);
        // All are polled together: what is wanted second has often come when the first has.
        self.poll_until(b, wanted.all(), position.tag, |b| {
            wanted.earlier.iter().fold(Operand::bool(true), |all, e| {
                let here = present(b, e, position.tag);
                b.and(all, here)
            })
        });
        let earlier = self.fold_earlier(b, position, &wanted);
        if self.layout.schedule.group > 1 {
            b.if_(position.ends, |b| {
                let total = self.total(b, earlier.as_ref(), index);
                let message = self.group_message(b, tile.scan, position.group, column);
                self.publish(b, message, &total, position);
            });
        }
        let place = Column { slot, column };
        let before = self.state_before(b, position, &initial, &wanted, &place);
        let state = earlier.as_ref().map_or(before.clone(), |e| {
            let state = self.layout.monoid.apply(b, &before, e);
            self.step_if_lost_between(b, &place, &before, state, |b, tile| (self.group_start(b, tile), tile.order))
        });
        store_fields(b, &self.carry, index, &state);
        b.if_(position.follows, |b| {
            let total = self.total(b, earlier.as_ref(), index);
            let after = self.layout.monoid.apply(b, &before, &total);
            let after = self.step_if_lost_between(b, &place, &before, after, |b, tile| {
                (self.group_start(b, tile), b.add(tile.order, 1))
            });
            let next = b.add(position.group, 1);
            let message = self.state_message(b, tile.scan, next, column);
            self.publish(b, message, &after, position);
            if self.layout.stage.has_finals() {
                b.if_(position.last, |b| self.column(b, tile, column).store_finals(b, 0, &after));
            }
        });
    }

    /// The first tile of a tile's group, `i32`.
    fn group_start(&self, b: &mut Builder, tile: &Tile) -> Operand {
        let within = b.binary(Binary::Rem, tile.order, self.layout.schedule.group);
        b.sub(tile.order, within)
    }

    /// The state `after` that tiles give of the state `before` them; where that is lost, from single steps. The tiles are those from the
    /// first number of the range up to the second, in the order of the scan.
    fn step_if_lost_between(
        &self,
        b: &mut Builder,
        column: &Column,
        before: &[Operand],
        after: Fields,
        range: impl FnOnce(&mut Builder, &Tile) -> (Operand, Operand),
    ) -> Fields {
        let lost = self.layout.monoid.loses(b, before, &after);
        if lost == Operand::bool(false) {
            return after;
        }
        let after = b.vars(&after);
        b.if_(lost, |b| {
            assign(b, &after, before);
            let tile = self.drawn_tile(b, column.slot);
            let (first, end) = range(b, &tile);
            let end = b.binary(Binary::Min, end, self.time_tiles);
            let (first, end) = if self.layout.scan.reverse {
                (b.sub(self.time_tiles, end), b.sub(self.time_tiles, first))
            } else {
                (first, end)
            };
            let rows = Operand::i64(i64::from(self.layout.schedule.tile_rows()));
            let [first, end] = [first, end].map(|tiles| {
                let tiles = b.convert(Ty::I64, tiles);
                b.mul(tiles, rows)
            });
            let steps = self.steps(b, &tile, column.column);
            steps.walk(b, &after, first..end, |_, _| Operand::bool(false));
        });
        operands(&after)
    }

    /// The aggregate of the group up to and with the tile.
    fn total(&self, b: &mut Builder, earlier: Option<&Fields>, index: Operand) -> Fields {
        let own = load_fields(b, &self.totals, index);
        earlier.map_or(own.clone(), |e| self.layout.monoid.combine(b, e, &own))
    }

    /// The messages of a group's last tile.
    fn publish(&self, b: &mut Builder, index: Operand, fields: &[Operand], position: &GroupPosition) {
        let (messages, values) = (self.block.messages, to_words(b, fields));
        b.push(Stmt::Publish { messages, index, values, tag: position.tag, guard: Some(position.ends) });
    }

    fn wanted(
        &self,
        b: &mut Builder,
        tile: &Tile,
        position: &GroupPosition,
        column: Operand,
        initial: &[Operand],
    ) -> Wanted {
        let start = b.sub(tile.order, position.within);
        let base = self.aggregate_message(b, tile.scan, start, column);
        let earlier = (0..self.layout.schedule.group - 1).map(|m| {
            let wanted = b.binary(Binary::Gt, position.within, m);
            let index = b.add(base, i64::from(m) * self.message_step());
            awaited(b, index, self.words, wanted, position.tag)
        });
        let earlier = earlier.collect();
        let known = to_words(b, initial);
        let state_words = words(&self.layout.monoid.state_types());
        let aggregate_base = self.group_message(b, tile.scan, position.group, column);
        let state_base = self.state_message(b, tile.scan, position.group, column);
        let (mut aggregates, mut starts) = (vec![], vec![]);
        for m in 0..self.layout.schedule.window {
            let before = b.sub(position.group, m as i32 + 1);
            let back = Operand::i64((i64::from(m) + 1) * self.message_step());
            let exists = b.ge(before, 0);
            let index = b.sub(aggregate_base, back);
            aggregates.push(awaited(b, index, self.words, exists, position.tag));
            let later = b.binary(Binary::Gt, before, 0);
            let index = b.sub(state_base, back);
            let start = awaited(b, index, state_words, later, position.tag);
            for (reg, word) in start.values.iter().zip(&known) {
                b.assign(*reg, *word);
            }
            starts.push(start);
        }
        Wanted { earlier, aggregates, starts, tag: position.tag }
    }

    /// The aggregate of the group's tiles before this one; `None` when groups are single tiles.
    fn fold_earlier(&self, b: &mut Builder, position: &GroupPosition, wanted: &Wanted) -> Option<Fields> {
        if wanted.earlier.is_empty() {
            return None;
        }
        let types = self.layout.monoid.types();
        let sum = b.vars(&self.layout.monoid.identity());
        for (m, entry) in wanted.earlier.iter().enumerate() {
            let exists = b.binary(Binary::Gt, position.within, m);
            b.if_(exists, |b| {
                let next = from_words(b, &types, &operands(&entry.values));
                let now = operands(&sum);
                let next = if m == 0 { next } else { self.layout.monoid.combine(b, &now, &next) };
                assign(b, &sum, &next);
            });
        }
        Some(operands(&sum))
    }

    /// The state before a group: that before some earlier group, then the aggregates of the groups between.
    fn state_before(
        &self,
        b: &mut Builder,
        position: &GroupPosition,
        initial: &[Operand],
        wanted: &Wanted,
        column: &Column,
    ) -> Fields {
        let state = b.vars(initial);
        let later = b.binary(Binary::Gt, position.group, 0);
        b.if_(later, |b| self.resume(b, wanted, &state, position, column));
        operands(&state)
    }

    fn resume(&self, b: &mut Builder, wanted: &Wanted, state: &[Reg], position: &GroupPosition, column: &Column) {
        let chosen = b.var(Operand::i32(0));
        b.loop_(|b| {
            let done = wanted.choose(b, chosen);
            b.break_if(done);
            let entries = wanted.aggregates.iter().chain(&wanted.starts).cloned().collect();
            b.push(Stmt::Poll { messages: self.block.messages, entries, tag: wanted.tag });
        });
        let (types, state_types) = (self.layout.monoid.types(), self.layout.monoid.state_types());
        let any = b.var(Operand::bool(false));
        for (m, (aggregate, start)) in wanted.aggregates.iter().zip(&wanted.starts).enumerate().rev() {
            let starts = b.eq(chosen.into(), m);
            b.if_(starts, |b| {
                let known = from_words(b, &state_types, &operands(&start.values));
                assign(b, state, &known);
            });
            let follows = b.ge(chosen.into(), m);
            b.if_(follows, |b| {
                let element = from_words(b, &types, &operands(&aggregate.values));
                let now = operands(state);
                let next = self.layout.monoid.apply(b, &now, &element);
                let lost = self.layout.monoid.loses(b, &now, &next);
                let lost = b.binary(Binary::Or, any.into(), lost);
                b.assign(any, lost);
                assign(b, state, &next);
            });
        }
        if !self.layout.monoid.at_risk().is_empty() {
            b.if_(any.into(), |b| self.resume_in_steps(b, column, chosen.into(), position.tag, state));
        }
    }

    /// Goes from the chosen state on once more; groups that lose the state are stepped through. What each group gives depends
    /// only on the state before it and its elements, so that the bits are those from every choice.
    fn resume_in_steps(&self, b: &mut Builder, column: &Column, chosen: Operand, tag: Operand, state: &[Reg]) {
        let (types, state_types) = (self.layout.monoid.types(), self.layout.monoid.state_types());
        let size = Operand::i32(self.layout.schedule.group as i32);
        let tile = self.drawn_tile(b, column.slot);
        let own = b.binary(Binary::Div, tile.order, size);
        let groups = b.add(chosen, 1);
        let first = b.sub(own, groups);
        let initial = self.initial(b, &tile, column.column);
        let later = b.binary(Binary::Gt, first, 0);
        let message = self.state_message(b, tile.scan, first, column.column);
        let start = awaited(b, message, words(&state_types), later, tag);
        let known = to_words(b, &initial);
        start.values.iter().zip(&known).for_each(|(reg, word)| b.assign(*reg, *word));
        self.poll_until(b, vec![start.clone()], tag, |b| present(b, &start, tag));
        let known = from_words(b, &state_types, &operands(&start.values));
        assign(b, state, &known);
        b.for_(first, own, 1, |b, group| {
            let message = self.group_message(b, tile.scan, group, column.column);
            let aggregate = awaited(b, message, self.words, Operand::bool(true), tag);
            self.poll_until(b, vec![aggregate.clone()], tag, |b| present(b, &aggregate, tag));
            let element = from_words(b, &types, &operands(&aggregate.values));
            let now = operands(state);
            let next = self.layout.monoid.apply(b, &now, &element);
            let next = self.step_if_lost_between(b, column, &now, next, |b, _| {
                let tile = b.mul(group, size);
                (tile, b.add(tile, size))
            });
            assign(b, state, &next);
        });
    }

    /// Polls until the condition holds.
    fn poll_until(
        &self,
        b: &mut Builder,
        entries: Vec<PollEntry>,
        tag: Operand,
        condition: impl FnOnce(&mut Builder) -> Operand,
    ) {
        b.loop_(|b| {
            b.push(Stmt::Poll { messages: self.block.messages, entries, tag });
            let done = condition(b);
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

fn present(b: &mut Builder, entry: &PollEntry, tag: Operand) -> Operand {
    are_present(b, Operand::bool(true), &entry.tags, tag)
}

impl Wanted {
    fn all(&self) -> Vec<PollEntry> {
        self.earlier.iter().chain(&self.aggregates).chain(&self.starts).cloned().collect()
    }

    /// Looks for the nearest known state from which all aggregates are there; remembers it in `chosen`.
    fn choose(&self, b: &mut Builder, chosen: Reg) -> Operand {
        let (mut reachable, mut found) = (Operand::bool(true), Operand::bool(false));
        for (m, (aggregate, start)) in self.aggregates.iter().zip(&self.starts).enumerate() {
            let aggregate = present(b, aggregate, self.tag);
            reachable = b.and(reachable, aggregate);
            let state = present(b, start, self.tag);
            let usable = b.and(reachable, state);
            let already = b.unary(Unary::Not, found);
            let first = b.and(usable, already);
            let number = b.select(first, Operand::i32(m as i32), chosen.into());
            b.assign(chosen, number);
            found = b.binary(Binary::Or, found, usable);
        }
        found
    }
}

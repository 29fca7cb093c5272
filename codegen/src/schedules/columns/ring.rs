//! Ring: tiles of time × columns through shared memory, with look-back along time.
//!
//! A *scan* is one point of the outer axes and one group of columns; tile number j·scans + s is tile j (in the order of
//! the scan) of scan s, so that all scans move on together. Every tile publishes its aggregate. Along time, `group`
//! tiles form a group; the group's last tile publishes the group's aggregate, and the state after the group once it
//! knows the state before it. A tile's state is
//!
//! ```text
//! state before its group ⊕ (aggregates of the group's earlier tiles, left to right)
//! ```
//!
//! and the state before a group is the state before any earlier group followed by the aggregates of the groups between,
//! one after the other: the same bits from whichever of them it was taken up, so timing cannot change them.
//!
//! A block has scan warps, reduce warps, [`PRODUCERS`] producer warps, one publisher and [`LOOKERS`] look-back warps
//! that take tiles in turn.

use super::Layout;
use super::cells::{Place, RingPlace};
use crate::block::carry::{WarpAxis, words};
use crate::block::messages::padded;
use crate::block::persistent::{Arrivals, Persistent, SLOTS, shared_fields};
use crate::build::Builder;
use crate::schedules::Columns;
use crate::stage::Stage;
use crate::tile::{Operand, Reg, SharedId, SharedKind};
use oplus_dsl::Ty;
use oplus_dsl::ir::{Axis, Binary};
use std::collections::HashMap;

/// Warps that copy tiles into the ring.
pub(super) const PRODUCERS: u32 = 2;
/// Warps that look back, taking tiles in turn.
pub(super) const LOOKERS: u32 = 2;
/// Warps besides those that scan and reduce.
pub const HELPERS: u32 = PRODUCERS + 1 + LOOKERS;

/// The scans of a stage: points of the outer axes times groups of columns.
pub(super) fn scans(schedule: &Columns, rows: u64, columns: u64) -> u64 {
    rows * columns.div_ceil(u64::from(schedule.tile_columns()))
}

/// The tiles of time of a scan.
pub(super) fn time_tiles(schedule: &Columns, len: u64) -> u64 {
    len.div_ceil(u64::from(schedule.tile_rows()))
}

/// The 64-bit message words that a launch over that many scans of that many tiles needs.
pub(super) fn message_words(stage: &Stage, schedule: &Columns, scans: u64, tiles: u64) -> u64 {
    let operator = stage.scan().map(|s| stage.program.operator(s.operator));
    let element = operator.map_or(0, |o| u64::from(padded(words(&o.fields.iter().map(|f| f.ty).collect::<Vec<_>>()))));
    let groups = tiles.div_ceil(u64::from(schedule.group)) + 1;
    scans * u64::from(schedule.tile_columns()) * element * (tiles + 2 * groups)
}

/// The kernel.
pub(super) fn lower(b: &mut Builder, layout: &Layout) {
    let ring = Ring::declare(b, layout);
    let schedule = layout.schedule;
    let ticket = ring.start(b);
    let mut bound = 0;
    let mut role = |b: &mut Builder, warps: u32| {
        bound += warps;
        b.lt(ring.block.warp, bound)
    };
    let scans = role(b, schedule.warps);
    let reduces = role(b, schedule.reduce_warps);
    let produces = role(b, PRODUCERS);
    let publishes = role(b, 1);
    let rest = |b: &mut Builder| b.if_else(publishes, |b| ring.publish_role(b), |b| ring.look_back_role(b));
    let rest = |b: &mut Builder| b.if_else(produces, |b| ring.produce_role(b, ticket), rest);
    let rest = |b: &mut Builder| b.if_else(reduces, |b| ring.reduce_role(b), rest);
    b.if_else(scans, |b| ring.scan_role(b), rest);
}

/// Everything the roles need to know. Immutable while code is emitted.
pub(super) struct Ring<'s> {
    pub(super) layout: &'s Layout<'s>,
    pub(super) block: Persistent,
    /// Scans, tiles of a scan, groups of columns; `i32`.
    pub(super) scans: Operand,
    pub(super) time_tiles: Operand,
    column_groups: Operand,
    /// Message words of an element, per column.
    pub(super) words: u32,
    /// The ring, by parameter.
    pub(super) arrays: HashMap<u32, SharedId>,
    /// Field by field and column by column: each span's aggregate and, in its place later, the exclusive scan of these; the tile's aggregate,
    /// the state before the tile.
    pub(super) spans: Vec<SharedId>,
    pub(super) totals: Vec<SharedId>,
    pub(super) carry: Vec<SharedId>,
}

/// Where a tile lies.
pub(super) struct Tile {
    /// Scan, tile along time in the order of the scan; `i32`.
    pub(super) scan: Operand,
    pub(super) order: Operand,
    /// Index of its first row along the scan axis and of its first column along the lane axis, `i64`.
    pub(super) time: Operand,
    pub(super) column: Operand,
    /// Index along every other outer axis.
    pub(super) outer: Vec<(Axis, Operand)>,
}

impl<'s> Ring<'s> {
    pub(super) fn declare(b: &mut Builder, layout: &'s Layout<'s>) -> Ring<'s> {
        let schedule = layout.schedule;
        let up = |b: &mut Builder, size: Operand, tile: u32| {
            let tiles = b.div_ceil(size, tile);
            b.convert(Ty::I32, tiles)
        };
        let time_tiles = up(b, layout.len, schedule.tile_rows());
        let column_groups = up(b, layout.width, schedule.tile_columns());
        let rows = layout.args.rows(b, layout.stage.outer_axes().without(layout.lane));
        let rows = b.convert(Ty::I32, rows);
        let scans = b.mul(rows, column_groups);
        let tiles = b.mul(scans, time_tiles);
        let block = Persistent::declare(b, &layout.args, schedule.stages, tiles);
        let streams = layout.streams.list.iter().filter(|s| s.ring).map(|s| {
            let rows = schedule.tile_rows() + s.before + s.after;
            let len = schedule.stages * rows * schedule.tile_columns();
            (s.param, b.shared(format!("ring_{}", s.name), SharedKind::Elem(s.elem), len))
        });
        let arrays = streams.collect();
        let (elements, states) = (layout.monoid.types(), layout.monoid.state_types());
        let columns = SLOTS * schedule.tile_columns();
        let spans = shared_fields(b, "spans", &elements, columns * schedule.warps);
        let totals = shared_fields(b, "totals", &elements, columns);
        let carry = shared_fields(b, "carry", &states, columns);
        let words = words(&elements);
        Ring { layout, block, scans, time_tiles, column_groups, words, arrays, spans, totals, carry }
    }

    fn start(&self, b: &mut Builder) -> Reg {
        let schedule = self.layout.schedule;
        let arrivals = Arrivals {
            full: PRODUCERS * 32 + 1,
            empty: schedule.warps + schedule.reduce_warps,
            reduced: schedule.reduce_warps,
            carried: 1,
        };
        let producer = (schedule.warps + schedule.reduce_warps) * 32;
        self.block.start(b, producer, &arrivals, |_, _| {})
    }

    /// Where tile number `tile` (`i32`) lies.
    pub(super) fn tile(&self, b: &mut Builder, tile: Operand) -> Tile {
        let schedule = self.layout.schedule;
        let scan = b.binary(Binary::Rem, tile, self.scans);
        let order = b.binary(Binary::Div, tile, self.scans);
        let [row, group] = b.div_rem(scan, self.column_groups);
        let place = if self.layout.scan.reverse {
            let last = b.sub(self.time_tiles, 1);
            b.sub(last, order)
        } else {
            order
        };
        let [place, group, row] = [place, group, row].map(|x| b.convert(Ty::I64, x));
        let time = b.mul(place, schedule.tile_rows());
        let column = b.mul(group, schedule.tile_columns());
        let outer = self.layout.args.indices(b, row, self.layout.stage.outer_axes().without(self.layout.lane));
        Tile { scan, order, time, column, outer }
    }

    /// The thread's cells of scan warp `span` (`i32`): their place in the tensors and in stage `stage` of the ring.
    pub(super) fn place(&self, b: &mut Builder, tile: &Tile, span: Operand, stage: Operand) -> (Place, RingPlace) {
        let schedule = self.layout.schedule;
        let warp_rows = (32 / schedule.lanes * schedule.steps) as i32;
        let warp_row = b.mul(span, warp_rows);
        let lane_time = self.lane_time(b);
        let lane_row = b.mul(lane_time, schedule.steps);
        let row = b.add(warp_row, lane_row);
        let column = self.lane_column(b);
        let [wide_row, wide_column] = [row, column].map(|x| b.convert(Ty::I64, x));
        let time = b.add(tile.time, wide_row);
        let first = b.add(tile.column, wide_column);
        let place = Place { time, column: first, outer: tile.outer.clone() };
        (place, RingPlace { arrays: self.arrays.clone(), stage, row, column })
    }

    /// The lane's position along time within its warp, `i32`.
    pub(super) fn lane_time(&self, b: &mut Builder) -> Operand {
        let shift = self.layout.schedule.lanes.trailing_zeros();
        b.binary(Binary::Shr, self.block.lane, shift)
    }

    /// The lane's first column within the tile, `i32`.
    pub(super) fn lane_column(&self, b: &mut Builder) -> Operand {
        let schedule = self.layout.schedule;
        let lane = b.binary(Binary::And, self.block.lane, schedule.lanes as i32 - 1);
        b.mul(lane, schedule.vector)
    }

    /// Time laid over the lanes of a warp.
    pub(super) fn time_lanes(&self, b: &mut Builder) -> WarpAxis {
        let lanes = self.layout.schedule.lanes;
        WarpAxis { position: self.lane_time(b), count: 32 / lanes, stride: lanes, reverse: self.layout.scan.reverse }
    }

    /// Where the columns of a slot begin, `i32`.
    pub(super) fn slot_columns(&self, b: &mut Builder, slot: Operand) -> Operand {
        b.mul(slot, self.layout.schedule.tile_columns())
    }

    /// Where the columns of a span of a slot begin, spans in the order of the scan; `i32`.
    pub(super) fn span_columns(&self, b: &mut Builder, slot: Operand, span: Operand) -> Operand {
        let warps = self.layout.schedule.warps as i32;
        let order = if self.layout.scan.reverse { b.sub(Operand::i32(warps - 1), span) } else { span };
        let base = b.mul(slot, warps);
        let entry = b.add(base, order);
        self.slot_columns(b, entry)
    }

    /// The first message word of a column of a tile's aggregate, `i64`.
    pub(super) fn aggregate_message(&self, b: &mut Builder, scan: Operand, order: Operand, column: Operand) -> Operand {
        self.message(b, Operand::i64(0), scan, self.time_tiles, order, column)
    }

    /// The first message word of a column of a group's aggregate, `i64`.
    pub(super) fn group_message(&self, b: &mut Builder, scan: Operand, group: Operand, column: Operand) -> Operand {
        let [scans, tiles] = [self.scans, self.time_tiles].map(|x| b.convert(Ty::I64, x));
        let region = b.mul(scans, tiles);
        let groups = self.groups(b);
        self.message(b, region, scan, groups, group, column)
    }

    /// The first message word of a column of the state before a group, `i64`.
    pub(super) fn state_message(&self, b: &mut Builder, scan: Operand, group: Operand, column: Operand) -> Operand {
        let groups = self.groups(b);
        let [scans, tiles, wide] = [self.scans, self.time_tiles, groups].map(|x| b.convert(Ty::I64, x));
        let each = b.add(tiles, wide);
        let region = b.mul(scans, each);
        self.message(b, region, scan, groups, group, column)
    }

    /// Message words from one tile or group to the next.
    pub(super) fn message_step(&self) -> i64 {
        i64::from(self.layout.schedule.tile_columns() * padded(self.words))
    }

    /// Groups of a scan and one more, `i32`.
    fn groups(&self, b: &mut Builder) -> Operand {
        let group = self.layout.schedule.group as i32;
        let up = b.add(self.time_tiles, 2 * group - 1);
        b.binary(Binary::Div, up, group)
    }

    /// Word of a column of entry `entry` of scan `scan`, each scan having `entries`, after `region` entries.
    fn message(
        &self,
        b: &mut Builder,
        region: Operand,
        scan: Operand,
        entries: Operand,
        entry: Operand,
        column: Operand,
    ) -> Operand {
        let [scan, entries, entry, column] = [scan, entries, entry, column].map(|x| b.convert(Ty::I64, x));
        let before = b.mul(scan, entries);
        let number = b.add(before, entry);
        let number = b.add(region, number);
        let columns = b.mul(number, self.layout.schedule.tile_columns());
        let place = b.add(columns, column);
        b.mul(place, padded(self.words))
    }
}

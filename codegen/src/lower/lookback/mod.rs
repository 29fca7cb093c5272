//! Look-back: long rows in one pass over memory, with a carry that no timing can change.
//!
//! Persistent blocks draw tiles in order. A block that owned tile i and now owns tile k already knows the state before
//! tile i, so it folds the *aggregates* of tiles i … k−1 onto its running carry: nobody waits for another block's
//! prefix, one round trip to memory settles a tile, and the order of the fold is fixed by tile numbers.
//!
//! A block is five kinds of warps that meet only at mbarriers:
//!
//! * the **producer** draws tickets and fills a ring of stages in shared memory (`produce`);
//! * the **reducers** run ahead of everything else and reduce each scan warp's span of a tile (`reduce`);
//! * the **publisher** scans those aggregates and publishes the tile's (`publish`);
//! * the **look-ahead** warp folds the other tiles' aggregates onto the carry (`look_ahead`);
//! * the **scanners** finish the tile and store it (`scan`).
//!
//! A warp's span is `vectors` stretches of 32·`vector` consecutive elements; lane l holds elements l·vector … of each.
//! A stage of the ring is free as soon as it is in registers. With `loader=registers` the ring holds nothing and tiles
//! are read from global memory by whoever needs them (the second time from the L2 cache).
//!
//! Small arrays (aggregates, carries) have [`SLOTS`] entries: tile number i of a block uses entry i mod `SLOTS`.

mod look_ahead;
mod produce;
mod publish;
mod reduce;
mod scan;
mod span;

use super::LowerError;
use super::args::Args;
use super::carry::{Fields, Monoid};
use crate::abi::Tensor;
use crate::build::Builder;
use crate::schedule::{Loader, LookBack, Schedule};
use crate::stage::{Scan, Stage};
use crate::tile::{Kernel, Mbarrier, Memory, Operand, Reg, SharedId, SharedKind, Special, Stmt};
use oplus_dsl::{Elem, Ty};
use span::Streams;

/// Tiles of a block whose aggregates and carries may be alive at once; more than the ring has stages.
pub(super) const SLOTS: u32 = 8;

/// The tile kernel of a stage under a look-back schedule.
pub fn lower(stage: &Stage, schedule: &LookBack, symbol: &str) -> Result<Kernel, LowerError> {
    let scan = stage.scan().ok_or(LowerError::NoScan { schedule: "lookback" })?;
    if !schedule.vectors.is_power_of_two() || schedule.stages >= SLOTS || schedule.scan_warps > 32 {
        return Err(LowerError::Parameters { schedule: Schedule::LookBack(*schedule) });
    }
    let mut b = Builder::new(symbol, schedule.warps() * 32);
    let kernel = LookBackKernel::declare(&mut b, stage, scan, schedule);
    kernel.body(&mut b);
    Ok(b.finish())
}

/// How many 64-bit message words a launch over that many tiles needs.
pub fn message_words(stage: &Stage, tiles: u64) -> u64 {
    let words = stage.scan().map_or(0, |s| super::carry::words(&types(stage, &s)));
    tiles * u64::from(padded(words))
}

fn types(stage: &Stage, scan: &Scan) -> Vec<Ty> {
    stage.program.operator(scan.operator).fields.iter().map(|f| f.ty).collect()
}

/// Messages of several words start at an even word.
fn padded(words: u32) -> u32 {
    if words > 1 { words.next_multiple_of(2) } else { words }
}

/// Everything a role needs to know: names of parameters, shared arrays and schedule. Immutable while code is emitted.
struct LookBackKernel<'s> {
    stage: &'s Stage,
    scan: Scan<'s>,
    schedule: &'s LookBack,
    monoid: Monoid<'s>,
    args: Args,
    streams: Streams,
    shared: Shared,
    /// Warp and lane of the thread.
    warp: Operand,
    lane: Operand,
    /// Size of the scan axis; tiles of a row, rows, and tiles in all (`i64`, `i64`, `i32`).
    len: Operand,
    row_tiles: Operand,
    tiles: Operand,
    /// Message words of one tile.
    words: u32,
}

/// The shared arrays.
struct Shared {
    /// One array per streamed parameter, `stages` tiles each.
    ring: Vec<SharedId>,
    full: SharedId,
    empty: SharedId,
    reduced: SharedId,
    published: SharedId,
    carried: SharedId,
    /// Tile in each stage of the ring; tile in each slot, as the reducers and the publisher hand it on. −1 ends.
    stage_tile: SharedId,
    reduced_tile: SharedId,
    published_tile: SharedId,
    /// Field by field: each span's aggregate, the exclusive scan of these, the tile's aggregate, the carry.
    spans: Vec<SharedId>,
    prefixes: Vec<SharedId>,
    totals: Vec<SharedId>,
    carry: Vec<SharedId>,
    tag: SharedId,
}

/// The position of a role in the stream of its block's tiles.
struct Cursor {
    /// Tiles handled, stage of the ring, phase of the stage; all `i32`.
    count: Reg,
    stage: Reg,
    phase: Reg,
}

/// Where a tile lies.
struct Tile {
    /// Row, `i64`.
    row: Operand,
    /// Index of its first element along the scan axis, `i64`.
    start: Operand,
    /// Whether all its elements exist and the ring holds them (or plain vector loads may read them).
    whole: Operand,
}

impl<'s> LookBackKernel<'s> {
    fn declare(b: &mut Builder, stage: &'s Stage, scan: Scan<'s>, schedule: &'s LookBack) -> Self {
        let args = Args::declare(b, stage, &Schedule::LookBack(*schedule));
        let monoid = Monoid::new(stage.program.operator(scan.operator), &used_fields(stage, &scan));
        let streams = Streams::new(stage, &scan, schedule);
        let words = super::carry::words(&monoid.types());
        let shared = Shared::declare(b, schedule, &monoid, &streams);
        let warp = b.special(Special::Warp);
        let lane = b.special(Special::Lane);
        let len = args.size(scan.axis);
        let tile = Operand::i64(i64::from(schedule.tile()));
        let up = b.add(len, Operand::i64(i64::from(schedule.tile()) - 1));
        let row_tiles = b.binary(oplus_dsl::ir::Binary::Div, up, tile);
        let rows = args.rows(b, stage.outer_axes());
        let tiles = b.mul(rows, row_tiles);
        let tiles = b.convert(Ty::I32, tiles);
        LookBackKernel {
            stage,
            scan,
            schedule,
            monoid,
            args,
            streams,
            shared,
            warp,
            lane,
            len,
            row_tiles,
            tiles,
            words,
        }
    }

    /// Start-up by the producer's first lane, then each warp's role.
    fn body(&self, b: &mut Builder) {
        let (scanners, reducers) = (self.schedule.scan_warps, self.schedule.reduce_warps);
        let first = self.start(b);
        let bound = |n: u32| Operand::i32(n as i32);
        let scans = b.lt(self.warp, bound(scanners));
        let reduces = b.lt(self.warp, bound(scanners + reducers));
        let produces = b.eq(self.warp, bound(scanners + reducers));
        let publishes = b.eq(self.warp, bound(scanners + reducers + 1));
        b.if_else(
            scans,
            |b| self.scan_role(b),
            |b| {
                b.if_else(
                    reduces,
                    |b| self.reduce_role(b),
                    |b| {
                        b.if_else(
                            produces,
                            |b| self.produce_role(b, first),
                            |b| b.if_else(publishes, |b| self.publish_role(b), |b| self.look_ahead_role(b)),
                        );
                    },
                );
            },
        );
    }

    fn reverse(&self) -> bool {
        self.scan.reverse
    }

    /// Whether tiles pass through shared memory.
    fn bulk(&self) -> bool {
        self.schedule.loader == Loader::Bulk
    }

    /// Where tile number `tile` (`i32`) lies.
    fn tile(&self, b: &mut Builder, tile: Operand) -> Tile {
        use oplus_dsl::ir::Binary::{Div, Rem, Sub};
        let tile = b.convert(Ty::I64, tile);
        let row = b.binary(Div, tile, self.row_tiles);
        let order = b.binary(Rem, tile, self.row_tiles);
        let order = if self.reverse() {
            let last = b.sub(self.row_tiles, Operand::i64(1));
            b.binary(Sub, last, order)
        } else {
            order
        };
        let start = b.mul(order, Operand::i64(i64::from(self.schedule.tile())));
        let whole = self.whole(b, start);
        Tile { row, start, whole }
    }

    /// A ring stage also holds a halo on either side, which must not reach past the row.
    fn whole(&self, b: &mut Builder, start: Operand) -> Operand {
        use oplus_dsl::ir::Binary::{Le, Or};
        let end = b.add(start, Operand::i64(i64::from(self.schedule.tile())));
        let inside = b.binary(Le, end, self.len);
        let halo = self.streams.list.iter().map(|s| s.after).max().unwrap_or(0);
        if !self.bulk() || halo == 0 {
            return inside;
        }
        let reach = b.add(end, Operand::i64(i64::from(halo)));
        let reached = b.binary(Le, reach, self.len);
        let exact = b.eq(end, self.len);
        let either = b.binary(Or, reached, exact);
        b.and(inside, either)
    }

    /// A cursor at the first tile; the producer's phase is one ahead.
    fn cursor(&self, b: &mut Builder, phase: i32) -> Cursor {
        let [count, stage, phase] = [0, 0, phase].map(|v| b.var(Operand::i32(v)));
        Cursor { count, stage, phase }
    }

    fn advance(&self, b: &mut Builder, at: &Cursor) {
        let count = b.add(at.count.into(), Operand::i32(1));
        b.assign(at.count, count);
        let next = b.add(at.stage.into(), Operand::i32(1));
        let wraps = b.eq(next, Operand::i32(self.schedule.stages as i32));
        let stage = b.select(wraps, Operand::i32(0), next);
        let flipped = b.binary(oplus_dsl::ir::Binary::Xor, at.phase.into(), Operand::i32(1));
        let phase = b.select(wraps, flipped, at.phase.into());
        b.assign(at.stage, stage);
        b.assign(at.phase, phase);
    }

    /// The slot of a tile count and the parity of its use.
    fn slot(&self, b: &mut Builder, count: Operand) -> (Operand, Operand) {
        use oplus_dsl::ir::Binary::{And, Shr};
        let slot = b.binary(And, count, Operand::i32(SLOTS as i32 - 1));
        let turn = b.binary(Shr, count, Operand::i32(SLOTS.trailing_zeros() as i32));
        let parity = b.binary(And, turn, Operand::i32(1));
        (slot, parity)
    }

    /// One lane of the warp runs the statements.
    fn elected(&self, b: &mut Builder, body: impl FnOnce(&mut Builder)) {
        let first = b.eq(self.lane, Operand::i32(0));
        b.if_(first, body);
    }

    fn arrive(&self, b: &mut Builder, array: SharedId, index: Operand) {
        b.push(Stmt::MbarrierArrive(Mbarrier { array, index }));
    }

    fn wait(&self, b: &mut Builder, array: SharedId, index: Operand, parity: Operand) {
        b.push(Stmt::MbarrierWait(Mbarrier { array, index }, parity));
    }

    /// The tag of the launch.
    fn tag(&self, b: &mut Builder) -> Operand {
        b.load1(Memory::Shared(self.shared.tag), Operand::i32(0))
    }

    /// The state before a row's first element.
    fn initial(&self, b: &mut Builder, row: Operand) -> Fields {
        let init = self.scan.init;
        if init.is_empty() {
            return self.monoid.identity_state();
        }
        let mut leaves = self.row_leaves(b, row);
        let mut point = super::point::Point::new(&self.stage.program, Some(self.scan.axis));
        let live: Vec<_> = self.monoid.keep(init);
        live.into_iter().map(|v| point.here(b, &mut leaves, v)).collect()
    }

    fn pointer(&self, tensor: Tensor) -> Memory {
        Memory::Global(self.args.pointer(tensor))
    }
}

impl Shared {
    fn declare(b: &mut Builder, schedule: &LookBack, monoid: &Monoid, streams: &Streams) -> Shared {
        let ring_len = |after: u32, before: u32| schedule.stages * (before + schedule.tile() + after);
        let bulk = schedule.loader == Loader::Bulk;
        let ring = streams
            .list
            .iter()
            .filter(|_| bulk)
            .map(|s| b.shared(format!("ring_{}", s.name), SharedKind::Elem(s.elem), ring_len(s.after, s.before)));
        let ring = ring.collect();
        let mut mbarriers = |name: &str, n| b.shared(name, SharedKind::Mbarrier, n);
        let (full, empty) = (mbarriers("full", schedule.stages), mbarriers("empty", schedule.stages));
        let [reduced, published, carried] = ["reduced", "published", "carried"].map(|n| mbarriers(n, SLOTS));
        let stage_tile = b.shared_values("stage_tile", Ty::I32, schedule.stages);
        let [reduced_tile, published_tile] =
            ["reduced_tile", "published_tile"].map(|name| b.shared_values(name, Ty::I32, SLOTS));
        let mut fields = |name: &str, types: &[Ty], n: u32| -> Vec<SharedId> {
            types.iter().enumerate().map(|(k, ty)| b.shared_values(format!("{name}_{k}"), *ty, n)).collect()
        };
        let spans = fields("spans", &monoid.types(), SLOTS * schedule.scan_warps);
        let prefixes = fields("prefixes", &monoid.types(), SLOTS * schedule.scan_warps);
        let totals = fields("totals", &monoid.types(), SLOTS);
        let carry = fields("carry", &monoid.state_types(), SLOTS);
        let tag = b.shared("tag", SharedKind::Elem(Elem::U32), 1);
        Shared {
            ring,
            full,
            empty,
            reduced,
            published,
            carried,
            stage_tile,
            reduced_tile,
            published_tile,
            spans,
            prefixes,
            totals,
            carry,
            tag,
        }
    }
}

/// Which fields of the states outputs read.
pub(super) fn used_fields(stage: &Stage, scan: &Scan) -> Vec<bool> {
    let mut used = vec![false; stage.program.operator(scan.operator).fields.len()];
    for node in &stage.program.nodes {
        if let oplus_dsl::ir::Op::Field(_, k) = node.op {
            used[k as usize] = true;
        }
    }
    used
}

/// Stores fields into arrays of fields.
fn store_fields(b: &mut Builder, arrays: &[SharedId], index: Operand, fields: &[Operand]) {
    for (array, value) in arrays.iter().zip(fields) {
        b.store(Memory::Shared(*array), index, &[*value], None);
    }
}

/// Loads fields from arrays of fields.
fn load_fields(b: &mut Builder, arrays: &[SharedId], index: Operand) -> Fields {
    arrays.iter().map(|array| b.load1(Memory::Shared(*array), index)).collect()
}

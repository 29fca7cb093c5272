//! Look-back: long rows in one pass over memory, with a carry that no timing can change.
//!
//! Persistent blocks draw tiles in order. A block that owned tile i and now owns tile k already knows the state before
//! tile i, so it folds the *aggregates* of tiles i … k−1 onto its running carry: no block waits for the prefix of another, one round trip to memory settles a tile, and the order of the fold is fixed by tile numbers.
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
//! are read from global memory by every role that needs them (the second time from the L2 cache).
//!
//! All of this is the fast form. The short form (`short`) goes through a span stretch by stretch.
//!
//! The last tile of a row may be shorter. Only loads, stores and the identities that stand for missing elements are
//! emitted twice, for whole tiles without guards; all else is shared.

mod candidates;
mod look_ahead;
mod parameters;
mod produce;
mod publish;
mod reduce;
mod registers;
mod scan;
mod short;
mod span;
mod strategy;
mod streams;

pub use parameters::{Fold, Loader, LookBack};
pub use registers::{register_limit, registers};

use super::{LowerError, Strategy};
use crate::block::args::Args;
use crate::block::carry::{Fields, Monoid};
use crate::block::messages::padded;
use crate::block::persistent::{Persistent, SLOTS, shared_fields};
use crate::block::reads::used_fields;
use crate::block::steps::Steps;
use crate::build::Builder;
use crate::stage::{Refusal, Scan, Stage};
use crate::target::WARP;
use crate::tile::{Kernel, Operand, SharedId, SharedKind};
use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;
use std::collections::HashMap;
use streams::Streams;

/// A form of a kernel. Both compute the same bits with the same arguments, launches and messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// For speed.
    Fast,
    /// In few instructions, which are compiled in less than half the time.
    Short,
}

/// The tile kernel of a stage under a look-back schedule.
pub fn lower(stage: &Stage, schedule: &LookBack, symbol: &str, form: Form) -> Result<Kernel, LowerError> {
    let scan = stage.scan().ok_or(LowerError::Kind { schedule: LookBack::NAME, refusal: Refusal::NoScan })?;
    let vectors = schedule.vectors.is_power_of_two() && schedule.vectors <= WARP;
    if !vectors || schedule.stages >= SLOTS || schedule.scan_warps > 32 {
        return Err(LowerError::parameters(schedule));
    }
    let mut b = Builder::new(symbol, schedule.warps() * 32);
    let kernel = LookBackKernel::declare(&mut b, stage, scan, schedule, form);
    kernel.body(&mut b);
    Ok(b.finish())
}

/// The shared memory of the kernel.
pub fn shared_bytes(stage: &Stage, schedule: &LookBack) -> u32 {
    let Some(scan) = stage.scan() else { return 0 };
    Builder::shared_bytes_of(|b| drop(LookBackKernel::declare(b, stage, scan, schedule, Form::Fast)))
}

/// The 64-bit message words that a launch over that many tiles needs.
pub fn message_words(stage: &Stage, tiles: u64) -> u64 {
    let words = stage.scan().map_or(0, |s| crate::block::carry::words(&types(stage, &s)));
    tiles * u64::from(padded(words))
}

fn types(stage: &Stage, scan: &Scan) -> Vec<Ty> {
    stage.program.operator(scan.operator).fields.iter().map(|f| f.ty).collect()
}

/// The parameters, shared arrays and schedule that roles use. Immutable while code is emitted.
struct LookBackKernel<'s> {
    stage: &'s Stage,
    scan: Scan<'s>,
    schedule: &'s LookBack,
    form: Form,
    monoid: Monoid<'s>,
    args: Args,
    streams: Streams,
    shared: Shared,
    block: Persistent,
    /// Size of the scan axis, `i64`; tiles of a row, `i32`.
    len: Operand,
    row_tiles: Operand,
    /// Message words of one tile.
    words: u32,
}

/// The shared arrays of the schedule's own.
struct Shared {
    /// One array per streamed parameter, `stages` tiles each.
    ring: Vec<SharedId>,
    /// Field by field: each span's aggregate and, in its place later, the exclusive scan of these; the tile's aggregate, the carry.
    spans: Vec<SharedId>,
    totals: Vec<SharedId>,
    carry: Vec<SharedId>,
}

/// The place of a tile.
struct Tile {
    /// Row, `i64`.
    row: Operand,
    /// Index of its first element along the scan axis, `i64`.
    start: Operand,
    /// Whether all its elements are known to exist. It is false where accesses are single elements and in the short form, which are
    /// always guarded.
    whole: Operand,
}

impl<'s> LookBackKernel<'s> {
    fn declare(b: &mut Builder, stage: &'s Stage, scan: Scan<'s>, schedule: &'s LookBack, form: Form) -> Self {
        let args = Args::declare(b, stage, schedule.abi(stage));
        let monoid = Monoid::new(stage.program.operator(scan.operator), &used_fields(stage, &scan));
        let streams = Streams::new(stage, &scan, schedule);
        let words = crate::block::carry::words(&monoid.types());
        let shared = Shared::declare(b, schedule, &monoid, &streams);
        let len = args.size(scan.axis);
        let tile = i64::from(schedule.tile());
        let row_tiles = b.div_ceil(len, tile);
        let row_tiles = b.convert(Ty::I32, row_tiles);
        let rows = args.rows(b, stage.outer_axes());
        let rows = b.convert(Ty::I32, rows);
        let tiles = b.mul(rows, row_tiles);
        let block = Persistent::declare(b, &args, schedule.stages, tiles);
        LookBackKernel { stage, scan, schedule, form, monoid, args, streams, shared, block, len, row_tiles, words }
    }

    /// Start-up by the producer's first lane, then each warp's role.
    fn body(&self, b: &mut Builder) {
        let (scanners, reducers) = (self.schedule.scan_warps, self.schedule.reduce_warps);
        let first = self.start(b);
        let bound = |n: u32| Operand::i32(n as i32);
        let scans = b.lt(self.block.warp, bound(scanners));
        let reduces = b.lt(self.block.warp, bound(scanners + reducers));
        let produces = b.eq(self.block.warp, bound(scanners + reducers));
        let publishes = b.eq(self.block.warp, bound(scanners + reducers + 1));
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

    /// Whether tiles pass through shared memory.
    fn bulk(&self) -> bool {
        self.schedule.loader == Loader::Bulk
    }

    /// The row of tile number `tile` and which of its tiles it is, all `i32`. A quotient of unsigned numbers takes
    /// fewer instructions.
    fn place(&self, b: &mut Builder, tile: Operand) -> (Operand, Operand) {
        let [tile, row_tiles] = [tile, self.row_tiles].map(|n| b.convert(Ty::U32, n));
        let [row, order] = b.div_rem(tile, row_tiles);
        (b.convert(Ty::I32, row), b.convert(Ty::I32, order))
    }

    /// The place of tile number `tile` (`i32`).
    fn tile(&self, b: &mut Builder, tile: Operand) -> Tile {
        let (row, order) = self.place(b, tile);
        let order = if self.scan.reverse {
            let last = b.sub(self.row_tiles, 1);
            b.sub(last, order)
        } else {
            order
        };
        let [row, order] = [row, order].map(|x| b.convert(Ty::I64, x));
        let start = b.mul(order, self.schedule.tile());
        let end = b.add(start, self.schedule.tile());
        let guarded = self.schedule.vector == 1 || self.form == Form::Short;
        let whole = if guarded { Operand::bool(false) } else { b.binary(Binary::Le, end, self.len) };
        Tile { row, start, whole }
    }

    /// The state before a row's first element.
    fn initial(&self, b: &mut Builder, row: Operand) -> Fields {
        let init = self.scan.init;
        if init.is_empty() {
            return self.monoid.identity_state();
        }
        let mut leaves = self.row_leaves(b, row, &[]);
        let mut point = crate::block::point::Point::new(&self.stage.program, Some(self.scan.axis));
        let live: Vec<_> = self.monoid.keep(init);
        live.into_iter().map(|v| point.here(b, &mut leaves, v)).collect()
    }

    /// A row whose elements are read one by one.
    fn steps(&self, b: &mut Builder, row: Operand) -> Steps<'_> {
        let indices = self.args.row_indices(b, row);
        let LookBackKernel { stage, scan, monoid, args, .. } = self;
        Steps { stage, scan, monoid, args, indices, bases: HashMap::new(), exists: Operand::bool(true) }
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
        let spans = shared_fields(b, "spans", &monoid.types(), SLOTS * schedule.scan_warps);
        let totals = shared_fields(b, "totals", &monoid.types(), SLOTS);
        let carry = shared_fields(b, "carry", &monoid.state_types(), SLOTS);
        Shared { ring, spans, totals, carry }
    }
}

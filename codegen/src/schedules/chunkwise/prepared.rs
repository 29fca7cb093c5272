//! Queries and keys in two parts that a kernel of its own writes, once for all recurrences that share them.
//!
//! The heads of a group in Mamba-2 have the same queries and keys. Divided in two parts by the block of every head, elements of `f32` take longer
//! than the products. Here each block of a first kernel has a chunk of times, and writes its parts as they lie in shared memory. The blocks that
//! walk the chunks bring them to their stages by a copy engine, and divide values alone.

use super::copiers::Handover;
use super::segments::Iterations;
use super::{COPIERS, Chunkwise, ChunkwiseKernel, KeyParts, divided, parts};
use crate::abi::{Tensor, axes, elem};
use crate::block::args::Args;
use crate::block::copy::Source;
use crate::block::layout::{Tile, TileOf, TileShape};
use crate::block::pair::Values;
use crate::block::ring::Ring;
use crate::block::thread::Thread;
use crate::build::Builder;
use crate::schedules::Unit;
use crate::stage::Stage;
use crate::stage::kind::MatrixRecurrence;
use crate::tile::{Operand, Special, Stmt};
use oplus_dsl::ir::{Axis, AxisSet};
use oplus_dsl::{Elem, Ty};

/// The parts of a factor.
const PARTS: u32 = 2;
/// The place of the parts of queries and of keys among the scratch arrays.
const QUERIES: usize = 0;
const KEYS: usize = 1;
/// Blocks that prepare parts on one multiprocessor: what shared memory has room for.
const BLOCKS: u32 = 3;

/// The outer axes that a parameter has. Recurrences that differ by others alone share it.
fn outer_axes(stage: &Stage, form: &MatrixRecurrence, param: u32) -> AxisSet {
    axes(stage, Tensor::Param(param)).iter().copied().filter(|axis| form.outer.contains(*axis)).collect()
}

/// Whether a kernel may prepare the parts of queries and keys for several recurrences, or for several slices of one.
pub(super) fn is_possible(stage: &Stage, form: &MatrixRecurrence, schedule: &Chunkwise) -> bool {
    let Some(readout) = &form.readout else { return false };
    let keys = outer_axes(stage, form, form.key);
    schedule.unit == Unit::Warpgroup
        && (schedule.copiers, schedule.heads) == (COPIERS, 1)
        && parts::are_split(elem(stage, Tensor::Param(form.key)), schedule)
        && stage.sequences().is_none()
        && outer_axes(stage, form, readout.query) == keys
        && (keys != form.outer || schedule.wide)
}

/// The schedule of the kernel that prepares parts, where a schedule's walks copy such.
pub(super) fn kernel_before(schedule: &Chunkwise) -> Option<Chunkwise> {
    let prepare = Chunkwise { key_parts: KeyParts::Prepare, blocks: BLOCKS, readers: 0, ..*schedule };
    (schedule.key_parts == KeyParts::Prepared).then_some(prepare)
}

/// The blocks that prepare, one for each chunk of what recurrences share; `None` when 63 bits cannot count them.
pub(super) fn blocks(
    stage: &Stage,
    form: &MatrixRecurrence,
    schedule: &Chunkwise,
    size: impl Fn(Axis) -> i64,
) -> Option<u64> {
    let rows = outer_axes(stage, form, form.key).iter().try_fold(1_i64, |n, axis| n.checked_mul(size(axis)))?;
    let chunks = (size(form.time) as u64).div_ceil(u64::from(schedule.times()));
    rows.checked_mul(chunks as i64).map(|n| n as u64)
}

/// The length of the parts of queries, or of keys, of so many chunks; `None` when 63 bits cannot count it.
pub(super) fn scratch(schedule: &Chunkwise, chunks: u64) -> Option<u64> {
    chunks.checked_mul(u64::from(len(schedule))).filter(|len| i64::try_from(*len).is_ok())
}

/// The length of both parts of a chunk's queries or keys.
fn len(schedule: &Chunkwise) -> u32 {
    PARTS * schedule.times() * schedule.depth
}

/// The kernel that prepares parts: a stage with its arguments, tiles and thread.
pub(super) struct PrepareKernel<'s> {
    form: &'s MatrixRecurrence,
    schedule: &'s Chunkwise,
    args: Args,
    /// Queries and keys of the block's chunk.
    tiles: [Tile; 2],
    thread: Thread,
    /// The axes that they have beside time and depth.
    outer: AxisSet,
}

impl<'s> PrepareKernel<'s> {
    /// Declares its tiles, if the stage has queries.
    pub(super) fn declare(
        b: &mut Builder,
        stage: &Stage,
        form: &'s MatrixRecurrence,
        schedule: &'s Chunkwise,
        args: Args,
    ) -> Option<Self> {
        let query = form.readout.as_ref()?.query;
        let tiles = [query, form.key].map(|param| {
            let of = TileOf { param, along: form.time, inner: form.depth };
            let shape = TileShape { rows: schedule.times(), depth: schedule.depth, stages: 1 };
            Tile::declare_as(b, stage, of, shape, Elem::Bf16).in_parts(b, 1)
        });
        let outer = outer_axes(stage, form, form.key);
        Some(PrepareKernel { form, schedule, args, tiles, thread: Thread::of(b), outer })
    }

    /// Reads the rows of a chunk, and stores their parts.
    pub(super) fn body(&self, b: &mut Builder) {
        let block = b.special(Special::Block);
        let number = b.convert(Ty::I64, block);
        let times = i64::from(self.schedule.times());
        let chunks = b.div_ceil(self.args.size(self.form.time), times);
        let (row, chunk) = divided(b, number, chunks);
        let outer = self.args.indices(b, row, self.outer);
        let chunk = b.convert(Ty::I32, chunk);
        let first = b.mul(chunk, self.schedule.times());
        let source = Source {
            args: &self.args,
            outer: &outer,
            threads: self.schedule.threads(),
            thread: self.thread.number,
            vector: self.schedule.vector,
            padded: self.schedule.padded,
            fenced: true,
            rolled: None,
        };
        for tile in &self.tiles {
            let origin = tile.origin(b, &source);
            let read = tile.read(b, &source, origin.into(), first);
            tile.write_parts(b, read, Operand::i32(0));
        }
        b.push(Stmt::FenceAsync);
        b.barrier();
        let is_first = b.eq(self.thread.number, 0);
        b.if_(is_first, |b| self.store(b, number));
    }

    /// Stores the parts of a chunk by a copy engine, by one thread.
    fn store(&self, b: &mut Builder, number: Operand) {
        let first = b.mul(number, i64::from(len(self.schedule)));
        for (scratch, tile) in [QUERIES, KEYS].into_iter().zip(&self.tiles) {
            let (to, count) = (self.args.scratch[scratch], Operand::i32(tile.len() as i32));
            for (part, from) in (0..).zip([Some(tile.array), tile.low].into_iter().flatten()) {
                let to_index = b.add(first, part * tile.len());
                let from_index = Operand::i32(0);
                b.push(Stmt::BulkStore { to, to_index, from, from_index, count, adds: false });
            }
        }
        b.push(Stmt::BulkWait { pending: 0, read: true });
    }
}

impl ChunkwiseKernel<'_> {
    /// Whether parts of queries and keys have been prepared.
    pub(super) fn are_prepared(&self) -> bool {
        self.schedule.key_parts == KeyParts::Prepared
    }

    /// Copies all chunks of the segment, of which values alone are divided in two parts.
    pub(super) fn copy_prepared(&self, b: &mut Builder, handover: Handover, source: &Source, iterations: Iterations) {
        let values = Values::new(self.stage, &self.args, [self.form.time, self.form.width], self.outer.clone());
        let origin = self.origin(b, &self.values, source);
        let before = self.first_prepared(b, iterations);
        let is_first = b.eq(self.thread.number, 0);
        b.for_(Operand::i32(0), iterations.count, 1, |b, iteration| {
            let to = Ring::of(self.schedule.stages).at(b, iteration);
            let chunk = self.chunk(b, iteration, iterations);
            let first = b.mul(chunk, self.schedule.times());
            let read = self.values.read(b, source, origin, first);
            let rates = self.rates(b, &values, first);
            self.wait_free(b, handover, to);
            b.if_(is_first, |b| self.load_prepared(b, before, chunk, to.index));
            let start = b.mul(to.index, self.values.len());
            self.values.write_parts(b, read, start);
            b.push(Stmt::FenceAsync);
            self.store_all_rates(b, handover, iteration, &rates);
            b.arrive(self.values.full, to.index);
        });
    }

    /// The number of the recurrence's first chunk among those that are prepared, `i64`.
    fn first_prepared(&self, b: &mut Builder, iterations: Iterations) -> Operand {
        let shared = outer_axes(self.stage, self.form, self.form.key);
        let row = self.args.number_of(b, shared, &self.outer);
        let chunks = b.convert(Ty::I64, iterations.all);
        b.mul(row, chunks)
    }

    /// Starts the copies of a chunk's parts into a stage by a copy engine, which announces them. By one thread.
    fn load_prepared(&self, b: &mut Builder, before: Operand, chunk: Operand, stage: Operand) {
        let chunk = b.convert(Ty::I64, chunk);
        let number = b.add(before, chunk);
        let first = b.mul(number, i64::from(len(self.schedule)));
        let queries = self.queries.iter().map(|tile| (QUERIES, tile));
        let tiles: Vec<(usize, &Tile)> = queries.chain([(KEYS, &self.keys)]).collect();
        let mbarrier = b.mbarrier(self.keys.full, stage);
        let bytes = tiles.len() as u32 * len(self.schedule) * self.keys.elem.bytes().unwrap_or(2) as u32;
        b.push(Stmt::MbarrierExpect(mbarrier, Operand::i32(bytes as i32)));
        for (scratch, tile) in tiles {
            let (to_index, count) = (b.mul(stage, tile.len()), Operand::i32(tile.len() as i32));
            for (part, to) in (0..).zip([Some(tile.array), tile.low].into_iter().flatten()) {
                let (from, from_index) = (self.args.scratch[scratch], b.add(first, part * tile.len()));
                b.push(Stmt::BulkLoad { to, to_index, from, from_index, count, mbarrier });
            }
        }
    }
}

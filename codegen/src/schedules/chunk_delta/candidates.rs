//! The parameters that a plan may choose.

use super::prepared::TileLens;
use super::{ChunkDelta, LARGEST_IN_FLIGHT, ROWS, RuleSweep, TIMES, has_last_state};
use crate::block::prepare::factor_elem;
use crate::stage::Stage;
use crate::stage::kind::DeltaRule;
use crate::target::Isa;
use oplus_dsl::Elem;

/// Lengths of the axis that the matrices act on.
const DEPTHS: [u32; 3] = [32, 64, 128];

/// Places of a block's part of the width.
const PLACES: [u32; 3] = [64, 32, 16];

/// Elements of an access of 16 bytes, of a type that factors may have.
pub(in crate::schedules) fn vector_of(elem: Elem) -> Option<u32> {
    match elem {
        Elem::Bf16 | Elem::F16 => Some(8),
        Elem::F32 => Some(4),
        _ => None,
    }
}

/// Bytes of tiles over the depth above which they have fewer stages.
const MOST_IN_FLIGHT: u32 = 160 << 10;

/// The most tiles in flight.
const MOST_STAGES: u32 = 3;

/// Bytes of shared memory for the tiles in flight of blocks that walk prepared ones, on Hopper.
const MOST_PREPARED: u32 = 225 << 10;

/// Those bytes on devices before Hopper: of compute capability 8.0, and of others.
const BEFORE_HOPPER: [u32; 2] = [156 << 10, 94 << 10];

/// How many prepared tiles may be in flight, at most `most`, for bytes of one and blocks that share a multiprocessor: one number, or one for
/// each kind of device that has the instruction set.
pub(in crate::schedules) fn prepared_stages(isa: Isa, bytes: u32, blocks: u32, most: u32) -> Vec<u32> {
    let rooms: &[u32] = if isa == Isa::Sm90a { &[MOST_PREPARED] } else { &BEFORE_HOPPER };
    let mut stages: Vec<u32> = rooms.iter().map(|room| (room / blocks / bytes).clamp(1, most)).collect();
    stages.dedup();
    stages
}

/// Tiles in flight of a rule whose factors are of a type: fewer where those over the depth would not have room.
pub(in crate::schedules) fn stages_of(form: &DeltaRule, factors: Elem, depth: u32) -> u32 {
    let mut own = vec![form.key, form.column.param, form.row.param];
    own.extend(form.readout.as_ref().map(|readout| readout.query.param));
    own.sort_unstable();
    own.dedup();
    let decayed = 2 + u32::from(form.readout.is_some()) + u32::from(form.has_two_keys());
    let is_late = factors == Elem::F32 && depth > LARGEST_IN_FLIGHT;
    let tiles = match own.len() as u32 {
        copied if form.channels.is_some() => 2 * (copied + decayed),
        copied if is_late => 2 * copied,
        copied => 3 * copied,
    };
    let bytes = tiles * TIMES * depth * factors.bytes().unwrap_or(4) as u32;
    if bytes > MOST_IN_FLIGHT { 2 } else { MOST_STAGES }
}

/// The schedules of a delta rule.
pub(super) fn of(stage: &Stage, isa: Isa) -> Vec<ChunkDelta> {
    let Ok(form) = stage.kind().delta() else { return vec![] };
    let elem = stage.program.params[form.row.param as usize].elem;
    let Some(vector) = vector_of(elem) else { return vec![] };
    let is_large = form.channels.is_some() || form.has_two_keys();
    let kinds = [(false, false, vector), (false, true, vector), (true, false, vector), (true, false, 1)];
    let of = |depth: u32, places: u32| {
        kinds.into_iter().flat_map(move |(padded, wide, vector)| {
            // Where a block alone fills a multiprocessor, or copies single elements, its threads have all registers.
            let is_split = factor_elem(elem, vector, depth) == Elem::F32;
            let is_alone = is_large || depth > 64 || is_split && depth > 32;
            let blocks = if is_alone || vector == 1 { 1 } else { 2 };
            let stages = stages_of(form, factor_elem(elem, vector, depth), depth);
            let sweep = RuleSweep::Whole;
            let one = ChunkDelta { depth, padded, wide, places, stages, vector, blocks, readers: false, sweep };
            [one].into_iter().chain(with_readers(form, one))
        })
    };
    let with_prepared = |own: ChunkDelta| {
        let factors = factor_elem(elem, own.vector, own.depth);
        let kept = prepares_itself(form, own.depth, own.vector).then_some(own);
        kept.into_iter().chain(prepared(stage, form, isa, own, factors))
    };
    let all = DEPTHS.into_iter().flat_map(|depth| PLACES.into_iter().flat_map(move |places| of(depth, places)));
    all.flat_map(with_prepared).collect()
}

/// Whether blocks may prepare their own tiles. Where steps read nothing of the state, a kernel of its own is faster for more than 64 keys, and
/// there are no registers for tiles of their own beside a state in two parts.
pub(in crate::schedules) fn prepares_itself(form: &DeltaRule, depth: u32, vector: u32) -> bool {
    form.reads || depth <= 64 || vector == 1
}

/// Whether a block has partners whose slots leave no room for a second block.
fn is_crowded(own: &ChunkDelta) -> bool {
    own.readers && own.places > ROWS
}

/// A schedule whose queries have warps of their own, where blocks have few places.
fn with_readers(form: &DeltaRule, own: ChunkDelta) -> Option<ChunkDelta> {
    let is_meant = form.readout.is_some() && own.places < TIMES && own.vector > 1;
    let one = ChunkDelta { readers: true, ..own };
    let blocks = if is_crowded(&one) { 1 } else { own.blocks };
    is_meant.then_some(ChunkDelta { blocks, ..one })
}

/// The schedules whose tiles of times are prepared by a kernel of its own.
fn prepared(stage: &Stage, form: &DeltaRule, isa: Isa, own: ChunkDelta, factors: Elem) -> Vec<ChunkDelta> {
    if own.vector == 1 {
        return vec![];
    }
    // Before Hopper half of the registers are too few for the first and the last state beside factors in two parts, where there are two keys or
    // outputs are stored as soon as they are read.
    let is_full = form.has_two_keys() || !form.reads && own.places == TIMES;
    let is_large = factors == Elem::F32 && is_full && own.depth > 32;
    let is_tight = is_large && has_last_state(stage) && isa != Isa::Sm90a;
    let shares = form.channels.is_some() && own.depth <= 64 && !is_crowded(&own) && !is_tight;
    let blocks = if shares { 2 } else { own.blocks };
    let stages = prepared_stages(isa, bytes_of_prepared(form, &own, factors), 1, MOST_STAGES);
    stages.into_iter().map(|stages| ChunkDelta { sweep: RuleSweep::Walk, stages, blocks, ..own }).collect()
}

/// Bytes of a tile that has been prepared, of values, and of what is handed over.
fn bytes_of_prepared(form: &DeltaRule, own: &ChunkDelta, factors: Elem) -> u32 {
    let TileLens { deep, pairs, numbers } = TileLens::of(form, own);
    let rows = 1 + u32::from(form.has_two_keys());
    let handed = if own.readers { own.walkers() * TIMES * (own.depth + rows * ROWS) } else { 0 };
    (deep + pairs + TIMES * own.places + handed) * factors.bytes().unwrap_or(4) as u32 + 4 * numbers
}

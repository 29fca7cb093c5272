//! The parameters that a plan may choose.

use super::readers::{self, READERS};
use super::{COPIERS, Chunkwise, ChunkwiseKernel, KeyParts, heads, prepared, shared_bytes};
use crate::schedules::Unit;
use crate::stage::Stage;
use crate::stage::kind::MatrixRecurrence;
use crate::target::Isa;
use oplus_dsl::Elem;

/// Lengths of the axis that is summed away.
const DEPTHS: [u32; 4] = [16, 32, 64, 128];
/// The tiles of a schedule.
#[derive(Clone, Copy)]
pub(crate) struct Tiles {
    /// Whether they are padded.
    pub(crate) padded: bool,
    /// Whether the width is several times theirs.
    pub(crate) wide: bool,
    /// Elements per access.
    pub(crate) vector: u32,
}

/// The tiles that candidates may have.
pub(crate) const TILES: [Tiles; 6] = [
    Tiles { padded: false, wide: false, vector: 8 },
    Tiles { padded: true, wide: false, vector: 8 },
    Tiles { padded: true, wide: false, vector: 1 },
    Tiles { padded: false, wide: true, vector: 8 },
    Tiles { padded: true, wide: true, vector: 8 },
    Tiles { padded: true, wide: true, vector: 1 },
];
/// Warps that hide one another's waits in such kernels.
pub(super) const WARPS: u32 = 8;
/// Shared memory that every block takes beside its own.
const BESIDE: u32 = 1 << 10;

/// The schedules of a stage that is a recurrence of matrices. Warpgroups round states and weights to the type of
/// factors; `f16` needs powers of two for it, which warps that only copy evaluate, and these divide factors of `f32` in two parts.
pub(super) fn of(stage: &Stage, isa: Isa) -> Vec<Chunkwise> {
    let Ok(form) = stage.kind().matrices() else { return vec![] };
    let elem = stage.program.params[form.key as usize].elem;
    let of = |unit, warps, depth, Tiles { padded, wide, vector }: Tiles| {
        let vector = if elem == Elem::F32 { vector.min(4) } else { vector };
        let schedule = Chunkwise {
            ends: false,
            warps,
            unit,
            depth,
            padded,
            wide,
            stages: if has_room_for_one(elem, form.channels, warps, depth) { 1 } else { 2 },
            vector,
            blocks: 2,
            copiers: 0,
            heads: 1,
            key_parts: KeyParts::Divided,
            readers: 0,
        };
        let blocks = match (elem, unit) {
            (Elem::Bf16, _) | (Elem::F16, Unit::Warpgroup) => 2,
            // The warps that copy have a chunk's elements in registers.
            (_, Unit::Warpgroup) => 1,
            _ => blocks(stage, &schedule, isa),
        };
        Chunkwise { blocks, ..schedule }
    };
    let shapes = DEPTHS.into_iter().flat_map(|depth| [2, 4].map(|warps| (warps, depth)));
    let of_shape = |(warps, depth)| {
        let of_tiles = move |tiles: Tiles| {
            let by_warpgroups = isa == Isa::Sm90a && warps == 4 && tiles.vector > 1 && !form.channels;
            let by_warps = is_meant(elem, form.channels, warps, depth, tiles) && !(by_warpgroups && elem == Elem::Bf16);
            let units = [(Unit::Warpgroup, by_warpgroups), (Unit::Warp, by_warps)];
            units.into_iter().filter(|(_, is_offered)| *is_offered).map(move |(unit, _)| of(unit, warps, depth, tiles))
        };
        TILES.into_iter().flat_map(of_tiles)
    };
    let whole_accesses = TILES.into_iter().filter(|tiles| isa == Isa::Sm90a && form.channels && tiles.vector > 1);
    let with_one_stage =
        whole_accesses.flat_map(|tiles| DEPTHS.map(|depth| with_more_blocks(elem, of(Unit::Warp, 4, depth, tiles))));
    let all = with_one_stage.flatten().chain(shapes.flat_map(of_shape));
    let with_copiers = |schedule: Chunkwise| {
        // Beside a gate a state of the greatest depth leaves too few registers: in `bf16` all warps copy then.
        let is_full = schedule.depth > 64 && ChunkwiseKernel::gate_of(stage, form, &schedule).is_some();
        let numbers: &[u32] = match (schedule.unit, elem) {
            (Unit::Warpgroup, Elem::F16 | Elem::F32) => &[COPIERS],
            (Unit::Warpgroup, _) if form.readout.is_some() && !is_full => &[COPIERS, 0],
            _ => &[0],
        };
        numbers.iter().map(move |copiers| Chunkwise { copiers: *copiers, ..schedule })
    };
    // At smaller depths a block of one recurrence reads little beside its values.
    let with_heads = |schedule: Chunkwise| {
        let several = Chunkwise { heads: heads::HEADS, stages: heads::STAGES, blocks: 1, ..schedule };
        let are_possible = schedule.depth > 64 && heads::are_possible(stage, form, &several);
        [schedule].into_iter().chain(are_possible.then_some(several))
    };
    let with_prepared = |schedule: Chunkwise| {
        let own = Chunkwise { key_parts: KeyParts::Prepared, ..schedule };
        [schedule].into_iter().chain(prepared::is_possible(stage, form, &own).then_some(own))
    };
    let with_readers = |schedule: Chunkwise| {
        let own = Chunkwise { readers: READERS, ..schedule };
        [schedule].into_iter().chain(readers::are_possible(stage, form, &own).then_some(own))
    };
    all.flat_map(with_copiers).flat_map(with_heads).flat_map(with_prepared).flat_map(with_readers).collect()
}

/// Whether a schedule of so many warps and such a depth is offered: warps have the registers for it, and it does well. Chunks of two
/// warps are too short for the greatest depth. In `tf32` chunks of four warps may be too large: where products are short or single
/// elements are copied, registers for loads ahead are lacking.
fn is_meant(elem: Elem, channels: bool, warps: u32, depth: u32, tiles: Tiles) -> bool {
    let Tiles { wide, vector, .. } = tiles;
    let (is_most, is_small) = (depth == DEPTHS[DEPTHS.len() - 1], depth <= 32);
    match (elem, warps) {
        _ if has_room_for_one(elem, channels, warps, depth) => true,
        (Elem::F32, 2) | (Elem::Bf16, 4) => true,
        (Elem::F32, _) => !is_small && !wide,
        (Elem::F16, 2) => !is_most || vector == 1,
        (Elem::F16, _) => !is_small && vector > 1 && (!wide || is_most),
        _ => !is_most && !wide,
    }
}

/// Whether shared memory has room for no more than one chunk: for `f32` with decays of channels at the greatest depth, of four warps.
fn has_room_for_one(elem: Elem, channels: bool, warps: u32, depth: u32) -> bool {
    elem == Elem::F32 && channels && warps == 4 && depth == DEPTHS[DEPTHS.len() - 1]
}

/// The places of parts of the depth in which it may be faster than as a whole. A block of `f32` with decays of channels at the greatest depth
/// takes the shared memory of a whole multiprocessor, and nothing fills its waits. Blocks of half the depth share one.
pub(crate) fn faster_parts(stage: &Stage, form: &MatrixRecurrence, depth: u32) -> Option<i64> {
    let elem = stage.program.params[form.key as usize].elem;
    let is_alone = elem == Elem::F32 && form.channels && depth == DEPTHS[DEPTHS.len() - 1];
    is_alone.then_some(i64::from(depth / 2))
}

/// The schedule with one chunk in flight, so that more blocks share a multiprocessor. With decays of channels a block waits for its powers of
/// two most of the time. Other blocks fill that time better than copies of the next chunk do.
fn with_more_blocks(elem: Elem, schedule: Chunkwise) -> Option<Chunkwise> {
    let blocks = match (elem, schedule.depth) {
        (Elem::Bf16 | Elem::F16, 64) => 3,
        (Elem::Bf16 | Elem::F16, 128) | (Elem::F32, 64) => 2,
        _ => return None,
    };
    Some(Chunkwise { stages: 1, blocks, ..schedule })
}

/// Blocks that share a multiprocessor, by its shared memory and the registers of eight warps that have most.
fn blocks(stage: &Stage, schedule: &Chunkwise, isa: Isa) -> u32 {
    let all = match isa {
        Isa::Sm80 => 164 << 10,
        Isa::Sm90a => 228 << 10,
    };
    (all / (shared_bytes(stage, schedule) + BESIDE)).clamp(1, WARPS / schedule.warps)
}

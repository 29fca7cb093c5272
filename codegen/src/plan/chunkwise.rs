//! The schedules of chunks that a plan may choose, and their cost.

use crate::stage::Bound;
use super::segments::Work;
use crate::schedule::{Chunkwise, Schedule, Unit};
use crate::schedules::chunkwise::shared_bytes;
use crate::stage::Stage;
use crate::target::{Isa, Target};
use oplus_dsl::Elem;

/// Lengths of the axis that is summed away.
const DEPTHS: [u32; 4] = [16, 32, 64, 128];
/// Whether tiles are padded, and the width is several times theirs; elements per access.
pub(super) const KINDS: [(bool, bool, u32); 4] =
    [(false, false, 8), (true, false, 8), (true, false, 1), (false, true, 8)];
/// Multiply-adds per microsecond of a multiprocessor, of what its tensor cores reach in such kernels by warps and warpgroups.
const BY_WARPS: f64 = 0.83e6;
const BY_WARPGROUPS: f64 = 1.2e6;
/// The same of products in `tf32`, of two parts of factors each.
const BY_PARTS: f64 = 0.146e6;
/// The same where words are unpacked, and the microseconds that a turn takes beside them.
const BY_UNPACKED: f64 = 0.71e6;
const TURN: f64 = 1.3;
/// Warps that hide one another's waits in such kernels, and how much longer fewer of them take.
const WARPS: u32 = 8;
const ALONE: f64 = 1.25;
/// Shared memory that every block takes beside its own.
const BESIDE: u32 = 1 << 10;
/// Powers of two per microsecond of a multiprocessor.
pub(super) const POWERS: f64 = 20e3;
/// Powers of two for each time and channel where decays are those of channels: of pairs, and to scale queries and keys.
const POWERS_EACH: f64 = 24.0;

/// The schedules of a stage that is a recurrence of matrices. Warpgroups round states and weights to the type of the factors: of
/// those of 16 bits only `bf16` has the range of the states as they are written.
pub(super) fn schedules(stage: &Stage, isa: Isa) -> Vec<Schedule> {
    let Ok(form) = stage.kind().matrices() else { return vec![] };
    let elem = stage.program.params[form.key as usize].elem;
    let of = |warps, depth, (padded, wide, vector): (bool, bool, u32)| {
        let together = isa == Isa::Sm90a && warps == 4 && vector > 1 && !form.channels && elem == Elem::Bf16;
        let unit = if together { Unit::Warpgroup } else { Unit::Warp };
        let vector = if elem == Elem::F32 { vector.min(4) } else { vector };
        let schedule = Chunkwise { ends: false, warps, unit, depth, padded, wide, stages: 2, vector, blocks: 2 };
        let blocks = if elem == Elem::Bf16 { 2 } else { blocks(stage, &schedule, isa) };
        Schedule::Chunkwise(Chunkwise { blocks, ..schedule })
    };
    let shapes = DEPTHS.into_iter().flat_map(|depth| [2, 4].map(|warps| (warps, depth)));
    let kinds = |(warps, depth)| {
        let kinds = KINDS.into_iter().filter(move |kind| is_meant((elem, form.channels), (warps, depth), *kind));
        kinds.map(move |kind| of(warps, depth, kind))
    };
    shapes.flat_map(kinds).collect()
}

/// Whether warps have registers for all of chunks of so many warps and such a depth, and which do best. Two warps' chunks are too
/// short for the most depth, but in `tf32` those of four may be too large: where products are short, or single elements are
/// copied, they lack registers for what is loaded ahead. Of `f32` and sums of channels shared memory has no room for the most depth.
fn is_meant((elem, channels): (Elem, bool), (warps, depth): (u32, u32), (_, wide, vector): (bool, bool, u32)) -> bool {
    let (is_most, is_small) = (depth == DEPTHS[DEPTHS.len() - 1], depth <= 32);
    match (elem, warps) {
        (Elem::F32, 4) if channels && is_most => false,
        (Elem::F32, 2) | (Elem::Bf16, 4) => true,
        (Elem::F32, _) => !is_small && !wide,
        (Elem::F16, 2) => !is_most || vector == 1,
        (Elem::F16, _) => !is_small && vector > 1 && (!wide || is_most),
        _ => !is_most && !wide,
    }
}

/// Blocks that share a multiprocessor, by its shared memory and the registers of eight warps that have most.
fn blocks(stage: &Stage, schedule: &Chunkwise, isa: Isa) -> u32 {
    let all = match isa {
        Isa::Sm80 => 164 << 10,
        Isa::Sm90a => 228 << 10,
    };
    (all / (shared_bytes(stage, schedule) + BESIDE)).clamp(1, WARPS / schedule.warps)
}

/// Microseconds, and why. Blocks go through chunks: four products for each, over time, depth and width.
pub(super) fn estimate(stage: &Stage, schedule: &Chunkwise, bound: &Bound, target: &Target) -> (f64, String) {
    let Ok(form) = stage.kind().matrices() else { return (f64::INFINITY, "no recurrence of matrices".into()) };
    let (times, depth) = (f64::from(schedule.times()), f64::from(schedule.depth));
    let work = Work::of(stage, form, schedule, bound);
    let segments = work.segments(target);
    // Decays of channels: those of pairs of neighbouring times are powers of two, of which a multiprocessor has few a microsecond.
    let powers = if form.channels { times * depth * POWERS_EACH / POWERS } else { 0.0 };
    let alone = if work.walk.blocks * schedule.warps < WARPS { ALONE } else { 1.0 };
    let (products, beside) = match form.elem(&stage.program) {
        Ok(Elem::F32) => (BY_PARTS / alone, 0.0),
        Ok(Elem::F16) => (BY_UNPACKED / alone, TURN),
        _ if schedule.unit == Unit::Warpgroup => (BY_WARPGROUPS, 0.0),
        _ => (BY_WARPS, 0.0),
    };
    let turn = f64::from(work.walk.blocks) * (times * times * (3.0 * depth + times) / products + powers) + beside;
    // Element by element tiles are filled by ordinary loads.
    let slower = if schedule.vector == 1 { 4.0 } else { 1.0 };
    (work.turns(segments, target) * turn * slower, work.why(segments, target))
}

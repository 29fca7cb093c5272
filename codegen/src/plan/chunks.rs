//! The schedules of chunks that a plan may choose, and their cost.

use super::bound::Bound;
use super::segments::Work;
use crate::lower::chunks::Form;
use crate::schedule::{Chunks, Schedule, Unit};
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
/// Powers of two per microsecond of a multiprocessor.
pub(super) const POWERS: f64 = 20e3;
/// Powers of two for each time and channel where decays are those of channels: of pairs, and to scale queries and keys.
const POWERS_EACH: f64 = 24.0;

/// The schedules of a stage that is a recurrence of matrices. States and weights are rounded to the type of the factors: of
/// those of 16 bits only `bf16` has the range of the states as they are written.
pub(super) fn schedules(stage: &Stage, isa: Isa) -> Vec<Schedule> {
    let Ok(form) = Form::of(stage) else { return vec![] };
    if stage.program.params[form.key as usize].elem != Elem::Bf16 {
        return vec![];
    }
    let of = |warps, depth, (padded, wide, vector)| {
        let together = isa == Isa::Sm90a && warps == 4 && vector > 1 && !form.channels;
        let unit = if together { Unit::Warpgroup } else { Unit::Warp };
        Schedule::Chunks(Chunks { ends: false, warps, unit, depth, padded, wide, stages: 2, vector, blocks: 2 })
    };
    // Two warps have no registers for the most depth.
    let shapes = DEPTHS.into_iter().flat_map(|depth| [2, 4].map(|warps| (warps, depth)));
    let shapes = shapes.filter(|shape| *shape != (2, DEPTHS[DEPTHS.len() - 1]));
    let kinds =
        |(warps, depth)| KINDS.into_iter().filter(move |k| warps == 4 || !k.1).map(move |k| of(warps, depth, k));
    shapes.flat_map(kinds).collect()
}

/// Microseconds, and why. Blocks go through chunks: four products for each, over time, depth and width.
pub(super) fn estimate(stage: &Stage, schedule: &Chunks, bound: &Bound, target: &Target) -> (f64, String) {
    let Ok(form) = Form::of(stage) else { return (f64::INFINITY, "no recurrence of matrices".into()) };
    let (times, depth) = (f64::from(schedule.times()), f64::from(schedule.depth));
    let work = Work::of(&form, schedule, bound);
    let segments = work.segments(target);
    // Decays of channels: those of pairs of neighbouring times are powers of two, of which a multiprocessor has few a microsecond.
    let powers = if form.channels { times * depth * POWERS_EACH / POWERS } else { 0.0 };
    let products = if schedule.unit == Unit::Warpgroup { BY_WARPGROUPS } else { BY_WARPS };
    let turn = f64::from(work.walk.blocks) * (times * times * (3.0 * depth + times) / products + powers);
    // Element by element tiles are filled by ordinary loads.
    let slower = if schedule.vector == 1 { 4.0 } else { 1.0 };
    (work.turns(segments, target) * turn * slower, work.why(segments, target))
}

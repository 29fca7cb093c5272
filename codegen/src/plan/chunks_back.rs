//! The schedules of gradients of recurrences of matrices that a plan may choose, and their cost.

use super::bound::Bound;
use super::chunks::KINDS;
use super::geometry::blocks;
use super::segments::Work;
use crate::lower::chunks::back::{BackForm, TIMES};
use crate::lower::chunks::parts;
use crate::schedule::{ChunksBack, Schedule, Sweep};
use crate::stage::Stage;
use crate::target::{Isa, Target};
use oplus_dsl::Elem;

/// Lengths of the axis of keys and queries.
const DEPTHS: [u32; 3] = [32, 64, 128];
/// Multiply-adds per microsecond of a multiprocessor, of what its tensor cores reach in such kernels.
const PRODUCTS: f64 = 0.52e6;

/// The schedules of a two-way stage that is the gradient of a recurrence of matrices. Of the types of 16 bits only `bf16` has
/// the range of states as they are written; copy engines write and read them.
pub(super) fn schedules(stage: &Stage, isa: Isa) -> Vec<Schedule> {
    if isa != Isa::Sm90a || !BackForm::of(stage).is_ok_and(|form| form.elem(stage) == Elem::Bf16) {
        return vec![];
    }
    let of = |depth, (padded, wide, vector)| {
        let sweep = Sweep::Gradients;
        Schedule::ChunksBack(ChunksBack { sweep, depth, padded, wide, stages: 3, vector, blocks: 1 })
    };
    let kinds = |depth| KINDS.map(|kind| of(depth, kind));
    DEPTHS.into_iter().flat_map(kinds).collect()
}

/// Microseconds of all sweeps, and why: a product over times, depth and width in each of the first two, three of them and three
/// over pairs of times and the width in the third.
pub(super) fn estimate(stage: &Stage, schedule: &ChunksBack, bound: &Bound, target: &Target) -> (f64, String) {
    let Ok(form) = BackForm::of(stage) else { return (f64::INFINITY, "no recurrence of matrices".into()) };
    let (times, depth) = (f64::from(TIMES), f64::from(schedule.depth));
    let parts = parts(&form.states, schedule.wide, TIMES, |axis| bound.size(axis)) as f64;
    let work = Work::back(&form, schedule, bound);
    let segments = work.segments(target);
    let points = blocks(stage, &Schedule::ChunksBack(*schedule), bound) as f64;
    let heads = bound.count(form.heads.iter()) as f64 * parts;
    let walks = 2.0 * work.turns(segments, target) * f64::from(work.walk.blocks) * times * times * depth;
    let all = (points / f64::from(target.multiprocessors)).ceil();
    let gradients = all * heads * times * times * (3.0 * depth + 3.0 * times);
    // Element by element tiles are filled by ordinary loads.
    let slower = if schedule.vector == 1 { 4.0 } else { 1.0 };
    let why = format!("{}; then {points} blocks of {heads} heads", work.why(segments, target));
    ((walks + gradients) / PRODUCTS * slower, why)
}

//! The parameters that a plan may choose.

use super::parameters::{MOST_WARPS, UNROLL_OF_NARROW};
use super::{CHUNK, StateSpace, can_segment, has_flags, work};
use crate::stage::Stage;
use crate::target::Isa;

/// State axes that shorter ones are padded to.
const PADDED: [u32; 4] = [4, 16, 64, 256];

/// State axes of 4, 16 and 64; shorter ones, and up to 256, are padded.
pub(super) fn with_vectors(stage: &Stage, vector: u32, isa: Isa) -> Vec<StateSpace> {
    let (narrow, dear_rows) = (vector > CHUNK, work(stage).dear_rows);
    let many = |capacity| match (dear_rows, narrow) {
        (false, _) => many(capacity),
        (true, false) => many_dear(capacity),
        // Before Hopper threads have no registers left for the pieces of two teams.
        (true, true) if isa == Isa::Sm90a => StateSpace { teams: 2, stages: 4, ..many_dear(capacity) },
        (true, true) => many_dear(capacity),
    };
    let exact = [four(narrow, dear_rows), few(4), many(16), few(16), many(64), few(64)];
    let padded = PADDED.map(|capacity| StateSpace { padded: true, ..few(capacity) });
    let cut = [few(4), many(16), few(16), few(64)].into_iter().chain(padded);
    let cut = cut.filter(|_| can_segment(stage)).map(|s| StateSpace { segmented: true, ..s });
    let all = exact.into_iter().chain(padded).chain(cut).map(|s| StateSpace { vector, ..s });
    // Many states and the flags of packed sequences take registers.
    let crowded = |s: &StateSpace| s.states > CHUNK && s.blocks == 1 && has_flags(stage);
    let fewer = |s: &StateSpace| crowded(s) || narrow && unpacks_too_many(s, stage.has_finals());
    all.map(|s| if fewer(&s) { StateSpace { unroll: UNROLL_OF_NARROW, ..s } } else { s }).collect()
}

/// Whether narrow elements take more registers to unpack than there are: with most warps, and beside final states.
fn unpacks_too_many(s: &StateSpace, has_finals: bool) -> bool {
    s.states > 1 && (s.warps == MOST_WARPS || s.blocks > 1 && has_finals)
}

/// The schedules that assume nothing of strides and addresses.
pub(super) fn scalar(stage: &Stage) -> Vec<StateSpace> {
    let whole = PADDED.map(|capacity| StateSpace { padded: true, unroll: 1, ..few(capacity) });
    let cut = whole.into_iter().filter(|_| can_segment(stage)).map(|s| StateSpace { segmented: true, ..s });
    whole.into_iter().chain(cut).collect()
}

/// Rows enough for two blocks on every multiprocessor.
fn many(capacity: u32) -> StateSpace {
    let (warps, copy_warps, states, steps, blocks) = (4, 2, 8, 32, 2);
    let lanes = capacity / states;
    StateSpace {
        warps,
        copy_warps,
        teams: 1,
        states,
        lanes,
        padded: false,
        steps,
        stages: 3,
        unroll: 4,
        vector: 1,
        blocks,
        save: false,
        segmented: false,
        ends: false,
    }
}

/// Rows enough, where the copy warps compute dear functions (softplus, a gate): more of them, and for that fewer registers each.
fn many_dear(capacity: u32) -> StateSpace {
    let states = 4;
    let lanes = capacity / states;
    StateSpace { warps: MOST_WARPS, copy_warps: 8, states, lanes, blocks: 1, ..many(capacity) }
}

/// Four states: the rows cost more than the states. Two states per lane, so that fewer lanes read each row. Narrow elements, which are
/// unpacked, and dear rows want as many copy warps as there is room for.
fn four(narrow: bool, dear_rows: bool) -> StateSpace {
    let (copy_warps, teams, stages) = match (narrow, dear_rows) {
        (_, true) => (16, 4, 4),
        (true, false) => (8, 1, 3),
        (false, false) => (4, 1, 3),
    };
    StateSpace { copy_warps, teams, states: 2, lanes: 2, steps: 64, stages, unroll: 8, ..few(4) }
}

/// Fewer rows: more lanes for each. With one block per multiprocessor a single team of copy warps would not hide memory's
/// latency.
fn few(capacity: u32) -> StateSpace {
    let states = match capacity {
        4 => 1,
        256 => 8,
        _ => 4,
    };
    let lanes = capacity / states;
    let unroll = if capacity == 4 { 4 } else { 8 };
    let stages = if capacity == 256 { 2 } else { 4 };
    StateSpace {
        warps: 4,
        copy_warps: 8,
        teams: 2,
        states,
        lanes,
        padded: false,
        steps: 32,
        stages,
        unroll,
        vector: 1,
        blocks: 1,
        save: false,
        segmented: false,
        ends: false,
    }
}

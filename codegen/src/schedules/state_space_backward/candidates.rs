//! The parameters that a plan may choose.

use super::{Pass, SUBTILE, StateSpaceBackward, can_segment, has_registers};
use crate::schedules::state_space::{CHUNK, has_flags};
use crate::stage::Stage;
use crate::target::Isa;
use std::iter;

/// State axes that shorter ones are padded to.
const PADDED: [u32; 4] = [4, 16, 64, 256];

/// State axes of 4, 16 and 64; shorter ones, and up to 256, are padded.
pub(super) fn with_vectors(stage: &Stage, vector: u32, isa: Isa) -> Vec<StateSpaceBackward> {
    let exact = |s: StateSpaceBackward| StateSpaceBackward { padded: false, ..s };
    let fits = |s: &StateSpaceBackward| s.rows == 1 || has_registers(stage, s) && !are_crowded_by_flags(stage, s, isa);
    let whole = [many(4), few(4), many(16), few(16), few(64)].map(exact).into_iter();
    let whole = whole.chain(PADDED.map(few));
    // With segments there are blocks enough for two rows per lane.
    let cut = [many(4), many(16), few(64)].map(exact).into_iter().chain(PADDED.map(few));
    let cut = cut.filter(|_| can_segment(stage)).map(|s| StateSpaceBackward { segmented: true, ..s });
    let all = whole.chain(cut).map(|s| StateSpaceBackward { vector, ..bounded(s, isa) });
    with_small(all.filter(fits), isa).map(|s| copied_ahead(s, isa)).collect()
}

/// Whether flags of steps leave too few registers for two rows per lane: in segments of time, and before Hopper.
fn are_crowded_by_flags(stage: &Stage, s: &StateSpaceBackward, isa: Isa) -> bool {
    has_flags(stage) && (s.segmented || isa == Isa::Sm80)
}

/// The schedules that assume nothing of strides and addresses: on Hopper also those of all devices, whose kernels are committed.
pub(super) fn scalar(isa: Isa) -> Vec<StateSpaceBackward> {
    let of = |isa: Isa| PADDED.map(few).map(|s| copied_ahead(bounded(s, isa), isa));
    match isa {
        Isa::Sm80 => with_small(of(isa).into_iter(), isa).collect(),
        Isa::Sm90a => [of(isa), of(Isa::Sm80)].concat(),
    }
}

/// The schedules, and beside those of one row per lane, where devices may have less shared memory than Hopper, forms with [smaller tiles](small).
fn with_small(all: impl Iterator<Item = StateSpaceBackward>, isa: Isa) -> impl Iterator<Item = StateSpaceBackward> {
    all.flat_map(move |s| {
        let is_meant = isa == Isa::Sm80 && s.rows == 1;
        // Sums over the rows of a warp take more memory the more lanes share a row.
        let parts: &[u32] = if s.warps > 2 && s.lanes > 4 { &[2, 4] } else { &[2] };
        iter::once(s).chain(parts.iter().filter(move |_| is_meant).map(move |parts| small(s, *parts)))
    })
}

/// The schedule with blocks of fewer rows, one of so many parts, and tiles of the fewest steps. Two blocks share a multiprocessor where it has
/// room for them.
fn small(s: StateSpaceBackward, parts: u32) -> StateSpaceBackward {
    StateSpaceBackward { warps: s.warps / parts, copy_warps: s.copy_warps / parts, steps: 2 * SUBTILE, blocks: 2, ..s }
}

/// The schedule with registers that warps can give to others, where an instruction set has that.
fn bounded(s: StateSpaceBackward, isa: Isa) -> StateSpaceBackward {
    if isa == Isa::Sm90a { s } else { StateSpaceBackward { registers: 0, ..s } }
}

/// The schedule with saved states that are copied ahead, where lanes have many.
fn copied_ahead(s: StateSpaceBackward, isa: Isa) -> StateSpaceBackward {
    // With 16-bit elements a walk of many states takes longer where two sub-tiles of them are on their way (decision 0011).
    let is_crowded = s.registers > 0 && s.vector > CHUNK;
    let copies_ahead = isa == Isa::Sm90a && s.states >= CHUNK;
    let saved_ahead = if copies_ahead { 2 - u32::from(is_crowded) } else { 0 };
    StateSpaceBackward { saved_ahead, ..s }
}

/// Two rows per lane.
fn many(capacity: u32) -> StateSpaceBackward {
    let small = capacity == 4;
    let (warps, copy_warps, blocks) = if small { (4, 2, 2) } else { (8, 4, 1) };
    let registers = if small { 0 } else { 216 };
    let states = if small { 1 } else { 4 };
    StateSpaceBackward { rows: 2, warps, copy_warps, blocks, registers, states, ..few(capacity) }
}

/// One row per lane.
fn few(capacity: u32) -> StateSpaceBackward {
    let (states, warps, copy_warps, steps) = match capacity {
        4 => (1, 4, 2, 32),
        256 => (8, 2, 2, 16),
        _ => (4, 8, 4, 32),
    };
    let lanes = capacity / states;
    StateSpaceBackward {
        pass: Pass::Walk,
        warps,
        copy_warps,
        states,
        rows: 1,
        lanes,
        padded: true,
        steps,
        stages: 2,
        vector: 1,
        blocks: 1,
        registers: if warps == 8 { 216 } else { 0 },
        segmented: false,
        saved_ahead: 0,
    }
}

//! The parameters that a plan may choose.

use super::Recurrence;
use crate::schedules::shape::vector;
use crate::schedules::strategy::Access;
use crate::stage::Stage;
use oplus_dsl::Ty;

/// Lanes and places of each for rows up to a length.
const ROOM: [(u32, u32); 8] = [(4, 4), (8, 4), (8, 8), (16, 8), (32, 8), (32, 16), (32, 32), (32, 64)];
/// Lengths for which there are schedules without padding.
const EXACT: [u32; 2] = [64, 128];
/// Registers for what is loaded ahead.
const REGISTERS: u32 = 48;

/// The candidates of a stage.
pub(super) fn of(stage: &Stage, access: Access) -> Vec<Recurrence> {
    let along = stage.recurrence().map(|recurrence| recurrence.scan.along);
    match access {
        Access::Vectors => {
            let access = along.and_then(|along| vector(stage, along));
            access.map(|vector| with_vectors(stage, vector)).unwrap_or_default()
        }
        Access::Singles | Access::Unmerged => padded(stage, 1).collect(),
    }
}

/// The candidates that keep to the order of sums.
pub(super) fn ordered(stage: &Stage) -> Vec<Recurrence> {
    padded(stage, 1).map(|schedule| Recurrence { ordered: true, ..schedule }).collect()
}

fn with_vectors(stage: &Stage, vector: u32) -> Vec<Recurrence> {
    let all: Vec<Recurrence> = padded(stage, vector).collect();
    let exact = all.iter().filter(|schedule| EXACT.contains(&schedule.capacity()));
    exact.map(|schedule| Recurrence { padded: false, ..*schedule }).chain(all.iter().copied()).collect()
}

fn padded(stage: &Stage, vector: u32) -> impl Iterator<Item = Recurrence> {
    let words = words_of_place(stage).max(1);
    ROOM.into_iter().map(move |(lanes, states)| {
        let ahead = (REGISTERS / (states * words)).clamp(1, 4);
        Recurrence { warps: 4, lanes, states, ahead, vector: vector.min(states), padded: true, ordered: false }
    })
}

/// Registers for what a step reads at one place.
fn words_of_place(stage: &Stage) -> u32 {
    let Some(recurrence) = stage.recurrence() else { return 1 };
    let scan = recurrence.scan;
    let params = stage.program.params.iter().filter(|p| p.axes.contains(&scan.along) && p.axes.contains(&scan.axis));
    params.map(|p| if p.elem.value() == Ty::F64 { 2 } else { 1 }).sum()
}

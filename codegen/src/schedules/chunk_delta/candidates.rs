//! The parameters that a plan may choose.

use super::ChunkDelta;
use crate::stage::Stage;
use oplus_dsl::Elem;

/// Lengths of the axis that the matrices act on.
const DEPTHS: [u32; 3] = [32, 64, 128];

/// Places of a block's part of the width.
const PLACES: [u32; 3] = [64, 32, 16];

/// The schedules of a delta rule: products are of `bf16`, which has the range of the states.
pub(super) fn of(stage: &Stage) -> Vec<ChunkDelta> {
    let Ok(form) = stage.kind().delta() else { return vec![] };
    if stage.program.params[form.row.param as usize].elem != Elem::Bf16 {
        return vec![];
    }
    let is_large = form.channels.is_some() || form.has_two_keys();
    let kinds = [(false, false, 8), (false, true, 8), (true, false, 8), (true, false, 1)];
    let of = |depth: u32, places: u32| {
        kinds.map(|(padded, wide, vector)| {
            // Where a block alone fills a multiprocessor, or copies single elements, its threads have all registers.
            let blocks = if is_large || depth > 64 || vector == 1 { 1 } else { 2 };
            ChunkDelta { depth, padded, wide, places, stages: 3, vector, blocks }
        })
    };
    DEPTHS.into_iter().flat_map(|depth| PLACES.into_iter().flat_map(move |places| of(depth, places))).collect()
}

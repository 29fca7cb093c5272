//! The parameters that a plan may choose.

use super::ChunkDelta;
use crate::block::prepare::factor_elem;
use crate::stage::Stage;
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

/// The schedules of a delta rule.
pub(super) fn of(stage: &Stage) -> Vec<ChunkDelta> {
    let Ok(form) = stage.kind().delta() else { return vec![] };
    let elem = stage.program.params[form.row.param as usize].elem;
    let Some(vector) = vector_of(elem) else { return vec![] };
    let is_large = form.channels.is_some() || form.has_two_keys();
    let kinds = [(false, false, vector), (false, true, vector), (true, false, vector), (true, false, 1)];
    let of = |depth: u32, places: u32| {
        kinds.map(|(padded, wide, vector)| {
            // Where a block alone fills a multiprocessor, or copies single elements, its threads have all registers.
            let is_split = factor_elem(elem, vector, depth) == Elem::F32;
            let is_alone = is_large || depth > 64 || is_split && depth > 32;
            let blocks = if is_alone || vector == 1 { 1 } else { 2 };
            ChunkDelta { depth, padded, wide, places, stages: 3, vector, blocks }
        })
    };
    DEPTHS.into_iter().flat_map(|depth| PLACES.into_iter().flat_map(move |places| of(depth, places))).collect()
}

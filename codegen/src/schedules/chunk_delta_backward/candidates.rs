//! The parameters that a plan may choose.

use super::{ChunkDeltaBackward, DeltaSweep, TIMES};
use crate::block::prepare::factor_elem;
use crate::schedules::chunk_delta::{stages_of, vector_of};
use crate::stage::Stage;
use crate::target::Isa;
use oplus_dsl::Elem;

/// Lengths of the axis that the matrices act on.
const DEPTHS: [u32; 3] = [32, 64, 128];

/// The schedules of the gradient of a delta rule.
pub(super) fn of(stage: &Stage, isa: Isa) -> Vec<ChunkDeltaBackward> {
    let Ok(form) = stage.kind().delta_back() else { return vec![] };
    let elem = stage.program.params[form.states.row.param as usize].elem;
    let Some(vector) = vector_of(elem) else { return vec![] };
    let kinds = [(false, false, vector), (false, true, vector), (true, false, vector), (true, false, 1)];
    let has_channels = form.states.channels.is_some();
    let sweep = if has_channels { DeltaSweep::Channels } else { DeltaSweep::Gradients };
    let of = |depth: u32, places: u32| {
        let kinds = kinds.into_iter().filter(move |(padded, ..)| places == TIMES || !padded);
        kinds.flat_map(move |(padded, wide, vector)| {
            // The sums of all parts of a wide state stay in registers.
            let is_split = factor_elem(elem, vector, depth) == Elem::F32;
            let is_alone = depth > 64 || wide || is_split && depth > 32;
            let blocks = if !has_channels && is_alone { 1 } else { 2 };
            let stages = stages_of(&form.cotangents, factor_elem(elem, vector, depth), depth);
            // Smaller devices have no memory for two parts of a wide state.
            let persistent = isa == Isa::Sm90a && !has_channels && wide && !is_split;
            let concurrent = false;
            let one = ChunkDeltaBackward {
                sweep,
                depth,
                padded,
                wide,
                places,
                vector,
                blocks,
                stages,
                concurrent,
                persistent,
            };
            let both = (vector > 1).then_some(ChunkDeltaBackward { concurrent: true, ..one });
            [one].into_iter().chain(both)
        })
    };
    DEPTHS.into_iter().flat_map(|depth| [TIMES, 32, 16].into_iter().flat_map(move |places| of(depth, places))).collect()
}

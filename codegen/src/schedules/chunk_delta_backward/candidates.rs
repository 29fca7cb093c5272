//! The parameters that a plan may choose.

use super::prepared::lens;
use super::{ChunkDeltaBackward, DeltaSweep, STAGES, TIMES, blocks_of_walks};
use crate::block::prepare::factor_elem;
use crate::schedules::chunk_delta::{prepared_stages, prepares_itself, stages_of, vector_of};
use crate::stage::Stage;
use crate::stage::kind::DeltaRuleBackward;
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
            let blocks = match (has_channels, form.states.reads) {
                // Registers of steps that read nothing leave room for a third block, where its tiles have 16 bits.
                (true, false) if !is_split => 3,
                (false, _) if is_alone => 1,
                _ => 2,
            };
            let stages = stages_of(&form.cotangents, factor_elem(elem, vector, depth), depth);
            // Smaller devices have no memory for two parts of a wide state.
            let persistent = isa == Isa::Sm90a && !has_channels && wide && !is_split;
            let (concurrent, prepared, overlaid) = (false, false, false);
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
                prepared,
                overlaid,
            };
            // Devices before Hopper may have no room for all tiles: walks have two in flight, and weights lie over other tiles.
            let is_large = vector > 1 && !has_channels && depth == if is_split { 64 } else { 128 };
            let small = (isa == Isa::Sm80 && is_large && !padded).then_some(ChunkDeltaBackward {
                blocks: 1,
                stages: 2,
                overlaid: true,
                ..one
            });
            let both = |one| (vector > 1).then_some(ChunkDeltaBackward { concurrent: true, ..one });
            // Walks that store gradients of values have no registers for single elements beside a deep state in two parts.
            let has_registers = form.states.reads || elem != Elem::F16 || depth <= 64;
            let is_kept = has_registers && prepares_itself(&form.states, depth, vector);
            [Some(one), both(one), small, small.and_then(both)]
                .into_iter()
                .flatten()
                .flat_map(move |own| is_kept.then_some(own).into_iter().chain(with_prepared(stage, isa, form, own)))
        })
    };
    let of = &of;
    DEPTHS.into_iter().flat_map(|depth| [TIMES, 32, 16].into_iter().flat_map(move |places| of(depth, places))).collect()
}

/// The schedules whose tiles of times are prepared by a kernel of its own, where decays differ along the depth.
fn with_prepared(
    stage: &Stage,
    isa: Isa,
    form: &DeltaRuleBackward,
    own: ChunkDeltaBackward,
) -> Vec<ChunkDeltaBackward> {
    if form.states.channels.is_none() || own.vector == 1 {
        return vec![];
    }
    let prepared = ChunkDeltaBackward { prepared: true, ..own };
    let elem = stage.program.params[form.states.row.param as usize].elem;
    let factors = factor_elem(elem, own.vector, own.depth);
    let [deep, numbers] = lens(form, own.depth).map(|len| len as u32);
    let bytes = (deep + TIMES * own.places) * factors.bytes().unwrap_or(4) as u32 + 4 * numbers;
    let blocks = blocks_of_walks(stage, &prepared);
    let stages = prepared_stages(isa, bytes, blocks, STAGES);
    stages.into_iter().map(|stages| ChunkDeltaBackward { stages, ..prepared }).collect()
}

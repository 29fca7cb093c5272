//! The parameters that a plan may choose.

use super::{ChunkwiseBackward, Sweep, WALK_STAGES, can_overlay, copiers, warpgroups};
use crate::schedules::chunkwise::candidates::{TILES, Tiles};
use crate::stage::Stage;
use crate::target::Isa;
use oplus_dsl::Elem;
use oplus_dsl::ir::AxisSet;

/// Lengths of the axis of keys and queries.
const DEPTHS: [u32; 3] = [32, 64, 128];

/// The schedules of a backward-scan stage that is the gradient of a recurrence of matrices. On Hopper there is room for the tiles of two
/// heads; other devices have it not always, and not for states in `f32`. A single head has no other that is copied meanwhile.
pub(super) fn of(stage: &Stage, isa: Isa) -> Vec<ChunkwiseBackward> {
    let Ok(form) = stage.kind().matrices_back() else { return vec![] };
    let is_tf32 = form.state_elem(stage) == Elem::F32;
    let of = |depth, Tiles { padded, wide, vector }: Tiles| {
        let vector = if form.elem(stage) == Elem::F32 { vector.min(4) } else { vector };
        let is_iterated = form.heads != AxisSet::EMPTY || wide;
        // The deepest tiles of two heads have room on few devices, and their indices have too few registers.
        let is_deepest = depth == DEPTHS[DEPTHS.len() - 1];
        let sets: &[u32] = match isa {
            // With decays of channels there is room for one slice.
            _ if wide && form.states.channels => &[2],
            Isa::Sm90a if !is_tf32 => &[3],
            // Slices of one head leave too few registers in `f32`.
            Isa::Sm90a if wide && !is_deepest => &[3],
            Isa::Sm80 if is_tf32 => &[2],
            _ if is_iterated && !is_deepest => &[3, 2],
            _ => &[2],
        };
        let (sweep, blocks) = (Sweep::Gradients, 1);
        // Otherwise the deepest tiles have no room.
        let is_overlaid = is_deepest && can_overlay(stage, form);
        let (elem, numbers) = (form.elem(stage), copiers(stage, form, depth, vector, isa));
        let of = move |stages, warpgroups| {
            let (copiers, overlaid) = (0, is_overlaid);
            let own = ChunkwiseBackward {
                sweep,
                depth,
                padded,
                wide,
                stages,
                vector,
                blocks,
                copiers,
                warpgroups,
                overlaid,
                walk_stages: WALK_STAGES,
            };
            numbers.iter().map(move |copiers| ChunkwiseBackward { copiers: *copiers, ..own })
        };
        // A single head leaves nothing to overlap. Products of `f32` in two parts of 16 bits are faster all the same.
        let is_meant = is_iterated || elem == Elem::F32;
        let by_warpgroups = is_meant && warpgroups::can_take(stage, form, vector, isa);
        let most = match elem {
            Elem::F32 => 3,
            _ if is_deepest => 4,
            _ => 5,
        };
        let by_warpgroups = by_warpgroups.then_some(most);
        let all = by_warpgroups.into_iter().flat_map(move |stages| of(stages, true));
        let all = all.filter(move |own| own.copiers > 0 || elem == Elem::Bf16);
        // By warps, third sweeps of `f32` read what walks by warps save.
        let by_warps = sets.iter().flat_map(move |stages| of(*stages, false));
        // A single head has nothing to copy meanwhile; a second block has. Without decays, and of f16 at the least depth, it would spill.
        let has_registers = form.states.decay.is_some() && (elem != Elem::F16 || depth > DEPTHS[0]);
        let by_warps = by_warps.map(move |own| match own.copiers > 0 && !is_iterated && !is_deepest && has_registers {
            true => ChunkwiseBackward { stages: 2, blocks: 2, ..own },
            false => own,
        });
        // Beside numbers of a sequence those of the greatest depth spill.
        let spills = elem == Elem::F32 && is_deepest && stage.sequences().is_some() && by_warpgroups.is_some();
        let by_warps = by_warps.filter(move |own| !spills && (own.copiers == 0 || elem != Elem::F32));
        // One block of such a walk would have the shared memory of a multiprocessor to itself.
        let has_more_blocks = isa == Isa::Sm90a && elem == Elem::F32 && form.states.channels;
        let has_more_blocks = has_more_blocks && depth == DEPTHS[1] && vector > 1;
        let with_more_blocks = move |own| has_more_blocks.then_some(ChunkwiseBackward { walk_stages: 1, ..own });
        all.chain(by_warps.flat_map(move |own| with_more_blocks(own).into_iter().chain([own])))
    };
    DEPTHS.into_iter().flat_map(|depth| TILES.into_iter().flat_map(move |tiles| of(depth, tiles))).collect()
}

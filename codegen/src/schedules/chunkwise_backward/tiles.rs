//! The tiles of the third sweep.

use super::TIMES;
use crate::block::layout::{Tile, TileOf, TileShape};
use crate::build::Builder;
use crate::schedules::ChunkwiseBackward;
use crate::stage::Stage;
use crate::stage::kind::MatrixRecurrenceBackward;
use crate::tile::SharedKind;
use oplus_dsl::ir::Axis;

/// The tiles of a [`ChunkwiseBackwardKernel`](super::ChunkwiseBackwardKernel).
pub(super) struct Tiles {
    pub keys: Tile,
    pub queries: Tile,
    pub values: Tile,
    pub cotangents: Tile,
    pub states: Tile,
    pub duals: Tile,
    pub weights: Tile,
}

impl Tiles {
    /// Declares the tiles and their mbarriers.
    pub(super) fn declare(
        b: &mut Builder,
        stage: &Stage,
        form: &MatrixRecurrenceBackward,
        schedule: &ChunkwiseBackward,
    ) -> Tiles {
        let [elem, of_weights] = [schedule.saved_elem(stage, form), schedule.weights_elem(stage, form)];
        let depth = schedule.depth;
        let [states, dual] = [&form.states, &form.cotangents];
        let factor = if schedule.warpgroups { elem } else { form.elem(stage) };
        let mut tile = |param: u32, inner: Axis, depth: u32, stages: u32| {
            let of = TileOf { param, along: states.time, inner };
            Tile::declare_as(b, stage, of, TileShape { rows: TIMES, depth, stages }, factor)
        };
        let mut keys = tile(states.key, states.depth, depth, 1);
        let mut queries = tile(dual.key, states.depth, depth, 1);
        let heads = schedule.heads();
        let stages = if states.channels { 1 } else { heads };
        let are_shared = schedule.shares_tiles(stage, form);
        let mut values = tile(states.value, states.width, TIMES, if are_shared { 2 } else { stages });
        let mut cotangents = match are_shared {
            false => tile(dual.value, states.width, TIMES, stages),
            true => {
                let name = stage.program.params[dual.value as usize].name.clone();
                Tile { param: dual.value, name, ..values.clone() }
            }
        };
        let is_split = schedule.are_split(stage, form);
        let depth = if is_split { schedule.panel() } else { depth };
        let mut saved = |name: &str| {
            let array = b.shared(name, SharedKind::Elem(elem), stages * TIMES * depth);
            Tile { array, full: array, name: name.to_owned(), rows: TIMES, depth, elem, ..keys.clone() }
        };
        let mut states = saved("states");
        let mut duals = if are_shared { Tile { name: "duals".into(), ..states.clone() } } else { saved("duals") };
        if is_split {
            let [keys, queries] = [keys, queries].map(|tile| tile.in_parts(b, 1));
            let [values, cotangents, states, duals] =
                [values, cotangents, states, duals].map(|tile| tile.in_parts(b, stages));
            // E, summed over heads, takes the place of cotangents when all heads are done.
            let weights = cotangents.clone();
            return Tiles { keys, queries, values, cotangents, states, duals, weights };
        }
        let weights = Tile::bare(b, "weights", of_weights, TIMES, TIMES);
        if schedule.warpgroups {
            return Tiles { keys, queries, values, cotangents, states, duals, weights };
        }
        for (tile, stages) in [(&mut keys, 1), (&mut queries, 1)] {
            tile.full = b.shared(format!("{}_full", tile.name), SharedKind::Mbarrier, stages);
        }
        for tile in [&mut values, &mut cotangents, &mut states, &mut duals] {
            tile.full = b.shared(format!("{}_full", tile.name), SharedKind::Mbarrier, heads);
        }
        Tiles { keys, queries, values, cotangents, states, duals, weights }
    }
}

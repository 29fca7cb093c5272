//! The tiles of the third sweep.

use super::{ChunkDeltaBackward, TIMES};
use crate::abi::{Tensor, elem};
use crate::block::layout::{Tile, TileOf, TileShape};
use crate::block::prepare::{are_copied, factor_elem};
use crate::build::Builder;
use crate::stage::Stage;
use crate::stage::kind::DeltaRuleBackward;
use crate::tile::SharedKind;
use oplus_dsl::Elem;
use oplus_dsl::ir::Axis;

/// Whether all tiles are too large for shared memory at once: those of `f32` at the greatest depth.
pub(super) fn is_large(stage: &Stage, form: &DeltaRuleBackward, depth: u32) -> bool {
    depth > 64 && elem(stage, Tensor::Param(form.states.row.param)) == Elem::F32
}

/// The tiles of 64 times.
#[derive(Clone)]
pub(super) struct Tiles {
    /// Keys, queries, and the vectors that the state is read by, where they are not the keys: of the whole depth.
    pub keys: Tile,
    pub queries: Tile,
    pub columns: Option<Tile>,
    /// The cotangents of queries' readings, of a part of the width.
    pub cotangents: Tile,
    /// e and p, saved by walks: a row for every time.
    pub errors: Tile,
    pub products: Tile,
    /// The state before the times and the cotangent of the one after: a row for every place of the width.
    pub states: Tile,
    pub duals: Tile,
    /// The parts of the width in flight.
    pub stages: u32,
    /// Weights of pairs of times, a row for each later one.
    pub weights: [Tile; 4],
}

impl Tiles {
    pub(super) fn declare(
        b: &mut Builder,
        stage: &Stage,
        form: &DeltaRuleBackward,
        schedule: &ChunkDeltaBackward,
    ) -> Tiles {
        let (rule, depth) = (&form.states, schedule.depth);
        let stages = if schedule.persistent { 2 } else { 1 };
        let mut tile = |param: u32, inner: Axis, depth: u32, stages: u32| {
            let shape = TileShape { rows: TIMES, depth, stages };
            let own = factor_elem(elem(stage, Tensor::Param(param)), schedule.vector, schedule.depth);
            Tile::declare_as(b, stage, TileOf { param, along: rule.time, inner }, shape, own)
        };
        let mut keys = tile(rule.row.param, rule.depth, depth, 1);
        let mut queries = tile(form.query.param, rule.depth, depth, 1);
        let mut columns = (rule.column.param != rule.row.param).then(|| tile(rule.column.param, rule.depth, depth, 1));
        let mut cotangents = tile(form.cotangents.value.param, rule.width, TIMES, stages);
        let elem = keys.elem;
        let mut saved =
            |name: &str, depth: u32| Tile::bare_ring(b, name, elem, TileShape { rows: TIMES, depth, stages });
        let [mut errors, mut products] = ["errors", "products"].map(|name| saved(name, TIMES));
        let [mut states, mut duals] = ["states", "duals"].map(|name| saved(name, depth));
        // Where sums are kept, the tiles of a part of the width are free when weights are known, which large ones need.
        let weights = match is_large(stage, form, depth) || schedule.overlaid {
            true => [&cotangents, &errors, &products, &states].map(|tile| Tile { depth: TIMES, ..tile.clone() }),
            false => ["weights_0", "weights_1", "weights_2", "weights_3"].map(|n| Tile::bare(b, n, elem, TIMES, TIMES)),
        };
        let parts = [&mut cotangents, &mut errors, &mut products, &mut states, &mut duals];
        for tile in [&mut keys, &mut queries].into_iter().chain(&mut columns) {
            tile.full = b.shared(format!("{}_full", tile.name), SharedKind::Mbarrier, 1);
        }
        for tile in parts {
            tile.full = b.shared(format!("{}_full", tile.name), SharedKind::Mbarrier, stages);
        }
        Tiles { keys, queries, columns, cotangents, errors, products, states, duals, stages, weights }
    }

    /// Whether elements that have been copied are not yet factors.
    pub(super) fn are_copied(&self, stage: &Stage, vector: u32) -> bool {
        are_copied(&self.keys, elem(stage, Tensor::Param(self.keys.param)), vector)
    }

    /// The vectors that the state is read by.
    pub(super) fn columns(&self) -> &Tile {
        self.columns.as_ref().unwrap_or(&self.keys)
    }

    /// The tiles over the depth that are copied from tensors.
    pub(super) fn deep(&self) -> impl Iterator<Item = &Tile> {
        [&self.keys, &self.queries].into_iter().chain(&self.columns)
    }

    /// The tiles of a part of the width.
    pub(super) fn of_part(&self) -> [&Tile; 5] {
        [&self.cotangents, &self.errors, &self.products, &self.states, &self.duals]
    }
}

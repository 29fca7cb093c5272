//! The low parts of factors of `f32` for a warpgroup, in tiles of their own.

use crate::block::layout::{Tile, TileShape};
use crate::build::Builder;
use crate::tile::SharedKind;
use oplus_dsl::Elem;

/// The tiles of low parts. Their layouts are those of the high ones.
#[derive(Clone)]
pub(crate) struct LowParts {
    pub(super) queries: Option<Tile>,
    pub(super) keys: Tile,
    pub(super) values: Tile,
    /// None where no queries read the state.
    pub(super) states: Option<Tile>,
}

impl LowParts {
    /// Declares a tile beside each of these, which have so many stages; beside the state if it is in `bf16`.
    pub(super) fn declare(
        b: &mut Builder,
        stages: u32,
        [queries, states]: [Option<&Tile>; 2],
        [keys, values]: [&Tile; 2],
    ) -> LowParts {
        let mut beside = |tile: &Tile, stages: u32| {
            let TileShape { rows, depth, .. } = TileShape { rows: tile.rows, depth: tile.depth, stages };
            let len = (rows * depth * stages).next_multiple_of(512);
            let array = b.shared(format!("{}_low", tile.name), SharedKind::Elem(Elem::Bf16), len);
            Tile { array, ..tile.clone() }
        };
        let queries = queries.map(|tile| beside(tile, stages));
        let (keys, values) = (beside(keys, stages), beside(values, stages));
        let states = states.filter(|tile| tile.elem == Elem::Bf16).map(|tile| beside(tile, 1));
        LowParts { queries, keys, values, states }
    }

    /// The low parts of the state.
    pub(super) fn states(&self) -> Option<&Tile> {
        self.states.as_ref()
    }

    /// The tiles of factors that are copied, as [`ChunkwiseKernel::tiles`].
    pub(super) fn copied(&self) -> impl Iterator<Item = &Tile> {
        self.queries.iter().chain([&self.keys, &self.values])
    }
}

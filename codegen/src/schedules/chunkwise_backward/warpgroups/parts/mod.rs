//! The third sweep of `f32`, whose factors are a high and a low part in `bf16`.
//!
//! | warpgroup | products of a head | keeps over heads |
//! |---|---|---|
//! | queries | Sᵀ·cotangent | query' |
//! | keys | Dᵀ·value, ⟨S, D⟩ | key' |
//! | pairs | D·key, M, weights·cotangent; stores value' | E |
//! | copies | none: divides values and cotangents, copies S and D; decays and gains, outputs over time | |
//!
//! Two heads of S and D have no room: these go through a ring of their own, in panels of the depth. Weights of pairs stay in the registers of
//! the warpgroup that computes them. What a head adds is added to sums over heads outside of the tensor cores, which would cut off what
//! they add.

mod copies;
mod depth;
mod pairs;

pub(super) use depth::DepthRole;

use super::{InFlight, Registers, WarpgroupSweep};
use crate::block::layout::{Tile, TileStage};
use crate::block::matmul::new_sums;
use crate::block::ring::Ring;
use crate::block::two_parts::{Order, Step, start, start_over_depth};
use crate::build::Builder;
use crate::schedules::ChunkwiseBackward;
use crate::schedules::chunkwise::ROWS;
use crate::schedules::chunkwise_backward::walk::Chunk;
use crate::tile::{Left, Operand, Reg, SharedId, SharedKind};

/// The mbarriers of the ring of panels of S and D: that a stage has its panels, and that all have left it.
#[derive(Clone, Copy)]
pub(super) struct PanelRing {
    pub full: SharedId,
    pub free: SharedId,
    stages: u32,
}

impl PanelRing {
    pub(super) fn declare(b: &mut Builder, stages: u32) -> PanelRing {
        let [full, free] = ["panels_full", "panels_free"].map(|name| b.shared(name, SharedKind::Mbarrier, stages));
        PanelRing { full, free, stages }
    }

    /// Initialises the mbarriers, of which so many threads leave a stage.
    pub(super) fn init(self, b: &mut Builder, leaving: u32) {
        b.init_mbarriers(self.full, self.stages, 1);
        b.init_mbarriers(self.free, self.stages, leaving);
    }
}

/// A panel of S and D in shared memory.
struct Panel {
    /// Its number in the depth.
    number: u32,
    stage: Operand,
}

impl Registers {
    /// Registers of each thread of a role.
    pub(super) fn of_parts(schedule: &ChunkwiseBackward) -> Registers {
        match schedule.depth {
            0..=64 => Registers { queries: 112, keys: 104, pairs: 192, copies: 104 },
            _ if schedule.wide => Registers { queries: 128, keys: 128, pairs: 168, copies: 88 },
            _ => Registers { queries: 136, keys: 128, pairs: 176, copies: 72 },
        }
    }
}

impl WarpgroupSweep<'_> {
    /// The panels of the depth.
    fn panels(&self) -> u32 {
        self.schedule.depth / self.states.depth
    }

    /// Goes through the panels of S and D of a head, each of which a role leaves when its products are done.
    fn each_panel(&self, b: &mut Builder, head: &InFlight, mut body: impl FnMut(&mut Builder, &Panel)) {
        let Some(ring) = self.panel_ring else { return };
        let first = b.mul(head.iteration, self.panels());
        for number in 0..self.panels() {
            let own = b.add(first, number);
            let filled = Ring::of(ring.stages).at(b, own);
            b.wait(ring.full, filled);
            body(b, &Panel { number, stage: filled.index });
            b.arrive(ring.free, filled.index);
        }
    }

    /// Starts left·right over the places of the width, from shared memory: the rows of a tile in a stage, and the columns of a panel.
    fn start_over_width(
        &self,
        b: &mut Builder,
        left: &Tile,
        stage: Operand,
        right: &Tile,
        panel: &Panel,
    ) -> Vec<[Reg; 4]> {
        let starts = [(left, stage), (right, panel.stage)].map(|(tile, stage)| b.mul(stage, tile.len()));
        let steps: Vec<Step> = (0..left.depth / ROWS)
            .map(|sixteen| Step {
                left: left.panels_of_parts(b, starts[0], Operand::i32(0), sixteen).map(Left::Shared),
                right: right.panels_of_parts(b, starts[1], Operand::i32((sixteen * ROWS) as i32), 0),
            })
            .collect();
        let sums = new_sums(b, right.depth);
        start(b, &sums, true, &steps, Order::SmallestFirst, true);
        sums
    }

    /// Starts left·rightᵀ over the depth of two tiles, from shared memory.
    fn start_over_depth(
        &self,
        b: &mut Builder,
        left: &Tile,
        of_left: Operand,
        right: &Tile,
        of_right: Operand,
    ) -> Vec<[Reg; 4]> {
        let [left, right] = [(left, of_left), (right, of_right)].map(|(tile, stage)| TileStage::of(b, tile, stage));
        start_over_depth(b, left, right)
    }

    /// Divides the rows of a tile of keys or queries in two parts, and announces them.
    fn fill_parts(&self, b: &mut Builder, tile: &Tile, chunk: &Chunk) {
        let source = self.source_of_group(&chunk.shared);
        let origin = tile.origin(b, &source);
        let read = tile.read(b, &source, origin.into(), chunk.first);
        tile.write_parts(b, read, Operand::i32(0));
        b.push(crate::tile::Stmt::FenceAsync);
        b.arrive(self.begun, Operand::i32(0));
    }
}

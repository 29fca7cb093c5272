//! The role of key' and value': Dᵀ·value and D·key of every head, and at the end E, summed over heads, times queries.

use super::parts::DepthRole;
use super::range::multiply;
use super::{InFlight, WarpgroupSweep};
use crate::block::layout::{Tile, TileStage, left_rows};
use crate::block::matmul::{Factor, block_values, finish, scale_rows, start_in_time};
use crate::build::Builder;
use crate::schedules::chunkwise_backward::{ROWS, TIMES};
use crate::stage::kind::Cotangent;
use crate::tile::{Operand, Reg};

impl WarpgroupSweep<'_> {
    /// Computes key' of a chunk, and value' of all its heads.
    pub(super) fn keys_role(&self, b: &mut Builder) {
        if self.panel_ring.is_some() {
            return self.depth_role_of_parts(b, DepthRole::Keys);
        }
        let chunk = self.chunk(b);
        let sums = Self::sums(b, self.schedule.depth);
        self.each_head(b, &chunk, |own, b, head| {
            own.start_head_of_keys(b, head, &sums);
            let products = own.start_through_duals(b, head);
            finish(b, &[&sums[..], &products].concat(), 0);
            own.finish_values(b, &chunk, head, &block_values(&products));
        });
        self.wait_pairs(b);
        if !self.needs(Cotangent::Keys) {
            return;
        }
        let undone = self.undone_power_of_keys(b, &chunk).and_then(|by| self.multiply_by_power_of_pairs(b, &sums, by));
        let pairs = self.rows_of(b, &self.weights, Operand::i32(0));
        let queries = TileStage::of(b, &self.queries, Operand::i32(0));
        start_in_time(b, &sums, &pairs, queries);
        finish(b, &sums, 0);
        undone.into_iter().for_each(|by| multiply(b, &sums, [by; 2]));
        self.store_sums(b, &chunk, Cotangent::Keys, &sums);
    }

    /// Starts to add the first term of key' of a head: values are scaled as they are read.
    fn start_head_of_keys(&self, b: &mut Builder, head: &InFlight, sums: &[[Reg; 4]]) {
        let decays = &head.decays;
        let scales = match self.rows_of_keys(b) {
            None => [0, 1].map(|h| b.mul(decays.to_end[h], decays.rows[h][1])),
            Some(rows) => {
                self.follow_power_of_keys(b, sums);
                rows.map(|row| row.factor)
            }
        };
        self.start_scaled(b, head, &self.values, scales, &self.duals, sums);
    }

    /// Starts to add the product of the rows of a tile, each of the thread's two times a number, and those of a tile of states. Rows are
    /// scaled as they are read.
    pub(super) fn start_scaled(
        &self,
        b: &mut Builder,
        head: &InFlight,
        tile: &Tile,
        scales: [Operand; 2],
        states: &Tile,
        sums: &[[Reg; 4]],
    ) {
        let rows = self.rows_of(b, tile, head.stage);
        let scaled: Vec<_> = rows.into_iter().map(|four| scale_rows(b, tile.elem, four, scales)).collect();
        let states = TileStage::of(b, states, head.stage);
        start_in_time(b, sums, &scaled, states);
    }

    /// The warp's rows of a tile of 64 columns as left factors.
    fn rows_of(&self, b: &mut Builder, tile: &Tile, stage: Operand) -> Vec<[Operand; 4]> {
        let (row, piece) = left_rows(b, self.thread.lane);
        let of_warp = b.mul(self.block, ROWS);
        let row = b.add(row, of_warp);
        let lanes = tile.lanes(b, row, piece);
        let left = Factor::of(b, tile, &lanes, stage);
        (0..TIMES / ROWS).map(|sixteen| left.four(b, 0, sixteen, false)).collect()
    }
}

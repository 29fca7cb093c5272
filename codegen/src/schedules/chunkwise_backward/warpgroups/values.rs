//! value' of a head, by the role of keys.

use super::super::partials::Partials;
use super::super::rates::Decays;
use super::range::divide;
use super::{InFlight, WarpgroupSweep};
use crate::block::layout::TileStage;
use crate::block::matmul::{Blocks, block_values, block_vars, finish, start, start_rows};
use crate::block::pair::Values;
use crate::block::ring::RingStage;
use crate::build::Builder;
use crate::schedules::chunkwise_backward::TIMES;
use crate::schedules::chunkwise_backward::walk::Chunk;
use crate::tile::{Operand, Reg};
use oplus_dsl::ir::Axis;

impl WarpgroupSweep<'_> {
    /// Starts D·key.
    pub(super) fn start_through_duals(&self, b: &mut Builder, head: &InFlight) -> Vec<[Reg; 4]> {
        // Rematerialised: the addresses of keys would stay in registers from head to head.
        let first = self.rematerialiser.of(b, Operand::i32(0));
        let (keys, duals) = (TileStage::of(b, &self.keys, first), TileStage::of(b, &self.duals, head.stage));
        start(b, keys, duals)
    }

    /// Computes value' of a head from D·key, and stores it.
    pub(super) fn finish_values(&self, b: &mut Builder, chunk: &Chunk, head: &InFlight, products: &Blocks) {
        let chunk = self.rematerialised(b, chunk);
        let own = self.head(b, &chunk, head.iteration);
        let rows = self.read_rows(b, &own.outer, &chunk);
        let mut partials = Partials::default();
        let rows_of_keys = self.rows_of_keys(b);
        let decays = rows_of_keys.map(|rows| {
            let mut decays = head.decays.clone();
            for (h, row) in rows.into_iter().enumerate() {
                (decays.to_end[h], decays.rows[h][1]) = (row.to_end, row.gain);
            }
            decays
        });
        let decays = decays.as_ref().unwrap_or(&head.decays);
        let found = self.to_end(b, (head.stage, decays), products, &mut partials);
        let found = block_vars(b, &found);
        let written = RingStage::only(b, head.iteration);
        b.wait(self.weights_full, written);
        let cotangents = TileStage::of(b, &self.cotangents, head.stage);
        start_rows(b, &found, TileStage::only(&self.weights), cotangents);
        self.store_partials(b, &partials);
        finish(b, &found, 0);
        b.arrive(self.weights_free, Operand::i32(0));
        if let Some(rows) = rows_of_keys {
            divide(b, &found, rows);
        }
        let place = own.slice.map(|slice| b.mul(slice, TIMES));
        self.store_values(b, &rows, head.stage, place, &block_values(&found));
    }

    /// The constants of the block, rematerialised: what follows from them would stay in registers from head to head.
    fn rematerialised(&self, b: &mut Builder, chunk: &Chunk) -> Chunk {
        let shared = chunk.shared.iter().map(|(axis, index)| (*axis, self.rematerialiser.of_index(b, *index)));
        Chunk { shared: shared.collect(), first: self.rematerialiser.of(b, chunk.first), ..*chunk }
    }

    /// Reads what outputs need beside the sums, at the thread's times.
    pub(super) fn read_rows(&self, b: &mut Builder, outer: &[(Axis, Operand)], chunk: &Chunk) -> Values<'_> {
        let (time, width) = (self.form.states.time, self.form.states.width);
        let mut rows = Values::new(self.stage, &self.args, [time, width], outer.to_vec());
        self.set_rows(b, &mut rows, chunk.first);
        (0..2).for_each(|row| rows.read_row(b, row));
        rows
    }

    /// The first term of value', from D·key.
    pub(super) fn to_end(
        &self,
        b: &mut Builder,
        (stage, decays): (Operand, &Decays),
        products: &Blocks,
        partials: &mut Partials,
    ) -> Blocks {
        let mut found = products.clone();
        for (k, block) in (0..).zip(&mut found) {
            self.load_late(b);
            let values = self.own_block(b, &self.values, stage, k);
            for (r, found) in block.iter_mut().enumerate() {
                *found = b.mul(*found, decays.to_end[r / 2]);
                partials.add_value(b, r / 2, [*found, values[r]]);
            }
        }
        partials.scale_values(b, decays);
        found
    }
}

//! The role of key' in two parts.

use super::{InFlight, WarpgroupSweep};
use crate::block::matmul::{block_values, finish};
use crate::build::Builder;
use crate::schedules::chunkwise::COLUMNS;
use crate::stage::kind::Cotangent;
use crate::tile::{Operand, Reg};

impl WarpgroupSweep<'_> {
    /// Computes key' of a chunk, and each head's ⟨S, D⟩.
    pub(in super::super) fn keys_role_of_parts(&self, b: &mut Builder) {
        let chunk = self.rematerialised_chunk(b);
        self.fill_parts(b, &self.keys, &chunk);
        let sums = Self::sums(b, self.schedule.depth);
        self.each_head(b, &chunk, |own, b, head| own.add_parts_to_keys(b, head, &sums));
        self.wait_pairs(b);
        if !self.needs(Cotangent::Keys) {
            return;
        }
        let own = self.at_stage(b, Operand::i32(0));
        let pairs = own.pair_rows(b);
        own.start_pairs(b, &sums, &pairs, &own.queries);
        finish(b, &sums, 0);
        let chunk = own.rematerialised_chunk(b);
        own.store_sums(b, &chunk, Cotangent::Keys, &sums);
    }

    /// Adds the first term of key' of a head, panel by panel.
    fn add_parts_to_keys(&self, b: &mut Builder, head: &InFlight, sums: &[[Reg; 4]]) {
        let decays = &head.decays;
        let scales = [0, 1].map(|h| b.mul(decays.to_end[h], decays.rows[h][1]));
        let per_panel = self.states.depth / COLUMNS;
        let mut energy = None;
        self.each_panel(b, head, |b, panel| {
            if self.has_decay() {
                self.add_energy(b, panel.stage, &mut energy);
                self.load_late(b);
            }
            let found = self.start_over_width(b, &self.values, head.stage, &self.duals, panel);
            finish(b, &found, 0);
            for (k, found) in (panel.number * per_panel..).zip(&block_values(&found)) {
                for r in 0..4 {
                    let sum = sums[k as usize][r];
                    let more = b.fma(found[r], scales[r / 2], sum.into());
                    b.assign(sum, more);
                }
            }
        });
        if self.has_decay() {
            self.store_energy(b, energy);
        }
    }
}

//! The kernel that prepares tiles of times for both walks of rules whose decays differ along the depth.
//!
//! Both walks take the same factors over the depth and decays over chunks. They differ in the numbers of the steps, so in the systems of
//! chunks, and only cotangents are given by queries. In a rule with two keys the systems are the same, too. A block computes all of it for
//! 64 times and stores it in the layout of shared memory, and the four warps of walks that go ahead only copy what their walk takes.

use super::saved::saved_rows;
use super::{ChunkDeltaBackward, DeltaSweep, TIMES};
use crate::abi::{Tensor, elem};
use crate::block::args::Args;
use crate::build::Builder;
use crate::schedules::ChunkDelta;
use crate::schedules::chunk_delta::{ADDED, DeltaKernel, READ, Stored, StoredIn, System, WARPS};
use crate::stage::Stage;
use crate::stage::kind::{DeltaRule, DeltaRuleBackward};
use crate::tile::SharedId;
use oplus_dsl::Elem;

/// The sweep that prepares tiles for the walks of a schedule.
pub(super) fn sweep(stage: &Stage, schedule: &ChunkDeltaBackward) -> ChunkDeltaBackward {
    let form = stage.kind().delta_back();
    let is_wide = form.as_ref().is_ok_and(|form| elem(stage, Tensor::Param(form.states.row.param)) == Elem::F32);
    let blocks = schedule.walked().preparation(form.is_ok_and(|form| form.states.reads)).blocks;
    // Of elements of 32 bits half as many blocks have room.
    let blocks = blocks / if is_wide { 2 } else { 1 };
    let (sweep, places, stages) = (DeltaSweep::Prepare, TIMES, super::STAGES);
    ChunkDeltaBackward { sweep, places, stages, blocks, concurrent: false, persistent: false, ..*schedule }
}

/// The numbers that are prepared for a tile: factors and weights, and decays and rates.
pub(super) fn lens(form: &DeltaRuleBackward, depth: u32) -> [u64; 2] {
    Sharing { errors: None, cotangents: None }.stored(&form.states, depth).lens()
}

/// The memory in which tiles are prepared: behind that of what walks save.
pub(super) fn stored_in(kernel: &DeltaKernel<'_>) -> StoredIn {
    let scratch = &kernel.args.scratch;
    let first = 2 + saved_rows(kernel.form);
    StoredIn([scratch[first], scratch[first + 1]])
}

/// The kernels that share prepared tiles, as far as they are here.
#[derive(Clone, Copy)]
pub(super) struct Sharing<'k, 's> {
    errors: Option<&'k DeltaKernel<'s>>,
    cotangents: Option<&'k DeltaKernel<'s>>,
}

impl<'k, 's> Sharing<'k, 's> {
    pub(super) fn of_errors(kernel: &'k DeltaKernel<'s>) -> Sharing<'k, 's> {
        Sharing { errors: Some(kernel), cotangents: None }
    }

    pub(super) fn of_cotangents(kernel: &'k DeltaKernel<'s>) -> Sharing<'k, 's> {
        Sharing { errors: None, cotangents: Some(kernel) }
    }

    /// The kernels' share of a tile, in the order of memory.
    pub(super) fn stored(self, rule: &DeltaRule, depth: u32) -> Stored<'k> {
        let Sharing { errors, cotangents } = self;
        let both = cotangents.or(errors);
        let channels = both.and_then(|kernel| kernel.channels.as_ref());
        let mut stored = Stored::default();
        stored.factors(channels.map(|channels| &channels.keys), depth);
        if rule.reads {
            stored.factors(channels.and_then(|channels| channels.columns.as_ref()), depth);
        }
        if rule.has_two_keys() {
            stored.factors(channels.and_then(|channels| channels.rows.as_ref()), depth);
            stored.pairs(both.and_then(|kernel| kernel.of_values.as_ref().map(|[read, _]| read)));
            stored.pairs(both.and_then(|kernel| kernel.inverses.as_ref()));
        } else if rule.reads {
            stored.pairs(errors.and_then(|kernel| kernel.inverses.as_ref()));
            stored.pairs(cotangents.and_then(|kernel| kernel.inverses.as_ref()));
        }
        stored.pairs(cotangents.map(|kernel| &kernel.weights));
        if rule.has_two_keys() {
            stored.pairs(cotangents.and_then(|kernel| kernel.of_values.as_ref().map(|[_, queried]| queried)));
        }
        let of_cotangents = cotangents.and_then(|kernel| kernel.channels.as_ref());
        stored.factors(of_cotangents.and_then(|channels| channels.queries.as_ref()), depth);
        stored.array(channels.map(|channels| channels.ends), WARPS * depth);
        for kernel in [errors, cotangents] {
            let rates = |kind: usize| kernel.map(|kernel| kernel.rates[kind]);
            let kinds: &[usize] = if rule.reads { &[READ, ADDED] } else { &[ADDED] };
            let own = kinds.iter().map(|kind| rates(*kind));
            own.for_each(|own: Option<SharedId>| stored.array(own, TIMES));
        }
        stored
    }
}

/// The kernel.
pub(super) struct Preparation<'s> {
    cotangents: DeltaKernel<'s>,
    /// For the walk of states: it has the numbers and the systems that are not those of cotangents.
    errors: DeltaKernel<'s>,
}

impl<'s> Preparation<'s> {
    pub(super) fn declare(
        b: &mut Builder,
        stage: &'s Stage,
        form: &'s DeltaRuleBackward,
        walked: &'s ChunkDelta,
        args: Args,
    ) -> Preparation<'s> {
        let cotangents = DeltaKernel::walking(b, stage, &form.cotangents, walked, args);
        let errors = cotangents.beside(b, &form.errors);
        Preparation { cotangents, errors }
    }

    pub(super) fn body(&self, b: &mut Builder) {
        let Preparation { cotangents, errors } = self;
        let Some(channels) = &cotangents.channels else { return };
        cotangents.in_own_tile(b, Some(errors), |b, values, tile| {
            let tiles = cotangents.tiles_of_times(b, false);
            let products = cotangents.channel_products(b, values, tiles, channels, &tile.at);
            cotangents.store_products(b, &products, &tile.at, System::OfRows);
            let has_two_systems = cotangents.form.reads && !cotangents.form.has_two_keys();
            if has_two_systems {
                errors.store_error_system(b, &products.system(), &tile.at);
            }
            cotangents.invert(b, &tile.at);
            if has_two_systems {
                errors.invert(b, &tile.at);
            }
            b.barrier();
            let sharing = Sharing { errors: Some(errors), cotangents: Some(cotangents) };
            let stored = sharing.stored(cotangents.form, cotangents.schedule.depth);
            stored.store(b, stored_in(cotangents), cotangents.thread.number, tile.number);
        });
    }
}

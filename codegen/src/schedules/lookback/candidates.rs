//! The parameters that a plan may choose.

use super::registers::{Pressure, register_limit, smaller};
use super::{Fold, Loader, LookBack};
use crate::schedules::shape::{Shape, is_strided, ring_bytes, vector};
use crate::schedules::strategy::Access;
use crate::stage::Stage;
use crate::target::{Isa, WARP};

/// The candidates of a stage.
pub(super) fn of(stage: &Stage, isa: Isa, access: Access) -> Vec<LookBack> {
    let sizes = Sizes { shape: Shape::of(stage), pressure: Pressure::of_stage(stage) };
    if access != Access::Vectors {
        return vec![sizes.without_ring(1)];
    }
    let Some(vector) = stage.axis().and_then(|axis| vector(stage, axis)) else { return vec![] };
    let mut all = match isa {
        Isa::Sm80 => vec![sizes.without_ring(vector)],
        // The scan axis is contiguous, too, where the axis of columns has size 1: a single row then.
        Isa::Sm90a if is_strided(stage) => vec![sizes.for_rows(vector)],
        Isa::Sm90a => vec![sizes.for_long_rows(vector), sizes.for_rows(vector)],
    };
    all.dedup();
    // Stages that none of these fits are left to single elements, whose threads hold least.
    all.retain(|schedule| sizes.fits(schedule));
    all
}

/// The facts of a stage that the parameters depend on.
struct Sizes {
    shape: Shape,
    pressure: Pressure,
}

impl Sizes {
    /// Messages that a lane polls together: each takes two registers per register of a state.
    fn window(&self, most: u32) -> u32 {
        if self.shape.wide { most.min((16 / self.shape.words).max(1)) } else { most }
    }

    /// Few very long rows: large tiles, 48 to 64 KB, a ring that fills shared memory.
    fn for_long_rows(&self, vector: u32) -> LookBack {
        let Shape { words, read, temporaries, wide } = self.shape;
        let items = self.shape.items(if words > 2 || wide { 48 } else { 64 }).min(32);
        let (scan_warps, reduce_warps, items) = match (words, read) {
            _ if temporaries > 16 => (8, 4, items),
            (1, 0..4) => (16, 4, items),
            (1, _) if temporaries == 0 => (6, 6, 64),
            (1, _) => (12, 4, items),
            (3.., _) if temporaries == 0 && !wide => (8, 8, items),
            _ => (8, 4, items),
        };
        self.with_ring(scan_warps, reduce_warps, vector, items.max(vector), 6)
    }

    /// Many rows of a few tiles: tiles of about 32 KB, more of them in flight.
    fn for_rows(&self, vector: u32) -> LookBack {
        let Shape { words, read, temporaries, wide } = self.shape;
        let (scan_warps, reduce_warps, items) = match (words, read) {
            (1, 4..) if temporaries == 0 => (4, 4, 64),
            (2, 8..) if temporaries == 0 => (4, 4, 32),
            (3.., _) if temporaries == 0 && !wide => (8, 8, self.shape.items(48).min(32)),
            _ => {
                let items = self.shape.items(if wide { 48 } else { 64 });
                (8, 4, items.min((32 << 10) / (8 * WARP * read)).clamp(1, 32))
            }
        };
        let items = 1 << items.ilog2();
        self.with_ring(scan_warps, reduce_warps, vector, items.max(vector), 3)
    }

    fn with_ring(&self, scan_warps: u32, reduce_warps: u32, vector: u32, items: u32, window: u32) -> LookBack {
        let vectors = (items / vector).max(1);
        let (fold, loader) = (Fold::Blocks, Loader::Bulk);
        let window = self.window(window);
        self.sized(LookBack { scan_warps, reduce_warps, vector, vectors, stages: 2, window, fold, loader })
    }

    /// Tiles read straight from global memory.
    fn without_ring(&self, vector: u32) -> LookBack {
        let vectors = (self.shape.items(32).min(if vector == 1 { 8 } else { 16 }) / vector).max(1);
        let (fold, loader) = (Fold::Blocks, Loader::Registers);
        let window = self.window(6);
        self.sized(LookBack { scan_warps: 8, reduce_warps: 4, vector, vectors, stages: 4, window, fold, loader })
    }

    /// Whether the registers of a thread suffice. Operators of few fields were measured, except large tiles in which something is
    /// divided; for others the estimate decides.
    fn fits(&self, schedule: &LookBack) -> bool {
        let is_measured = self.pressure.is_small() && !self.pressure.divides_many(schedule);
        is_measured || self.pressure.registers(schedule) <= register_limit(schedule.warps())
    }

    /// A schedule, or the next smaller one for which registers and shared memory suffice; the smallest where none does. A ring
    /// has as many stages as there is room for.
    fn sized(&self, preferred: LookBack) -> LookBack {
        let of_ring = |s: &LookBack| s.tile() * self.shape.read;
        let ring = |s: &LookBack| s.loader == Loader::Registers || 2 * of_ring(s) <= ring_bytes(Isa::Sm90a);
        let chosen = if self.fits(&preferred) {
            preferred
        } else {
            let all = smaller(preferred);
            let fits = all.iter().find(|s| self.fits(s) && ring(s));
            *fits.or(all.last()).unwrap_or(&preferred)
        };
        let stages = match chosen.loader {
            Loader::Bulk => (ring_bytes(Isa::Sm90a) / of_ring(&chosen)).clamp(2, 7),
            Loader::Registers => chosen.stages,
        };
        LookBack { stages, ..chosen }
    }
}

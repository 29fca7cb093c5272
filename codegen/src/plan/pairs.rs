//! The schedules of pairs that a plan may choose, and their cost.

use super::bound::Bound;
use super::geometry::blocks;
use crate::lower::pairs::Form;
use crate::schedule::{Pairs, Schedule, Unit};
use crate::stage::Stage;
use crate::target::{Isa, Target};
use oplus_dsl::Elem;
use oplus_dsl::ir::Axis;

/// Lengths of the axes within rows and columns that have schedules of their own; others are padded.
const EXACT: [u32; 4] = [32, 64, 96, 128];
/// Lengths to which others are padded.
const PADDED: [u32; 3] = [32, 64, 128];
/// Multiply-adds per microsecond of a multiprocessor, of what its tensor cores reach in such kernels.
const PRODUCTS: f64 = 1.3e6;

/// The schedules of a stage of pairs on an instruction set.
pub(super) fn schedules(stage: &Stage, isa: Isa) -> Vec<Schedule> {
    let Ok(form) = Form::of(stage) else { return vec![] };
    let leaf = form.contractions.first().map(|c| stage.program.params[c.left as usize].elem);
    let single = leaf == Some(Elem::F32);
    let of = |(depth, width): (u32, u32), padded, vector: u32| {
        let vector = if single { vector.min(4) } else { vector };
        Schedule::Pairs(Pairs { depth, width, padded, vector, ..numbers(&form, (depth, width), isa, single) })
    };
    let exact = EXACT.map(|d| of((d, d), false, 8));
    let padded = PADDED.into_iter().flat_map(|d| [8, 1].map(|vector| of((d, d), true, vector)));
    exact.into_iter().chain(padded).collect()
}

/// Warps and tiles for axes of these lengths, so that sums and pairs fit the registers of a thread.
fn numbers(form: &Form, (depth, width): (u32, u32), isa: Isa, single: bool) -> Pairs {
    let places = |axis: Axis| if form.inner.first() == Some(&axis) { depth } else { width };
    let sums: u32 = form.payloads.iter().filter_map(|p| p.leaf).map(|(_, axis)| places(axis) / 2).sum();
    let contractions = form.contractions.len() as u32;
    let base = Pairs {
        warps: 8,
        repeat: 1,
        unit: Unit::Warp,
        columns: 64,
        depth,
        width,
        padded: false,
        stages: 2,
        vector: 8,
        blocks: 1,
    };
    match isa {
        // Only warps multiply f32, in two parts, which take registers.
        _ if single => Pairs { warps: 4, columns: 32, ..base },
        Isa::Sm90a if sums + contractions * 64 <= 128 => Pairs { unit: Unit::Warpgroup, columns: 128, ..base },
        Isa::Sm90a => Pairs { unit: Unit::Warpgroup, ..base },
        Isa::Sm80 if sums + contractions * 64 <= 96 => Pairs { warps: 4, repeat: 2, blocks: 2, ..base },
        Isa::Sm80 if contractions > 1 => Pairs { warps: 4, columns: 32, blocks: 2, ..base },
        Isa::Sm80 => base,
    }
}

/// Microseconds, and why. Blocks walk their tiles of columns; how many of them rows do not see is not known here.
pub(super) fn estimate(stage: &Stage, schedule: &Pairs, bound: &Bound, target: &Target) -> (f64, String) {
    let Ok(form) = Form::of(stage) else { return (f64::INFINITY, "no pairs".into()) };
    let places =
        |axis: Axis| f64::from(if form.inner.first() == Some(&axis) { schedule.depth } else { schedule.width });
    let contracted: f64 = form.contractions.iter().map(|c| places(c.axis)).sum();
    let leaves: f64 = form.payloads.iter().filter_map(|p| p.leaf).map(|(_, axis)| places(axis)).sum();
    let columns = bound.size(form.column) as f64;
    let blocks = blocks(stage, &Schedule::Pairs(*schedule), bound) as f64;
    let work = blocks * f64::from(schedule.rows()) * columns * (contracted + leaves);
    let share = (blocks / f64::from(target.multiprocessors)).ceil() / blocks.max(1.0);
    // Element by element tiles are filled by ordinary loads.
    let slower = if schedule.vector == 1 { 4.0 } else { 1.0 };
    (work * share / PRODUCTS * slower, format!("{blocks} blocks, {:.1} G multiply-adds", work / 1e9))
}

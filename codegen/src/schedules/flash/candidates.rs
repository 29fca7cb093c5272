//! The parameters that a plan may choose.

use super::overlap::can_overlap;
use super::parameters::{GROUP, SumsOver};
use super::{Flash, across};
use crate::schedules::Unit;
use crate::stage::Stage;
use crate::stage::kind::Pairwise;
use crate::target::Isa;
use oplus_dsl::Elem;
use oplus_dsl::ir::{Op, Program, Value};
use oplus_dsl::walk::any;

/// Lengths of the axes within rows and columns that have schedules of their own; others are padded.
const EXACT: [u32; 5] = [32, 64, 96, 128, 256];
/// Lengths to which others are padded.
const PADDED: [u32; 4] = [32, 64, 128, 256];
/// Registers of a thread that sums may take, for 16 rows of its warp.
const SUMS: u32 = 128;

/// The schedules of a stage of pairs on an instruction set.
pub(super) fn of(stage: &Stage, isa: Isa) -> Vec<Flash> {
    let Ok(form) = stage.kind().pairwise() else { return vec![] };
    if form.across.is_some() {
        return across::candidates(isa);
    }
    let leaf = form.contractions.first().map(|c| stage.program.params[c.left as usize].elem);
    let is_f32 = leaf == Some(Elem::F32);
    let of = |length: u32, padded, vector: u32| {
        let vector = if is_f32 { vector.min(4) } else { vector };
        let light = is_light(&stage.program, form, padded);
        let numbers =
            if is_f32 { by_tf32(form, length, isa, vector) } else { numbers(form, length, isa, vector, light) }?;
        Some(Flash { padded, vector, ..numbers })
    };
    let exact = EXACT.map(|length| of(length, false, 8));
    let padded = PADDED.into_iter().flat_map(|length| [8, 1].map(|vector| of(length, true, vector)));
    let all: Vec<Flash> = exact.into_iter().chain(padded).flatten().collect();
    let few = all.iter().filter_map(|schedule| few_rows(form, schedule));
    let short = all.iter().filter_map(|schedule| short_rows(&stage.program, form, schedule));
    let overlapped = all.iter().flat_map(|schedule| overlapped(stage, form, schedule));
    all.iter().copied().chain(few).chain(short).chain(overlapped).collect()
}

/// Schedules for long rows, one block of which fills a multiprocessor: some warps only copy, and the others overlap products with
/// weights. A block has many rows, so that it copies little for each. Blocks are persistent; where rows see different columns, pairs
/// of their tiles may be badly divided among these, so that there are others, too.
fn overlapped(stage: &Stage, form: &Pairwise, s: &Flash) -> Vec<Flash> {
    let usual = Flash { warps: 12, repeat: 1, stages: 3, blocks: 1, copiers: GROUP, slack: 8, persistent: true, ..*s };
    let schedule = match s.depth {
        64 => Flash { columns: 128, turns: true, ..usual },
        128 => Flash { columns: 80, ..usual },
        _ => return vec![],
    };
    let is_meant = !s.padded && is_light(&stage.program, form, s.padded) && !reads_limits(&stage.program, form);
    if !is_meant || !can_overlap(stage, form, &schedule) {
        return vec![];
    }
    let alone = Flash { persistent: false, ..schedule };
    let limited = !form.limits.is_empty();
    // Fewer rows and whole powers of two of columns: shorter rows fill their tiles.
    let fewer = Flash { warps: 8, columns: 128, stages: if s.depth == 64 { 3 } else { 2 }, turns: true, ..usual };
    match stage.partial_axis {
        // Where few rows are divided, the part takes registers that persistent blocks need.
        Some(_) => vec![alone],
        None if limited => vec![alone, schedule, fewer],
        None => vec![schedule, fewer],
    }
}

/// Whether limits of a row's range are read for each row, which takes registers that the weights of two tiles need.
fn reads_limits(program: &Program, form: &Pairwise) -> bool {
    let is_read = |v: Value| matches!(program.node(v).op, Op::Param(_)) && !program.node(v).axes.is_empty();
    let reads = |value: Value| any(program, value, is_read);
    form.limits.iter().flat_map(|limit| &limit.terms).any(|(term, _)| reads(*term))
}

/// Whether pairs need few registers beside their products: weights are powers of the products themselves, and there are not
/// both ranges of columns and places to compare.
fn is_light(program: &Program, form: &Pairwise, padded: bool) -> bool {
    form.scale(program).is_some() && (form.limits.is_empty() || !padded)
}

/// A schedule for rows that see few columns: smaller tiles, and more blocks at once, which begin and end while others compute.
fn short_rows(program: &Program, form: &Pairwise, s: &Flash) -> Option<Flash> {
    let short = s.unit == Unit::Warpgroup && s.rows() == 64 && s.columns == 128 && is_light(program, form, s.padded);
    (short && !s.padded).then_some(Flash { columns: 64, blocks: 5, ..*s })
}

/// A schedule for few rows: half as many in a block, smaller tiles of columns, more of them in flight.
fn few_rows(form: &Pairwise, s: &Flash) -> Option<Flash> {
    let many = s.rows() > 64 && s.depth <= 128 && form.contractions.len() == 1;
    many.then_some(Flash { warps: 4, repeat: 1, columns: 64, stages: 3, blocks: 2, ..*s })
}

/// Payloads with a leaf, whose sums take what there is of registers, or of `f32` of shared memory.
fn weighted(form: &Pairwise) -> u32 {
    form.payloads.iter().filter(|p| p.leaf.is_some()).count() as u32
}

/// Tiles of `f32` for axes of a length, so that they and the sums fit the shared memory: that of all devices up to 64 places, of an A100
/// up to 128, beyond that of Hopper, of one contraction. Copies of single elements need registers, too.
fn by_tf32(form: &Pairwise, length: u32, isa: Isa, vector: u32) -> Option<Flash> {
    let columns = match length {
        129.. if form.contractions.len() > 1 => return None,
        129.. => 16,
        65.. if vector == 1 || isa == Isa::Sm80 && weighted(form) > 1 => 16,
        _ => 32,
    };
    let (unit, depth, width) = (Unit::Warp, length, length);
    let (padded, copiers, persistent, turns, slack) = (false, 0, false, false, 0);
    Some(Flash {
        warps: 4,
        repeat: 1,
        unit,
        columns,
        depth,
        width,
        padded,
        stages: 2,
        vector: 4,
        blocks: 1,
        copiers,
        persistent,
        turns,
        slack,
        sums: SumsOver::Columns,
    })
}

/// Warps and tiles of 16-bit numbers for axes of a length, so that sums and pairs fit the registers of a thread and tiles the
/// shared memory; copies of single elements need registers, too. The fastest of those measured.
fn numbers(form: &Pairwise, length: u32, isa: Isa, vector: u32, light: bool) -> Option<Flash> {
    let careful = vector == 1;
    let weighted = weighted(form);
    let sums = weighted * length / 2;
    let (short, several) = (length <= 64, form.contractions.len() > 1);
    // Sums of several payloads over all columns.
    let even = weighted > 1 && form.limits.is_empty();
    // Sums take so many registers that few pairs at once have room beside what else there is.
    let full = sums == SUMS && weighted > 1;
    let unit = if isa == Isa::Sm90a && !careful { Unit::Warpgroup } else { Unit::Warp };
    // Warps, blocks of 16 rows for each, columns of a tile, blocks that share a multiprocessor.
    let (warps, repeat, columns, blocks) = match unit {
        _ if sums > SUMS => return None,
        Unit::Warp if full => return None,
        Unit::Warpgroup if full && !form.conditions.is_empty() => (8, 1, 32, 1),
        Unit::Warpgroup if several && short && !form.conditions.is_empty() => (4, 1, 32, 2),
        Unit::Warpgroup if several && short && even => (8, 1, 64, 1),
        Unit::Warpgroup if several && short => (4, 1, 64, 2),
        Unit::Warpgroup if several => (if length > 128 { 4 } else { 8 }, 1, if length > 128 { 32 } else { 64 }, 1),
        Unit::Warpgroup if !form.conditions.is_empty() => {
            (if short { 4 } else { 8 }, 1, if length > 128 { 32 } else { 64 }, 1)
        }
        Unit::Warpgroup if short => (4, 1, 128, 3),
        // Two blocks: while one takes exponentials the other multiplies.
        Unit::Warpgroup if light && length <= 128 => (8, 1, 64, 2),
        Unit::Warpgroup => (8, 1, if length > 128 { 64 } else { 128 }, 1),
        Unit::Warp if length > 128 && !(form.limits.is_empty() && form.conditions.is_empty()) => (4, 1, 16, 1),
        Unit::Warp if careful || length > 128 => (4, 1, 32, 1),
        Unit::Warp if several => (4, 1, 32, 2),
        Unit::Warp if short => (4, 2, 64, 2),
        Unit::Warp => (8, 1, 64, 1),
    };
    let stages = match unit {
        Unit::Warpgroup if length <= 128 && (several && short && even || columns < 64) => 4,
        Unit::Warpgroup if several && !short && length <= 128 => 3,
        _ => 2,
    };
    let (depth, width, padded) = (length, length, false);
    let (copiers, persistent, turns, slack) = (0, false, false, 0);
    Some(Flash {
        warps,
        repeat,
        unit,
        columns,
        depth,
        width,
        padded,
        stages,
        vector: 8,
        blocks,
        copiers,
        persistent,
        turns,
        slack,
        sums: SumsOver::Columns,
    })
}

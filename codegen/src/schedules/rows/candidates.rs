//! The parameters that a plan may choose.

use super::Rows;
use crate::schedules::shape::{Shape, is_strided, vector};
use crate::schedules::strategy::Access;
use crate::stage::Stage;
use crate::target::WARP;

/// The candidates of a stage.
pub(super) fn of(stage: &Stage, access: Access) -> Vec<Rows> {
    let shape = Shape::of(stage);
    match access {
        Access::Vectors => {
            let access = stage.axis().filter(|_| !is_strided(stage)).and_then(|axis| vector(stage, axis));
            let all = |v| [long(&shape, v), middle(&shape, v), short(&shape, v), tiny(&shape, v)];
            access.map(all).into_iter().flatten().collect()
        }
        Access::Singles | Access::Unmerged => vec![short(&shape, 1), long(&shape, 1)],
    }
}

/// The parameters for any call.
pub(super) fn general(stage: &Stage) -> Rows {
    short(&Shape::of(stage), 1)
}

/// One row per block, 4096 elements at once.
fn long(shape: &Shape, vector: u32) -> Rows {
    let registers = match vector {
        8 => 64,
        _ if shape.wide && shape.words < 4 => 24,
        _ if shape.temporaries > 0 && shape.words > 2 => 32,
        _ => 48,
    };
    let vectors = (shape.items(registers) / vector).clamp(1, if vector == 1 { 4 } else { 8 });
    let tile = if vector == 1 { 1024 } else { 4096 };
    let warps = (tile / (WARP * vector * vectors)).clamp(1, 8);
    Rows { warps, row_warps: warps, lanes: WARP, rows: 1, vector, vectors }
}

/// One row per block, 1024 elements at once.
fn middle(shape: &Shape, vector: u32) -> Rows {
    let vectors = (shape.items(8) / vector).clamp(1, 2);
    let warps = (1024 / (WARP * vector * vectors)).clamp(1, 8);
    Rows { warps, row_warps: warps, lanes: WARP, rows: 1, vector, vectors }
}

/// 256 elements at once, several rows per warp.
fn short(shape: &Shape, vector: u32) -> Rows {
    let most = if vector == 1 { 2 } else { 4 };
    let vectors = (256 / (WARP * vector)).min(shape.items(32) / vector).clamp(1, most);
    let rows = (shape.items(32) / (vector * vectors)).clamp(1, most);
    Rows { warps: 4, row_warps: 1, lanes: WARP, rows, vector, vectors }
}

/// Eight lanes per row.
fn tiny(shape: &Shape, vector: u32) -> Rows {
    let rows = (shape.items(16) / vector).clamp(1, 4);
    Rows { warps: 4, row_warps: 1, lanes: 8, rows, vector, vectors: 1 }
}

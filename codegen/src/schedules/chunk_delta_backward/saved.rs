//! The numbers that walks write to memory, tile by tile in the layout of shared memory: states, and rows of each time.

use super::TIMES;
use crate::block::matmul::{COLUMNS, ROWS};
use crate::build::Builder;
use crate::schedules::chunk_delta::DeltaKernel;
use crate::tile::{Operand, ParamId, SharedId, SharedKind, Special};
use oplus_dsl::Ty;

/// Elements of an access.
pub(super) const ACCESS: u32 = COLUMNS;
/// Elements from one time to the next on the way to memory: neighbouring rows meet different banks.
pub(super) const PITCH: u32 = TIMES + ACCESS;

/// The memory of what a walk saves.
#[derive(Clone, Copy)]
pub(super) struct Saved {
    pub states: ParamId,
    pub rows: ParamId,
    /// An element for a chunk's times and all places of the width.
    pub array: SharedId,
}

impl Saved {
    pub(super) fn declare(b: &mut Builder, kernel: &DeltaKernel<'_>, is_back: bool) -> Saved {
        let scratch = &kernel.args.scratch;
        let (states, rows) = (scratch[usize::from(is_back)], scratch[2 + usize::from(is_back)]);
        let array = b.shared("saved", SharedKind::Elem(kernel.keys.elem), ROWS * PITCH);
        Saved { states, rows, array }
    }

    /// The number of the tile that a block has at a place in time.
    pub(super) fn number(self, b: &mut Builder, place: Operand, tiles: Operand) -> Operand {
        let block = b.special(Special::Block);
        let [block, place, tiles] = [block, place, tiles].map(|x| b.convert(Ty::I64, x));
        let before = b.mul(block, tiles);
        b.add(before, place)
    }
}

//! The numbers that walks write to memory, tile by tile in the layout of shared memory: states, and rows of each time.

use super::TIMES;
use crate::block::layout::Tile;
use crate::block::matmul::{COLUMNS, ROWS};
use crate::build::Builder;
use crate::schedules::chunk_delta::{DeltaKernel, TilePlace, Tiles};
use crate::stage::kind::DeltaRule;
use crate::tile::{Operand, ParamId, SharedId, SharedKind, Special};
use oplus_dsl::Ty;
use oplus_dsl::ir::Binary;

/// The place of the first saved tile of the block's sequence, where it has one of several.
fn first_tile(b: &mut Builder, kernel: &DeltaKernel<'_>) -> Option<Operand> {
    let outer = kernel.form.outer.minus(kernel.stage.axis_of_sequences());
    kernel.stage.sequences()?;
    let row = kernel.args.number_of(b, outer, &kernel.outer);
    let parts = b.div_ceil(kernel.args.size(kernel.form.width), TIMES);
    let before = b.mul(row, parts);
    let part = b.binary(Binary::Div, kernel.part, TIMES);
    let part = b.convert(Ty::I64, part);
    let row = b.add(before, part);
    kernel.args.first_tile(b, kernel.stage, row, TIMES)
}

/// How many rows of each time walks save: e and p, of rules with two keys p for each; none where steps read nothing of the state.
pub(super) fn saved_rows(rule: &DeltaRule) -> usize {
    if rule.reads { 2 + usize::from(rule.has_two_keys()) } else { 0 }
}

/// Elements of an access.
pub(super) const ACCESS: u32 = COLUMNS;

/// The memory in which a walk saves.
pub(super) struct Saved {
    pub states: ParamId,
    /// The rows of each time, where the third sweep needs them.
    pub rows: Option<ParamId>,
    /// Of a rule with two keys, where the walk of cotangents saves products with the keys of values.
    pub value_rows: Option<ParamId>,
    /// An element for a chunk's times and all places of the width.
    pub array: SharedId,
    /// Elements from one time to the next on the way to memory: neighbouring rows meet different banks.
    pub pitch: u32,
    /// The layout in memory of the rows of as many times as a block of the third sweep has.
    pub layout: Tile,
}

impl Saved {
    pub(super) fn declare(b: &mut Builder, kernel: &DeltaKernel<'_>, is_back: bool) -> Saved {
        let scratch = &kernel.args.scratch;
        let states = scratch[usize::from(is_back)];
        let of_rows = &scratch[2..2 + saved_rows(kernel.form)];
        let rows = of_rows.get(usize::from(is_back)).copied();
        let pitch = kernel.schedule.places + ACCESS;
        let len = rows.map_or(0, |_| ROWS * pitch);
        let array = b.shared("saved", SharedKind::Elem(kernel.elem()), len);
        // The third sweep copies the times of one of its blocks, whose panels follow one another.
        let times = if kernel.channels.is_some() { super::channels::times(kernel.schedule.depth) } else { TIMES };
        let layout = Tile { rows: times, depth: TIMES, elem: kernel.elem(), ..kernel.values.clone() };
        let value_rows = of_rows.get(2).copied().filter(|_| is_back);
        Saved { states, rows, value_rows, array, pitch, layout }
    }

    /// The number of the saved tile, of 64 times and as many places of the width, that a block has a part of, `i64`.
    pub(super) fn number(&self, b: &mut Builder, kernel: &DeltaKernel<'_>, tiles: Tiles, place: &TilePlace) -> Operand {
        if let Some(first) = first_tile(b, kernel) {
            let place = tiles.place(b, place.number);
            let place = b.convert(Ty::I64, place);
            return b.add(first, place);
        }
        let block = b.special(Special::Block);
        let block = b.binary(Binary::Div, block, TIMES / kernel.schedule.places);
        let place = tiles.place(b, place.number);
        let [block, place, tiles] = [block, place, tiles.count].map(|x| b.convert(Ty::I64, x));
        let before = b.mul(block, tiles);
        b.add(before, place)
    }

    /// The first place of the warp in its saved tile.
    pub(super) fn first_row(&self, b: &mut Builder, kernel: &DeltaKernel<'_>) -> Operand {
        let part = b.binary(Binary::Rem, kernel.part, TIMES);
        let of_warp = b.mul(kernel.thread.warp, ROWS);
        b.add(part, of_warp)
    }
}

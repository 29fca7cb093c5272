//! Elements of factors in tiles of `bf16`, or of `f32` that is split in place.
//!
//! Of every 16 elements of `f32` in a row, the first half of their bytes has the high parts, rounded to nearest, and the second the low
//! parts, what is left.

use super::fragment::{COLUMNS, ROWS};
use super::layout::{Tile, TileStage};
use crate::build::{Builder, zero};
use crate::tile::{Memory, Operand};
use oplus_dsl::ir::Binary;
use oplus_dsl::{Elem, Ty};

/// Pieces of 16 elements of `f32` whose low parts follow.
pub(super) const HIGH_PIECES: u32 = 2;

/// A pair of numbers as two packed pairs: rounded to nearest, and what is left.
pub(super) fn split(b: &mut Builder, [x, y]: [Operand; 2]) -> [Operand; 2] {
    let high = b.pack(Elem::Bf16, x, y);
    let [nearest_x, nearest_y] = b.unpack(Elem::Bf16, high);
    let (x, y) = (b.sub(x, nearest_x), b.sub(y, nearest_y));
    [high, b.pack(Elem::Bf16, x, y)]
}

/// The bits of the high and the low parts of a pair of numbers, as an element of a tile.
pub(crate) fn split_two(b: &mut Builder, two: [Operand; 2]) -> [Operand; 2] {
    split(b, two).map(|pair| b.bits(Ty::F32, pair))
}

/// The index of low parts beside that of high ones.
pub(crate) fn low_index(b: &mut Builder, tile: &Tile, index: Operand) -> Operand {
    // With the swizzle, this is the place two pieces further.
    b.binary(Binary::Xor, index, HIGH_PIECES * tile.piece())
}

/// The piece of a row that has its eight elements of a number: of a tile in `f32` their high parts.
pub(crate) fn piece_of_eight(b: &mut Builder, tile: &Tile, eight: Operand) -> Operand {
    if tile.elem != Elem::F32 {
        return eight;
    }
    let [sixteen, half] = b.div_rem(eight, HIGH_PIECES);
    let first = b.mul(sixteen, 2 * HIGH_PIECES);
    b.add(first, half)
}

/// The place in such a piece of two neighbouring elements, from `column` (0, 2, 4 or 6) on.
pub(crate) fn place_of_two(b: &mut Builder, tile: &Tile, column: Operand) -> Operand {
    if tile.elem == Elem::F32 { b.binary(Binary::Div, column, 2) } else { column }
}

/// Writes two neighbouring elements of a factor at their index.
pub(crate) fn store_two(b: &mut Builder, tile: &Tile, index: Operand, two: [Operand; 2], guard: Option<Operand>) {
    let memory = Memory::Shared(tile.array);
    if tile.elem != Elem::F32 {
        return b.store(memory, index, &two, guard);
    }
    let beside = low_index(b, tile, index);
    for (index, bits) in [index, beside].into_iter().zip(split_two(b, two)) {
        b.store(memory, index, &[bits], guard);
    }
}

/// The place of a block of sums in a tile, as a thread has it.
#[derive(Clone, Copy)]
pub(crate) struct BlockIndex {
    /// The first of the thread's two rows.
    pub row: Operand,
    /// The piece that has the block's eight columns, as [`piece_of_eight`].
    pub piece: Operand,
    /// The place of the thread's two columns in the piece, as [`place_of_two`], after the start of a stage.
    pub within: Operand,
}

/// Writes a block of sums to a tile as factors: two neighbouring elements in each of the thread's rows.
pub(crate) fn store_block(b: &mut Builder, tile: &Tile, at: BlockIndex, elements: [Operand; 4]) {
    for h in 0..2 {
        let row = b.add(at.row, h as u32 * COLUMNS);
        let index = tile.piece_index(b, row, at.piece);
        let index = b.add(index, at.within);
        store_two(b, tile, index, [elements[2 * h], elements[2 * h + 1]], None);
    }
}

/// Two neighbouring elements of a factor at their index.
pub(crate) fn load_two(b: &mut Builder, tile: &Tile, index: Operand) -> [Operand; 2] {
    let memory = Memory::Shared(tile.array);
    if tile.elem != Elem::F32 {
        let two = b.load(memory, index, 2, None, zero(Ty::F32));
        return [two[0], two[1]];
    }
    let beside = low_index(b, tile, index);
    let [high, low] = [index, beside].map(|index| {
        let bits = b.load1(memory, index);
        let pair = b.bits(Ty::U32, bits);
        b.unpack(Elem::Bf16, pair)
    });
    [b.add(high[0], low[0]), b.add(high[1], low[1])]
}

/// The elements of a tile's stage in a block: of the rows `row` and `row` + 8 two from `column` on, of the eight elements of a number.
pub(crate) fn block_of(
    b: &mut Builder,
    TileStage { tile, start }: TileStage,
    row: Operand,
    eight: Operand,
    column: Operand,
) -> [Operand; 4] {
    let (piece, column) = (piece_of_eight(b, tile, eight), place_of_two(b, tile, column));
    let [first, second] = [0, COLUMNS].map(|by| {
        let row = b.add(row, by);
        let index = tile.piece_index(b, row, piece);
        let index = b.add(index, column);
        let index = b.add(index, start);
        load_two(b, tile, index)
    });
    [first[0], first[1], second[0], second[1]]
}

/// An element of a row.
pub(crate) fn load_one(b: &mut Builder, tile: &Tile, row: Operand, column: Operand) -> Operand {
    let [eight, within] = b.div_rem(column, COLUMNS);
    let piece = piece_of_eight(b, tile, eight);
    let index = tile.piece_index(b, row, piece);
    if tile.elem != Elem::F32 {
        let index = b.add(index, within);
        return b.load1(Memory::Shared(tile.array), index);
    }
    let [two, odd] = b.div_rem(within, 2);
    let index = b.add(index, two);
    let [even, other] = load_two(b, tile, index);
    let is_even = b.eq(odd, 0);
    b.select(is_even, even, other)
}

/// The sum of products of the elements of two tiles' stages of one shape, of which a thread has some pieces.
pub(crate) fn add_products(
    b: &mut Builder,
    stages: [TileStage; 2],
    thread: Operand,
    threads: u32,
    mut sum: Operand,
) -> Operand {
    let tile = stages[0].tile;
    let (len, piece) = (tile.len(), tile.piece());
    let is_split = tile.elem == Elem::F32;
    // A thread adds high and low parts, whichever piece has them.
    let own = if is_split { first_of_both(b, thread) } else { b.mul(thread, piece) };
    let step = threads * piece * if is_split { 2 } else { 1 };
    for by in (0..len).step_by(step as usize) {
        let at = b.add(own, by);
        let [x, y] = stages.map(|TileStage { tile, start }| {
            let at = b.add(at, start);
            elements_at(b, tile, at)
        });
        for (x, y) in x.into_iter().zip(y) {
            sum = b.fma(x, y, sum);
        }
    }
    sum
}

/// The index of the first of two pieces that a thread has.
fn first_of_both(b: &mut Builder, thread: Operand) -> Operand {
    let [four, piece] = b.div_rem(thread, HIGH_PIECES);
    let first = b.mul(four, 2 * HIGH_PIECES);
    let piece = b.add(first, piece);
    b.mul(piece, 4)
}

/// The elements of a piece at its index.
fn elements_at(b: &mut Builder, tile: &Tile, at: Operand) -> Vec<Operand> {
    let load = |b: &mut Builder, at: Operand| b.load(Memory::Shared(tile.array), at, tile.piece(), None, zero(Ty::F32));
    if tile.elem != Elem::F32 {
        return load(b, at);
    }
    let beside = low_index(b, tile, at);
    let [one, other] = [at, beside].map(|at| {
        let four = load(b, at);
        four.into_iter()
            .flat_map(|bits| {
                let pair = b.bits(Ty::U32, bits);
                b.unpack(Elem::Bf16, pair)
            })
            .collect::<Vec<_>>()
    });
    one.into_iter().zip(other).map(|(x, y)| b.add(x, y)).collect()
}

/// The index at which lanes that name rows and halves of 16 elements read those of a number.
pub(crate) fn index_of_sixteen(b: &mut Builder, tile: &Tile, row: Operand, half: Operand, sixteen: Operand) -> Operand {
    let of_panel = tile.panel() / ROWS;
    if tile.depth == tile.panel() && tile.elem != Elem::F32 {
        return tile.lanes_at(b, row, half, sixteen);
    }
    let [panel, within] = b.div_rem(sixteen, of_panel);
    let step = b.mul(within, ROWS / tile.step());
    let index = tile.lanes_at(b, row, half, step);
    let from = b.mul(panel, tile.rows * tile.panel());
    b.add(index, from)
}

/// Splits eight neighbouring numbers in the bits of their high and of their low parts, four of each.
pub(crate) fn split_eight(b: &mut Builder, eight: &[Operand]) -> [Vec<Operand>; 2] {
    let both: Vec<[Operand; 2]> = eight.chunks(2).map(|two| split(b, [two[0], two[1]])).collect();
    [0, 1].map(|part| both.iter().map(|pairs| b.bits(Ty::F32, pairs[part])).collect())
}

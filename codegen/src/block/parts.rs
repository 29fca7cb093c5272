//! Factors of products whose sums need the range of `f32`: in `bf16`, or of `f32` as a high and a low part in `bf16`.
//!
//! Elements of `f16` become `bf16` in shared memory ([`prepare`]). Elements of `f32` are split there: of every 16 elements of a row, the
//! first half of their bytes has the high parts, rounded to nearest, and the second the low parts, what is left. So fragments of both are
//! read as those of 16 bits are, along rows or transposed. A product is that of both high parts and of each low part with the other's
//! high part; what is left out is below 2⁻¹⁶ of it.

use super::fragment::{COLUMNS, Factor, ROWS, load_four, mma_two};
use super::layout::{Tile, TileStage, left_rows};
use crate::build::{Builder, zero};
use crate::tile::{Memory, Operand, Stmt};
use oplus_dsl::ir::Binary;
use oplus_dsl::{Elem, Ty};

/// Pieces of 16 elements of `f32` whose low parts follow.
const HIGH_PIECES: u32 = 2;

/// Fragments of `f32` that a lane splits at once.
const AT_ONCE: usize = 4;

/// A fragment of 16 × 16 numbers in packed pairs: whole, or the high and the low parts.
#[derive(Clone, Copy)]
pub(crate) struct Parts {
    high: [Operand; 4],
    low: Option<[Operand; 4]>,
}

/// The most places that elements of `f16` are split for where they are copied one by one: errors of more average out.
const MOST_SPLIT: u32 = 64;

/// The type in which factors lie in shared memory, of elements of a type that are copied in accesses of `vector` elements and summed
/// over so many places.
pub(crate) fn factor_elem(elem: Elem, vector: u32, places: u32) -> Elem {
    match elem {
        Elem::F16 if vector == 1 && places <= MOST_SPLIT => Elem::F32,
        Elem::F16 => Elem::Bf16,
        _ => elem,
    }
}

/// Whether elements of a type that have been copied to a tile are not yet factors. Single ones have been rounded on their way.
pub(crate) fn are_copied(tile: &Tile, elem: Elem, vector: u32) -> bool {
    tile.elem == Elem::F32 || elem != tile.elem && vector > 1
}

/// The type of the packed pairs of factors.
fn pair_elem(elem: Elem) -> Elem {
    if elem == Elem::F32 { Elem::Bf16 } else { elem }
}

impl Parts {
    /// Two neighbouring blocks as a left factor.
    pub(crate) fn of_blocks(b: &mut Builder, elem: Elem, two: &[[Operand; 4]]) -> Parts {
        let pair = |block: usize, h: usize| [two[block][2 * h], two[block][2 * h + 1]];
        Parts::of_pairs(b, elem, &[pair(0, 0), pair(0, 1), pair(1, 0), pair(1, 1)])
    }

    /// A fragment of the numbers of each register's pair.
    pub(crate) fn of_pairs(b: &mut Builder, elem: Elem, pairs: &[[Operand; 2]; 4]) -> Parts {
        if elem != Elem::F32 {
            return Parts { high: pairs.map(|[x, y]| b.pack(elem, x, y)), low: None };
        }
        let both = pairs.map(|pair| split(b, pair));
        Parts { high: both.map(|[high, _]| high), low: Some(both.map(|[_, low]| low)) }
    }

    /// The numbers of each register's pair.
    pub(crate) fn pairs(self, b: &mut Builder, elem: Elem) -> [[Operand; 2]; 4] {
        let high = self.high.map(|pair| b.unpack(pair_elem(elem), pair));
        let Some(low) = self.low else { return high };
        [0, 1, 2, 3].map(|r: usize| {
            let low = b.unpack(pair_elem(elem), low[r]);
            [0, 1].map(|c: usize| b.add(high[r][c], low[c]))
        })
    }

    /// A left factor times a number for each of the thread's two columns in both blocks.
    pub(crate) fn times_columns(self, b: &mut Builder, elem: Elem, numbers: [[Operand; 2]; 2]) -> Parts {
        if elem != Elem::F32 {
            let high = [0, 1, 2, 3].map(|register: usize| {
                // Registers 0 and 1 have the first eight columns, 2 and 3 the others.
                let [first, second] = numbers[register / 2];
                let [low, high] = b.unpack(elem, self.high[register]);
                let (low, high) = (b.mul(low, first), b.mul(high, second));
                b.pack(elem, low, high)
            });
            return Parts { high, low: None };
        }
        let pairs = self.pairs(b, elem);
        let scaled = [0, 1, 2, 3].map(|r: usize| [0, 1].map(|c: usize| b.mul(pairs[r][c], numbers[r / 2][c])));
        Parts::of_pairs(b, elem, &scaled)
    }

    /// The high parts, or whole elements.
    pub(crate) fn high(self) -> [Operand; 4] {
        self.high
    }

    /// The low parts, if there are any.
    pub(crate) fn low(self) -> Option<[Operand; 4]> {
        self.low
    }

    /// The fragment with every register mapped.
    pub(crate) fn map(self, mut map: impl FnMut(Operand) -> Operand) -> Parts {
        Parts { high: self.high.map(&mut map), low: self.low.map(|low| low.map(&mut map)) }
    }

    /// A left factor as the right one of its transpose: the two registers in the middle change places.
    pub(crate) fn as_right(self) -> Parts {
        let swap = |[a, c, e, g]: [Operand; 4]| [a, e, c, g];
        Parts { high: swap(self.high), low: self.low.map(swap) }
    }

    /// Four matrices whose rows lanes name by this index, of a tile that begins at a multiple of its rows' length.
    pub(crate) fn at(b: &mut Builder, tile: &Tile, index: Operand, transposed: bool) -> Parts {
        let high = load_four(b, tile, index, transposed);
        let low = match tile.low_part() {
            Some(low) => Some(load_four(b, &low, index, transposed)),
            None if tile.elem == Elem::F32 => {
                let beside = low_index(b, tile, index);
                Some(load_four(b, tile, beside, transposed))
            }
            None => None,
        };
        Parts { high, low }
    }

    /// Adds the products of a left factor with two fragments of columns, side by side, to two blocks.
    pub(crate) fn multiply(self, b: &mut Builder, elem: Elem, sums: &mut [[Operand; 4]], right: Parts) {
        if let Some(low) = self.low {
            mma_two(b, Elem::Bf16, sums, low, right.high);
        }
        if let Some(low) = right.low {
            mma_two(b, Elem::Bf16, sums, self.high, low);
        }
        mma_two(b, pair_elem(elem), sums, self.high, right.high);
    }
}

impl Factor<'_> {
    /// Four matrices from row `first`, a multiple of 8, and 16 elements number `sixteen` on.
    pub(crate) fn parts(self, b: &mut Builder, first: u32, sixteen: u32, transposed: bool) -> Parts {
        if self.tile.elem != Elem::F32 {
            return Parts { high: self.four(b, first, sixteen, transposed), low: None };
        }
        // A step has eight elements of `f32`, or 16 of their parts.
        let [high, low] = [0, 1].map(|part| self.four(b, first, 2 * sixteen + part, transposed));
        Parts { high, low: Some(low) }
    }
}

/// Adds left·rightᵀ over the depth.
pub(crate) fn multiply(b: &mut Builder, sums: &mut [[Operand; 4]], left: Factor, right: Factor) {
    for sixteen in 0..left.tile.depth / ROWS {
        let rows = left.parts(b, 0, sixteen, false);
        for (pair, sums) in (0..).zip(sums.chunks_exact_mut(2)) {
            let columns = right.parts(b, pair * ROWS, sixteen, false);
            rows.multiply(b, left.tile.elem, sums, columns);
        }
    }
}

/// Adds left·right over 16 rows of the right factor.
pub(crate) fn multiply_in_time(b: &mut Builder, sums: &mut [[Operand; 4]], left: Parts, right: Factor, sixteen: u32) {
    for (pair, sums) in (0..).zip(sums.chunks_exact_mut(2)) {
        let columns = right.parts(b, sixteen * ROWS, pair, true);
        left.multiply(b, right.tile.elem, sums, columns);
    }
}

/// A pair of numbers as two packed pairs: rounded to nearest, and what is left.
fn split(b: &mut Builder, [x, y]: [Operand; 2]) -> [Operand; 2] {
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

/// The elements of a tile in a block: of the rows `row` and `row` + 8 two from `column` on, of the eight elements of a number.
pub(crate) fn block_of(b: &mut Builder, tile: &Tile, row: Operand, eight: Operand, column: Operand) -> [Operand; 4] {
    let (piece, column) = (piece_of_eight(b, tile, eight), place_of_two(b, tile, column));
    let [first, second] = [0, COLUMNS].map(|by| {
        let row = b.add(row, by);
        let index = tile.piece_index(b, row, piece);
        let index = b.add(index, column);
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

/// The sum of products of the elements of two tiles of one shape, of which a thread has some pieces.
pub(crate) fn add_products(
    b: &mut Builder,
    tiles: [&Tile; 2],
    thread: Operand,
    threads: u32,
    mut sum: Operand,
) -> Operand {
    let (len, piece) = (tiles[0].len(), tiles[0].piece());
    let is_split = tiles[0].elem == Elem::F32;
    // A thread adds high and low parts, whichever piece has them.
    let own = if is_split { first_of_both(b, thread) } else { b.mul(thread, piece) };
    let step = threads * piece * if is_split { 2 } else { 1 };
    for by in (0..len).step_by(step as usize) {
        let at = b.add(own, by);
        let [x, y] = tiles.map(|tile| elements_at(b, tile, at));
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

/// The numbers of a fragment of a left factor, of a tile whose elements are as they were copied: of 16 rows from row `first` of the stage
/// that begins at `start` on, and of 16 elements from the eight of a number on.
pub(crate) fn copied_fragment(
    b: &mut Builder,
    tile: &Tile,
    lane: Operand,
    start: Operand,
    first: Operand,
    eight: Operand,
) -> [[Operand; 2]; 4] {
    if tile.elem != Elem::F32 {
        let (row, half) = left_rows(b, lane);
        let row = b.add(first, row);
        let piece = b.add(eight, half);
        let index = tile.piece_index(b, row, piece);
        let index = b.add(index, start);
        return load_four(b, tile, index, false).map(|pair| b.unpack(tile.elem, pair));
    }
    let [group, member] = b.div_rem(lane, 4);
    let row = b.add(first, group);
    let [half, second] = b.div_rem(member, HIGH_PIECES);
    let within = b.mul(second, 2);
    let from = b.add(start, within);
    let piece = b.mul(eight, HIGH_PIECES);
    let piece = b.add(piece, half);
    [0, 1, 2, 3].map(|r: u32| {
        let row = b.add(row, r % 2 * COLUMNS);
        let piece = b.add(piece, r / 2 * HIGH_PIECES);
        let index = tile.piece_index(b, row, piece);
        let index = b.add(index, from);
        let two = b.load(Memory::Shared(tile.array), index, 2, None, zero(Ty::F32));
        [two[0], two[1]]
    })
}

/// Makes factors of elements that have been copied, by a warp: of 16 rows of each stage, from row `first` on. They are of `f32`, or of `f16`
/// in tiles of `bf16`. Lanes see one another's factors after the warp's next barrier.
pub(crate) fn prepare(b: &mut Builder, stages: &[TileStage], lane: Operand, first: Operand) {
    let (row, half) = left_rows(b, lane);
    let row = b.add(first, row);
    if stages.iter().any(|stage| stage.tile.elem == Elem::F32) {
        stages.iter().for_each(|stage| prepare_split(b, *stage, row, half));
    } else {
        prepare_half(b, stages, lane, first, row, half);
    }
}

/// Splits elements in place. A lane has eight neighbours of every 16, and reads those of several before it writes.
fn prepare_split(b: &mut Builder, TileStage { tile, start }: TileStage, row: Operand, half: Operand) {
    let memory = Memory::Shared(tile.array);
    let place = |b: &mut Builder, piece: Operand| {
        let index = tile.piece_index(b, row, piece);
        b.add(index, start)
    };
    let own = b.mul(half, HIGH_PIECES);
    let sixteens: Vec<u32> = (0..tile.depth / ROWS).map(|sixteen| sixteen * 2 * HIGH_PIECES).collect();
    for some in sixteens.chunks(AT_ONCE) {
        let mut load = |of_sixteen: u32, by: u32| {
            let piece = b.add(own, of_sixteen + by);
            let index = place(b, piece);
            b.load(memory, index, 4, None, zero(Ty::F32))
        };
        let all: Vec<Vec<Operand>> = some.iter().map(|own| [load(*own, 0), load(*own, 1)].concat()).collect();
        b.push(Stmt::SyncWarp);
        for (of_sixteen, eight) in some.iter().zip(all) {
            for (by, part) in [0, HIGH_PIECES].into_iter().zip(split_eight(b, &eight)) {
                let piece = b.add(half, of_sixteen + by);
                let index = place(b, piece);
                b.store(memory, index, &part, None);
            }
        }
    }
}

/// Rounds elements of `f16` to `bf16` in place: all are read before the first is written.
fn prepare_half(b: &mut Builder, stages: &[TileStage], lane: Operand, first: Operand, row: Operand, half: Operand) {
    let [group, member] = b.div_rem(lane, 4);
    let (own, column) = (b.add(first, group), b.mul(member, 2));
    let places = stages.iter().flat_map(|stage| (0..stage.tile.depth / ROWS).map(move |sixteen| (*stage, sixteen)));
    let places: Vec<(TileStage, u32)> = places.collect();
    let all: Vec<[Operand; 4]> = places
        .iter()
        .map(|(TileStage { tile, start }, sixteen)| {
            let piece = b.add(half, 2 * sixteen);
            let index = tile.piece_index(b, row, piece);
            let index = b.add(index, *start);
            load_four(b, tile, index, false)
        })
        .collect();
    b.push(Stmt::SyncWarp);
    for ((TileStage { tile, start }, sixteen), packed) in places.into_iter().zip(all) {
        let start = b.add(start, column);
        for (r, pair) in (0..).zip(packed) {
            let two = b.unpack(Elem::F16, pair);
            let row = b.add(own, r % 2 * COLUMNS);
            let index = tile.piece_index(b, row, Operand::i32((2 * sixteen + r / 2) as i32));
            let index = b.add(index, start);
            b.store(Memory::Shared(tile.array), index, &two, None);
        }
    }
}

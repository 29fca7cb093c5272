//! Factors of elements as they were copied: `f16` becomes `bf16`, and `f32` is [split in place](super::split_tile).

use super::fragment::{COLUMNS, ROWS, load_four};
use super::layout::{Tile, TileStage, left_rows};
use super::split_tile::{HIGH_PIECES, split_eight};
use crate::build::{Builder, zero};
use crate::tile::{Memory, Operand, Stmt};
use oplus_dsl::{Elem, Ty};

/// Fragments of `f32` that a lane splits at once.
const AT_ONCE: usize = 4;

/// The longest axis of a sum for which single elements of `f16` are split: over longer ones the errors of rounding average out.
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

/// The numbers of a fragment of a left factor, of a tile whose elements are as they were copied: of 16 rows from row `first` of the stage
/// that begins at `start` on, and of 16 elements from the eight of a number on. Elements of `f16` may be in a tile of `bf16`.
pub(crate) fn copied_fragment(
    b: &mut Builder,
    (tile, elem): (&Tile, Elem),
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
        return load_four(b, tile, index, false).map(|pair| b.unpack(elem, pair));
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

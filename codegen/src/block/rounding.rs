//! Tiles of `f16` whose elements are rounded to `bf16` in shared memory, by warps that only copy.
//!
//! Sums of recurrences may leave the range of `f16`, and a product of a warpgroup has factors of one type. When the copies of a stage are
//! there, the warps that copy round its elements in place and arrive at a second mbarrier, for which the warps that multiply wait.

use super::layout::Tile;
use super::ring::RingStage;
use super::thread::Thread;
use crate::build::Builder;
use crate::target::WARP;
use crate::tile::{Operand, SharedId, SharedKind, Stmt};
use oplus_dsl::Elem;

/// Elements that a lane names: those of a piece.
const PIECE: u32 = 8;
/// Elements that a warp rounds with one access.
const OF_WARP: u32 = WARP * PIECE;
/// Pieces that a lane reads at once, while it rounds as many: more would take more registers than warps that only copy have.
const AT_ONCE: usize = 3;

/// Warps that copy, as one of their threads sees them.
#[derive(Clone, Copy)]
pub(crate) struct Copiers {
    /// The thread's place among them.
    pub thread: Thread,
    /// Their number.
    pub warps: u32,
}

/// The mbarriers of stages whose elements are to be rounded.
#[derive(Clone, Copy)]
pub(crate) struct Rounding {
    /// Completes when the elements of the stage are rounded, and what the warps that copy wrote before is there.
    pub done: SharedId,
}

impl Rounding {
    /// Declares the mbarriers.
    pub(crate) fn declare(b: &mut Builder, stages: u32) -> Rounding {
        Rounding { done: b.shared("rounded", SharedKind::Mbarrier, stages) }
    }

    /// Waits for the copies of a stage, rounds its elements in all tiles, and arrives.
    pub(crate) fn round(self, b: &mut Builder, tiles: &[&Tile], at: RingStage, copiers: Copiers) {
        let mut awaited: Vec<SharedId> = tiles.iter().map(|tile| tile.full).collect();
        awaited.dedup();
        awaited.into_iter().for_each(|full| b.wait(full, at));
        round_in_place(b, tiles, at.index, copiers);
        // Makes them visible to warpgroups.
        b.push(Stmt::FenceAsync);
        b.arrive(self.done, at.index);
    }
}

/// Rounds the elements of a stage of tiles, copied as `f16` to tiles of `bf16`. Threads see one another's elements after a barrier.
pub(crate) fn round_in_place(b: &mut Builder, tiles: &[&Tile], stage: Operand, copiers: Copiers) {
    let Copiers { thread, warps } = copiers;
    let of_warp = b.mul(thread.warp, OF_WARP);
    let of_lane = b.mul(thread.lane, PIECE);
    let own = b.add(of_warp, of_lane);
    let step = warps * OF_WARP;
    let mut places = vec![];
    for tile in tiles {
        let start = b.mul(stage, tile.len());
        let first = b.add(start, own);
        let whole = tile.len() / step * step;
        places.extend((0..whole).step_by(step as usize).map(|by| (*tile, b.add(first, by))));
        if whole < tile.len() {
            let inside = b.lt(of_warp, (tile.len() - whole) as i32);
            let rest = b.add(first, whole);
            b.if_(inside, |b| round_all(b, &[(*tile, rest)]));
        }
    }
    round_all(b, &places);
}

/// Rounds the pieces at the lane's places in tiles: some are read while those before are rounded.
fn round_all(b: &mut Builder, places: &[(&Tile, Operand)]) {
    let mut some = places.chunks(AT_ONCE);
    let mut current = some.next().map(|some| (some, read(b, some)));
    while let Some((places, packed)) = current {
        current = some.next().map(|some| (some, read(b, some)));
        b.push(Stmt::SyncWarp);
        for ((tile, index), packed) in places.iter().zip(packed) {
            let rounded: Vec<Operand> = packed
                .into_iter()
                .map(|pair| {
                    let [low, high] = b.unpack(Elem::F16, pair);
                    b.pack(tile.elem, low, high)
                })
                .collect();
            b.store_matrix(tile.array, *index, &rounded, false);
        }
    }
}

/// Reads the pieces at the lane's places.
fn read(b: &mut Builder, places: &[(&Tile, Operand)]) -> Vec<Vec<Operand>> {
    places.iter().map(|(tile, index)| b.load_matrix(tile.array, *index, 4, false)).collect()
}

/// Numbers that have, as elements of the type `to`, the bits that two numbers have as elements of the type `from`, both of 16 bits: so
/// elements of one type lie in an array of the other.
pub(crate) fn in_bits_of(b: &mut Builder, from: Elem, to: Elem, two: [Operand; 2]) -> [Operand; 2] {
    if from == to {
        return two;
    }
    let bits = b.pack(from, two[0], two[1]);
    b.unpack(to, bits)
}

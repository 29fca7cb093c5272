//! A tile of times that a kernel prepares for others, as it lies in memory: factors and weights in the layout of shared memory, one tile of
//! shared memory after the other, and arrays of decays and rates. A kernel may lack some of them.

use super::ahead::TilePlace;
use super::{ROWS, TIMES, WARPS};
use crate::block::copy::WholeCopy;
use crate::block::layout::Tile;
use crate::build::{Builder, zero};
use crate::target::WARP;
use crate::tile::{Memory, Operand, ParamId, SharedId, Stmt};
use oplus_dsl::Ty;

/// Numbers of an access to shared memory.
const ACCESS: u32 = 4;

/// The share of a kernel in the tiles that are prepared: it stores or copies it.
#[derive(Default)]
pub(in crate::schedules) struct Stored<'t> {
    /// Its tiles of shared memory, and where each begins.
    tiles: Vec<(&'t Tile, u32)>,
    /// Its arrays, where each begins, and its length.
    arrays: Vec<(SharedId, u32, u32)>,
    /// The numbers of all of a tile: of factors and weights, and of decays and rates.
    lens: [u32; 2],
}

/// The memory in which tiles are prepared: of factors and weights, and of decays and rates.
#[derive(Clone, Copy)]
pub(in crate::schedules) struct StoredIn(pub [ParamId; 2]);

/// A thread's four numbers of an array.
struct OwnNumbers {
    array: SharedId,
    /// The array's length in a tile.
    len: u32,
    /// The first one's index in a tile of the array, `i32`, and its place in memory, `i64`.
    own: Operand,
    place: Operand,
}

impl<'t> Stored<'t> {
    /// Next in memory are factors over `depth` places, of which the kernel has the given ones.
    pub(in crate::schedules) fn factors(&mut self, own: Option<&'t Tile>, depth: u32) {
        self.tile(own, TIMES * depth);
    }

    /// Next in memory are numbers of pairs of times.
    pub(in crate::schedules) fn pairs(&mut self, own: Option<&'t Tile>) {
        self.tile(own, TIMES * ROWS);
    }

    fn tile(&mut self, own: Option<&'t Tile>, len: u32) {
        self.tiles.extend(own.map(|tile| (tile, self.lens[0])));
        self.lens[0] += len;
    }

    /// Next in memory is an array of a length.
    pub(in crate::schedules) fn array(&mut self, own: Option<SharedId>, len: u32) {
        self.arrays.extend(own.map(|array| (array, self.lens[1], len)));
        self.lens[1] += len;
    }

    /// The numbers of all of a tile: of factors and weights, and of decays and rates.
    pub(in crate::schedules) fn lens(&self) -> [u64; 2] {
        self.lens.map(u64::from)
    }

    /// Stores the tile number `place` (`i64`), by thread number `thread` of those that prepare it.
    pub(in crate::schedules) fn store(&self, b: &mut Builder, to: StoredIn, thread: Operand, place: Operand) {
        let [factors, numbers] = self.first(b, place);
        self.each_tile(b, factors, |b, tile, at| {
            let copy = WholeCopy { thread, threads: WARPS * WARP, len: tile.len() };
            copy.store(b, tile, to.0[0], at);
        });
        self.each_number(b, thread, numbers, |b, number| {
            let four = b.load(Memory::Shared(number.array), number.own, ACCESS, None, zero(Ty::F32));
            b.store(Memory::Global(to.0[1]), number.place, &four, None);
        });
    }

    /// Starts the copies of tile number `number` (`i64`) to a place in shared memory, by thread number `thread` of those that copy it.
    pub(in crate::schedules) fn copy(
        &self,
        b: &mut Builder,
        from: StoredIn,
        thread: Operand,
        number: Operand,
        place: &TilePlace,
    ) {
        let [factors, numbers] = self.first(b, number);
        self.each_tile(b, factors, |b, tile, at| {
            let copy = WholeCopy { thread, threads: WARPS * WARP, len: tile.len() };
            copy.start(b, tile, place.pairs.index, from.0[0], at);
        });
        self.each_number(b, thread, numbers, |b, OwnNumbers { array: to, len, own, place: from_index }| {
            let start = b.mul(place.pairs.index, len);
            let to_index = b.add(start, own);
            let from = from.0[1];
            b.push(Stmt::CopyAsync { to, to_index, from, from_index, elements: ACCESS, guard: None });
        });
    }

    /// Goes through the kernel's tiles of shared memory, of which all begin at number `from` (`i64`) in memory.
    fn each_tile(&self, b: &mut Builder, from: Operand, mut then: impl FnMut(&mut Builder, &Tile, Operand)) {
        let (mut at, mut reached) = (from, 0);
        for (tile, first) in &self.tiles {
            if *first > reached {
                at = b.add(at, i64::from(first - reached));
            }
            then(b, tile, at);
            at = b.add(at, i64::from(tile.len()));
            reached = first + tile.len();
        }
    }

    /// Goes through the kernel's arrays, of which all begin at number `from` (`i64`) in memory, where the thread has four numbers in them.
    fn each_number(
        &self,
        b: &mut Builder,
        thread: Operand,
        from: Operand,
        mut then: impl FnMut(&mut Builder, OwnNumbers),
    ) {
        let own = b.mul(thread, ACCESS);
        let (mut at, mut reached) = (from, 0);
        for (array, first, len) in self.arrays.iter().copied() {
            if first > reached {
                at = b.add(at, i64::from(first - reached));
            }
            let is_own = b.lt(own, len);
            b.if_(is_own, |b| {
                let place = b.convert(Ty::I64, own);
                let place = b.add(at, place);
                then(b, OwnNumbers { array, len, own, place });
            });
            at = b.add(at, i64::from(len));
            reached = first + len;
        }
    }

    /// The numbers of the first factor and of the first other number of tile number `place` (`i64`).
    fn first(&self, b: &mut Builder, place: Operand) -> [Operand; 2] {
        self.lens().map(|len| b.mul(place, Operand::i64(len as i64)))
    }
}

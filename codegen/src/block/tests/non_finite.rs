//! Threads that look through a tile for infinities and NaNs.

use super::{X, Y, builder, index, run, thread};
use crate::block::layout::{Tile, TileShape};
use crate::block::non_finite::{PackedPieces, Pieces};
use crate::build::{Builder, f32};
use crate::target::WARP;
use crate::tile::{Kernel, Memory, Operand, ParamKind, Stmt};
use oplus_dsl::{Elem, Ty};

/// The rows of the tile: each warp's thread has a piece of every row, and one more thread of none.
const ROWS: u32 = 5;
const DEPTH: u32 = 64;

/// A kernel that writes whether each lane has found anything in its pieces, and then the tile, which it has cleared.
fn kernel() -> Kernel {
    let mut b = Builder::new("k", 32);
    b.param("x", ParamKind::Read(Elem::F32));
    b.param("y", ParamKind::Write(Elem::F32));
    let tile = Tile::bare(&mut b, "tile", Elem::F32, ROWS, DEPTH);
    let lane = thread(&mut b);
    let all = Memory::Shared(tile.array);
    b.for_(lane, ROWS * DEPTH, 32, |b, number| {
        let at = b.convert(Ty::I64, number);
        let x = b.load1(X, at);
        b.store(all, number, &[x], None);
    });
    b.push(Stmt::SyncWarp);
    let index = |b: &mut Builder, number: Operand| b.mul(number, tile.piece());
    let (count, step) = (ROWS * tile.pieces(), 16);
    let pieces = Pieces { tile: &tile, first: lane, count, step, index: &index };
    let half = b.lt(lane, 16);
    b.if_(half, |b| {
        let [found, finite] = [pieces.has_non_finite(b), pieces.are_finite(b)];
        b.if_(found, |b| pieces.clear(b));
        let found = b.select(found, Operand::i32(1), Operand::i32(0));
        let found = b.select(finite, Operand::i32(0), found);
        let found = b.convert(Ty::F32, found);
        let at = b.convert(Ty::I64, lane);
        b.store(Y, at, &[found], None);
    });
    b.push(Stmt::SyncWarp);
    b.for_(lane, ROWS * DEPTH, 32, |b, number| {
        let x = b.load1(all, number);
        let at = super::index(b, number, 1, 16);
        b.store(Y, at, &[x], None);
    });
    b.finish()
}

#[test]
fn non_finite_elements_are_found_and_replaced_by_zero_and_no_others_are_touched() {
    let finite: Vec<f64> = (0..ROWS * DEPTH).map(|i| f64::from(i) - 100.0).collect();
    let kernel = kernel();
    for (at, x) in [(0, f64::INFINITY), (63, f64::NEG_INFINITY), (64, f64::NAN), (319, f64::NAN)] {
        let (mut given, mut wanted) = (finite.clone(), finite.clone());
        (given[at], wanted[at]) = (x, 0.0);
        // A piece has four elements, and every sixteenth is of one lane.
        let found = (0..16).map(|lane| f64::from(u8::from(at / 4 % 16 == lane)));
        let wanted: Vec<f64> = found.chain(wanted).collect();
        assert_eq!(run(&kernel, &given, wanted.len()), wanted, "{x} at {at}");
    }
    let wanted: Vec<f64> = [0.0; 16].into_iter().chain(finite.clone()).collect();
    assert_eq!(run(&kernel, &finite, wanted.len()), wanted);
}

/// A kernel in which two warps look through the second stage of a tile of 16-bit elements; each writes whether it has found anything.
fn packed(elem: Elem, rows: u32) -> Kernel {
    let threads = 2 * WARP;
    let mut b = builder(threads, elem);
    let shape = TileShape { rows, depth: DEPTH, stages: 2 };
    let tile = Tile::bare_ring(&mut b, "tile", elem, shape);
    let number = thread(&mut b);
    let start = Operand::i32(tile.len() as i32);
    b.for_(number, tile.len(), threads, |b, place| {
        let [first, second] = [index(b, place, 1, 0), index(b, place, 1, tile.len() as i32)];
        let infinite = b.load1(X, first);
        b.store(Memory::Shared(tile.array), place, &[infinite], None);
        let x = b.load1(X, second);
        let to = b.add(place, start);
        b.store(Memory::Shared(tile.array), to, &[x], None);
    });
    b.barrier();
    let found = PackedPieces { tile: &tile, start, thread: number, warps: 2 }.has_non_finite(&mut b);
    let found = b.select(found, f32(1.0), f32(0.0));
    let [warp, lane] = b.div_rem(number, WARP);
    let first = b.eq(lane, 0);
    let at = b.convert(Ty::I64, warp);
    b.store(Y, at, &[found], Some(first));
    b.finish()
}

#[test]
fn warps_find_non_finite_elements_of_packed_pairs_wherever_they_are_and_the_largest_number_is_none() {
    for (elem, largest) in [(Elem::Bf16, f64::from(f32::from_bits(0x7f7f_0000))), (Elem::F16, 65504.0)] {
        // Of three rows some lanes have no piece, and of 13 some have two where others have one.
        for rows in [3, 8, 13, 16, 24, 64] {
            let len = (rows * DEPTH) as usize;
            let kernel = packed(elem, rows);
            let finite: Vec<f64> = (0..len).map(|i| [largest, -largest, 0.0, 1.0, -1e-7][i * 7 % 5]).collect();
            // The first stage is not looked through.
            let of = |second: &[f64]| run(&kernel, &[&vec![f64::INFINITY; len], second].concat(), 2);
            assert_eq!(of(&finite), [0.0, 0.0], "{elem} {rows}");
            for (at, x) in [(0, f64::INFINITY), (1, f64::NAN), (len / 2 + 3, f64::NEG_INFINITY), (len - 1, f64::NAN)] {
                let mut given = finite.clone();
                given[at] = x;
                // A warp has every second group of four rows: each of its lanes a piece of eight elements.
                let own = at / (4 * DEPTH as usize) % 2;
                let wanted = [own == 0, own == 1].map(|found| f64::from(u8::from(found)));
                assert_eq!(of(&given), wanted, "{elem} {rows} rows, {x} at {at}");
            }
        }
    }
}

//! Threads that look through a tile for infinities and NaNs.

use super::{X, Y, run, thread};
use crate::block::layout::Tile;
use crate::block::non_finite::Pieces;
use crate::build::Builder;
use crate::tile::{Kernel, Memory, Operand, ParamKind, Stmt};
use oplus_dsl::{Elem, Ty};

/// The rows of the tile: each warp's thread has a piece of every row, and one more thread of none.
const ROWS: u32 = 5;
const DEPTH: u32 = 64;

/// A kernel that writes whether each lane has found anything in its pieces, and then the tile, which it has cleared.
fn kernel(at_once: Option<u32>) -> Kernel {
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
    let pieces = Pieces { tile: &tile, first: lane, count, step, at_once, index: &index };
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
    for at_once in [None, Some(1), Some(5)] {
        let kernel = kernel(at_once);
        for (at, x) in [(0, f64::INFINITY), (63, f64::NEG_INFINITY), (64, f64::NAN), (319, f64::NAN)] {
            let (mut given, mut wanted) = (finite.clone(), finite.clone());
            (given[at], wanted[at]) = (x, 0.0);
            // A piece has four elements, and every sixteenth is of one lane.
            let found = (0..16).map(|lane| f64::from(u8::from(at / 4 % 16 == lane)));
            let wanted: Vec<f64> = found.chain(wanted).collect();
            assert_eq!(run(&kernel, &given, wanted.len()), wanted, "{x} at {at}, {at_once:?} at once");
        }
        let wanted: Vec<f64> = [0.0; 16].into_iter().chain(finite.clone()).collect();
        assert_eq!(run(&kernel, &finite, wanted.len()), wanted);
    }
}

//! Tiles of `f16` that warps round to `bf16` in place.

use super::{Y, builder, index, run, thread};
use crate::block::layout::Tile;
use crate::block::ring::RingStage;
use crate::block::rounding::{Copiers, Rounding, in_bits_of};
use crate::block::thread::Thread;
use crate::target::WARP;
use crate::tile::{Kernel, Memory, Operand, ParamId, SharedKind, Stmt};
use oplus_dsl::scalar::round;
use oplus_dsl::{Elem, Ty};

const NONE: Operand = Operand::i32(0);

/// A kernel that copies elements of `f16` to a tile, rounds them and writes them to y.
fn kernel(warps: u32, rows: u32, depth: u32) -> Kernel {
    let threads = warps * WARP;
    let mut b = builder(threads, Elem::F16);
    let full = b.shared("full", SharedKind::Mbarrier, 1);
    let tile = Tile { full, ..Tile::bare(&mut b, "tile", Elem::Bf16, rows, depth) };
    let rounding = Rounding::declare(&mut b, 1);
    let own = Thread::of(&mut b);
    let is_first = b.eq(own.number, 0);
    b.if_(is_first, |b| [full, rounding.done].into_iter().for_each(|array| b.init_mbarriers(array, 1, threads)));
    b.barrier();
    let pieces = tile.len() / 8;
    let place = |b: &mut crate::build::Builder, number: Operand| {
        let [row, piece] = b.div_rem(number, tile.pieces());
        tile.piece_index(b, row, piece)
    };
    let number = thread(&mut b);
    b.for_(number, Operand::i32(pieces as i32), threads as i32, |b, number| {
        let (to_index, from_index) = (place(b, number), index(b, number, 8, 0));
        b.push(Stmt::CopyAsync { to: tile.array, to_index, from: ParamId(0), from_index, elements: 8, guard: None });
    });
    b.arrive_with_copies(full, NONE);
    rounding.round(&mut b, &[&tile], RingStage::FIRST, Copiers { thread: own, warps });
    b.wait(rounding.done, RingStage::FIRST);
    b.for_(number, Operand::i32(pieces as i32), threads as i32, |b, number| {
        let (from, to) = (place(b, number), index(b, number, 8, 0));
        let eight = b.load(Memory::Shared(tile.array), from, 8, None, crate::build::zero(Ty::F32));
        b.store(Y, to, &eight, None);
    });
    b.finish()
}

/// Fewer elements than all warps have, as many, and several times as many.
#[test]
fn elements_of_f16_are_rounded_in_place() {
    for (warps, rows, depth) in [(4, 16, 16), (1, 16, 16), (3, 16, 80), (4, 64, 16), (4, 64, 64), (2, 64, 128)] {
        let x: Vec<f64> = (0..rows * depth).map(|i| round(Elem::F16, f64::from(i) * 1.37 - 3001.3)).collect();
        let wanted: Vec<f64> = x.iter().map(|x| round(Elem::F16, round(Elem::Bf16, *x))).collect();
        assert!(x.iter().zip(&wanted).any(|(x, y)| x != y));
        assert_eq!(run(&kernel(warps, rows, depth), &x, x.len()), wanted, "{warps} warps, {rows} × {depth}");
    }
}

/// Every element of `f16` that is a number, through an array of `bf16` and back.
#[test]
fn elements_of_f16_lie_in_arrays_of_bf16() {
    let mut b = builder(WARP, Elem::F16);
    let tile = Tile::bare(&mut b, "tile", Elem::Bf16, 16, 16);
    let own = thread(&mut b);
    let (at, x) = (b.mul(own, 2), index(&mut b, own, 2, 0));
    let two = b.load(super::X, x, 2, None, crate::build::zero(Ty::F32));
    let bits = in_bits_of(&mut b, Elem::F16, Elem::Bf16, [two[0], two[1]]);
    b.store(Memory::Shared(tile.array), at, &bits, None);
    let bits = b.load(Memory::Shared(tile.array), at, 2, None, crate::build::zero(Ty::F32));
    let two = in_bits_of(&mut b, Elem::Bf16, Elem::F16, [bits[0], bits[1]]);
    b.store(Y, x, &two, None);
    let kernel = b.finish();
    let patterns: Vec<u16> = (0..=0xffff).filter(|bits| bits & 0x7c00 != 0x7c00 || bits & 0x3ff == 0).collect();
    for some in patterns.chunks(2 * WARP as usize).step_by(16) {
        let x: Vec<f64> = some.iter().map(|bits| half::f16::from_bits(*bits).to_f64()).collect();
        let x = [x, vec![0.0; 2 * WARP as usize - some.len()]].concat();
        assert_eq!(run(&kernel, &x, x.len()), x);
    }
}

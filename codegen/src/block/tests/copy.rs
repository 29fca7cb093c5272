//! Copies of elements whose layout in memory is that of shared memory.

use super::{builder, numbers, run};
use crate::block::copy::WholeCopy;
use crate::block::layout::Tile;
use crate::block::ring::RingStage;
use crate::block::thread::Thread;
use crate::target::WARP;
use crate::tile::{Kernel, Operand, ParamId, SharedKind};
use oplus_dsl::Elem;

/// A kernel that copies `len` elements of x, from one on, to a tile, and stores them to y from another on.
fn kernel(elem: Elem, warps: u32, shape: [u32; 2], [from, to]: [i64; 2]) -> Kernel {
    let threads = warps * WARP;
    let mut b = builder(threads, elem);
    let full = b.shared("full", SharedKind::Mbarrier, 1);
    let tile = Tile { full, ..Tile::bare(&mut b, "tile", elem, shape[0], shape[1]) };
    let own = Thread::of(&mut b);
    let is_first = b.eq(own.number, 0);
    b.if_(is_first, |b| b.init_mbarriers(full, 1, threads));
    b.barrier();
    let copy = WholeCopy { thread: own.number, threads, len: tile.len() };
    copy.start(&mut b, &tile, Operand::i32(0), ParamId(0), Operand::i64(from));
    b.arrive_with_copies(full, Operand::i32(0));
    b.wait(full, RingStage::FIRST);
    copy.store(&mut b, &tile, ParamId(1), Operand::i64(to));
    b.finish()
}

#[test]
fn all_elements_are_copied_once_and_in_order() {
    for elem in [Elem::Bf16, Elem::F32] {
        for (warps, shape) in [(1, [16, 16]), (2, [16, 64]), (4, [64, 64]), (4, [64, 128])] {
            for [from, to] in [[0, 0], [64, 8], [8, 256]] {
                let len = (shape[0] * shape[1]) as usize;
                let x = numbers(len + from as usize);
                let y = run(&kernel(elem, warps, shape, [from, to]), &x, len + to as usize);
                let (before, copied) = y.split_at(to as usize);
                assert!(before.iter().all(|y| y.is_nan()), "{elem}, {shape:?}, to {to}");
                assert_eq!(copied, &x[from as usize..], "{elem}, {shape:?}, from {from}");
            }
        }
    }
}

//! Places of threads.

use super::{Y, builder, index, run};
use crate::block::rematerialise::Rematerialiser;
use crate::block::thread::{FragmentPlace, Thread};
use crate::build::Builder;
use crate::target::WARP;
use crate::tile::{Expr, Operand};
use oplus_dsl::{Elem, Ty};

const THREADS: u32 = 3 * WARP;

/// Stores where a thread is: its warp, its lane, its first row of its warp's 16 and its first column of eight.
fn store(b: &mut Builder, thread: Thread) {
    let fragment = FragmentPlace::of(b, thread.lane);
    let numbers = [thread.warp, thread.lane, fragment.row(b, thread.warp), fragment.column(b)];
    for (k, number) in (0..).zip(numbers) {
        let number: Operand = b.let_(Ty::F32, Expr::Convert(Elem::F32, number));
        let at = index(b, thread.number, 4, k);
        b.store(Y, at, &[number], None);
    }
}

fn expected() -> Vec<f64> {
    let of = |thread: u32| {
        let (warp, lane) = (thread / WARP, thread % WARP);
        [warp, lane, warp * 16 + lane / 4, lane % 4 * 2].map(f64::from)
    };
    (0..THREADS).flat_map(of).collect()
}

#[test]
fn every_thread_has_its_rows_and_columns() {
    let mut b = builder(THREADS, Elem::F32);
    let thread = Thread::of(&mut b);
    store(&mut b, thread);
    assert_eq!(run(&b.finish(), &[], 4 * THREADS as usize), expected());
}

#[test]
fn a_rematerialised_place_is_the_same() {
    let mut b = builder(THREADS, Elem::F32);
    let (thread, rematerialiser) = (Thread::of(&mut b), Rematerialiser::declare(&mut b, 0));
    let first = b.eq(thread.number, 0);
    b.if_(first, |b| rematerialiser.store(b, &[]));
    b.barrier();
    let again = thread.rematerialised(&mut b, rematerialiser);
    store(&mut b, again);
    assert_eq!(run(&b.finish(), &[], 4 * THREADS as usize), expected());
}

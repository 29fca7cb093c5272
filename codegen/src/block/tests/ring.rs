//! Rings of stages: where numbers and cursors are, and a warp that fills stages for another.

use super::{X, Y, builder, index, numbers, run, thread};
use crate::block::ring::{Ring, RingStage};
use crate::build::Builder;
use crate::tile::{Expr, Kernel, Memory, Operand, Reg, SharedKind, Special};
use oplus_dsl::{Elem, Ty};

/// The numbers that a ring goes through.
const COUNT: u32 = 13;

fn store(b: &mut Builder, at: i32, whole: Operand) {
    let value = b.let_(Ty::F32, Expr::Convert(Elem::F32, whole));
    let own = thread(b);
    let is_first = b.eq(own, 0);
    b.store(Y, Operand::i64(i64::from(at)), &[value], Some(is_first));
}

/// Stage and parity of [`COUNT`] numbers, as one thread finds them.
fn found(walk: impl Fn(&mut Builder, &mut dyn FnMut(&mut Builder, RingStage))) -> Vec<(u32, u32)> {
    let mut b = builder(32, Elem::F32);
    let mut at = 0;
    walk(&mut b, &mut |b, stage| {
        store(b, at, stage.index);
        store(b, at + 1, stage.parity);
        at += 2;
    });
    let y = run(&b.finish(), &[0.0], 2 * COUNT as usize);
    y.chunks(2).map(|pair| (pair[0] as u32, pair[1] as u32)).collect()
}

fn expected(stages: u32, by: u32) -> Vec<(u32, u32)> {
    (0..COUNT).map(|n| (n * by % stages, n * by / stages % 2)).collect()
}

#[test]
fn numbers_have_the_stages_and_parities_of_their_rounds() {
    let by_number = |ring: Ring| {
        found(move |b, show| {
            // A register, so that nothing is folded.
            let number = b.var(Operand::i32(0));
            for n in 0..COUNT {
                b.assign(number, Operand::i32(n as i32));
                let at = ring.at(b, number.into());
                show(b, at);
            }
        })
    };
    for stages in 1..=5 {
        assert_eq!(by_number(Ring::of(stages)), expected(stages, 1), "{stages}");
    }
    for stages in [1, 2, 4, 8] {
        assert_eq!(by_number(Ring::of_power(stages)), expected(stages, 1), "{stages}");
    }
}

#[test]
fn cursors_go_through_the_stages_of_numbers() {
    for (stages, by) in [(1, 1), (2, 1), (3, 1), (5, 1), (2, 2), (4, 2), (6, 3)] {
        let of_cursor = found(|b, show| {
            let at = Ring::cursor(b, Operand::i32(0), 0);
            for _ in 0..COUNT {
                show(b, at.here());
                Ring::of(stages).advance_by(b, &at, by);
            }
        });
        assert_eq!(of_cursor, expected(stages, by), "{stages} by {by}");
    }
    for stages in 1..=4 {
        let of_cursor = found(|b, show| {
            let at = Ring::cursor(b, Operand::i32(0), 0);
            for _ in 0..COUNT {
                show(b, at.here());
                Ring::of(stages).advance(b, &at);
            }
        });
        assert_eq!(of_cursor, expected(stages, 1), "{stages}");
    }
}

/// A warp passes x through a ring to another one, which writes it to y.
fn pass(stages: u32, count: i32) -> Kernel {
    let mut b = builder(64, Elem::F32);
    let values = b.shared_values("values", Ty::F32, 32 * stages);
    let [full, empty] = ["full", "empty"].map(|name| b.shared(name, SharedKind::Mbarrier, stages));
    let [own, lane, warp] = [thread(&mut b), b.special(Special::Lane), b.special(Special::Warp)];
    let first = b.eq(own, 0);
    b.if_(first, |b| {
        b.init_mbarriers(full, stages, 32);
        b.init_mbarriers(empty, stages, 32);
        b.push(crate::tile::Stmt::FenceInit);
    });
    b.barrier();
    let place = |b: &mut Builder, stage: Reg| {
        let from = b.mul(stage.into(), 32);
        b.add(from, lane)
    };
    let ring = Ring::of(stages);
    let fills = b.eq(warp, 0);
    b.if_else(
        fills,
        |b| {
            let at = Ring::cursor(b, Operand::i32(0), 1);
            b.for_(Operand::i32(0), count, 1, |b, number| {
                b.wait(empty, at.here());
                let from = b.mul(number, 32);
                let from = b.add(from, lane);
                let from = index(b, from, 1, 0);
                let value = b.load1(X, from);
                let to = place(b, at.stage);
                b.store(Memory::Shared(values), to, &[value], None);
                b.arrive(full, at.stage.into());
                ring.advance(b, &at);
            });
        },
        |b| {
            b.for_(Operand::i32(0), count, 1, |b, number| {
                let filled = ring.at(b, number);
                b.wait(full, filled);
                let from = b.mul(filled.index, 32);
                let from = b.add(from, lane);
                let value = b.load1(Memory::Shared(values), from);
                let to = b.mul(number, 32);
                let to = b.add(to, lane);
                let to = index(b, to, 1, 0);
                b.store(Y, to, &[value], None);
                b.arrive(empty, filled.index);
            });
        },
    );
    b.finish()
}

#[test]
fn a_warp_fills_stages_for_another() {
    for (stages, count) in [(1, 1), (1, 5), (2, 7), (3, 3), (3, 10), (4, 2)] {
        let x = numbers(32 * count as usize);
        assert_eq!(run(&pass(stages, count), &x, x.len()), x, "{stages} stages, {count} tiles");
    }
}

//! A ring of bulk loads with in-place results and bulk stores, and the mistakes one can make in it.

use super::*;
use crate::tile::{Mbarrier, Stmt};

/// A mistake: a step that is left out or done wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mistake {
    None,
    NoFenceInit,
    NoBarrierAfterInit,
    NoWaitForFull,
    NoWaitForEmpty,
    TooManyBytes,
    TooFewBytes,
    NoSyncBeforeArrive,
    NoFenceAsync,
    NoBarrierBeforeStore,
    NoWaitForStore,
    WrongParity,
    WrongCount,
}

/// Tiles of 32 elements go through a ring of two stages: a producer (warp 1) loads them, warp 0 doubles them in place
/// and stores them.
fn ring(mistake: Mistake) -> Kernel {
    let mut b = builder();
    let full = b.shared("full", SharedKind::Mbarrier, 2);
    let empty = b.shared("empty", SharedKind::Mbarrier, 2);
    let (thread, _) = thread(&mut b);
    let first = b.eq(thread, Operand::i32(0));
    b.if_(first, |b| {
        for stage in 0..2 {
            for array in [full, empty] {
                let count = if mistake == Mistake::WrongCount { 2 } else { 1 };
                b.push(Stmt::MbarrierInit(Mbarrier { array, index: Operand::i32(stage) }, count));
            }
        }
        if mistake != Mistake::NoFenceInit {
            b.push(Stmt::FenceInit);
        }
    });
    if mistake != Mistake::NoBarrierAfterInit {
        b.barrier();
    }
    let warp = b.special(Special::Warp);
    let lane = b.special(Special::Lane);
    let leader = b.eq(lane, Operand::i32(0));
    let produces = b.eq(warp, Operand::i32(1));
    let [full, empty] = [full, empty].map(|array| move |index| Mbarrier { array, index });
    b.if_else(
        produces,
        |b| b.if_(leader, |b| tiles(b, |b, tile| produce(b, mistake, tile, &full, &empty))),
        |b| tiles(b, |b, tile| consume(b, mistake, tile, leader, &full, &empty)),
    );
    if mistake != Mistake::NoWaitForStore {
        b.push(Stmt::BulkWait { pending: 0, read: false });
    }
    b.finish()
}

/// A tile's number, stage and the parity of its iteration.
struct Tile {
    number: Operand,
    stage: Operand,
    parity: Operand,
}

fn tiles(b: &mut Builder, body: impl FnOnce(&mut Builder, &Tile)) {
    b.for_(Operand::i32(0), Operand::i32(8), Operand::i32(1), |b, number| {
        use oplus_dsl::ir::Binary;
        let stage = b.binary(Binary::And, number, Operand::i32(1));
        let iteration = b.binary(Binary::Shr, number, Operand::i32(1));
        let parity = b.binary(Binary::And, iteration, Operand::i32(1));
        body(b, &Tile { number, stage, parity });
    });
}

fn offsets(b: &mut Builder, tile: &Tile) -> (Operand, Operand) {
    let shared = b.mul(tile.stage, Operand::i32(32));
    let global = b.mul(tile.number, Operand::i32(32));
    (shared, b.convert(Ty::I64, global))
}

fn produce(
    b: &mut Builder,
    mistake: Mistake,
    tile: &Tile,
    full: &dyn Fn(Operand) -> Mbarrier,
    empty: &dyn Fn(Operand) -> Mbarrier,
) {
    let (to_index, from_index) = offsets(b, tile);
    // The stages start empty: the first iteration must not wait.
    let parity = if mistake == Mistake::WrongParity { tile.parity } else { b.sub(Operand::i32(1), tile.parity) };
    if mistake != Mistake::NoWaitForEmpty {
        b.push(Stmt::MbarrierWait(empty(tile.stage), parity));
    }
    let bytes = match mistake {
        Mistake::TooManyBytes => 144,
        Mistake::TooFewBytes => 112,
        _ => 128,
    };
    b.push(Stmt::MbarrierExpect(full(tile.stage), Operand::i32(bytes)));
    let count = Operand::i32(32);
    b.push(Stmt::BulkLoad { to: TILE, to_index, from: ParamId(0), from_index, count, mbarrier: full(tile.stage) });
}

fn consume(
    b: &mut Builder,
    mistake: Mistake,
    tile: &Tile,
    leader: Operand,
    full: &dyn Fn(Operand) -> Mbarrier,
    empty: &dyn Fn(Operand) -> Mbarrier,
) {
    let (shared, global) = offsets(b, tile);
    if mistake != Mistake::NoWaitForFull {
        b.push(Stmt::MbarrierWait(full(tile.stage), tile.parity));
    }
    let lane = b.special(Special::Lane);
    let at = b.add(shared, lane);
    let x = b.load1(SHARED, at);
    let double = b.add(x, x);
    b.store(SHARED, at, &[double], None);
    if mistake != Mistake::NoFenceAsync {
        b.push(Stmt::FenceAsync);
    }
    if mistake != Mistake::NoBarrierBeforeStore {
        b.push(Stmt::SyncWarp);
    }
    b.if_(leader, |b| {
        let count = Operand::i32(32);
        b.push(Stmt::BulkStore {
            to: ParamId(1),
            to_index: global,
            from: TILE,
            from_index: shared,
            count,
            adds: false,
        });
        if !matches!(mistake, Mistake::NoWaitForStore) {
            b.push(Stmt::BulkWait { pending: 0, read: true });
        }
        if mistake != Mistake::NoSyncBeforeArrive {
            b.push(Stmt::MbarrierArrive(empty(tile.stage)));
        }
    });
    if mistake == Mistake::NoSyncBeforeArrive {
        // Lane 5 reads on although lane 0 gives the stage away.
        b.if_(leader, |b| b.push(Stmt::MbarrierArrive(empty(tile.stage))));
        let late = b.eq(lane, Operand::i32(5));
        b.if_(late, |b| {
            b.load1(SHARED, at);
        });
    }
}

/// The report of the ring in each of all orders.
fn outcomes(mistake: Mistake) -> Vec<SimError> {
    let kernel = ring(mistake);
    orders().map(|order| run_in(&kernel, order, 1, 1).expect_err("a mistake must be found")).collect()
}

fn hazards(mistake: Mistake) -> Vec<Hazard> {
    let only = |error| match error {
        SimError::Fault(fault) => fault.hazard,
        other => panic!("{mistake:?}: {other}"),
    };
    outcomes(mistake).into_iter().map(only).collect()
}

#[test]
fn the_ring_works_in_every_order() {
    for order in orders() {
        let (y, _) = run_in(&ring(Mistake::None), order, 1, 1).unwrap_or_else(|e| panic!("{order:?}: {e}"));
        assert_eq!(y, (0..N).map(|i| 2.0 * i as f64).collect::<Vec<_>>(), "{order:?}");
    }
}

#[test]
fn mbarriers_must_be_fenced_and_known() {
    for hazard in hazards(Mistake::NoFenceInit) {
        assert!(matches!(hazard, Hazard::UnfencedMbarrier(_)), "{hazard}");
    }
    for hazard in hazards(Mistake::NoBarrierAfterInit) {
        assert!(matches!(hazard, Hazard::NoMbarrier(_)), "{hazard}");
    }
}

#[test]
fn a_stage_must_be_full_before_it_is_read() {
    for hazard in hazards(Mistake::NoWaitForFull) {
        let found = matches!(hazard, Hazard::InFlight { .. } | Hazard::Race { .. } | Hazard::Unwritten { .. });
        assert!(found, "{hazard}");
    }
}

#[test]
fn a_stage_must_be_empty_before_it_is_filled() {
    for hazard in hazards(Mistake::NoWaitForEmpty) {
        let found = matches!(hazard, Hazard::InFlight { .. } | Hazard::Race { .. } | Hazard::Arrivals(_));
        assert!(found, "{hazard}");
    }
}

#[test]
fn announced_bytes_must_be_those_that_arrive() {
    for hazard in hazards(Mistake::TooFewBytes) {
        assert!(matches!(hazard, Hazard::Bytes { bytes: 16, .. }), "{hazard}");
    }
    for error in outcomes(Mistake::TooManyBytes) {
        let SimError::Deadlock(waiting) = &error else { panic!("{error}") };
        assert!(
            waiting.iter().any(|w| w.missing.contains("full[0] in phase 0 misses 0 arrivals and 16 bytes")),
            "{error}"
        );
    }
}

#[test]
fn every_reader_must_be_done_before_a_stage_is_given_away() {
    for hazard in hazards(Mistake::NoSyncBeforeArrive) {
        assert!(matches!(hazard, Hazard::Race { .. } | Hazard::InFlight { .. }), "{hazard}");
    }
}

#[test]
fn results_must_be_fenced_and_ordered_before_a_bulk_store() {
    for hazard in hazards(Mistake::NoFenceAsync) {
        assert!(matches!(hazard, Hazard::Unfenced { .. }), "{hazard}");
    }
    for hazard in hazards(Mistake::NoBarrierBeforeStore) {
        assert!(matches!(hazard, Hazard::Race { .. }), "{hazard}");
    }
}

#[test]
fn a_bulk_store_must_have_read_its_source() {
    for hazard in hazards(Mistake::NoWaitForStore) {
        assert!(matches!(hazard, Hazard::InFlight { .. }), "{hazard}");
    }
}

#[test]
fn waits_that_never_end_are_a_deadlock() {
    for mistake in [Mistake::WrongParity, Mistake::WrongCount] {
        for error in outcomes(mistake) {
            let SimError::Deadlock(waiting) = &error else { panic!("{mistake:?}: {error}") };
            assert_eq!(waiting.iter().map(|w| w.warp).collect::<Vec<_>>(), [0, 1]);
        }
    }
}

/// An mbarrier for one arrival, initialised and known to the block; and whether this is thread 0.
fn one_mbarrier(b: &mut Builder) -> (Mbarrier, Operand) {
    let array = b.shared("full", SharedKind::Mbarrier, 1);
    let mbarrier = Mbarrier { array, index: Operand::i32(0) };
    let (thread, _) = thread(b);
    let first = b.eq(thread, Operand::i32(0));
    b.if_(first, |b| {
        b.push(Stmt::MbarrierInit(mbarrier, 1));
        b.push(Stmt::FenceInit);
    });
    b.barrier();
    (mbarrier, first)
}

#[test]
fn more_arrivals_at_once_than_a_phase_has() {
    let mut b = builder();
    let (mbarrier, _) = one_mbarrier(&mut b);
    b.push(Stmt::MbarrierArrive(mbarrier));
    assert_eq!(hazard(b), Hazard::Arrivals("full[0]".into()));
}

#[test]
fn an_mbarrier_is_initialised_once() {
    let mut b = builder();
    let (mbarrier, first) = one_mbarrier(&mut b);
    b.if_(first, |b| b.push(Stmt::MbarrierInit(mbarrier, 1)));
    assert_eq!(hazard(b), Hazard::MbarrierAgain("full[0]".into()));
}

#[test]
fn an_mbarrier_outside_its_array() {
    let mut b = builder();
    let (mbarrier, first) = one_mbarrier(&mut b);
    let beyond = Mbarrier { index: Operand::i32(1), ..mbarrier };
    b.if_(first, |b| b.push(Stmt::MbarrierArrive(beyond)));
    assert_eq!(hazard(b), Hazard::OutOfBounds { array: "full".into(), index: 1, len: 1 });
}

#[test]
fn results_of_a_bulk_store_are_there_after_a_full_wait_only() {
    let read_back = |read| {
        let mut b = builder();
        let (thread, wide) = thread(&mut b);
        b.store(SHARED, thread, &[float(1.5)], None);
        b.push(Stmt::FenceAsync);
        b.barrier();
        let first = b.eq(thread, Operand::i32(0));
        b.if_(first, |b| {
            let (from_index, count) = (Operand::i32(0), Operand::i32(64));
            b.push(Stmt::BulkStore {
                to: ParamId(1),
                to_index: Operand::i64(0),
                from: TILE,
                from_index,
                count,
                adds: false,
            });
            b.push(Stmt::BulkWait { pending: 0, read });
        });
        b.barrier();
        let y = b.load1(Y, wide);
        let at = b.add(wide, Operand::i64(64));
        b.store(Y, at, &[y], None);
        b
    };
    assert_eq!(run(read_back(false))[64..128], [1.5; 64]);
    assert!(matches!(hazard(read_back(true)), Hazard::InFlight { array, .. } if array == "y"));
}

#[test]
fn a_block_must_wait_for_its_copies() {
    let mut b = builder();
    let full = b.shared("full", SharedKind::Mbarrier, 1);
    let mbarrier = Mbarrier { array: full, index: Operand::i32(0) };
    let (thread, _) = thread(&mut b);
    let first = b.eq(thread, Operand::i32(0));
    b.if_(first, |b| {
        b.push(Stmt::MbarrierInit(mbarrier, 1));
        b.push(Stmt::FenceInit);
        b.push(Stmt::MbarrierExpect(mbarrier, Operand::i32(128)));
        b.push(Stmt::BulkLoad {
            to: TILE,
            to_index: Operand::i32(0),
            from: ParamId(0),
            from_index: Operand::i64(0),
            count: Operand::i32(32),
            mbarrier,
        });
    });
    let kernel = b.finish();
    let error = run_in(&kernel, Order::Ascending, 1, 1).expect_err("abandoned");
    assert!(matches!(&error, SimError::Fault(f) if f.hazard == Hazard::Abandoned), "{error}");
}

#[test]
fn bulk_copies_have_whole_aligned_units() {
    let store = |from_index, count| {
        let mut b = builder();
        let (thread, _) = thread(&mut b);
        b.store(SHARED, thread, &[float(1.0)], None);
        b.push(Stmt::FenceAsync);
        b.barrier();
        let first = b.eq(thread, Operand::i32(0));
        b.if_(first, |b| {
            let (from_index, count) = (Operand::i32(from_index), Operand::i32(count));
            b.push(Stmt::BulkStore {
                to: ParamId(1),
                to_index: Operand::i64(0),
                from: TILE,
                from_index,
                count,
                adds: false,
            });
            b.push(Stmt::BulkWait { pending: 0, read: true });
        });
        b
    };
    assert_eq!(run(store(4, 8))[..8], [1.0; 8]);
    assert_eq!(hazard(store(4, 6)), Hazard::CopyBytes(24));
    assert_eq!(hazard(store(4, 0)), Hazard::CopyBytes(0));
    assert_eq!(hazard(store(2, 8)), Hazard::Misaligned { array: "tile".into(), index: 2, bytes: 16 });
    assert_eq!(hazard(store(252, 8)), Hazard::OutOfBounds { array: "tile".into(), index: 252, len: 256 });
    assert_eq!(hazard(store(64, 8)), Hazard::Unwritten { array: "tile".into(), index: 64 });
}

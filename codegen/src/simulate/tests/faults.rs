//! Faults outside of pipelines.

use super::*;
use crate::tile::{PollEntry, Shuffle, Stmt};

fn assert_race(hazard: Hazard, name: &str) {
    assert!(matches!(&hazard, Hazard::Race { array, .. } if array == name), "{hazard}");
}

#[test]
fn accesses_outside_an_array() {
    let mut b = builder();
    let (_, index) = thread(&mut b);
    let index = b.add(index, Operand::i64(200));
    let x = b.load1(X, index);
    b.store(Y, index, &[x], None);
    assert_eq!(hazard(b), Hazard::OutOfBounds { array: "x".into(), index: 256, len: 256 });
    let mut b = builder();
    let (thread, _) = thread(&mut b);
    let before = b.sub(thread, Operand::i32(1));
    b.store(SHARED, before, &[float(0.0)], None);
    assert_eq!(hazard(b), Hazard::OutOfBounds { array: "tile".into(), index: -1, len: 256 });
}

#[test]
fn an_offset_moves_bounds_and_alignment() {
    let mut b = builder();
    let (_, index) = thread(&mut b);
    let index = b.mul(index, Operand::i64(4));
    let x = b.load(X, index, 4, None, float(0.0));
    b.store(Y, index, &x, None);
    let kernel = b.finish();
    let result = |offset, len| {
        let mut memory = Memory::new();
        let x = memory.add(Buffer::floats(Elem::F32, vec![0.0; len]));
        let y = memory.add(Buffer::unwritten(Elem::F32, N));
        let args = vec![Arg::Buffer { buffer: x, offset }, y.into(), Arg::Scalar(Literal::Int(0))];
        simulate(&kernel, &Launch { grid: [1, 1], args }, &mut memory, &Options::default())
    };
    let hazard = |offset, len| match result(offset, len) {
        Err(SimError::Fault(fault)) => fault.hazard,
        other => panic!("{other:?}"),
    };
    assert!(result(4, 260).is_ok());
    assert!(matches!(hazard(2, 260), Hazard::Misaligned { bytes: 16, .. }));
    assert_eq!(hazard(4, 256), Hazard::OutOfBounds { array: "x".into(), index: 252, len: 252 });
}

#[test]
fn reads_of_what_nobody_wrote() {
    let mut b = builder();
    let (thread, index) = thread(&mut b);
    let x = b.load1(SHARED, thread);
    b.store(Y, index, &[x], None);
    assert!(matches!(hazard(b), Hazard::Unwritten { array, .. } if array == "tile"));
    let mut b = builder();
    let y = b.load1(Y, Operand::i64(7));
    b.store(Y, Operand::i64(7), &[y], Some(Operand::bool(false)));
    assert_eq!(hazard(b), Hazard::Unwritten { array: "y".into(), index: 7 });
}

#[test]
fn a_missing_barrier_is_a_race() {
    let mut b = builder();
    let (thread, index) = thread(&mut b);
    b.store(SHARED, thread, &[float(1.0)], None);
    b.push(Stmt::SyncWarp);
    let mirror = b.sub(Operand::i32(63), thread);
    let x = b.load1(SHARED, mirror);
    b.store(Y, index, &[x], None);
    let hazard = hazard(b);
    assert!(matches!(hazard, Hazard::Race { .. } | Hazard::Unwritten { .. }), "{hazard}");
}

#[test]
fn a_barrier_between_write_and_next_write_is_needed_too() {
    let mut b = builder();
    let (thread, index) = thread(&mut b);
    b.store(SHARED, thread, &[float(1.0)], None);
    b.barrier();
    let mirror = b.sub(Operand::i32(63), thread);
    let x = b.load1(SHARED, mirror);
    b.store(SHARED, thread, &[x], None);
    b.store(Y, index, &[x], None);
    assert_race(hazard(b), "tile");
}

#[test]
fn lanes_race_without_a_warp_barrier() {
    let mut b = builder();
    let (thread, index) = thread(&mut b);
    b.store(SHARED, thread, &[float(1.0)], None);
    let other = b.binary(oplus_dsl::ir::Binary::Xor, thread, Operand::i32(1));
    let x = b.load1(SHARED, other);
    b.store(Y, index, &[x], None);
    assert_race(hazard(b), "tile");
    let mut b = builder();
    b.store(SHARED, Operand::i32(0), &[float(1.0)], None);
    assert_race(hazard(b), "tile");
}

#[test]
fn blocks_must_not_meet_in_global_memory() {
    let mut b = builder();
    let (_, index) = thread(&mut b);
    b.store(Y, index, &[float(1.0)], None);
    let kernel = b.finish();
    for (order, resident) in orders().flat_map(|o| [1, 2].map(|r| (o, r))) {
        let error = run_in(&kernel, order, 2, resident).expect_err("both write");
        let SimError::Fault(fault) = &error else { panic!("{error}") };
        let Hazard::Race { array, with, .. } = &fault.hazard else { panic!("{error}") };
        assert_eq!((array.as_str(), with.block[0]), ("y", 1 - fault.block[0]));
    }
}

#[test]
fn warp_collectives_and_barriers_need_the_whole_warp() {
    let statements: [fn(&mut Builder); 4] = [
        |b| b.barrier(),
        |b| b.push(Stmt::SyncWarp),
        |b| {
            b.all(Operand::bool(true));
        },
        |b| {
            b.shuffle(Shuffle::Up, float(1.0), Operand::i32(1));
        },
    ];
    for statement in statements {
        let mut b = builder();
        let (thread, _) = thread(&mut b);
        let few = b.lt(thread, Operand::i32(5));
        b.if_(few, statement);
        assert_eq!(hazard(b), Hazard::Diverged(0x1f));
    }
}

#[test]
fn a_barrier_that_one_warp_never_reaches() {
    let mut b = builder();
    let warp = b.special(Special::Warp);
    let first = b.eq(warp, Operand::i32(0));
    b.if_(first, |b| b.push(Stmt::Barrier { id: 2, threads: 64 }));
    let kernel = b.finish();
    for order in orders() {
        let error = run_in(&kernel, order, 1, 1).expect_err("stuck");
        assert_eq!(
            error.to_string(),
            "no warp can go on:\n  2.then.0 `barrier 2, 64`: block (0, 0), warp 0: 32 of 64 threads are here"
        );
    }
}

#[test]
fn one_barrier_with_two_counts() {
    let mut b = Builder::new("k", 96);
    let warp = b.special(Special::Warp);
    let first = b.eq(warp, Operand::i32(0));
    let barrier = |threads| move |b: &mut Builder| b.push(Stmt::Barrier { id: 1, threads });
    b.if_else(first, barrier(64), barrier(96));
    let launch = Launch { grid: [1, 1], args: vec![] };
    let error = simulate(&b.finish(), &launch, &mut Memory::new(), &Options::default()).expect_err("mismatch");
    assert!(matches!(&error, SimError::Fault(f) if matches!(f.hazard, Hazard::BarrierCount { .. })), "{error}");
}

#[test]
fn a_loop_that_does_not_advance() {
    let mut b = builder();
    let (thread, _) = thread(&mut b);
    let step = b.sub(Operand::i32(3), thread);
    b.for_(Operand::i32(0), Operand::i32(4), step, |_, _| {});
    assert!(matches!(hazard(b), Hazard::Step(..=0)));
}

/// Block 0 waits for a message that block 1 sends.
fn waits_for_the_next_block() -> Kernel {
    let mut b = builder();
    let messages = b.param("m", ParamKind::Messages);
    let (thread, _) = thread(&mut b);
    let block = b.special(Special::Block);
    let first = b.eq(block, Operand::i32(0));
    let leader = b.eq(thread, Operand::i32(0));
    let tag = Operand::u32(1);
    b.if_else(
        first,
        |b| {
            let (value, seen) = (b.var(Operand::u32(0)), b.var(Operand::u32(0)));
            b.loop_(|b| {
                let entries = vec![PollEntry { index: Operand::i64(0), values: vec![value], tags: vec![seen] }];
                b.push(Stmt::Poll { messages, entries, tag });
                let here = b.eq(seen.into(), tag);
                b.break_if(here);
            });
        },
        |b| {
            let values = vec![Operand::u32(5)];
            b.push(Stmt::Publish { messages, index: Operand::i64(0), values, tag, guard: Some(leader) });
        },
    );
    b.finish()
}

#[test]
fn waiting_for_a_block_that_cannot_start_is_a_deadlock() {
    let kernel = waits_for_the_next_block();
    let error = run_in(&kernel, Order::Ascending, 2, 1).expect_err("stuck");
    assert!(matches!(&error, SimError::Deadlock(w) if w[0].missing == "a message is missing"), "{error}");
    assert!(run_in(&kernel, Order::Ascending, 2, 2).is_ok());
    assert!(run_in(&kernel, Order::Descending, 2, 1).is_ok());
}

#[test]
fn a_word_is_published_once() {
    let mut b = builder();
    let messages = b.param("m", ParamKind::Messages);
    let values = vec![Operand::u32(5)];
    b.push(Stmt::Publish { messages, index: Operand::i64(3), values, tag: Operand::u32(1), guard: None });
    assert_eq!(hazard(b), Hazard::Republished { messages: "m".into(), index: 3 });
}

#[test]
fn endless_work_is_given_up() {
    let mut b = builder();
    let (thread, _) = thread(&mut b);
    b.loop_(|b| {
        let never = b.lt(thread, Operand::i32(-1));
        b.break_if(never);
    });
    let error = run_in(&b.finish(), Order::Ascending, 1, 1).expect_err("endless");
    assert_eq!(error, SimError::Limit(10_000_000));
}

#[test]
fn ill_formed_kernels_do_not_run() {
    let mut b = builder();
    b.break_if(Operand::bool(true));
    let error = run_in(&b.finish(), Order::Ascending, 1, 1).expect_err("refused");
    assert_eq!(error.to_string(), "the kernel is not well formed:\n  0 `break if true`: break outside a loop");
}

#[test]
fn a_fault_says_where_it_is() {
    let mut b = builder();
    let (thread, index) = thread(&mut b);
    let last = b.eq(thread, Operand::i32(63));
    b.if_(last, |b| b.store(Y, Operand::i64(256), &[float(0.0)], None));
    b.store(Y, index, &[float(0.0)], None);
    let error = run_in(&b.finish(), Order::Ascending, 1, 1).expect_err("outside");
    assert_eq!(
        error.to_string(),
        "3.then.0 `store y[256] = 0.0`: block (0, 0), warp 1, lane 31: y[256] is outside the 256 elements"
    );
}

/// Two warps that begin with 128 registers for each thread: one leaves 40, and the other wants more.
fn registers(more: u32) -> Kernel {
    let mut b = builder();
    b.blocks_per_sm(8);
    let warp = b.special(Special::Warp);
    let is_first = b.eq(warp, Operand::i32(0));
    let limit = |count, more| move |b: &mut Builder| b.push(Stmt::SetMaxRegisters { count, more });
    b.if_else(is_first, limit(more, true), limit(40, false));
    b.finish()
}

/// More blocks than there are registers leave none.
#[test]
fn blocks_that_no_multiprocessor_has_room_for() {
    let mut b = builder();
    b.blocks_per_sm(u32::MAX);
    assert!(run_in(&b.finish(), Order::Ascending, 1, 1).is_ok());
}

#[test]
fn registers_that_a_block_does_not_have() {
    for order in orders() {
        assert!(run_in(&registers(216), order, 1, 1).is_ok());
        let error = run_in(&registers(224), order, 1, 1).expect_err("a warp waits for ever").to_string();
        assert!(
            error.contains("registers up to 224") && error.contains("2816 registers of the block are free"),
            "{error}"
        );
    }
}

//! The effects of statements.

use super::*;
use crate::tile::{Expr, Mbarrier, PollEntry, Shuffle, Stmt};
use oplus_dsl::ir::Binary;

#[test]
fn vectors_and_guards() {
    let mut b = builder();
    let (thread, _) = thread(&mut b);
    let index = b.mul(thread, Operand::i32(4));
    let index = b.convert(Ty::I64, index);
    let guard = b.lt(index, Operand::i64(100));
    let x = b.load(X, index, 4, Some(guard), float(-1.0));
    b.store(Y, index, &x, None);
    let y = run(b);
    assert_eq!(y, (0..N).map(|i| if i < 100 { i as f64 } else { -1.0 }).collect::<Vec<_>>());
}

#[test]
fn lanes_leave_loops_at_different_times() {
    let mut b = builder();
    let (thread, index) = thread(&mut b);
    // Thread t counts to t, skipping every third number, in an endless loop inside a branch.
    let (count, at) = (b.var(Operand::i32(0)), b.var(Operand::i32(0)));
    let odd = b.binary(Binary::And, thread, Operand::i32(1));
    let odd = b.ne(odd, Operand::i32(0));
    b.if_else(
        odd,
        |b| {
            b.loop_(|b| {
                let done = b.ge(at.into(), thread);
                b.break_if(done);
                let next = b.add(at.into(), Operand::i32(1));
                b.assign(at, next);
                let rest = b.binary(Binary::Rem, next, Operand::i32(3));
                let counts = b.ne(rest, Operand::i32(0));
                b.if_(counts, |b| {
                    let more = b.add(count.into(), Operand::i32(1));
                    b.assign(count, more);
                    let enough = b.ge(more, Operand::i32(20));
                    b.break_if(enough);
                });
            });
        },
        |b| b.for_(Operand::i32(0), thread, Operand::i32(2), |b, i| b.assign(count, i)),
    );
    let value = b.convert(Ty::F32, count.into());
    b.store(Y, index, &[value], None);
    let odd = |t: i32| (1..=t).filter(|i| i % 3 != 0).count().min(20) as f64;
    let expected = |t: i32| if t % 2 == 1 { odd(t) } else { f64::from((t - 2).max(0)) };
    assert_eq!(run(b)[..64], (0..64).map(expected).collect::<Vec<_>>());
}

#[test]
fn shuffles() {
    let modes = [(Shuffle::Up, 3), (Shuffle::Down, 3), (Shuffle::Xor, 5), (Shuffle::Index, 7), (Shuffle::Index, 40)];
    for (mode, n) in modes {
        let mut b = builder();
        let (thread, index) = thread(&mut b);
        let value = b.convert(Ty::F32, thread);
        let value = b.shuffle(mode, value, Operand::i32(n));
        b.store(Y, index, &[value], None);
        let source = |l: i32| match mode {
            Shuffle::Up if l < n => l,
            Shuffle::Up => l - n,
            Shuffle::Down if l + n > 31 => l,
            Shuffle::Down => l + n,
            Shuffle::Xor => l ^ n,
            Shuffle::Index if n > 31 => l,
            Shuffle::Index => n,
        };
        let expected = (0..64).map(|t| f64::from(t / 32 * 32 + source(t % 32)));
        assert_eq!(run(b)[..64], expected.collect::<Vec<_>>(), "{mode:?} {n}");
    }
}

#[test]
fn votes() {
    let mut b = builder();
    let (thread, index) = thread(&mut b);
    let small = b.lt(thread, Operand::i32(40));
    let all = b.all(small);
    let value = b.select(all, float(1.0), float(0.0));
    b.store(Y, index, &[value], None);
    let y = run(b);
    assert_eq!((y[0], y[31], y[32], y[63]), (1.0, 1.0, 0.0, 0.0));
}

#[test]
fn special_numbers() {
    let mut b = builder();
    let [thread, lane, warp, block, blocks] =
        [Special::Thread, Special::Lane, Special::Warp, Special::Block, Special::Blocks].map(|s| b.special(s));
    let first = b.mul(block, Operand::i32(64));
    let index = b.add(first, thread);
    let index = b.convert(Ty::I64, index);
    let warps = b.mul(warp, Operand::i32(100));
    let sum = b.add(lane, warps);
    let all = b.mul(blocks, Operand::i32(1000));
    let sum = b.add(sum, all);
    let value = b.convert(Ty::F32, sum);
    b.store(Y, index, &[value], None);
    let kernel = b.finish();
    for (order, resident) in orders().flat_map(|o| [1, 3].map(|r| (o, r))) {
        let (y, stats) = run_in(&kernel, order, 4, resident).expect("runs");
        assert_eq!(y, (0..256).map(|i| f64::from(4000 + i / 32 % 2 * 100 + i % 32)).collect::<Vec<_>>());
        assert_eq!(stats.blocks, 4);
    }
}

#[test]
fn a_barrier_orders_the_block() {
    let mut b = builder();
    let (thread, index) = thread(&mut b);
    let x = b.load1(X, index);
    b.store(SHARED, thread, &[x], None);
    b.barrier();
    let mirror = b.sub(Operand::i32(63), thread);
    let x = b.load1(SHARED, mirror);
    b.store(Y, index, &[x], None);
    assert_eq!(run(b)[..64], (0..64).rev().map(f64::from).collect::<Vec<_>>());
}

#[test]
fn a_named_barrier_joins_one_warp_with_another() {
    let mut b = builder();
    let (thread, index) = thread(&mut b);
    let warp = b.special(Special::Warp);
    let first = b.eq(warp, Operand::i32(0));
    b.if_else(
        first,
        |b| {
            let x = b.load1(X, index);
            b.store(SHARED, thread, &[x], None);
            b.push(Stmt::Barrier { id: 3, threads: 64 });
        },
        |b| {
            b.push(Stmt::Barrier { id: 3, threads: 64 });
            let from = b.sub(thread, Operand::i32(32));
            let x = b.load1(SHARED, from);
            b.store(Y, index, &[x], None);
        },
    );
    assert_eq!(run(b)[32..64], (0..32).map(f64::from).collect::<Vec<_>>());
}

#[test]
fn warp_barriers_order_lanes() {
    let mut b = builder();
    let (thread, index) = thread(&mut b);
    let x = b.load1(X, index);
    b.store(SHARED, thread, &[x], None);
    b.push(Stmt::SyncWarp);
    let other = b.binary(Binary::Xor, thread, Operand::i32(1));
    let x = b.load1(SHARED, other);
    b.store(Y, index, &[x], None);
    assert_eq!(run(b)[..4], [1.0, 0.0, 3.0, 2.0]);
}

#[test]
fn half_precision_is_widened_and_rounded() {
    let mut b = Builder::new("half", 32);
    let x = b.param("x", ParamKind::Read(Elem::Bf16));
    let y = b.param("y", ParamKind::Write(Elem::F16));
    let (_, index) = thread(&mut b);
    let value = b.load1(Place::Global(x), index);
    let value = b.add(value, float(1.0 / 4096.0));
    b.store(Place::Global(y), index, &[value], None);
    let mut memory = Memory::new();
    let x = memory.add(Buffer::floats(Elem::Bf16, (0..32).map(f64::from)));
    let y = memory.add(Buffer::unwritten(Elem::F16, 32));
    let launch = Launch { grid: [1, 1], args: vec![x.into(), y.into()] };
    simulate(&b.finish(), &launch, &mut memory, &Options::default()).expect("runs");
    let y = memory.buffer(y).to_floats();
    assert_eq!((y[0], y[1], y[16]), (1.0 / 4096.0, 1.0, 16.0));
}

/// Blocks add 1 to a carry that travels through message words, in the order of their tickets.
fn chain(two_words: bool) -> Kernel {
    let mut b = builder();
    let (messages, control) = (b.param("m", ParamKind::Messages), b.param("c", ParamKind::Control));
    let (thread, wide) = thread(&mut b);
    let slot = b.shared("slot", SharedKind::Elem(Elem::U32), 2);
    let first = b.eq(thread, Operand::i32(0));
    b.if_(first, |b| {
        let [ticket, tag] = [(); 2].map(|()| b.reg(Ty::U32));
        b.push(Stmt::DrawTicket { ticket, tag, control });
        b.store(Place::Shared(slot), Operand::i32(0), &[ticket.into()], None);
        b.store(Place::Shared(slot), Operand::i32(1), &[tag.into()], None);
    });
    b.barrier();
    let [ticket, tag] = [0, 1].map(|i| b.load1(Place::Shared(slot), Operand::i32(i)));
    let position = b.convert(Ty::I64, ticket);
    let width = if two_words { 2 } else { 1 };
    let index = b.mul(position, Operand::i64(width));
    let before = b.sub(index, Operand::i64(width));
    let carry = b.var(Operand::u32(0));
    let follows = b.binary(Binary::Gt, position, Operand::i64(0));
    b.if_(follows, |b| {
        let values: Vec<_> = (0..width).map(|_| b.var(Operand::u32(0))).collect();
        let tags: Vec<_> = (0..width).map(|_| b.var(Operand::u32(0))).collect();
        b.loop_(|b| {
            let entries = vec![PollEntry { index: before, values: values.clone(), tags: tags.clone() }];
            b.push(Stmt::Poll { messages, entries, tag });
            let here: Vec<_> = tags.iter().map(|t| b.eq((*t).into(), tag)).collect();
            let here = here.into_iter().reduce(|x, y| b.and(x, y)).unwrap_or(Operand::bool(true));
            b.break_if(here);
        });
        b.assign(carry, values[0].into());
        for value in &values[1..] {
            let same = b.eq((*value).into(), values[0]);
            let checked = b.select(same, carry.into(), Operand::u32(99));
            b.assign(carry, checked);
        }
    });
    let next = b.add(carry.into(), Operand::u32(1));
    let values = vec![next; width as usize];
    b.push(Stmt::Publish { messages, index, values, tag, guard: Some(first) });
    let base = b.mul(position, Operand::i64(64));
    let at = b.add(base, wide);
    let value = b.convert(Ty::F32, next);
    b.store(Y, at, &[value], None);
    b.finish()
}

#[test]
fn messages_chain_blocks_however_few_run_at_once() {
    for (order, resident) in orders().flat_map(|o| [1, 2, 4].map(|r| (o, r))) {
        for two_words in [false, true] {
            let (y, _) = run_in(&chain(two_words), order, 4, resident).unwrap_or_else(|e| panic!("{order:?}: {e}"));
            assert_eq!(y, (0..256).map(|i| f64::from(i / 64 + 1)).collect::<Vec<_>>(), "{order:?}");
        }
    }
}

#[test]
fn copies_by_threads_land_before_their_arrival() {
    let mut b = builder();
    let full = b.shared("full", SharedKind::Mbarrier, 1);
    let mbarrier = Mbarrier { array: full, index: Operand::i32(0) };
    let (thread, _) = thread(&mut b);
    let first = b.eq(thread, Operand::i32(0));
    b.if_(first, |b| b.push(Stmt::MbarrierInit(mbarrier, 64)));
    b.barrier();
    let at = b.mul(thread, Operand::i32(4));
    let wide = b.convert(Ty::I64, at);
    let guard = b.lt(thread, Operand::i32(50));
    b.push(Stmt::CopyAsync {
        to: TILE,
        to_index: at,
        from: ParamId(0),
        from_index: wide,
        elements: 4,
        guard: Some(guard),
    });
    b.push(Stmt::CopyAsyncArrive(mbarrier));
    b.push(Stmt::MbarrierWait(mbarrier, Operand::i32(0)));
    let mirror = b.sub(Operand::i32(252), at);
    let x = b.load(SHARED, mirror, 4, None, float(0.0));
    b.store(Y, wide, &x, None);
    let y = run(b);
    assert_eq!((y[0], y[55], y[56], y[255]), (0.0, 0.0, 196.0, 3.0));
}

#[test]
fn arguments_must_suit() {
    let mut b = builder();
    let n = b.scalar(ParamId(2));
    let _ = b.let_(Ty::F32, Expr::Convert(Elem::F32, n));
    let kernel = b.finish();
    let mut memory = Memory::new();
    let x = memory.add(Buffer::floats(Elem::F64, [1.0]));
    let mut reason = |args: Vec<Arg>| {
        let launch = Launch { grid: [1, 1], args };
        simulate(&kernel, &launch, &mut memory, &Options::default()).expect_err("refused").to_string()
    };
    assert_eq!(reason(vec![]), "argument 0: the kernel has 3 parameters");
    let n = Arg::Scalar(Literal::Int(1));
    assert_eq!(reason(vec![x.into(), x.into(), n]), "argument 0: `x` is read f32, not f64");
    assert_eq!(reason(vec![n, x.into(), n]), "argument 0: `x` is read f32");
}

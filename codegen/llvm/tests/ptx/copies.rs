//! Mbarriers, asynchronous copies, messages between blocks.

use crate::check::{contains, count, ptx};
use oplus_codegen::build::Builder;
use oplus_codegen::target::Isa;
use oplus_codegen::tile::{Kernel, Memory, Operand, ParamKind, PollEntry, SharedKind, Special, Stmt};
use oplus_dsl::ir::Literal;
use oplus_dsl::{Elem, Ty};
use oplus_llvm::CompileError;

/// A tile comes in by the copy engine and goes out by it.
fn bulk() -> Kernel {
    let mut b = Builder::new("bulk", 128);
    let (x, y) = (b.param("x", ParamKind::Read(Elem::Bf16)), b.param("y", ParamKind::Write(Elem::Bf16)));
    let tile = b.shared("tile", SharedKind::Elem(Elem::Bf16), 1024);
    let full = b.shared("full", SharedKind::Mbarrier, 2);
    let mbarrier = b.mbarrier(full, Operand::i32(1));
    let thread = b.special(Special::Thread);
    let first = b.eq(thread, Operand::i32(0));
    let (zero, wide_zero, count) = (Operand::i32(0), Operand::i64(0), Operand::i32(1024));
    b.if_(first, |b| {
        b.push(Stmt::MbarrierInit(mbarrier, 1));
        b.push(Stmt::FenceInit);
        b.push(Stmt::MbarrierExpect(mbarrier, Operand::i32(2048)));
        b.push(Stmt::BulkLoad { to: tile, to_index: zero, from: x, from_index: wide_zero, count, mbarrier });
    });
    b.barrier();
    b.push(Stmt::MbarrierWait(mbarrier, zero));
    let index = b.mul(thread, Operand::i32(8));
    let values = b.load(Memory::Shared(tile), index, 8, None, Operand::Const(Ty::F32, Literal::Float(0.0)));
    let doubled: Vec<Operand> = values.iter().map(|v| b.add(*v, *v)).collect();
    b.store(Memory::Shared(tile), index, &doubled, None);
    b.push(Stmt::FenceAsync);
    b.barrier();
    b.if_(first, |b| {
        b.push(Stmt::BulkStore { to: y, to_index: wide_zero, from: tile, from_index: zero, count, adds: false });
        b.push(Stmt::BulkWait { pending: 1, read: true });
        b.push(Stmt::BulkWait { pending: 0, read: false });
    });
    b.finish()
}

#[test]
fn bulk_copies_count_their_bytes() {
    let text = ptx(&bulk(), Isa::Sm90a);
    for what in [
        "mbarrier.init.shared::cta.b64",
        "fence.mbarrier_init.release.cluster;",
        "mbarrier.arrive.expect_tx.shared::cta.b64",
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes",
        "mbarrier.try_wait.parity.shared::cta.b64",
        "ld.shared.v4.b32",
        "cvt.rn.bf16x2.f32",
        "fence.proxy.async.shared::cta;",
        "cp.async.bulk.global.shared::cta.bulk_group",
        "cp.async.bulk.commit_group;",
        "cp.async.bulk.wait_group.read 1;",
        "cp.async.bulk.wait_group 0;",
    ] {
        contains(&text, what);
    }
}

#[test]
fn an_older_instruction_set_has_no_copy_engine() {
    let error = oplus_llvm::compile(&bulk(), Isa::Sm80).unwrap_err();
    assert!(matches!(error, CompileError::Invalid(_)), "{error}");
    assert!(error.to_string().contains("sm_80"), "{error}");
}

#[test]
fn copies_per_thread_arrive_on_an_mbarrier() {
    let mut b = Builder::new("per_thread", 64);
    let (x, y) = (b.param("x", ParamKind::Read(Elem::F32)), b.param("y", ParamKind::Write(Elem::F32)));
    let tile = b.shared("tile", SharedKind::Elem(Elem::F32), 1024);
    let full = b.shared("full", SharedKind::Mbarrier, 1);
    let mbarrier = b.mbarrier(full, Operand::i32(0));
    let thread = b.special(Special::Thread);
    let first = b.eq(thread, Operand::i32(0));
    b.if_(first, |b| b.push(Stmt::MbarrierInit(mbarrier, 64)));
    b.barrier();
    let index = b.convert(Ty::I64, thread);
    let guard = b.lt(thread, Operand::i32(50));
    for (elements, guard) in [(4, Some(guard)), (2, None), (1, Some(guard))] {
        let (to, from) = (b.mul(thread, Operand::i32(4)), b.mul(index, Operand::i64(4)));
        b.push(Stmt::CopyAsync { to: tile, to_index: to, from: x, from_index: from, elements, guard });
    }
    b.push(Stmt::CopyAsyncArrive(mbarrier));
    b.push(Stmt::MbarrierArrive(mbarrier));
    b.push(Stmt::MbarrierWait(mbarrier, Operand::i32(0)));
    let value = b.load1(Memory::Shared(tile), thread);
    b.store(Memory::Global(y), index, &[value], None);
    let kernel = b.finish();
    for (isa, wait) in [(Isa::Sm80, "mbarrier.test_wait.parity"), (Isa::Sm90a, "mbarrier.try_wait.parity")] {
        let text = ptx(&kernel, isa);
        for what in [wait, "cp.async.cg.shared.global", "cp.async.mbarrier.arrive.noinc.shared.b64"] {
            contains(&text, what);
        }
        assert_eq!(count(&text, "cp.async.ca.shared.global"), 2, "{text}");
    }
}

/// Draws a ticket, publishes `words` words there and waits for the words of the tile before.
fn relay(words: usize) -> Kernel {
    let mut b = Builder::new(format!("relay_{words}"), 32);
    let (messages, control) = (b.param("messages", ParamKind::Messages), b.param("control", ParamKind::Control));
    let y = b.param("y", ParamKind::Write(Elem::U32));
    let (ticket, tag) = (b.reg(Ty::U32), b.reg(Ty::U32));
    b.push(Stmt::DrawTicket { ticket, tag, control });
    let index = b.convert(Ty::I64, ticket.into());
    let index = b.mul(index, Operand::i64(words.next_multiple_of(2) as i64));
    let values = vec![ticket.into(); words];
    let some = b.ne(ticket.into(), Operand::u32(9));
    b.push(Stmt::Publish { messages, index, values: values.clone(), tag: tag.into(), guard: Some(some) });
    b.push(Stmt::Publish { messages, index, values, tag: tag.into(), guard: None });
    let entries: Vec<PollEntry> = (0..3)
        .map(|k| {
            let index = b.add(index, Operand::i64(-4 * (k + 1)));
            let [values, tags] = [(); 2].map(|()| (0..words).map(|_| b.var(Operand::u32(0))).collect());
            PollEntry { index, values, tags }
        })
        .collect();
    b.loop_(|b| {
        b.push(Stmt::Poll { messages, entries: entries.clone(), tag: tag.into() });
        let tags = entries.iter().flat_map(|e| &e.tags);
        let done = tags.fold(Operand::bool(true), |done, t| {
            let here = b.eq((*t).into(), tag);
            b.and(done, here)
        });
        let done = b.all(done);
        b.break_if(done);
    });
    let sum = entries.iter().flat_map(|e| &e.values).fold(ticket.into(), |sum, v| b.add(sum, *v));
    b.store(Memory::Global(y), index, &[sum], None);
    b.push(Stmt::ResetTickets { control, tag: tag.into() });
    b.finish()
}

#[test]
fn messages_travel_with_their_tags() {
    for words in 1..=4 {
        for isa in Isa::ALL {
            let text = ptx(&relay(words), isa);
            let (pairs, single) = (words / 2, words % 2);
            assert_eq!(count(&text, "st.relaxed.gpu.global.v2.b64"), 2 * pairs, "{text}");
            assert_eq!(count(&text, "st.relaxed.gpu.global.b64"), 2 * single + 1, "{text}");
            assert_eq!(count(&text, "@missing ld.relaxed.gpu.global.v2.b64"), 3 * pairs, "{text}");
            assert_eq!(count(&text, "@missing ld.relaxed.gpu.global.b64"), 3 * single, "{text}");
            assert_eq!(count(&text, "atom.relaxed.gpu.global.add.u64"), 1, "{text}");
            assert_eq!(count(&text, "atom."), 1, "{text}");
        }
    }
}

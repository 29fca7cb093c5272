//! The text of every kind of statement, and what hashes are made from.

use super::*;
use crate::build::Builder;
use crate::tile::{SharedId, Special};

/// Hashes of kernels must not change when the text says more.
#[test]
fn what_hashes_are_made_from_says_no_types() {
    let mut b = Builder::new("sample", 32);
    b.reg(Ty::F64);
    let one = Operand::Const(Ty::F32, Literal::Float(1.0));
    let bits = b.bits(Ty::U32, one);
    let negative = b.unary(Unary::Neg, one);
    let x = b.param("x", ParamKind::Read(Elem::F32));
    b.load(Memory::Global(x), Operand::i64(0), 1, None, one);
    let kernel = b.finish();
    assert_eq!((bits, negative), (Reg(1).into(), Reg(2).into()));
    let head = "kernel sample(x: read f32) threads 32 blocks_per_sm 1\n";
    assert_eq!(kernel.terse(), format!("{head}  u1 = bits(1.0)\n  f2 = -1.0\n  load f3 = x[0]\n"));
    let full = "unused d0\n  u1 = bits(1.0_f32)\n  f2 = -(1.0)\n  load f3 = x[0] else 1.0\n";
    assert_eq!(kernel.to_string(), format!("{head}{full}"));
}

#[test]
fn packed_pairs_show_in_the_types_of_registers() {
    let mut b = Builder::new("pairs", 32);
    let x = b.param("x", ParamKind::Read(Elem::Bf16));
    let y = b.param("y", ParamKind::Write(Elem::F16));
    let pairs = b.load_pairs(Memory::Global(x), Operand::i64(8), 2);
    b.store(Memory::Global(y), Operand::i64(4), &[pairs[1], Operand::u32(7)], None);
    let kernel = b.finish();
    let text = kernel.to_string();
    assert!(text.ends_with("\n  load u0, u1 = x[8]\n  store y[4] = u1, 7_u32\n"), "{text}");
    assert_eq!(text.parse(), Ok(kernel));
}

/// Products of matrices, by a warp and by a warpgroup.
fn products(b: &mut Builder, tile: SharedId, at: Operand) {
    let matrices = b.load_matrix(tile, at, 2, true);
    let accumulator = [0, 1, 2, 3].map(|_| b.var(zero(Ty::F32)));
    b.mma(Elem::Bf16, accumulator, [matrices[0]; 4], [matrices[1]; 2]);
    let packed = b.pack(Elem::F16, accumulator[0].into(), accumulator[3].into());
    b.unpack(Elem::F16, packed);
    b.store_matrix(tile, at, &[packed, matrices[0]], true);
    let panels = |index| Panels { array: tile, index: Operand::i32(index), row: 16, apart: 128 };
    b.push(Stmt::WarpgroupMma {
        elem: Elem::F16,
        sums: accumulator.to_vec(),
        clear: false,
        steps: vec![(Left::Registers([packed; 4]), panels(0)), (Left::Shared(panels(0)), panels(128))],
        transposed: true,
    });
    b.push(Stmt::WarpgroupWait { pending: 0, sums: accumulator.to_vec() });
}

#[test]
fn every_kind_of_statement() {
    let mut b = Builder::new("sample", 64);
    let x = b.param("x", ParamKind::Read(Elem::Bf16));
    let y = b.param("y", ParamKind::Write(Elem::Bf16));
    let n = b.param("n", ParamKind::Scalar(Ty::I64));
    let messages = b.param("messages", ParamKind::Messages);
    let control = b.param("control", ParamKind::Control);
    let tile = b.shared("tile", SharedKind::Elem(Elem::Bf16), 256);
    let full = b.shared("full", SharedKind::Mbarrier, 2);

    let (at, from) = (Operand::i32(8), Operand::i64(16));
    let mbarrier = b.mbarrier(full, Operand::i32(1));
    let thread = b.special(Special::Thread);
    let first = b.eq(thread, Operand::i32(0));
    let size = b.scalar(n);
    let (ticket, launch, tag) = (b.reg(Ty::U32), b.reg(Ty::U32), b.var(Operand::u32(0)));
    b.if_else(
        first,
        |b| {
            b.push(Stmt::MbarrierInit(mbarrier, 1));
            b.push(Stmt::FenceInit);
            b.push(Stmt::MbarrierExpect(mbarrier, Operand::i32(256)));
            let count = Operand::i32(128);
            b.push(Stmt::BulkLoad { to: tile, to_index: at, from: x, from_index: from, count, mbarrier });
            b.push(Stmt::DrawTicket { ticket, tag: launch, control });
            b.push(Stmt::ResetTickets { control, tag: launch.into() });
        },
        |b| {
            let guard = Some(first);
            b.push(Stmt::CopyAsync { to: tile, to_index: at, from: x, from_index: from, elements: 8, guard });
            b.push(Stmt::CopyAsyncArrive(mbarrier));
            b.push(Stmt::MbarrierArrive(mbarrier));
        },
    );
    b.barrier();
    b.push(Stmt::MbarrierWait(mbarrier, Operand::i32(0)));
    b.for_(Operand::i64(0), size, Operand::i64(4), |b, i| {
        let loaded = b.load(Memory::Global(x), i, 2, Some(first), zero(Ty::F32));
        let half = b.let_(Ty::F32, Expr::Convert(Elem::Bf16, loaded[0]));
        let other = b.shuffle(Shuffle::Up, half, Operand::i32(1));
        let most = b.binary(Binary::Max, other, loaded[1]);
        let sum = b.fma(most, Operand::Const(Ty::F32, Literal::Float(0.1)), half);
        b.store(Memory::Global(y), i, &[sum, most], None);
    });
    products(&mut b, tile, at);
    b.push(Stmt::FenceAsync);
    b.push(Stmt::BulkStore {
        to: y,
        to_index: from,
        from: tile,
        from_index: at,
        count: Operand::i32(128),
        adds: false,
    });
    b.push(Stmt::BulkWait { pending: 0, read: true });
    b.push(Stmt::Publish {
        messages,
        index: from,
        values: vec![Operand::u32(1), Operand::u32(2)],
        tag: tag.into(),
        guard: Some(first),
    });
    b.loop_(|b| {
        let entries = vec![PollEntry { index: from, values: vec![ticket], tags: vec![tag] }];
        b.push(Stmt::Poll { messages, entries, tag: Operand::u32(1) });
        let here = b.eq(tag.into(), Operand::u32(1));
        let done = b.all(here);
        b.break_if(done);
        b.push(Stmt::SyncWarp);
    });
    let kernel = b.finish();
    let text = kernel.to_string();
    assert_eq!(text.parse(), Ok(kernel));
    insta::assert_snapshot!(text);
}

//! One planted fault per rule, and kernels that must pass.

use oplus_dsl::ir::{Binary, Literal, Unary};
use oplus_dsl::{Elem, Ty};

use super::{Fault, verify};
use crate::build::{Builder, zero};
use crate::target::Target;
use crate::tile::{
    Expr, Kernel, Left, Memory, Operand, Panels, ParamId, ParamKind, PollEntry, Reg, SharedId, SharedKind, Special,
    Stmt,
};

/// A kernel with one of everything: x (read), y (write), n, messages, control, a tile and mbarriers.
fn builder() -> Builder {
    let mut b = Builder::new("k", 64);
    b.param("x", ParamKind::Read(Elem::F32));
    b.param("y", ParamKind::Write(Elem::F32));
    b.param("n", ParamKind::Scalar(Ty::I64));
    b.param("m", ParamKind::Messages);
    b.param("c", ParamKind::Control);
    b.shared("tile", SharedKind::Elem(Elem::F32), 256);
    b.shared("full", SharedKind::Mbarrier, 2);
    b
}

const X: Memory = Memory::Global(ParamId(0));
const Y: Memory = Memory::Global(ParamId(1));
const TILE: SharedId = SharedId(0);
const FULL: SharedId = SharedId(1);

fn faults_of(kernel: &Kernel, target: &Target) -> Vec<Fault> {
    verify(kernel, target).err().unwrap_or_default().into_iter().map(|e| e.fault).collect()
}

/// The faults of a kernel whose body the closure writes.
fn faults<R>(body: impl FnOnce(&mut Builder) -> R) -> Vec<Fault> {
    let mut b = builder();
    body(&mut b);
    faults_of(&b.finish(), &Target::H200)
}

/// The only fault, as text.
fn fault<R>(body: impl FnOnce(&mut Builder) -> R) -> String {
    let all = faults(body);
    assert_eq!(all.len(), 1, "{all:?}");
    all[0].to_string()
}

fn f32_zero() -> Operand {
    zero(Ty::F32)
}

#[test]
fn a_sound_kernel_passes() {
    let found = faults(|b| {
        let thread = b.special(Special::Thread);
        let index = b.convert(Ty::I64, thread);
        let total = b.var(f32_zero());
        b.for_(Operand::i32(0), Operand::i32(4), Operand::i32(1), |b, _| {
            let x = b.load1(X, index);
            let sum = b.add(total.into(), x);
            b.assign(total, sum);
        });
        b.loop_(|b| {
            let done = b.ge(thread, Operand::i32(0));
            b.break_if(done);
        });
        b.store(Y, index, &[total.into()], None);
        b.barrier();
    });
    assert_eq!(found, []);
}

#[test]
fn kernel_limits() {
    let mut kernel = builder().finish();
    kernel.name = "9lives".into();
    kernel.threads = 48;
    kernel.blocks_per_sm = 0;
    kernel.shared[0].len = 100_000;
    kernel.regs.push(Ty::Call);
    let found = faults_of(&kernel, &Target::H200);
    assert_eq!(
        found,
        [
            Fault::Name("9lives".into()),
            Fault::Threads(48),
            Fault::NoBlocks,
            Fault::SharedBytes { bytes: 400_128, limit: 232_448 },
            Fault::Abstract("register 0".into()),
        ]
    );
}

#[test]
fn reading_what_only_one_branch_assigns() {
    let text = fault(|b| {
        let r = b.reg(Ty::I32);
        let thread = b.special(Special::Thread);
        let first = b.eq(thread, Operand::i32(0));
        b.if_(first, |b| b.assign(r, thread));
        b.add(r.into(), thread);
    });
    assert_eq!(text, "register 0 may be read before it is assigned");
}

#[test]
fn both_branches_and_every_break_assign() {
    let found = faults(|b| {
        let (r, s) = (b.reg(Ty::I32), b.reg(Ty::I32));
        let thread = b.special(Special::Thread);
        let first = b.eq(thread, Operand::i32(0));
        b.if_else(first, |b| b.assign(r, thread), |b| b.assign(r, Operand::i32(1)));
        b.loop_(|b| {
            b.assign(s, r.into());
            b.break_if(first);
        });
        b.add(s.into(), r);
    });
    assert_eq!(found, []);
}

#[test]
fn a_counted_loop_may_not_run() {
    let text = fault(|b| {
        let r = b.reg(Ty::I32);
        let lane = b.special(Special::Lane);
        b.for_(Operand::i32(0), lane, Operand::i32(1), |b, i| b.assign(r, i));
        b.unary(Unary::Neg, r.into());
    });
    assert_eq!(text, "register 0 may be read before it is assigned");
}

#[test]
fn a_break_before_the_assignment() {
    let text = fault(|b| {
        let r = b.reg(Ty::I32);
        let lane = b.special(Special::Lane);
        let first = b.eq(lane, Operand::i32(0));
        b.loop_(|b| {
            b.break_if(first);
            b.assign(r, lane);
            b.break_if(first);
        });
        b.unary(Unary::Neg, r.into());
    });
    assert_eq!(text, "register 0 may be read before it is assigned");
}

#[test]
fn loops_without_break_and_breaks_without_loop() {
    assert_eq!(fault(|b| b.loop_(|_| {})), "the loop has no break");
    assert_eq!(fault(|b| b.break_if(Operand::bool(true))), "break outside a loop");
}

#[test]
fn the_body_changes_its_own_loop() {
    let text = fault(|b| {
        b.for_(Operand::i32(0), Operand::i32(4), Operand::i32(1), |b, i| {
            let Operand::Reg(var) = i else { return };
            b.push(Stmt::Let(var, Expr::Copy(Operand::i32(0))));
        });
    });
    assert_eq!(text, "the body assigns register 0, which controls the loop");
    let still = fault(|b| b.for_(Operand::i32(0), Operand::i32(4), Operand::i32(0), |_, _| {}));
    assert_eq!(still, "step 0: must be positive");
}

#[test]
fn operand_types() {
    let one = Operand::Const(Ty::F32, Literal::Float(1.0));
    let add = |ty, a, b| move |k: &mut Builder| k.let_(ty, Expr::Binary(Binary::Add, a, b));
    assert_eq!(fault(add(Ty::F32, one, Operand::i32(1))), "the right operand is i32, must be f32");
    assert_eq!(fault(add(Ty::I32, one, one)), "the result is i32, must be f32");
    let misfit = Operand::Const(Ty::I32, Literal::Int(1 << 40));
    assert_eq!(fault(add(Ty::I32, misfit, Operand::i32(1))), "the left operand: the constant does not fit i32");
    assert_eq!(fault(|b| b.let_(Ty::F32, Expr::Binary(Binary::Rem, one, one))), "Rem is not defined for f32");
    assert_eq!(fault(|b| b.unary(Unary::Exp, one)), "Exp must be expanded by `math::expand`");
    assert_eq!(
        fault(|b| b.let_(Ty::F64, Expr::Bits(one))),
        "the operand is f32, must be of the same size as the result"
    );
    assert_eq!(fault(|b| b.let_(Ty::I32, Expr::Param(ParamId(0)))), "`x` is read f32, must be a scalar");
    assert_eq!(fault(|b| b.let_(Ty::I32, Expr::Param(ParamId(9)))), "there is no parameter 9");
    let unknown = Expr::Unary(Unary::Neg, Reg(7).into());
    assert_eq!(fault(|b| b.let_(Ty::F32, unknown)), "there is no register 7");
    assert_eq!(fault(|b| b.unary(Unary::Sqrt, Operand::i32(4))), "Sqrt is not defined for i32");
}

#[test]
fn accesses() {
    let (at, zero) = (Operand::i64(0), f32_zero());
    assert_eq!(fault(|b| b.store(X, at, &[zero], None)), "`x` is read f32, must be writable");
    assert_eq!(
        fault(|b| b.store(Y, at, &[zero; 8], None)),
        "8 elements of 4 bytes: a vector has 1, 2, 4 or 8 elements and at most 16 bytes"
    );
    assert_eq!(fault(|b| b.store(Y, Operand::i32(0), &[zero], None)), "the index is i32, must be i64");
    assert_eq!(
        fault(|b| b.push(Stmt::Store {
            memory: Memory::Shared(FULL),
            index: Operand::i32(0),
            values: vec![zero],
            guard: None
        })),
        "`full` is mbarrier, must be an array of elements"
    );
    let tile = |b: &Builder| b.mbarrier(TILE, Operand::i32(0));
    assert_eq!(fault(|b| b.push(Stmt::MbarrierArrive(tile(b)))), "`tile` is f32, must be an array of mbarriers");
}

#[test]
fn registers_of_an_access_are_all_packed_or_none() {
    let with_pairs = |registers: fn(&mut Builder) -> Vec<Operand>| {
        let mut b = builder();
        let half = b.param("h", ParamKind::Write(Elem::F16));
        let values = registers(&mut b);
        b.store(Memory::Global(half), Operand::i64(0), &values, None);
        faults_of(&b.finish(), &Target::H200)
    };
    let word = Operand::u32(0);
    assert_eq!(with_pairs(|_| vec![Operand::u32(0); 4]), []);
    assert_eq!(with_pairs(|b| b.load_pairs(Memory::Global(ParamId(5)), Operand::i64(0), 4)), []);
    assert_eq!(with_pairs(|_| vec![Operand::u32(0); 8]), [Fault::Vector { count: 16, bytes: 2 }]);
    assert_eq!(with_pairs(|_| vec![f32_zero(); 16]), [Fault::Vector { count: 16, bytes: 2 }]);
    let mixed = Fault::Type { what: "a value", found: Ty::F32, expected: "u32" };
    assert_eq!(with_pairs(|_| vec![Operand::u32(0), f32_zero()]), [mixed]);
    assert_eq!(fault(|b| b.store(Y, Operand::i64(0), &[word], None)), "a value is u32, must be f32");
}

#[test]
fn barriers() {
    assert_eq!(faults(|b| b.push(Stmt::Barrier { id: 1, threads: 32 })), []);
    for (id, threads) in [(16, 32), (1, 48), (1, 96), (1, 0), (0, 32)] {
        let found = faults(|b| b.push(Stmt::Barrier { id, threads }));
        assert_eq!(found, [Fault::Barrier { id, threads, all: 64 }]);
    }
    assert_eq!(faults(|b| b.push(Stmt::MbarrierInit(b.mbarrier(FULL, Operand::i32(0)), 0))), [Fault::Arrivals(0)]);
    assert_eq!(faults(|b| b.push(Stmt::WarpgroupWait { pending: 8, sums: vec![] })), [Fault::Pending(8)]);
}

#[test]
fn copies_need_their_target_and_one_type() {
    let mut b = builder();
    let bf16 = b.param("h", ParamKind::Read(Elem::Bf16));
    let mbarrier = b.mbarrier(FULL, Operand::i32(0));
    let (to_index, from_index) = (Operand::i32(0), Operand::i64(0));
    let count = Operand::i32(8);
    b.push(Stmt::BulkLoad { to: TILE, to_index, from: bf16, from_index, count, mbarrier });
    b.push(Stmt::CopyAsync { to: TILE, to_index, from: ParamId(0), from_index, elements: 3, guard: None });
    b.push(Stmt::CopyAsync { to: TILE, to_index, from: bf16, from_index, elements: 8, guard: None });
    // Copies by threads are of bits: an array of another type of the same width is sound.
    let half = b.shared("half", SharedKind::Elem(Elem::F16), 8);
    b.push(Stmt::CopyAsync { to: half, to_index, from: bf16, from_index, elements: 8, guard: None });
    let kernel = b.finish();
    let mismatch = Fault::Kind { name: "tile".into(), found: "f32".into(), expected: "bf16".into() };
    let faults = [mismatch.clone(), Fault::CopyBytes(12), mismatch];
    assert_eq!(faults_of(&kernel, &Target::H200), faults);
    assert_eq!(faults_of(&kernel, &Target::A100)[0], Fault::NoBulkCopies("sm_80"));
    assert_eq!(faults_of(&kernel, &Target::A100)[1..], faults);
}

#[test]
fn messages_and_control_words() {
    let messages = ParamId(3);
    let publish = |index, values: Vec<Operand>| Stmt::Publish {
        messages,
        index: Operand::i64(index),
        values,
        tag: Operand::u32(1),
        guard: None,
    };
    let word = Operand::u32(7);
    assert_eq!(faults(|b| b.push(publish(1, vec![word]))), []);
    assert_eq!(faults(|b| b.push(publish(1, vec![word; 2]))), [Fault::OddMessage { words: 2, index: 1 }]);
    assert_eq!(faults(|b| b.push(publish(0, vec![]))), [Fault::Words { values: 0, tags: 0 }]);
    let found = fault(|b| {
        let [ticket, tag] = [(); 2].map(|()| b.reg(Ty::U32));
        b.push(Stmt::DrawTicket { ticket, tag, control: messages });
    });
    assert_eq!(found, "`m` is messages, must be control");
    let unread = faults(|b| {
        let (value, tag) = (b.reg(Ty::U32), b.var(Operand::u32(0)));
        let entry = PollEntry { index: Operand::i64(0), values: vec![value], tags: vec![tag] };
        b.push(Stmt::Poll { messages, entries: vec![entry], tag: Operand::u32(1) });
    });
    assert_eq!(unread, [Fault::Unassigned(Reg(0))]);
}

#[test]
fn errors_name_the_statement_and_come_all_at_once() {
    let mut b = builder();
    let thread = b.special(Special::Thread);
    let first = b.eq(thread, Operand::i32(0));
    b.if_(first, |b| {
        b.barrier();
        b.store(X, Operand::i64(0), &[f32_zero()], None);
    });
    b.break_if(first);
    let errors = verify(&b.finish(), &Target::H200).unwrap_err();
    let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        ["2.then.1 `store x[0] = 0.0`: `x` is read f32, must be writable", "3 `break if p1`: break outside a loop",]
    );
}

#[test]
fn matrices_and_their_elements() {
    let word = Operand::u32(0);
    let accumulator = |b: &mut Builder| [0, 1, 2, 3].map(|_| b.var(f32_zero()));
    assert_eq!(fault(|b| b.load_matrix(TILE, Operand::i32(0), 3, false)), "3 matrices: must be 1, 2 or 4");
    assert_eq!(
        fault(|b| {
            let wide = b.shared("wide", SharedKind::Elem(Elem::F64), 64);
            b.load_matrix(wide, Operand::i32(0), 4, false)
        }),
        "elements of f64: must be of 2 or 4 bytes"
    );
    assert_eq!(fault(|b| b.store_matrix(TILE, Operand::i32(0), &[word], false)), "elements of f32: must be of 2 bytes");
    let text = fault(|b| {
        let c = accumulator(b);
        b.mma(Elem::I32, c, [word; 4], [word; 2]);
    });
    assert_eq!(text, "elements of i32: must be bf16, f16 or f32");
    let text = fault(|b| {
        let c = accumulator(b);
        b.mma(Elem::Bf16, c, [f32_zero(); 4], [word; 2]);
    });
    assert_eq!(text, "a factor is f32, must be u32");
    assert_eq!(fault(|b| b.pack(Elem::F32, f32_zero(), f32_zero())), "elements of f32: must be bf16 or f16");
}

#[test]
fn products_of_warpgroups() {
    let product = |row, columns: usize, array| {
        let mut b = Builder::new("k", 128);
        b.shared("odd", SharedKind::Elem(Elem::F16), 8);
        b.shared("tile", SharedKind::Elem(Elem::F16), 4096);
        let sums: Vec<Reg> = (0..columns / 2).map(|_| b.var(f32_zero())).collect();
        let panels = Panels { array: SharedId(array), index: Operand::i32(0), row, apart: 1024 };
        let steps = vec![(Left::Registers([Operand::u32(0); 4]), panels)];
        b.push(Stmt::WarpgroupMma { elem: Elem::F16, sums, clear: false, steps, transposed: false });
        let faults = faults_of(&b.finish(), &Target::H200);
        faults.first().map(ToString::to_string).unwrap_or_default()
    };
    assert_eq!(product(64, 8, 0), "");
    assert!(product(64, 8, 1).contains("a multiple of 1024 bytes"));
    assert!(product(8, 8, 0).contains("rows of 8 elements"));
    assert!(product(64, 264, 0).starts_with("132 sums of a warpgroup's product in 1 steps"));
}

#[test]
fn stores_of_matrices() {
    let store = |values: &[Operand]| {
        let mut b = Builder::new("store", 32);
        let tile = b.shared("tile", SharedKind::Elem(Elem::Bf16), 256);
        b.store_matrix(tile, Operand::i32(0), values, true);
        b.finish()
    };
    let word = Operand::u32(0);
    assert_eq!(faults_of(&store(&[word; 3]), &Target::H200), [Fault::Matrices(3)]);
    assert_eq!(faults_of(&store(&[word; 4]), &Target::H200), []);
    assert_eq!(faults_of(&store(&[word; 4]), &Target::A100), [Fault::NoStoresOfMatrices("sm_80")]);
    let texts: Vec<String> = faults_of(&store(&[f32_zero()]), &Target::H200).iter().map(Fault::to_string).collect();
    assert_eq!(texts, ["a value is f32, must be u32"]);
}

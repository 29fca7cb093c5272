//! Launch bounds, control flow, warps, blocks; the text as a whole.

use crate::check::{assembled, contains, count, ptx};
use oplus_codegen::build::Builder;
use oplus_codegen::target::Isa;
use oplus_codegen::tile::{Expr, Kernel, Memory, Operand, ParamKind, Shuffle, Special, Stmt};
use oplus_dsl::ir::{Binary, Literal};
use oplus_dsl::{Elem, Ty};
use oplus_llvm::CompileError;

/// The inclusive sum of 32 lanes, for as many rows as there are blocks.
fn warp_sum() -> Kernel {
    let mut b = Builder::new("warp_sum", 32);
    let (x, y) = (b.param("x", ParamKind::Read(Elem::F32)), b.param("y", ParamKind::Write(Elem::F32)));
    let (lane, block) = (b.special(Special::Lane), b.special(Special::Block));
    let (lane, block) = (lane, b.convert(Ty::I64, block));
    let row = b.mul(block, Operand::i64(32));
    let column = b.convert(Ty::I64, lane);
    let index = b.add(row, column);
    let mut sum = b.load1(Memory::Global(x), index);
    for distance in [1, 2, 4, 8, 16] {
        let before = b.shuffle(Shuffle::Up, sum, Operand::i32(distance));
        let both = b.add(before, sum);
        let inside = b.ge(lane, Operand::i32(distance));
        sum = b.select(inside, both, sum);
    }
    b.store(Memory::Global(y), index, &[sum], None);
    b.finish()
}

#[test]
fn a_warp_scan_reads_well() {
    insta::assert_snapshot!(ptx(&warp_sum(), Isa::Sm80));
}

#[test]
fn the_same_kernel_gives_the_same_text_on_every_thread() {
    let kernel = warp_sum();
    let texts: Vec<String> = std::thread::scope(|scope| {
        let compile = || oplus_llvm::compile(&kernel, Isa::Sm90a).unwrap();
        let handles: Vec<_> = (0..4).map(|_| scope.spawn(compile)).collect();
        handles.into_iter().map(|h| h.join().unwrap()).collect()
    });
    assert!(texts.iter().all(|t| *t == texts[0]));
}

#[test]
fn kernels_that_begin_early_wait_before_anything_else() {
    let kernel = warp_sum();
    let early = |isa, device| oplus_llvm::compile_early(&kernel, isa, device).unwrap();
    let [sm_80, sm_90a] = Isa::ALL.map(|isa| oplus_llvm::compile(&kernel, isa).unwrap());
    assert_eq!(early(Isa::Sm80, Isa::Sm80), sm_80, "older devices have no early launches");
    let text = early(Isa::Sm90a, Isa::Sm90a);
    let wait = "griddepcontrol.wait;";
    let [waits, touches] = [wait, ".global"].map(|part| text.find(part));
    assert!(waits.unwrap() < touches.unwrap(), "{text}");
    let others: String = text.lines().filter(|line| line.trim() != wait).map(|line| format!("{line}\n")).collect();
    assert_eq!(others, sm_90a);
    // A kernel for all devices is the same one there.
    assert_eq!(early(Isa::Sm80, Isa::Sm90a), text);
}

#[test]
fn launch_bounds_are_those_of_the_kernel() {
    let mut kernel = warp_sum();
    (kernel.threads, kernel.blocks_per_sm) = (256, 8);
    let (text, facts) = assembled(&kernel, Isa::Sm90a);
    contains(&text, ".maxntid 256");
    contains(&text, ".minnctapersm 8");
    contains(&text, ".version 8.0\n.target sm_90a");
    assert!(facts.registers <= 32, "{facts:?}");
}

/// Sums `x[0] + x[step] + …` below `n` twice over, by both kinds of loop, one branch writing each.
fn loops() -> Kernel {
    let mut b = Builder::new("loops", 64);
    let (x, y) = (b.param("x", ParamKind::Read(Elem::F64)), b.param("y", ParamKind::Write(Elem::F64)));
    let n = b.param("n", ParamKind::Scalar(Ty::I32));
    let n = b.scalar(n);
    let zero = Operand::Const(Ty::F64, Literal::Float(0.0));
    let sum = b.var(zero);
    b.for_(Operand::i32(0), n, Operand::i32(3), |b, i| {
        let i = b.convert(Ty::I64, i);
        let value = b.load1(Memory::Global(x), i);
        let next = b.add(sum.into(), value);
        b.assign(sum, next);
    });
    let (again, at) = (b.var(zero), b.var(Operand::i64(0)));
    let end = b.convert(Ty::I64, n);
    b.loop_(|b| {
        let done = b.ge(at.into(), end);
        b.break_if(done);
        let value = b.load1(Memory::Global(x), at.into());
        let next = b.add(again.into(), value);
        b.assign(again, next);
        let next = b.add(at.into(), Operand::i64(3));
        b.assign(at, next);
    });
    let thread = b.special(Special::Thread);
    let even = b.binary(Binary::And, thread, Operand::i32(1));
    let even = b.eq(even, Operand::i32(0));
    let index = b.convert(Ty::I64, thread);
    b.if_else(
        even,
        |b| b.store(Memory::Global(y), index, &[sum.into()], None),
        |b| b.store(Memory::Global(y), index, &[again.into()], None),
    );
    b.finish()
}

#[test]
fn loops_stay_loops() {
    for isa in Isa::ALL {
        let text = ptx(&loops(), isa);
        contains(&text, ".pragma \"nounroll\";");
        assert_eq!(count(&text, "ld.global"), 2, "{text}");
        assert_eq!(count(&text, "add.rn.f64"), 2, "{text}");
    }
}

#[test]
fn a_break_outside_of_a_loop_is_an_error() {
    let mut b = Builder::new("stray", 32);
    b.push(Stmt::Break(Operand::bool(true)));
    assert!(matches!(oplus_llvm::compile(&b.finish(), Isa::Sm80), Err(CompileError::Invalid(_))));
}

/// Shuffles `value` by every mode, with a constant and a variable lane, and adds everything up.
fn shuffles(ty: Ty) -> Kernel {
    let mut b = Builder::new(format!("shuffles_{ty}"), 96);
    let elem = ty.elem().unwrap();
    let (x, y) = (b.param("x", ParamKind::Read(elem)), b.param("y", ParamKind::Write(elem)));
    let (thread, warp) = (b.special(Special::Thread), b.special(Special::Warp));
    let index = b.convert(Ty::I64, thread);
    let value = b.load1(Memory::Global(x), index);
    let mut total = value;
    for mode in [Shuffle::Up, Shuffle::Down, Shuffle::Xor, Shuffle::Index] {
        for lane in [Operand::i32(5), Operand::i32(40), warp] {
            let other = b.shuffle(mode, value, lane);
            let op = if ty == Ty::Bool { Binary::Xor } else { Binary::Add };
            total = b.binary(op, total, other);
        }
    }
    let unlike = b.ne(total, value);
    let all = b.all(unlike);
    b.push(Stmt::SyncWarp);
    b.push(Stmt::Barrier { id: 3, threads: 64 });
    b.barrier();
    b.store(Memory::Global(y), index, &[total], Some(all));
    b.finish()
}

#[test]
fn every_type_can_be_shuffled() {
    for ty in [Ty::F32, Ty::F64, Ty::I32, Ty::U64, Ty::Bool] {
        let text = ptx(&shuffles(ty), Isa::Sm80);
        let words = if matches!(ty, Ty::F64 | Ty::U64) { 2 } else { 1 };
        // A lane beyond the warp is known to be one's own: no shuffle. One more makes the warp's index uniform.
        assert_eq!(count(&text, "shfl.sync"), 12 * words + 1, "{text}");
        for what in ["vote.sync.all.pred", "bar.warp.sync", "bar.sync \t3, 64", "bar.sync \t0"] {
            contains(&text, what);
        }
    }
}

#[test]
fn built_in_numbers_are_read_once() {
    let mut b = Builder::new("built_in", 64);
    let y = b.param("y", ParamKind::Write(Elem::I32));
    let mut sum = Operand::i32(0);
    for special in [Special::Block, Special::BlockY, Special::Blocks, Special::Block, Special::Thread] {
        let value = b.special(special);
        sum = b.add(sum, value);
    }
    b.store(Memory::Global(y), Operand::i64(0), &[sum], None);
    let text = ptx(&b.finish(), Isa::Sm90a);
    for register in ["%ctaid.x", "%ctaid.y", "%nctaid.x", "%tid.x"] {
        assert_eq!(count(&text, register), 1, "{text}");
    }
}

#[test]
fn parameters_of_every_type_are_passed() {
    let mut b = Builder::new("scalars", 32);
    let y = b.param("y", ParamKind::Write(Elem::F64));
    let mut sum = Operand::Const(Ty::F64, Literal::Float(0.5));
    for ty in [Ty::F64, Ty::F32, Ty::I32, Ty::I64, Ty::U32, Ty::U64, Ty::Bool] {
        let param = b.param(ty.name(), ParamKind::Scalar(ty));
        let value = b.let_(ty, Expr::Param(param));
        let value = b.convert(Ty::F64, value);
        sum = b.add(sum, value);
    }
    b.store(Memory::Global(y), Operand::i64(0), &[sum], None);
    let text = ptx(&b.finish(), Isa::Sm80);
    assert_eq!(count(&text, "ld.param"), 8, "{text}");
}

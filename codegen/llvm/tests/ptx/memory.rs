//! Loads and stores: widths, alignment, guards, element types.

use crate::check::{contains, count, ptx};
use oplus_codegen::build::{Builder, operands, zero};
use oplus_codegen::target::Isa;
use oplus_codegen::tile::{Expr, Kernel, Memory, Operand, ParamKind, SharedKind, Special, Stmt};
use oplus_dsl::ir::Binary;
use oplus_dsl::{Elem, Ty};

/// Copies `n` elements per thread from `x` to `y`, those below `length` when guarded, for every `n` of the list.
fn copy(elem: Elem, widths: &[u32], guarded: bool) -> Kernel {
    let mut b = Builder::new(format!("copy_{elem}"), 128);
    let (x, y) = (b.param("x", ParamKind::Read(elem)), b.param("y", ParamKind::Write(elem)));
    let length = b.param("length", ParamKind::Scalar(Ty::I64));
    let thread = b.special(Special::Thread);
    let thread = b.convert(Ty::I64, thread);
    let length = b.scalar(length);
    for n in widths {
        let index = b.mul(thread, Operand::i64(i64::from(*n)));
        let guard = b.lt(index, length);
        let guard = guarded.then_some(guard);
        let values = b.load(Memory::Global(x), index, *n, guard, zero(elem.value()));
        b.store(Memory::Global(y), index, &values, guard);
    }
    b.finish()
}

/// The numbers of elements that one access may move.
fn widths(elem: Elem) -> Vec<u32> {
    [1, 2, 4, 8].into_iter().filter(|n| n * elem.bytes().unwrap() as u32 <= 16).collect()
}

#[test]
fn every_width_of_every_element_is_one_instruction() {
    for elem in Elem::ALL {
        for (guarded, isa) in [(false, Isa::Sm80), (true, Isa::Sm80), (true, Isa::Sm90a)] {
            let n = widths(elem).len();
            let text = ptx(&copy(elem, &widths(elem), guarded), isa);
            assert_eq!((count(&text, "ld.global.nc"), count(&text, "st.global")), (n, n), "{text}");
            assert_eq!(count(&text, "@%p"), 2 * n * usize::from(guarded), "{text}");
            assert_eq!((count(&text, "bra"), count(&text, ".local")), (0, 0), "{text}");
        }
    }
}

#[test]
fn loads_carry_the_policy_of_a_kernel_that_keeps_what_it_reads() {
    for (elem, guarded) in Elem::ALL.into_iter().flat_map(|elem| [(elem, false), (elem, true)]) {
        let mut kernel = copy(elem, &widths(elem), guarded);
        kernel.keep_reads = true;
        let (text, n) = (ptx(&kernel, Isa::Sm80), widths(elem).len());
        assert_eq!((count(&text, "createpolicy"), count(&text, "ld.global.nc.L2::cache_hint")), (1, n), "{text}");
        let policy =
            text.lines().find(|l| l.contains("createpolicy")).and_then(|l| l.split([' ', ',']).nth(1)).unwrap();
        assert_eq!(count(&text, &format!("{policy};")), n, "{text}");
    }
}

#[test]
fn sixteen_bytes_travel_in_one_instruction() {
    for (elem, n, width) in [
        (Elem::F32, 4, "v4.b32"),
        (Elem::Bf16, 8, "v4.b32"),
        (Elem::F16, 8, "v4.b32"),
        (Elem::F64, 2, "v2.b64"),
        (Elem::I64, 2, "v2.b64"),
        (Elem::Bool, 8, "v2.b32"),
    ] {
        for guarded in [false, true] {
            let text = oplus_llvm::compile(&copy(elem, &[n], guarded), Isa::Sm90a).unwrap();
            contains(&text, &format!("ld.global.nc.{width}"));
            contains(&text, &format!("st.global.{width}"));
        }
    }
}

#[test]
fn packed_pairs_travel_as_they_are() {
    for (elem, n) in [Elem::Bf16, Elem::F16].into_iter().flat_map(|elem| [1, 2, 4].map(|n| (elem, n))) {
        let mut b = Builder::new("pairs", 32);
        let (x, y) = (b.param("x", ParamKind::Read(elem)), b.param("y", ParamKind::Write(elem)));
        let lane = b.special(Special::Lane);
        let guard = b.lt(lane, Operand::i32(7));
        let index = b.mul(lane, Operand::i32(2 * n));
        let index = b.convert(Ty::I64, index);
        let dst: Vec<_> = (0..n).map(|_| b.reg(Ty::U32)).collect();
        let (memory, otherwise) = (Memory::Global(x), Operand::u32(77));
        b.push(Stmt::Load { dst: dst.clone(), memory, index, guard: Some(guard), otherwise });
        b.store(Memory::Global(y), index, &operands(&dst), Some(guard));
        let text = ptx(&b.finish(), Isa::Sm90a);
        let width = if n > 1 { format!("v{n}.b32") } else { "b32".into() };
        contains(&text, &format!("ld.global.nc.{width}"));
        contains(&text, &format!("st.global.{width}"));
        assert_eq!((count(&text, "cvt.rn"), count(&text, "prmt"), count(&text, ", 77;")), (0, 0, 1), "{text}");
    }
}

#[test]
fn a_guarded_load_keeps_otherwise() {
    let mut b = Builder::new("fill", 32);
    let (x, y) = (b.param("x", ParamKind::Read(Elem::F32)), b.param("y", ParamKind::Write(Elem::F32)));
    let lane = b.special(Special::Lane);
    let guard = b.lt(lane, Operand::i32(7));
    let index = b.convert(Ty::I64, lane);
    let one = Operand::Const(Ty::F32, oplus_dsl::ir::Literal::Float(1.0));
    let values = b.load(Memory::Global(x), index, 1, Some(guard), one);
    b.store(Memory::Global(y), index, &values, None);
    let text = ptx(&b.finish(), Isa::Sm80);
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let load = lines.iter().position(|l| l.contains("ld.global")).unwrap();
    let register = lines[load].split_whitespace().nth(2).unwrap();
    let set = format!("mov.b32 \t{register} 1065353216;");
    assert!(lines[..load].contains(&set.as_str()), "{set} in\n{text}");
}

#[test]
fn a_pointer_that_is_written_is_not_read_through_the_read_only_cache() {
    let mut b = Builder::new("increment", 32);
    let y = b.param("y", ParamKind::Write(Elem::I32));
    let value = b.load1(Memory::Global(y), Operand::i64(3));
    let more = b.add(value, Operand::i32(1));
    b.store(Memory::Global(y), Operand::i64(3), &[more], None);
    let text = ptx(&b.finish(), Isa::Sm90a);
    contains(&text, "ld.global.b32");
    assert_eq!(count(&text, ".nc"), 0);
}

#[test]
fn shared_arrays_are_laid_out_at_multiples_of_128_bytes() {
    let mut b = Builder::new("exchange", 64);
    let (x, y) = (b.param("x", ParamKind::Read(Elem::F32)), b.param("y", ParamKind::Write(Elem::F32)));
    let first = b.shared("first", SharedKind::Elem(Elem::F32), 3);
    let second = b.shared("second", SharedKind::Elem(Elem::F32), 64);
    let thread = b.special(Special::Thread);
    let index = b.convert(Ty::I64, thread);
    let value = b.load1(Memory::Global(x), index);
    b.store(Memory::Shared(second), thread, &[value], None);
    let is_first = b.eq(thread, Operand::i32(0));
    b.store(Memory::Shared(first), Operand::i32(2), &[value], Some(is_first));
    b.barrier();
    let other = b.binary(Binary::Xor, thread, Operand::i32(63));
    let mirrored = b.load1(Memory::Shared(second), other);
    let head = b.load1(Memory::Shared(first), Operand::i32(2));
    let sum = b.add(mirrored, head);
    b.store(Memory::Global(y), index, &[sum], None);
    let kernel = b.finish();
    assert_eq!(kernel.shared_layout(), (vec![0, 128], 384));
    for isa in Isa::ALL {
        let text = ptx(&kernel, isa);
        contains(&text, ".extern .shared .align 128 .b8 shared[];");
        contains(&text, "bar.sync");
        assert_eq!(count(&text, "ld.shared"), 2);
        assert_eq!(count(&text, "st.shared"), 2);
    }
}

/// Loads rows that are equally far apart, each index the one before and the distance.
fn rows(step: impl Fn(&mut Builder) -> Operand) -> Kernel {
    let mut b = Builder::new("rows", 32);
    let (x, y) = (b.param("x", ParamKind::Read(Elem::F32)), b.param("y", ParamKind::Write(Elem::F32)));
    let thread = b.special(Special::Thread);
    let (mut index, step) = (b.convert(Ty::I64, thread), step(&mut b));
    for _ in 0..6 {
        let values = b.load(Memory::Global(x), index, 1, None, zero(Ty::F32));
        b.store(Memory::Global(y), index, &values, None);
        let next = b.add(index, step);
        // A copy ends what the lowering follows as one sum.
        index = b.let_(Ty::I64, Expr::Copy(next));
    }
    b.chain_addresses();
    b.finish()
}

#[test]
fn chained_addresses_take_one_addition_for_each_row_of_a_tensor() {
    let text = ptx(
        &rows(|b| {
            let step = b.param("step", ParamKind::Scalar(Ty::I64));
            b.scalar(step)
        }),
        Isa::Sm90a,
    );
    assert_eq!((count(&text, "ld.global"), count(&text, "st.global")), (6, 6), "{text}");
    assert_eq!(count(&text, "add.s64"), 2 + 2 * 5, "{text}");
}

#[test]
fn chained_addresses_of_a_constant_distance_are_offsets() {
    let text = ptx(&rows(|_| Operand::i64(32)), Isa::Sm90a);
    contains(&text, "+640]");
    assert_eq!(count(&text, "add.s64"), 2, "{text}");
}

/// An address that one branch has found is not known in the other, nor behind both.
#[test]
fn chains_of_addresses_end_with_their_branch() {
    let mut b = Builder::new("branches", 32);
    let (x, y) = (b.param("x", ParamKind::Read(Elem::F32)), b.param("y", ParamKind::Write(Elem::F32)));
    let (thread, block) = (b.special(Special::Thread), b.special(Special::Block));
    let [first, step] = [thread, block].map(|n| b.convert(Ty::I64, n));
    let next = b.add(first, step);
    let is_even = b.eq(block, 0);
    let copy = |b: &mut Builder, index| {
        let values = b.load(Memory::Global(x), index, 1, None, zero(Ty::F32));
        b.store(Memory::Global(y), index, &values, None);
    };
    b.if_else(is_even, |b| [first, next].into_iter().for_each(|index| copy(b, index)), |b| copy(b, next));
    copy(&mut b, next);
    b.chain_addresses();
    assert_eq!(count(&ptx(&b.finish(), Isa::Sm90a), "ld.global"), 4);
}

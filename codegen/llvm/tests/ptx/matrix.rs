//! Matrix fragments.

use crate::check::{contains, ptx};
use oplus_codegen::build::{Builder, zero};
use oplus_codegen::target::Isa;
use oplus_codegen::tile::{Kernel, Left, Memory, Operand, Panels, ParamKind, Reg, SharedKind, Special, Stmt};
use oplus_dsl::{Elem, Ty};

/// A product of fragments that shared memory holds, packed into the array again.
fn product(elem: Elem, transposed: bool) -> Kernel {
    let mut b = Builder::new("product", 32);
    let (x, y) = (b.param("x", ParamKind::Read(elem)), b.param("y", ParamKind::Write(Elem::U32)));
    let per_piece = 16 / elem.bytes().unwrap() as i32;
    let tile = b.shared("tile", SharedKind::Elem(elem), 32 * per_piece as u32);
    let lane = b.special(Special::Lane);
    let index = b.mul(lane, Operand::i32(per_piece));
    let wide = b.convert(Ty::I64, index);
    let values = b.load(Memory::Global(x), wide, per_piece as u32, None, zero(Ty::F32));
    b.store(Memory::Shared(tile), index, &values, None);
    b.barrier();
    let left = b.load_matrix(tile, index, 4, false).try_into().unwrap();
    let right = b.load_matrix(tile, index, 2, transposed).try_into().unwrap();
    let accumulator: [Reg; 4] = std::array::from_fn(|_| b.var(zero(Ty::F32)));
    b.mma(elem, accumulator, left, right);
    let packed = b.pack(Elem::Bf16, accumulator[0].into(), accumulator[3].into());
    let [low, high] = b.unpack(Elem::F16, packed);
    let sum = b.add(low, high);
    let word = b.bits(Ty::U32, sum);
    b.store(Memory::Global(y), wide, &[word], None);
    b.finish()
}

#[test]
fn fragments_are_single_instructions() {
    for isa in Isa::ALL {
        let text = ptx(&product(Elem::Bf16, true), isa);
        contains(&text, "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {");
        contains(&text, "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {");
        contains(&text, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {");
        contains(&text, "cvt.rn.bf16x2.f32");
        contains(&ptx(&product(Elem::F16, false), isa), "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {");
        contains(&ptx(&product(Elem::F32, false), isa), "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {");
    }
}

/// Fragments are stored as matrices by one instruction, which devices before Hopper lack.
#[test]
fn matrices_are_stored_at_once() {
    let mut b = Builder::new("store", 32);
    let (x, y) = (b.param("x", ParamKind::Read(Elem::U32)), b.param("y", ParamKind::Write(Elem::Bf16)));
    let tile = b.shared("tile", SharedKind::Elem(Elem::Bf16), 256);
    let lane = b.special(Special::Lane);
    let wide = b.convert(Ty::I64, lane);
    let word = b.load1(Memory::Global(x), wide);
    let index = b.mul(lane, Operand::i32(8));
    b.store_matrix(tile, index, &[word; 4], true);
    b.push(Stmt::SyncWarp);
    b.store_matrix(tile, index, &[word; 2], false);
    b.push(Stmt::SyncWarp);
    let row = b.load1(Memory::Shared(tile), index);
    b.store(Memory::Global(y), wide, &[row], None);
    let kernel = b.finish();
    let text = ptx(&kernel, Isa::Sm90a);
    contains(&text, "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [");
    contains(&text, "stmatrix.sync.aligned.m8n8.x2.shared.b16 [");
    let error = oplus_llvm::compile(&kernel, Isa::Sm80).unwrap_err();
    assert!(error.to_string().contains("sm_80 has no stores of matrices"), "{error}");
}

/// D = A·B twice, once with A in shared memory and once in registers.
fn together(transposed: bool) -> Kernel {
    let mut b = Builder::new("together", 128);
    let (x, y) = (b.param("x", ParamKind::Read(Elem::F16)), b.param("y", ParamKind::Write(Elem::F32)));
    let tile = b.shared("tile", SharedKind::Elem(Elem::F16), 64 * 64);
    let thread = b.special(Special::Thread);
    let index = b.mul(thread, Operand::i32(8));
    let wide = b.convert(Ty::I64, index);
    let values = b.load(Memory::Global(x), wide, 8, None, zero(Ty::F32));
    b.store(Memory::Shared(tile), index, &values, None);
    b.push(Stmt::FenceAsync);
    b.barrier();
    let panels = |index| Panels { array: tile, index: Operand::i32(index), row: 64, apart: 0 };
    let sums: Vec<Reg> = (0..32).map(|_| b.reg(Ty::F32)).collect();
    let steps = (0..4).map(|k| (Left::Shared(panels(16 * k)), panels(16 * k))).collect();
    b.push(Stmt::WarpgroupMma { elem: Elem::F16, sums: sums.clone(), clear: true, steps, transposed: false });
    b.push(Stmt::WarpgroupWait { pending: 0, sums: sums.clone() });
    let word = b.pack(Elem::F16, sums[0].into(), sums[1].into());
    let steps = vec![(Left::Registers([word; 4]), panels(0))];
    b.push(Stmt::WarpgroupMma { elem: Elem::F16, sums: sums.clone(), clear: false, steps, transposed });
    b.push(Stmt::WarpgroupWait { pending: 0, sums: sums.clone() });
    b.store(Memory::Global(y), wide, &[sums[0].into(), sums[31].into()], None);
    b.finish()
}

#[test]
fn warpgroups_wait_for_their_products() {
    let text = ptx(&together(true), Isa::Sm90a);
    contains(&text, "wgmma.fence.sync.aligned;");
    contains(&text, "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {");
    contains(&text, "wgmma.wait_group.sync.aligned 0;");
    contains(&text, ".shared .align 1024");
    ptx(&together(false), Isa::Sm90a);
    let error = oplus_llvm::compile(&together(true), Isa::Sm80).unwrap_err();
    assert!(error.to_string().contains("sm_80 has no products of warpgroups"), "{error}");
}

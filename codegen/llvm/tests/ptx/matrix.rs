//! Matrix fragments.

use crate::check::{contains, ptx};
use oplus_codegen::build::{Builder, zero};
use oplus_codegen::target::Isa;
use oplus_codegen::tile::{Kernel, Memory, Operand, ParamKind, Reg, SharedKind, Special};
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

//! Matrix fragments.

use super::{Asm, Lower, Result};
use crate::CompileError;
use inkwell::values::BasicValueEnum;
use oplus_codegen::tile::{Half, Memory, Operand, Reg, SharedId};
use oplus_dsl::Elem;

impl<'c> Lower<'c, '_> {
    pub(super) fn load_matrix(&mut self, dst: &[Reg], array: SharedId, index: Operand, transposed: bool) -> Result<()> {
        let (n, address) = (dst.len(), self.address(Memory::Shared(array), index)?);
        let registers: Vec<String> = (0..n).map(|k| format!("${k}")).collect();
        let transposed = if transposed { ".trans" } else { "" };
        let (list, from) = (registers.join(", "), address.text(n, 0));
        let text = format!("ldmatrix.sync.aligned.m8n8.x{n}{transposed}.shared.b16 {{{list}}}, {from};");
        let word = self.context.i32_type();
        let asm = (0..n).fold(Asm::effect(text), |asm, _| asm.output(word));
        let values = asm.input(address.base).emit(self)?;
        dst.iter().zip(values).try_for_each(|(reg, value)| self.assign(*reg, value))
    }

    pub(super) fn store_matrix(
        &self,
        values: &[Operand],
        array: SharedId,
        index: Operand,
        transposed: bool,
    ) -> Result<()> {
        let (n, address) = (values.len(), self.address(Memory::Shared(array), index)?);
        let registers: Vec<String> = (0..n).map(|k| format!("${k}")).collect();
        let transposed = if transposed { ".trans" } else { "" };
        let (list, to) = (registers.join(", "), address.text(n, 0));
        let text = format!("stmatrix.sync.aligned.m8n8.x{n}{transposed}.shared.b16 {to}, {{{list}}};");
        let asm =
            values.iter().try_fold(Asm::effect(text), |asm, x| Ok::<_, CompileError>(asm.input(self.int(*x)?)))?;
        asm.input(address.base).emit(self).map(|_| ())
    }

    pub(super) fn mma(
        &mut self,
        elem: Elem,
        dst: &[Reg; 4],
        a: &[Operand; 4],
        b: &[Operand; 2],
        c: &[Operand; 4],
    ) -> Result<()> {
        let (depth, name) = match elem {
            Elem::Bf16 => (16, "bf16"),
            Elem::F16 => (16, "f16"),
            Elem::F32 => (8, "tf32"),
            _ => return Err(CompileError::Lowering(format!("a matrix product of {elem}"))),
        };
        let text = format!(
            "mma.sync.aligned.m16n8k{depth}.row.col.f32.{name}.{name}.f32 \
             {{$0, $1, $2, $3}}, {{$4, $5, $6, $7}}, {{$8, $9}}, {{$10, $11, $12, $13}};"
        );
        let single = self.context.f32_type();
        let mut asm = (0..dst.len()).fold(Asm::collective(text), |asm, _| asm.output(single));
        for x in a.iter().chain(b) {
            asm = asm.input(self.int(*x)?);
        }
        for x in c {
            asm = asm.input(self.float(*x)?);
        }
        let values = asm.emit(self)?;
        dst.iter().zip(values).try_for_each(|(reg, value)| self.assign(*reg, value))
    }

    pub(super) fn widen_half(&self, elem: Elem, half: Half, x: Operand) -> Result<BasicValueEnum<'c>> {
        let bits = self.int(x)?;
        Ok(match half {
            Half::Low => self.widen(elem, bits)?.into(),
            Half::High => self.widen_high(elem, bits)?.into(),
        })
    }
}

//! Products of warpgroups.

use super::access::Address;
use super::{Asm, Lower, Result};
use crate::CompileError;
use inkwell::values::IntValue;
use oplus_codegen::tile::{Left, Memory, Panels, Reg};
use oplus_dsl::Elem;
use std::fmt::Write;

impl<'c> Lower<'c, '_> {
    /// Operands: sums, the same tied, then for every step the left factor and the right one.
    pub(super) fn warpgroup_mma(
        &mut self,
        elem: Elem,
        sums: &[Reg],
        clear: bool,
        steps: &[(Left, Panels)],
        transposed: bool,
    ) -> Result<()> {
        let (n, tied) = (sums.len(), if clear { 0 } else { sums.len() });
        let single = self.context.f32_type();
        let mut asm = (0..n).fold(Asm::effect(String::new()), |asm, _| asm.early_output(single));
        for (k, reg) in sums.iter().enumerate().take(tied) {
            asm = asm.tied(k, self.float((*reg).into())?);
        }
        let list: Vec<String> = (0..n).map(|k| format!("${k}")).collect();
        let kind = if elem == Elem::Bf16 { "bf16" } else { "f16" };
        let mut text = String::from(
            "{\n\t.reg .pred first, later;\n\tsetp.ne.b32 first, 0, 0;\n\tsetp.eq.b32 later, 0, 0;\n\t\
             wgmma.fence.sync.aligned;\n\t",
        );
        let mut next = n + tied;
        for (i, (left, right)) in steps.iter().enumerate() {
            let (a, order, count) = match left {
                Left::Registers(_) => (format!("{{${next}, ${}, ${}, ${}}}", next + 1, next + 2, next + 3), "", 4),
                Left::Shared(_) => (format!("${next}"), "0, ", 1),
            };
            asm = match left {
                Left::Registers(registers) => {
                    registers.iter().try_fold(asm, |asm, x| Ok::<_, CompileError>(asm.input(self.int(*x)?)))?
                }
                Left::Shared(panels) => asm.input(self.descriptor(panels, false)?),
            };
            asm = asm.input(self.descriptor(right, transposed)?);
            let adds = if clear && i == 0 { "first" } else { "later" };
            let (sums, b, transposed) = (list.join(", "), next + count, u8::from(transposed));
            // Writing to a String cannot fail.
            let _ = write!(
                text,
                "wgmma.mma_async.sync.aligned.m64n{}k16.f32.{kind}.{kind} {{{sums}}}, {a}, ${b}, {adds}, 1, 1, \
                 {order}{transposed};\n\t",
                2 * n
            );
            next += count + 1;
        }
        text += "wgmma.commit_group.sync.aligned;\n\t}";
        let values = asm.with_text(text).emit(self)?;
        sums.iter().zip(values).try_for_each(|(reg, value)| self.assign(*reg, value))
    }

    /// The sums pass through the instruction, so that nothing reads them before it.
    pub(super) fn warpgroup_wait(&mut self, pending: u32, sums: &[Reg]) -> Result<()> {
        let single = self.context.f32_type();
        let asm = Asm::effect(format!("wgmma.wait_group.sync.aligned {pending};"));
        let asm = sums.iter().fold(asm, |asm, _| asm.output(single));
        let tie =
            |asm: Asm<'c>, (k, reg): (usize, &Reg)| Ok::<_, CompileError>(asm.tied(k, self.float((*reg).into())?));
        let values = sums.iter().enumerate().try_fold(asm, tie)?.emit(self)?;
        sums.iter().zip(values).try_for_each(|(reg, value)| self.assign(*reg, value))
    }

    /// The descriptor of a factor for the tensor core: address, distances and swizzle.
    fn descriptor(&self, panels: &Panels, transposed: bool) -> Result<IntValue<'c>> {
        let long = self.context.i64_type();
        let bytes = |elements: u32| (elements * 2) >> 4;
        // Eight rows on; and of a transposed factor, the next panel.
        let eight = u64::from(bytes(8 * panels.row)) << 32;
        let apart = if transposed { bytes(panels.apart) << 16 } else { 1 << 16 };
        let swizzle = match panels.row {
            64 => 1u64 << 62,
            32 => 2 << 62,
            _ => 3 << 62,
        };
        // Both parts of the address are multiples of 16: the descriptors of a tile differ by constants.
        let Address { base, offset } = self.address(Memory::Shared(panels.array), panels.index)?;
        let base = self.builder.build_right_shift(base, self.i32(4), false, "")?;
        let low = self.builder.build_int_add(base, self.i32((offset as u32 >> 4) + apart), "")?;
        let low = self.builder.build_int_z_extend(low, long, "")?;
        let high = long.const_int(eight | swizzle, false);
        Ok(self.builder.build_or(low, high, "")?)
    }
}

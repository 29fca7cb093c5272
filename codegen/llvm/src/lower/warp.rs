//! Within a warp and a block: shuffles, votes, barriers.

use super::{Lower, Result};
use inkwell::IntPredicate;
use inkwell::values::{BasicValueEnum, IntValue};
use oplus_codegen::tile::{Operand, Reg, Shuffle, Special};
use oplus_dsl::Ty;
use oplus_dsl::ir::Literal;

/// A shuffle whose source is a lane of the warp for every lane, or the lane itself.
struct Source<'c> {
    mode: &'static str,
    lane: IntValue<'c>,
    clamp: u32,
}

impl<'c> Lower<'c, '_> {
    pub(super) fn shuffle(&mut self, dst: Reg, value: Operand, mode: Shuffle, lane: Operand) -> Result<()> {
        let source = self.source(mode, lane)?;
        let (ty, value) = (self.kernel.ty(value), self.value(value)?);
        let result = match ty {
            Ty::Bool => {
                let word = self.builder.build_int_z_extend(value.into_int_value(), self.context.i32_type(), "")?;
                let word = self.shuffle_word(&source, word)?;
                self.compare(IntPredicate::NE, word, self.i32(0))?
            }
            Ty::F64 | Ty::I64 | Ty::U64 => self.shuffle_wide(&source, value)?,
            Ty::F32 => self.shuffle_any(&source, "f32", value)?,
            _ => self.shuffle_word(&source, value.into_int_value())?.into(),
        };
        self.assign(dst, result)
    }

    /// The hardware takes the low five bits of a distance, so only small constants may go there as they are.
    fn source(&mut self, mode: Shuffle, lane: Operand) -> Result<Source<'c>> {
        let small = matches!(lane, Operand::Const(_, Literal::Int(0..=31)));
        let distance = self.int(lane)?;
        if small {
            let (mode, clamp) = match mode {
                Shuffle::Up => ("up", 0),
                Shuffle::Down => ("down", 31),
                Shuffle::Xor => ("bfly", 31),
                Shuffle::Index => ("idx", 31),
            };
            return Ok(Source { mode, lane: distance, clamp });
        }
        let own = self.special(Special::Lane)?;
        let from = match mode {
            Shuffle::Up => self.builder.build_int_sub(own, distance, "")?,
            Shuffle::Down => self.builder.build_int_add(own, distance, "")?,
            Shuffle::Xor => self.builder.build_xor(own, distance, "")?,
            Shuffle::Index => distance,
        };
        let lane = self.choose(IntPredicate::ULT, [from, self.i32(32)], [from, own])?.into_int_value();
        Ok(Source { mode: "idx", lane, clamp: 31 })
    }

    fn shuffle_word(&self, source: &Source<'c>, word: IntValue<'c>) -> Result<IntValue<'c>> {
        Ok(self.shuffle_any(source, "i32", word.into())?.into_int_value())
    }

    /// Four bytes of the type that the instruction's name has.
    fn shuffle_any(&self, source: &Source<'c>, ty: &str, value: BasicValueEnum<'c>) -> Result<BasicValueEnum<'c>> {
        let args = [self.i32(u32::MAX).into(), value.into(), source.lane.into(), self.i32(source.clamp).into()];
        self.call(&format!("llvm.nvvm.shfl.sync.{}.{ty}", source.mode), &[], &args)
    }

    /// Eight bytes, as two words.
    fn shuffle_wide(&self, source: &Source<'c>, value: BasicValueEnum<'c>) -> Result<BasicValueEnum<'c>> {
        let (i32, i64) = (self.context.i32_type(), self.context.i64_type());
        let bits = self.builder.build_bit_cast(value, i64, "")?.into_int_value();
        let half = i64.const_int(32, false);
        let high = self.builder.build_right_shift(bits, half, false, "")?;
        let [low, high] =
            [self.builder.build_int_truncate(bits, i32, "")?, self.builder.build_int_truncate(high, i32, "")?];
        let (low, high) = (self.shuffle_word(source, low)?, self.shuffle_word(source, high)?);
        let low = self.builder.build_int_z_extend(low, i64, "")?;
        let high = self.builder.build_int_z_extend(high, i64, "")?;
        let high = self.builder.build_left_shift(high, half, "")?;
        let bits = self.builder.build_or(high, low, "")?;
        Ok(self.builder.build_bit_cast(bits, value.get_type(), "")?)
    }

    pub(super) fn all(&mut self, dst: Reg, condition: Operand) -> Result<()> {
        let args = [self.i32(u32::MAX).into(), self.int(condition)?.into()];
        let all = self.call("llvm.nvvm.vote.all.sync", &[], &args)?;
        self.assign(dst, all)
    }

    pub(super) fn sync_warp(&self) -> Result<()> {
        self.call_any("llvm.nvvm.bar.warp.sync", &[], &[self.i32(u32::MAX).into()]).map(|_| ())
    }

    pub(super) fn set_max_registers(&self, count: u32, more: bool) -> Result<()> {
        let way = if more { "inc" } else { "dec" };
        super::asm::Asm::effect(format!("setmaxnreg.{way}.sync.aligned.u32 {count};")).emit(self).map(|_| ())
    }

    pub(super) fn barrier(&self, id: u32, threads: u32) -> Result<()> {
        let args = [self.i32(id).into(), self.i32(threads).into()];
        self.call_any("llvm.nvvm.barrier.cta.sync.aligned.count", &[], &args).map(|_| ())
    }
}

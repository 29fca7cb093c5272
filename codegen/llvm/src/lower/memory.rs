//! Loads and stores.
//!
//! Without a guard they are LLVM's, so that constant offsets fold into the instruction. With one they are predicated
//! inline PTX: a branch would cost a reconvergence, and a batch of guarded loads must be in flight together.

use super::access::Words;
use super::{Asm, Lower, Result};
use inkwell::values::{BasicValue, BasicValueEnum, InstructionValue, IntValue};
use oplus_codegen::tile::{Memory, Operand, ParamKind, Reg};

impl<'c> Lower<'c, '_> {
    pub(super) fn load(
        &self,
        dst: &[Reg],
        memory: Memory,
        index: Operand,
        guard: Option<Operand>,
        otherwise: Operand,
    ) -> Result<()> {
        let words = self.words(memory, dst.len())?;
        dst.iter().try_for_each(|r| self.same_type(words.elem, self.kernel.ty((*r).into())))?;
        let address = self.address(memory, index)?;
        let packed = match guard {
            None => self.plain_load(words, memory, address)?,
            Some(guard) => self.guarded_load(words, memory, address, guard, otherwise)?,
        };
        let values = self.unpack(words, &packed)?;
        dst.iter().zip(values).try_for_each(|(reg, value)| self.assign(*reg, value))
    }

    pub(super) fn store(
        &self,
        memory: Memory,
        index: Operand,
        values: &[Operand],
        guard: Option<Operand>,
    ) -> Result<()> {
        let words = self.words(memory, values.len())?;
        values.iter().try_for_each(|v| self.same_type(words.elem, self.kernel.ty(*v)))?;
        let packed = self.pack(words, values)?;
        let address = self.address(memory, index)?;
        match guard {
            None => self.plain_store(words, memory, address, &packed),
            Some(guard) => self.guarded_store(words, memory, address, guard, packed),
        }
    }

    fn plain_load(&self, words: Words, memory: Memory, address: IntValue<'c>) -> Result<Vec<IntValue<'c>>> {
        let (pointer, word) = (self.pointer(memory, address)?, self.word_type(words));
        if words.len() == 1 {
            let value = self.builder.build_load(word, pointer, "")?;
            self.aligned(value.as_instruction_value(), words, memory)?;
            return Ok(vec![value.into_int_value()]);
        }
        let vector = self.builder.build_load(word.vec_type(words.len() as u32), pointer, "")?;
        self.aligned(vector.as_instruction_value(), words, memory)?;
        let part = |k| {
            let index = self.i32(k);
            let value = self.builder.build_extract_element(vector.into_vector_value(), index, "")?;
            Ok(value.into_int_value())
        };
        (0..words.len() as u32).map(part).collect()
    }

    /// Gives a load the alignment of the whole access, and leave to go through the read-only cache.
    fn aligned(&self, load: Option<InstructionValue<'c>>, words: Words, memory: Memory) -> Result<()> {
        let Some(load) = load else { return Ok(()) };
        set_alignment(load, words)?;
        if self.is_read_only(memory) {
            let empty = self.context.metadata_node(&[]);
            let kind = self.context.get_kind_id("invariant.load");
            load.set_metadata(empty, kind).map_err(|e| crate::CompileError::Llvm(e.to_string()))?;
        }
        Ok(())
    }

    fn plain_store(&self, words: Words, memory: Memory, address: IntValue<'c>, packed: &[IntValue<'c>]) -> Result<()> {
        let pointer = self.pointer(memory, address)?;
        if let [word] = packed {
            return set_alignment(self.builder.build_store(pointer, *word)?, words);
        }
        let mut vector = self.word_type(words).vec_type(words.len() as u32).get_poison();
        for (k, word) in packed.iter().enumerate() {
            vector = self.builder.build_insert_element(vector, *word, self.i32(k as u32), "")?;
        }
        set_alignment(self.builder.build_store(pointer, vector)?, words)
    }

    /// `@guard ld`, into registers that hold `otherwise`.
    fn guarded_load(
        &self,
        words: Words,
        memory: Memory,
        address: IntValue<'c>,
        guard: Operand,
        otherwise: Operand,
    ) -> Result<Vec<IntValue<'c>>> {
        let n = words.len();
        let list = operand_list(0..n);
        let cache = if self.is_read_only(memory) { ".nc" } else { "" };
        let text = format!("@${n} ld.{}{cache}{} {list}, [${}];", space(memory), suffix(words), n + 1);
        let register = self.register_type(words);
        let mut asm = (0..n).fold(Asm::effect(text), |asm, _| asm.output(register));
        asm = asm.input(self.int(guard)?).input(address);
        for (k, word) in self.pack(words, &vec![otherwise; words.count])?.into_iter().enumerate() {
            asm = asm.tied(k, self.builder.build_int_cast_sign_flag(word, register, false, "")?);
        }
        let narrow = |value: BasicValueEnum<'c>| {
            let value = value.into_int_value();
            Ok(self.builder.build_int_cast_sign_flag(value, self.word_type(words), false, "")?)
        };
        asm.emit(self)?.into_iter().map(narrow).collect()
    }

    /// `@guard st`.
    fn guarded_store(
        &self,
        words: Words,
        memory: Memory,
        address: IntValue<'c>,
        guard: Operand,
        packed: Vec<IntValue<'c>>,
    ) -> Result<()> {
        let list = operand_list(2..2 + words.len());
        let text = format!("@$0 st.{}{} [$1], {list};", space(memory), suffix(words));
        let mut asm = Asm::effect(text).input(self.int(guard)?).input(address);
        for word in packed {
            let register = self.register_type(words);
            asm = asm.input(self.builder.build_int_cast_sign_flag(word, register, false, "")?);
        }
        asm.emit(self).map(|_| ())
    }

    /// The register a word travels in: PTX has none of 8 bits.
    fn register_type(&self, words: Words) -> inkwell::types::IntType<'c> {
        if words.bits() == 64 { self.context.i64_type() } else { self.context.i32_type() }
    }

    fn is_read_only(&self, memory: Memory) -> bool {
        match memory {
            Memory::Global(param) => matches!(self.kernel.params[param.0 as usize].kind, ParamKind::Read(_)),
            Memory::Shared(_) => false,
        }
    }
}

fn set_alignment(access: InstructionValue<'_>, words: Words) -> Result<()> {
    access.set_alignment(words.bytes() as u32).map_err(|e| crate::CompileError::Llvm(e.to_string()))
}

fn space(memory: Memory) -> &'static str {
    if matches!(memory, Memory::Global(_)) { "global" } else { "shared" }
}

/// `.v4.b32` and the like; 8 bits only as `u8`.
fn suffix(words: Words) -> String {
    let vector = if words.len() > 1 { format!(".v{}", words.len()) } else { String::new() };
    let kind = if words.bits() < 32 { 'u' } else { 'b' };
    format!("{vector}.{kind}{}", words.bits())
}

/// `{$0, $1}`, without braces when there is only one.
fn operand_list(positions: std::ops::Range<usize>) -> String {
    let list: Vec<String> = positions.map(|k| format!("${k}")).collect();
    if list.len() == 1 { list[0].clone() } else { format!("{{{}}}", list.join(", ")) }
}

//! Addresses, and elements as the words that travel.
//!
//! An access moves *words*: one integer of 8 or 16 bits, or one, two or four of 32 bits, or one or two of 64.

use super::{Lower, Result};
use crate::CompileError;
use inkwell::AddressSpace;
use inkwell::IntPredicate;
use inkwell::types::IntType;
use inkwell::values::{BasicValueEnum, IntValue, PointerValue};
use oplus_codegen::tile::{Memory, Operand, ParamId, SharedId};
use oplus_dsl::{Elem, Ty};

/// The words of an access.
#[derive(Clone, Copy)]
pub(super) struct Words {
    pub(super) elem: Elem,
    /// Elements.
    pub(super) count: usize,
}

impl Words {
    /// Bytes of the access.
    pub(super) fn bytes(self) -> usize {
        self.count * self.elem.bytes().unwrap_or(4)
    }

    /// Bits of a word.
    pub(super) fn bits(self) -> usize {
        if self.elem.bytes() == Some(8) { 64 } else { 32.min(8 * self.bytes()) }
    }

    /// Number of words.
    pub(super) fn len(self) -> usize {
        8 * self.bytes() / self.bits()
    }

    /// Elements in a word.
    fn per_word(self) -> usize {
        self.count / self.len()
    }
}

impl<'c> Lower<'c, '_> {
    /// The words of an access of `count` elements.
    pub(super) fn words(&self, memory: Memory, count: usize) -> Result<Words> {
        let elem = self.kernel.elem(memory);
        let elem = elem.ok_or_else(|| CompileError::Invalid("loads and stores move elements".into()))?;
        let words = Words { elem, count };
        if !matches!(count, 1 | 2 | 4 | 8) || words.bytes() > 16 {
            return Err(CompileError::Invalid(format!("an access of {count} × {elem}")));
        }
        Ok(words)
    }

    /// The integer type of a word.
    pub(super) fn word_type(&self, words: Words) -> IntType<'c> {
        match words.bits() {
            8 => self.context.i8_type(),
            16 => self.context.i16_type(),
            64 => self.context.i64_type(),
            _ => self.context.i32_type(),
        }
    }

    /// The byte address of an element: 64 bits in global, 32 bits in shared memory.
    pub(super) fn address(&self, memory: Memory, index: Operand) -> Result<IntValue<'c>> {
        let bytes = self.kernel.elem(memory).and_then(Elem::bytes).unwrap_or(8);
        match memory {
            Memory::Global(param) => self.global_address(param, index, bytes),
            Memory::Shared(array) => self.shared_address(array, index, bytes),
        }
    }

    /// The address of entry `index` of a pointer parameter.
    pub(super) fn global_address(&self, param: ParamId, index: Operand, bytes: usize) -> Result<IntValue<'c>> {
        let base = self.param(param)?.into_int_value();
        let offset = self.scaled(self.int(index)?, bytes)?;
        Ok(self.builder.build_int_add(base, offset, "")?)
    }

    /// The address of entry `index` of a shared array.
    pub(super) fn shared_address(&self, array: SharedId, index: Operand, bytes: usize) -> Result<IntValue<'c>> {
        let offset = self.offsets.get(array.0 as usize);
        let offset = offset.ok_or_else(|| CompileError::Invalid(format!("no shared array {}", array.0)))?;
        let base = self.builder.build_int_add(self.shared, self.i32(*offset), "")?;
        let offset = self.scaled(self.int(index)?, bytes)?;
        Ok(self.builder.build_int_add(base, offset, "")?)
    }

    fn scaled(&self, index: IntValue<'c>, bytes: usize) -> Result<IntValue<'c>> {
        Ok(self.builder.build_int_mul(index, index.get_type().const_int(bytes as u64, false), "")?)
    }

    /// The address as a pointer.
    pub(super) fn pointer(&self, memory: Memory, address: IntValue<'c>) -> Result<PointerValue<'c>> {
        let space = if matches!(memory, Memory::Global(_)) { 1 } else { 3 };
        let ty = self.context.ptr_type(AddressSpace::from(space));
        Ok(self.builder.build_int_to_ptr(address, ty, "")?)
    }

    /// Values as words, rounded to their elements.
    pub(super) fn pack(&self, words: Words, values: &[Operand]) -> Result<Vec<IntValue<'c>>> {
        values.chunks(words.per_word()).map(|part| self.pack_word(words, part)).collect()
    }

    fn pack_word(&self, words: Words, part: &[Operand]) -> Result<IntValue<'c>> {
        let ty = self.word_type(words);
        match words.elem {
            Elem::Bf16 | Elem::F16 => {
                let low = self.float(part[0])?;
                let high = if part.len() > 1 { self.float(part[1])? } else { low };
                Ok(self.builder.build_int_cast(self.narrow_two(words.elem, low, high)?, ty, "")?)
            }
            Elem::Bool => {
                let mut word = ty.const_zero();
                for (k, value) in part.iter().enumerate() {
                    let byte = self.builder.build_int_z_extend(self.int(*value)?, ty, "")?;
                    let byte = self.builder.build_left_shift(byte, ty.const_int(8 * k as u64, false), "")?;
                    word = self.builder.build_or(word, byte, "")?;
                }
                Ok(word)
            }
            _ => Ok(self.builder.build_bit_cast(self.value(part[0])?, ty, "")?.into_int_value()),
        }
    }

    /// The values of words, widened from their elements.
    pub(super) fn unpack(&self, words: Words, packed: &[IntValue<'c>]) -> Result<Vec<BasicValueEnum<'c>>> {
        let mut values = Vec::with_capacity(words.count);
        for word in packed {
            for k in 0..words.per_word() {
                values.push(self.unpack_element(words.elem, *word, k)?);
            }
        }
        Ok(values)
    }

    fn unpack_element(&self, elem: Elem, word: IntValue<'c>, k: usize) -> Result<BasicValueEnum<'c>> {
        match elem {
            Elem::Bf16 | Elem::F16 => {
                let word = self.builder.build_int_cast_sign_flag(word, self.context.i32_type(), false, "")?;
                Ok(if k == 0 { self.widen(elem, word)? } else { self.widen_high(elem, word)? }.into())
            }
            Elem::Bool => {
                let byte = word.get_type().const_int(0xff << (8 * k), false);
                let byte = self.builder.build_and(word, byte, "")?;
                self.compare(IntPredicate::NE, byte, byte.get_type().const_zero())
            }
            _ => Ok(self.builder.build_bit_cast(word, self.ty(elem.value()), "")?),
        }
    }

    /// The type of values of an element must be the registers'.
    pub(super) fn same_type(&self, elem: Elem, ty: Ty) -> Result<()> {
        if elem.value() == ty {
            return Ok(());
        }
        Err(CompileError::Invalid(format!("{elem} elements are {} values, not {ty}", elem.value())))
    }
}

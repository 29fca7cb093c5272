//! Addresses, and elements as the words that travel.
//!
//! An access moves *words*: one integer of 8 or 16 bits, or one, two or four of 32 bits, or one or two of 64.

use super::{Lower, Result};
use crate::CompileError;
use inkwell::IntPredicate;
use inkwell::types::{BasicTypeEnum, IntType};
use inkwell::values::{BasicValueEnum, IntValue};
use oplus_codegen::tile::{Memory, Operand, ParamId, Reg, SharedId};
use oplus_dsl::{Elem, Ty};

/// A byte address: a value, 64 bits in global and 32 bits in shared memory, and a constant.
#[derive(Clone, Copy)]
pub(super) struct Address<'c> {
    pub(super) base: IntValue<'c>,
    pub(super) offset: i32,
}

impl Address<'_> {
    /// The address `bytes` further, as PTX writes it when operand `position` is the base.
    pub(super) fn text(self, position: usize, bytes: usize) -> String {
        match i64::from(self.offset) + bytes as i64 {
            0 => format!("[${position}]"),
            offset => format!("[${position}+{offset}]"),
        }
    }
}

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
        let elem = elem.ok_or_else(|| CompileError::Lowering("loads and stores move elements".into()))?;
        let words = Words { elem, count };
        if !matches!(count, 1 | 2 | 4 | 8) || words.bytes() > 16 {
            return Err(CompileError::Lowering(format!("an access of {count} × {elem}")));
        }
        Ok(words)
    }

    /// The register that a word travels in: what the element is where one fills a word, else an integer. PTX has none of
    /// 8 bits, and 16 would need a class of its own.
    pub(super) fn word_type(&self, words: Words) -> BasicTypeEnum<'c> {
        match words.elem {
            Elem::F32 | Elem::F64 => self.ty(words.elem.value()),
            _ => self.integer(words).into(),
        }
    }

    /// An integer of a word's size, at least 32 bits.
    fn integer(&self, words: Words) -> IntType<'c> {
        if words.bits() == 64 { self.context.i64_type() } else { self.context.i32_type() }
    }

    /// The address of an element.
    pub(super) fn address(&self, memory: Memory, index: Operand) -> Result<Address<'c>> {
        let bytes = self.kernel.elem(memory).and_then(Elem::bytes).unwrap_or(8);
        match memory {
            Memory::Global(param) => self.global_address(param, index, bytes),
            Memory::Shared(array) => self.shared_address(array, index, bytes),
        }
    }

    /// The address of entry `index` of a pointer parameter.
    pub(super) fn global_address(&self, param: ParamId, index: Operand, bytes: usize) -> Result<Address<'c>> {
        if let (true, Operand::Reg(index)) = (self.kernel.chain_addresses, index) {
            return self.chained(param, index, bytes);
        }
        let base = self.param(param)?.into_int_value();
        self.displaced(base, 0, index, bytes)
    }

    /// The address of an entry from that of the first operand of its index, where this basic block has it.
    fn chained(&self, param: ParamId, index: Reg, bytes: usize) -> Result<Address<'c>> {
        let block = self.current_block()?;
        let known = |index: Operand| match index {
            Operand::Reg(r) => self.addresses.borrow().get(&(param, r, block)).copied(),
            Operand::Const(..) => None,
        };
        if let Some(known) = known(index.into()) {
            return Ok(known);
        }
        let before = self.sums.pair(index).and_then(|[x, y]| Some((known(x)?, y)));
        let address = match before {
            Some((before, by)) => {
                let further = self.displaced(before.base, 0, by, bytes)?;
                match before.offset.checked_add(further.offset) {
                    Some(offset) => Address { offset, ..further },
                    None => self.displaced(self.whole(before)?, 0, by, bytes)?,
                }
            }
            None => self.displaced(self.param(param)?.into_int_value(), 0, index.into(), bytes)?,
        };
        if self.sums.is_assigned_once(index) {
            self.addresses.borrow_mut().insert((param, index, block), address);
        }
        Ok(address)
    }

    /// The address of entry `index` of a shared array.
    pub(super) fn shared_address(&self, array: SharedId, index: Operand, bytes: usize) -> Result<Address<'c>> {
        let offset = self.offsets.get(array.0 as usize);
        let offset = offset.ok_or_else(|| CompileError::Lowering(format!("no shared array {}", array.0)))?;
        self.displaced(self.shared, *offset, index, bytes)
    }

    /// `base + offset + index·bytes`.
    fn displaced(&self, base: IntValue<'c>, offset: u32, index: Operand, bytes: usize) -> Result<Address<'c>> {
        let (sum, ty) = (self.sums.sum(index), base.get_type());
        let mut value = ty.const_zero();
        for term in sum.terms {
            let term = self.int(term.into())?;
            let term = self.builder.build_int_cast_sign_flag(term, ty, true, "")?;
            value = self.builder.build_int_add(value, term, "")?;
        }
        value = self.builder.build_int_mul(value, ty.const_int(bytes as u64, false), "")?;
        value = self.builder.build_int_add(base, value, "")?;
        let offset = sum.constant.wrapping_mul(bytes as i64).wrapping_add(i64::from(offset));
        match i32::try_from(offset) {
            Ok(offset) => Ok(Address { base: value, offset }),
            Err(_) => {
                let base = self.builder.build_int_add(value, ty.const_int(offset as u64, true), "")?;
                Ok(Address { base, offset: 0 })
            }
        }
    }

    /// The address as one value.
    pub(super) fn whole(&self, address: Address<'c>) -> Result<IntValue<'c>> {
        let offset = address.base.get_type().const_int(i64::from(address.offset) as u64, true);
        Ok(self.builder.build_int_add(address.base, offset, "")?)
    }

    /// Values as words, rounded to their elements.
    pub(super) fn pack(&self, words: Words, values: &[Operand]) -> Result<Vec<BasicValueEnum<'c>>> {
        values.chunks(words.per_word()).map(|part| self.pack_word(words, part)).collect()
    }

    fn pack_word(&self, words: Words, part: &[Operand]) -> Result<BasicValueEnum<'c>> {
        let ty = self.integer(words);
        match words.elem {
            Elem::Bf16 | Elem::F16 => {
                let low = self.float(part[0])?;
                let high = if part.len() > 1 { self.float(part[1])? } else { low };
                Ok(self.narrow_two(words.elem, low, high)?.into())
            }
            Elem::Bool => {
                let mut word = ty.const_zero();
                for (k, value) in part.iter().enumerate() {
                    let byte = self.builder.build_int_z_extend(self.int(*value)?, ty, "")?;
                    let byte = self.builder.build_left_shift(byte, ty.const_int(8 * k as u64, false), "")?;
                    word = self.builder.build_or(word, byte, "")?;
                }
                Ok(word.into())
            }
            _ => self.value(part[0]),
        }
    }

    /// The values of words, widened from their elements.
    pub(super) fn unpack(&self, words: Words, packed: &[BasicValueEnum<'c>]) -> Result<Vec<BasicValueEnum<'c>>> {
        let mut values = Vec::with_capacity(words.count);
        for word in packed {
            for k in 0..words.per_word() {
                values.push(self.unpack_element(words.elem, *word, k)?);
            }
        }
        Ok(values)
    }

    fn unpack_element(&self, elem: Elem, word: BasicValueEnum<'c>, k: usize) -> Result<BasicValueEnum<'c>> {
        match elem {
            Elem::Bf16 | Elem::F16 if k == 0 => Ok(self.widen(elem, word.into_int_value())?.into()),
            Elem::Bf16 | Elem::F16 => Ok(self.widen_high(elem, word.into_int_value())?.into()),
            Elem::Bool => {
                let word = word.into_int_value();
                let byte = word.get_type().const_int(0xff << (8 * k), false);
                let byte = self.builder.build_and(word, byte, "")?;
                self.compare(IntPredicate::NE, byte, byte.get_type().const_zero())
            }
            _ => Ok(word),
        }
    }

    /// The type of values of an element must be the registers'.
    pub(super) fn same_type(&self, elem: Elem, ty: Ty) -> Result<()> {
        if elem.value() == ty {
            return Ok(());
        }
        Err(CompileError::Lowering(format!("{elem} elements are {} values, not {ty}", elem.value())))
    }
}

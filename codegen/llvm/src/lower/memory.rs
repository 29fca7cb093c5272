//! Loads and stores, as inline PTX.
//!
//! They stay in the schedule's order: a batch of loads is meant to be in flight together. A guard is a predicate, not
//! a branch, which would cost a reconvergence per access.

use super::access::Words;
use super::{Asm, Lower, Result};
use oplus_codegen::build::operands;
use oplus_codegen::tile::{Memory, Operand, ParamKind, Reg, elements_of_register};

impl Lower<'_, '_> {
    /// Operands: words, address, then with a guard the guard and what the words are where it is false, then the policy.
    pub(super) fn load(
        &mut self,
        dst: &[Reg],
        memory: Memory,
        index: Operand,
        guard: Option<Operand>,
        otherwise: Operand,
    ) -> Result<()> {
        let (words, is_packed) = self.words_of_registers(memory, &operands(dst))?;
        let (n, address) = (words.len(), self.address(memory, index)?);
        let predicate = if guard.is_some() { format!("@${} ", n + 1) } else { String::new() };
        let policy = self.keep.filter(|_| self.is_read_only(memory));
        // Behind the words, the address, the guard and what the words are where it is false.
        let position = n + 1 + if guard.is_some() { n + 1 } else { 0 };
        let (cache, hint) = match policy {
            Some(_) => (".nc.L2::cache_hint", format!(", ${position}")),
            None => (if self.is_read_only(memory) { ".nc" } else { "" }, String::new()),
        };
        let (list, from) = (operand_list(0..n), address.text(n, 0));
        let text = format!("{predicate}ld.{}{cache}{} {list}, {from}{hint};", space(memory), suffix(words));
        let mut asm = (0..n).fold(Asm::effect(text), |asm, _| asm.output(self.word_type(words)));
        asm = asm.input(address.base);
        if let Some(guard) = guard {
            asm = asm.input(self.int(guard)?);
            let otherwise = if is_packed {
                vec![self.value(otherwise)?; n]
            } else {
                self.pack(words, &vec![otherwise; words.count])?
            };
            asm = otherwise.into_iter().enumerate().fold(asm, |asm, (k, word)| asm.tied(k, word));
        }
        asm = policy.into_iter().fold(asm, Asm::input);
        let values = asm.emit(self)?;
        let values = if is_packed { values } else { self.unpack(words, &values)? };
        dst.iter().zip(values).try_for_each(|(reg, value)| self.assign(*reg, value))
    }

    /// Operands: address, words, guard.
    pub(super) fn store(
        &self,
        memory: Memory,
        index: Operand,
        values: &[Operand],
        guard: Option<Operand>,
    ) -> Result<()> {
        let (words, is_packed) = self.words_of_registers(memory, values)?;
        let (n, address) = (words.len(), self.address(memory, index)?);
        let predicate = if guard.is_some() { format!("@${} ", n + 1) } else { String::new() };
        let (list, to) = (operand_list(1..n + 1), address.text(0, 0));
        let text = format!("{predicate}st.{}{} {to}, {list};", space(memory), suffix(words));
        let packed = if is_packed {
            values.iter().map(|value| self.value(*value)).collect::<Result<_>>()?
        } else {
            self.pack(words, values)?
        };
        let asm = Asm::effect(text).input(address.base);
        let mut asm = packed.into_iter().fold(asm, |asm, word| asm.input(word));
        if let Some(guard) = guard {
            asm = asm.input(self.int(guard)?);
        }
        asm.emit(self).map(|_| ())
    }

    /// The words of an access, and whether its registers are packed: then each is a word.
    fn words_of_registers(&self, memory: Memory, registers: &[Operand]) -> Result<(Words, bool)> {
        let types = || registers.iter().map(|register| self.kernel.ty(*register));
        let each = self.kernel.elem(memory).zip(types().next()).map_or(1, |(elem, ty)| elements_of_register(elem, ty));
        let words = self.words(memory, each * registers.len())?;
        if each == 1 {
            types().try_for_each(|ty| self.same_type(words.elem, ty))?;
        }
        Ok((words, each > 1))
    }

    fn is_read_only(&self, memory: Memory) -> bool {
        match memory {
            Memory::Global(param) => matches!(self.kernel.params[param.0 as usize].kind, ParamKind::Read(_)),
            Memory::Shared(_) => false,
        }
    }
}

fn space(memory: Memory) -> &'static str {
    if matches!(memory, Memory::Global(_)) { "global" } else { "shared" }
}

/// `.v4.b32` and the like; narrow words as unsigned numbers, which a 32-bit register may hold.
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

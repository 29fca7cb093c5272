//! Loads and stores, as inline PTX.
//!
//! They stay in the schedule's order: a batch of loads is meant to be in flight together. A guard is a predicate, not
//! a branch, which would cost a reconvergence per access.

use super::access::Words;
use super::{Asm, Lower, Result};
use oplus_codegen::tile::{Memory, Operand, ParamKind, Reg};

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
        let words = self.words(memory, dst.len())?;
        dst.iter().try_for_each(|r| self.same_type(words.elem, self.kernel.ty((*r).into())))?;
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
            let otherwise = self.pack(words, &vec![otherwise; words.count])?;
            asm = otherwise.into_iter().enumerate().fold(asm, |asm, (k, word)| asm.tied(k, word));
        }
        asm = policy.into_iter().fold(asm, Asm::input);
        let values = self.unpack(words, &asm.emit(self)?)?;
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
        let words = self.words(memory, values.len())?;
        values.iter().try_for_each(|v| self.same_type(words.elem, self.kernel.ty(*v)))?;
        let (n, address) = (words.len(), self.address(memory, index)?);
        let predicate = if guard.is_some() { format!("@${} ", n + 1) } else { String::new() };
        let (list, to) = (operand_list(1..n + 1), address.text(0, 0));
        let text = format!("{predicate}st.{}{} {to}, {list};", space(memory), suffix(words));
        let packed = self.pack(words, values)?;
        let asm = Asm::effect(text).input(address.base);
        let mut asm = packed.into_iter().fold(asm, |asm, word| asm.input(word));
        if let Some(guard) = guard {
            asm = asm.input(self.int(guard)?);
        }
        asm.emit(self).map(|_| ())
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

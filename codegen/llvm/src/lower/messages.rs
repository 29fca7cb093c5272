//! Between blocks: tickets, and messages of a value with the launch's tag.
//!
//! LLVM's atomics lose their order and scope on this target, so all of it is inline PTX. A 64-bit word is written and
//! read whole; two adjacent words share one 16-byte access, each with its own tag.

use super::access::Address;
use super::{Asm, Lower, Result};
use crate::CompileError;
use oplus_codegen::tile::{Operand, ParamId, PollEntry, Reg};
use std::fmt::Write;

impl<'c> Lower<'c, '_> {
    fn control(&self, control: ParamId) -> Result<Address<'c>> {
        self.global_address(control, Operand::i64(0), 8)
    }

    /// Both halves come from one addition, so that a ticket cannot be paired with another launch's tag.
    pub(super) fn draw_ticket(&mut self, ticket: Reg, tag: Reg, control: ParamId) -> Result<()> {
        let address = self.control(control)?;
        let from = address.text(2, 0);
        let text = format!(
            "{{\n\t.reg .b64 w0;\n\tatom.relaxed.gpu.global.add.u64 w0, {from}, 1;\n\tmov.b64 {{$0, $1}}, w0;\n\t}}"
        );
        let word = self.context.i32_type();
        let halves = Asm::effect(text).output(word).output(word).input(address.base).emit(self)?;
        [ticket, tag].into_iter().zip(halves).try_for_each(|(half, value)| self.assign(half, value))
    }

    pub(super) fn reset_tickets(&self, control: ParamId, tag: Operand) -> Result<()> {
        let address = self.control(control)?;
        let to = address.text(0, 0);
        let text =
            format!("{{\n\t.reg .b64 w0;\n\tmov.b64 w0, {{0, $1}};\n\tst.relaxed.gpu.global.b64 {to}, w0;\n\t}}");
        Asm::effect(text).input(address.base).input(self.int(tag)?).emit(self).map(|_| ())
    }

    /// Operands: address, tag, guard (if any), values.
    pub(super) fn publish(
        &self,
        messages: ParamId,
        index: Operand,
        values: &[Operand],
        tag: Operand,
        guard: Option<Operand>,
    ) -> Result<()> {
        let address = self.global_address(messages, index, 8)?;
        let first = if guard.is_some() { 3 } else { 2 };
        let predicate = if guard.is_some() { "@$2 " } else { "" };
        let mut text = String::from("{\n");
        declare_words(&mut text, values.len());
        for k in 0..values.len() {
            let _ = writeln!(text, "\tmov.b64 w{k}, {{${}, $1}};", first + k);
        }
        for (k, pair) in accesses(values.len()) {
            let to = address.text(0, 8 * k);
            let _ = if pair {
                writeln!(text, "\t{predicate}st.relaxed.gpu.global.v2.b64 {to}, {{w{k}, w{}}};", k + 1)
            } else {
                writeln!(text, "\t{predicate}st.relaxed.gpu.global.b64 {to}, w{k};")
            };
        }
        text.push_str("\t}");
        let mut asm = Asm::effect(text).input(address.base).input(self.int(tag)?);
        if let Some(guard) = guard {
            asm = asm.input(self.int(guard)?);
        }
        for value in values {
            asm = asm.input(self.int(*value)?);
        }
        asm.emit(self).map(|_| ())
    }

    /// One entry: predicated loads, the predicate computed from the words' own tags in the same block. As a branch,
    /// or with the predicate kept outside, the loads of several entries would wait for one another.
    ///
    /// Operands: values, tags (both read and written), address, tag.
    pub(super) fn poll(&mut self, messages: ParamId, entry: &PollEntry, tag: Operand) -> Result<()> {
        let n = entry.values.len();
        if n == 0 || entry.tags.len() != n {
            return Err(CompileError::Lowering("a poll entry has as many tags as values, and at least one".into()));
        }
        let i32 = self.context.i32_type();
        let address = self.global_address(messages, entry.index, 8)?;
        let mut asm = (0..2 * n).fold(Asm::effect(poll_text(n, address)), |asm, _| asm.output(i32));
        let registers: Vec<Reg> = entry.values.iter().chain(&entry.tags).copied().collect();
        asm = asm.input(address.base).input(self.int(tag)?);
        for (k, reg) in registers.iter().enumerate() {
            asm = asm.tied(k, self.int((*reg).into())?);
        }
        let outputs = asm.emit(self)?;
        registers.iter().zip(outputs).try_for_each(|(reg, value)| self.assign(*reg, value))
    }
}

fn poll_text(n: usize, address: Address<'_>) -> String {
    let tag = 2 * n + 1;
    let mut text = String::from("{\n\t.reg .pred missing;\n");
    declare_words(&mut text, n);
    for k in 0..n {
        let _ = writeln!(text, "\tmov.b64 w{k}, {{${k}, ${}}};", n + k);
    }
    let _ = writeln!(text, "\tsetp.ne.u32 missing, ${n}, ${tag};");
    for k in 1..n {
        let _ = writeln!(text, "\tsetp.ne.or.u32 missing, ${}, ${tag}, missing;", n + k);
    }
    for (k, pair) in accesses(n) {
        let from = address.text(2 * n, 8 * k);
        let _ = if pair {
            writeln!(text, "\t@missing ld.relaxed.gpu.global.v2.b64 {{w{k}, w{}}}, {from};", k + 1)
        } else {
            writeln!(text, "\t@missing ld.relaxed.gpu.global.b64 w{k}, {from};")
        };
    }
    for k in 0..n {
        let _ = writeln!(text, "\tmov.b64 {{${k}, ${}}}, w{k};", n + k);
    }
    text.push_str("\t}");
    text
}

/// The accesses that n words take: the first word of each, and whether it is a pair.
fn accesses(n: usize) -> impl Iterator<Item = (usize, bool)> {
    (0..n).step_by(2).map(move |k| (k, k + 1 < n))
}

fn declare_words(text: &mut String, n: usize) {
    let names: Vec<String> = (0..n).map(|k| format!("w{k}")).collect();
    let _ = writeln!(text, "\t.reg .b64 {};", names.join(", "));
}

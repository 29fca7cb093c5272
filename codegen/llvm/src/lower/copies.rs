//! Mbarriers and asynchronous copies.

use super::{Asm, Lower, Result};
use crate::CompileError;
use inkwell::IntPredicate;
use inkwell::values::IntValue;
use oplus_codegen::tile::{Mbarrier, Memory, Operand, ParamId, SharedId};

/// Waits by suspending the thread for a while at a time; the loop is inside, so that it stays two instructions.
const TRY_WAIT: &str = "{\n\t.reg .pred done;\nagain:\n\t\
    mbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1;\n\t@!done bra again;\n\t}";

/// Waits in a loop of tests, on devices where `try_wait` does not exist.
const TEST_WAIT: &str = "{\n\t.reg .pred done;\nagain:\n\t\
    mbarrier.test_wait.parity.shared::cta.b64 done, [$0], $1;\n\t@!done bra again;\n\t}";

/// A bulk copy that asks the L2 cache to keep what is read rather than what is written (`docs/decisions/0007`).
const BULK_LOAD: &str = "{\n\t.reg .b64 keep;\n\tcreatepolicy.fractional.L2::evict_last.b64 keep, 1.0;\n\t\
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [$0], [$1], $2, [$3], keep;\n\t}";

impl<'c> Lower<'c, '_> {
    fn mbarrier(&self, mbarrier: &Mbarrier) -> Result<IntValue<'c>> {
        self.whole(self.shared_address(mbarrier.array, mbarrier.index, 8)?)
    }

    fn whole_address(&self, memory: Memory, index: Operand) -> Result<IntValue<'c>> {
        self.whole(self.address(memory, index)?)
    }

    fn effect(&self, asm: Asm<'c>) -> Result<()> {
        asm.emit(self).map(|_| ())
    }

    pub(super) fn mbarrier_init(&self, mbarrier: &Mbarrier, count: u32) -> Result<()> {
        let text = "mbarrier.init.shared::cta.b64 [$0], $1;";
        self.effect(Asm::effect(text).input(self.mbarrier(mbarrier)?).input(self.i32(count)))
    }

    pub(super) fn mbarrier_arrive(&self, mbarrier: &Mbarrier) -> Result<()> {
        let text = "{\n\t.reg .b64 state;\n\tmbarrier.arrive.shared::cta.b64 state, [$0];\n\t}";
        self.effect(Asm::effect(text).input(self.mbarrier(mbarrier)?))
    }

    pub(super) fn mbarrier_expect(&self, mbarrier: &Mbarrier, bytes: Operand) -> Result<()> {
        let text = "{\n\t.reg .b64 state;\n\tmbarrier.arrive.expect_tx.shared::cta.b64 state, [$0], $1;\n\t}";
        self.effect(Asm::effect(text).input(self.mbarrier(mbarrier)?).input(self.int(bytes)?))
    }

    pub(super) fn mbarrier_wait(&self, mbarrier: &Mbarrier, parity: Operand) -> Result<()> {
        let text = if self.isa.has_bulk_copies() { TRY_WAIT } else { TEST_WAIT };
        self.effect(Asm::effect(text).input(self.mbarrier(mbarrier)?).input(self.int(parity)?))
    }

    /// Without a copy engine there is no other proxy to make the mbarriers visible to.
    pub(super) fn fence_init(&self) -> Result<()> {
        if !self.isa.has_bulk_copies() {
            return Ok(());
        }
        self.effect(Asm::effect("fence.mbarrier_init.release.cluster;"))
    }

    pub(super) fn fence_async(&self) -> Result<()> {
        self.effect(Asm::effect("fence.proxy.async.shared::cta;"))
    }

    /// Copies of the engine count as accesses of another kind, which take part in the order only by a fence of their own.
    pub(super) fn fence_device(&self) -> Result<()> {
        let async_copies = if self.isa.has_bulk_copies() { "fence.proxy.async.global;\n\t" } else { "" };
        self.effect(Asm::effect(format!("{async_copies}fence.acq_rel.gpu;")))
    }

    pub(super) fn bulk_load(
        &self,
        to: SharedId,
        to_index: Operand,
        from: ParamId,
        from_index: Operand,
        count: Operand,
        mbarrier: &Mbarrier,
    ) -> Result<()> {
        let asm = Asm::effect(BULK_LOAD)
            .input(self.whole_address(Memory::Shared(to), to_index)?)
            .input(self.whole_address(Memory::Global(from), from_index)?)
            .input(self.byte_count(Memory::Shared(to), count)?)
            .input(self.mbarrier(mbarrier)?);
        self.effect(asm)
    }

    pub(super) fn bulk_store(
        &self,
        to: ParamId,
        to_index: Operand,
        from: SharedId,
        from_index: Operand,
        count: Operand,
        adds: bool,
    ) -> Result<()> {
        let (operation, kind) = if adds { (".reduce", ".add.f32") } else { ("", "") };
        let text = format!(
            "cp{operation}.async.bulk.global.shared::cta.bulk_group{kind} [$0], [$1], $2;\n\tcp.async.bulk.commit_group;"
        );
        let asm = Asm::effect(text)
            .input(self.whole_address(Memory::Global(to), to_index)?)
            .input(self.whole_address(Memory::Shared(from), from_index)?)
            .input(self.byte_count(Memory::Shared(from), count)?);
        self.effect(asm)
    }

    fn byte_count(&self, memory: Memory, count: Operand) -> Result<IntValue<'c>> {
        let bytes = self.words(memory, 1)?.bytes();
        Ok(self.builder.build_int_mul(self.int(count)?, self.i32(bytes as u32), "")?)
    }

    pub(super) fn bulk_wait(&self, pending: u32, read: bool) -> Result<()> {
        let read = if read { ".read" } else { "" };
        self.effect(Asm::effect(format!("cp.async.bulk.wait_group{read} {pending};")))
    }

    /// Where the guard is false no byte is read and all bytes are zero.
    pub(super) fn copy_async(
        &self,
        to: SharedId,
        to_index: Operand,
        from: ParamId,
        from_index: Operand,
        elements: u32,
        guard: Option<Operand>,
    ) -> Result<()> {
        let bytes = elements * self.words(Memory::Shared(to), 1)?.bytes() as u32;
        if !matches!(bytes, 4 | 8 | 16) {
            return Err(CompileError::Lowering(format!("an asynchronous copy of {bytes} bytes")));
        }
        let cache = if bytes == 16 { "cg" } else { "ca" };
        let size = if guard.is_some() { ", $2" } else { "" };
        let text = format!("cp.async.{cache}.shared.global [$0], [$1], {bytes}{size};");
        let mut asm = Asm::effect(text)
            .input(self.whole_address(Memory::Shared(to), to_index)?)
            .input(self.whole_address(Memory::Global(from), from_index)?);
        if let Some(guard) = guard {
            let pair = [self.i32(bytes), self.i32(0)];
            asm = asm.input(self.choose(IntPredicate::NE, [self.int(guard)?, self.truth(false)], pair)?);
        }
        self.effect(asm)
    }

    pub(super) fn copy_async_arrive(&self, mbarrier: &Mbarrier) -> Result<()> {
        let text = "cp.async.mbarrier.arrive.noinc.shared.b64 [$0];";
        self.effect(Asm::effect(text).input(self.mbarrier(mbarrier)?))
    }
}

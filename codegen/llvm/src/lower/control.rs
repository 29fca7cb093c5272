//! Structured control flow as basic blocks.

use super::{Lower, Result};
use crate::CompileError;
use inkwell::IntPredicate;
use inkwell::basic_block::BasicBlock;
use inkwell::values::IntValue;
use oplus_codegen::tile::{Operand, Reg, Stmt};

impl<'c> Lower<'c, '_> {
    pub(super) fn if_else(&mut self, condition: Operand, then: &[Stmt], otherwise: &[Stmt]) -> Result<()> {
        let (yes, join) = (self.new_block(), self.new_block());
        let no = if otherwise.is_empty() { join } else { self.new_block() };
        self.branch(self.int(condition)?, yes, no)?;
        self.builder.position_at_end(yes);
        self.block(then)?;
        self.builder.build_unconditional_branch(join)?;
        if no != join {
            self.builder.position_at_end(no);
            self.block(otherwise)?;
            self.builder.build_unconditional_branch(join)?;
        }
        self.builder.position_at_end(join);
        Ok(())
    }

    /// The test stands at the end of the body, with one more before the loop: a single branch per iteration.
    pub(super) fn counted(&mut self, var: Reg, [from, to, step]: [Operand; 3], body: &[Stmt]) -> Result<()> {
        let [from, to, step] = [self.int(from)?, self.int(to)?, self.int(step)?];
        let before = self.current_block()?;
        let (head, exit) = (self.new_block(), self.new_block());
        self.branch(self.less(from, to)?, head, exit)?;
        self.builder.position_at_end(head);
        let counter = self.builder.build_phi(from.get_type(), "")?;
        self.assign(var, counter.as_basic_value())?;
        self.block(body)?;
        let next = self.builder.build_int_add(counter.as_basic_value().into_int_value(), step, "")?;
        counter.add_incoming(&[(&from, before), (&next, self.current_block()?)]);
        self.branch(self.less(next, to)?, head, exit)?;
        self.builder.position_at_end(exit);
        Ok(())
    }

    pub(super) fn endless(&mut self, body: &[Stmt]) -> Result<()> {
        let (head, exit) = (self.new_block(), self.new_block());
        self.builder.build_unconditional_branch(head)?;
        self.builder.position_at_end(head);
        self.exits.push(exit);
        self.block(body)?;
        self.exits.pop();
        self.builder.build_unconditional_branch(head)?;
        self.builder.position_at_end(exit);
        Ok(())
    }

    pub(super) fn leave(&mut self, condition: Operand) -> Result<()> {
        let outside = || CompileError::Lowering("a Break outside of every Loop".into());
        let exit = *self.exits.last().ok_or_else(outside)?;
        let next = self.new_block();
        self.branch(self.int(condition)?, exit, next)?;
        self.builder.position_at_end(next);
        Ok(())
    }

    fn less(&self, a: IntValue<'c>, b: IntValue<'c>) -> Result<IntValue<'c>> {
        Ok(self.builder.build_int_compare(IntPredicate::SLT, a, b, "")?)
    }

    fn branch(&self, condition: IntValue<'c>, yes: BasicBlock<'c>, no: BasicBlock<'c>) -> Result<()> {
        self.builder.build_conditional_branch(condition, yes, no)?;
        Ok(())
    }

    fn new_block(&self) -> BasicBlock<'c> {
        self.context.append_basic_block(self.function, "")
    }

    pub(super) fn current_block(&self) -> Result<BasicBlock<'c>> {
        self.builder.get_insert_block().ok_or_else(|| CompileError::Llvm("no block to insert into".into()))
    }
}

//! Tile IR to LLVM IR.
//!
//! A register that is assigned once is a value; the others are stack slots, which `mem2reg` turns into values. Addresses are integers: 64-bit in global, 32-bit in
//! shared memory, converted to a pointer of their address space at each access. What LLVM has no instruction for, or
//! must not reorder, is inline PTX ([`asm`]).

mod access;
mod arith;
mod asm;
mod control;
mod convert;
mod copies;
mod function;
mod index;
mod matrix;
mod memory;
mod messages;
mod special;
mod warp;
mod warpgroup;

use crate::CompileError;
use access::Address;
use asm::Asm;
use index::Sums;
use inkwell::basic_block::BasicBlock;
use inkwell::builder::Builder;
use inkwell::context::Context;
use inkwell::module::Module;
use inkwell::types::BasicTypeEnum;
use inkwell::values::{BasicValueEnum, FloatValue, FunctionValue, IntValue, PointerValue};
use oplus_codegen::target::Isa;
use oplus_codegen::tile::{Kernel, Operand, ParamId, Reg, Special, Stmt};
use oplus_dsl::Ty;
use oplus_dsl::ir::Literal;
use std::cell::RefCell;
use std::collections::HashMap;

type Result<T> = std::result::Result<T, CompileError>;

/// When the blocks of a launch may begin.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    /// When the launches ahead of it on its stream have ended.
    InOrder,
    /// Before that: the kernel waits itself.
    Early,
}

/// A module with the kernel as its only definition.
pub(crate) fn lower<'c>(context: &'c Context, kernel: &Kernel, isa: Isa, start: Start) -> Result<Module<'c>> {
    let mut lower = Lower::new(context, kernel, isa)?;
    if start == Start::Early {
        Asm::effect("griddepcontrol.wait;").emit(&lower)?;
    }
    lower.block(&kernel.body)?;
    lower.finish()
}

/// A kernel being lowered: the insertion point is where the next statement goes.
struct Lower<'c, 'k> {
    kernel: &'k Kernel,
    isa: Isa,
    context: &'c Context,
    module: Module<'c>,
    builder: Builder<'c>,
    function: FunctionValue<'c>,
    /// Slots, built-in numbers and the shared base live here; it runs before everything else.
    entry: BasicBlock<'c>,
    body: BasicBlock<'c>,
    registers: Vec<Register<'c>>,
    specials: HashMap<Special, IntValue<'c>>,
    /// Address of the block's shared memory, 32 bits.
    shared: IntValue<'c>,
    /// The policy that asks the L2 cache to keep what is read, 64 bits; in kernels that want it.
    keep: Option<IntValue<'c>>,
    /// Byte offset of every shared array.
    offsets: Vec<u32>,
    /// Indices as sums of registers.
    sums: Sums,
    /// Addresses in global memory that basic blocks have found, where a kernel asks for chains of them.
    addresses: RefCell<HashMap<(ParamId, Reg, BasicBlock<'c>), Address<'c>>>,
    /// Where `Break` goes, innermost loop last.
    exits: Vec<BasicBlock<'c>>,
}

/// Where a register is.
#[derive(Clone, Copy)]
enum Register<'c> {
    /// Assigned once, not yet.
    Unassigned,
    /// Assigned once.
    Value(BasicValueEnum<'c>),
    /// Assigned more than once.
    Slot(PointerValue<'c>),
}

impl<'c> Lower<'c, '_> {
    /// Statements, in order.
    fn block(&mut self, statements: &[Stmt]) -> Result<()> {
        statements.iter().try_for_each(|s| self.statement(s))
    }

    /// One statement.
    fn statement(&mut self, statement: &Stmt) -> Result<()> {
        match statement {
            Stmt::Let(dst, expr) => {
                let value = self.expr(expr, self.kernel.regs[dst.0 as usize])?;
                self.assign(*dst, value)
            }
            Stmt::If { condition, then, otherwise } => self.if_else(*condition, then, otherwise),
            Stmt::For { var, from, to, step, body } => self.counted(*var, [*from, *to, *step], body),
            Stmt::Loop(body) => self.endless(body),
            Stmt::Break(condition) => self.leave(*condition),
            Stmt::Load { dst, memory, index, guard, otherwise } => self.load(dst, *memory, *index, *guard, *otherwise),
            Stmt::Store { memory, index, values, guard } => self.store(*memory, *index, values, *guard),
            Stmt::Shuffle { dst, value, mode, lane } => self.shuffle(*dst, *value, *mode, *lane),
            Stmt::All { dst, condition } => self.all(*dst, *condition),
            Stmt::LoadMatrix { dst, array, index, transposed } => self.load_matrix(dst, *array, *index, *transposed),
            Stmt::StoreMatrix { values, array, index, transposed } => {
                self.store_matrix(values, *array, *index, *transposed)
            }
            Stmt::Mma { elem, dst, a, b, c } => self.mma(*elem, dst, a, b, c),
            Stmt::WarpgroupMma { elem, sums, clear, steps, transposed } => {
                self.warpgroup_mma(*elem, sums, *clear, steps, *transposed)
            }
            Stmt::WarpgroupWait { pending, sums } => self.warpgroup_wait(*pending, sums),
            Stmt::SyncWarp => self.sync_warp(),
            Stmt::SetMaxRegisters { count, more } => self.set_max_registers(*count, *more),
            Stmt::Barrier { id, threads } => self.barrier(*id, *threads),
            Stmt::MbarrierInit(mbarrier, count) => self.mbarrier_init(mbarrier, *count),
            Stmt::FenceInit => self.fence_init(),
            Stmt::MbarrierArrive(mbarrier) => self.mbarrier_arrive(mbarrier),
            Stmt::MbarrierExpect(mbarrier, bytes) => self.mbarrier_expect(mbarrier, *bytes),
            Stmt::MbarrierWait(mbarrier, parity) => self.mbarrier_wait(mbarrier, *parity),
            Stmt::BulkLoad { to, to_index, from, from_index, count, mbarrier } => {
                self.bulk_load(*to, *to_index, *from, *from_index, *count, mbarrier)
            }
            Stmt::BulkStore { to, to_index, from, from_index, count, adds } => {
                self.bulk_store(*to, *to_index, *from, *from_index, *count, *adds)
            }
            Stmt::BulkWait { pending, read } => self.bulk_wait(*pending, *read),
            Stmt::FenceAsync => self.fence_async(),
            Stmt::FenceDevice => self.fence_device(),
            Stmt::CopyAsync { to, to_index, from, from_index, elements, guard } => {
                self.copy_async(*to, *to_index, *from, *from_index, *elements, *guard)
            }
            Stmt::CopyAsyncArrive(mbarrier) => self.copy_async_arrive(mbarrier),
            Stmt::DrawTicket { ticket, tag, control } => self.draw_ticket(*ticket, *tag, *control),
            Stmt::ResetTickets { control, tag } => self.reset_tickets(*control, *tag),
            Stmt::Publish { messages, index, values, tag, guard } => {
                self.publish(*messages, *index, values, *tag, *guard)
            }
            Stmt::Poll { messages, entries, tag } => entries.iter().try_for_each(|e| self.poll(*messages, e, *tag)),
        }
    }

    /// The LLVM type of a value.
    fn ty(&self, ty: Ty) -> BasicTypeEnum<'c> {
        match ty {
            Ty::F64 => self.context.f64_type().into(),
            Ty::F32 => self.context.f32_type().into(),
            Ty::I64 | Ty::U64 => self.context.i64_type().into(),
            Ty::Bool => self.context.bool_type().into(),
            Ty::I32 | Ty::U32 | Ty::Call | Ty::Wide | Ty::Tuple => self.context.i32_type().into(),
        }
    }

    /// The value of an operand.
    fn value(&self, operand: Operand) -> Result<BasicValueEnum<'c>> {
        match operand {
            Operand::Reg(r) => match self.registers[r.0 as usize] {
                Register::Value(value) => Ok(value),
                Register::Slot(slot) => Ok(self.builder.build_load(self.ty(self.kernel.ty(operand)), slot, "")?),
                Register::Unassigned => Err(CompileError::Lowering(format!("register {} is read first", r.0))),
            },
            Operand::Const(ty, literal) => Ok(self.constant(ty, literal)),
        }
    }

    /// The value of an integer or boolean operand.
    fn int(&self, operand: Operand) -> Result<IntValue<'c>> {
        match self.value(operand)? {
            BasicValueEnum::IntValue(value) => Ok(value),
            _ => Err(CompileError::Lowering(format!("{operand:?} is not an integer"))),
        }
    }

    /// The value of a floating-point operand.
    fn float(&self, operand: Operand) -> Result<FloatValue<'c>> {
        match self.value(operand)? {
            BasicValueEnum::FloatValue(value) => Ok(value),
            _ => Err(CompileError::Lowering(format!("{operand:?} is not a float"))),
        }
    }

    /// A constant of a type.
    fn constant(&self, ty: Ty, literal: Literal) -> BasicValueEnum<'c> {
        match self.ty(ty) {
            BasicTypeEnum::FloatType(t) if ty == Ty::F32 => t.const_float(f64::from(literal.as_f64() as f32)).into(),
            BasicTypeEnum::FloatType(t) => t.const_float(literal.as_f64()).into(),
            _ if ty == Ty::Bool => self.truth(literal.as_f64() != 0.0).into(),
            other => {
                let value = if let Literal::Int(v) = literal { v } else { literal.as_f64() as i64 };
                other.into_int_type().const_int(value as u64, true).into()
            }
        }
    }

    fn truth(&self, value: bool) -> IntValue<'c> {
        self.context.bool_type().const_int(u64::from(value), false)
    }

    fn i32(&self, value: u32) -> IntValue<'c> {
        self.context.i32_type().const_int(u64::from(value), false)
    }

    /// Assigns a register.
    fn assign(&mut self, dst: Reg, value: impl Into<BasicValueEnum<'c>>) -> Result<()> {
        let register = &mut self.registers[dst.0 as usize];
        if let Register::Slot(slot) = *register {
            self.builder.build_store(slot, value.into())?;
        } else {
            *register = Register::Value(value.into());
        }
        Ok(())
    }

    /// The argument that the launch passes for a parameter; 64 bits for pointers.
    fn param(&self, param: ParamId) -> Result<BasicValueEnum<'c>> {
        let missing = || CompileError::Lowering(format!("there is no parameter {}", param.0));
        self.function.get_nth_param(param.0).ok_or_else(missing)
    }
}

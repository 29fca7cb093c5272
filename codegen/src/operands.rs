//! Operands: making them, and what a statement reads and assigns.

use oplus_dsl::Ty;
use oplus_dsl::ir::Literal;

use crate::tile::{Expr, Left, Mbarrier, Operand, Reg, Stmt};

impl From<Reg> for Operand {
    fn from(reg: Reg) -> Operand {
        Operand::Reg(reg)
    }
}

impl Operand {
    /// An `i32` constant.
    pub const fn i32(x: i32) -> Operand {
        Operand::Const(Ty::I32, Literal::Int(x as i64))
    }

    /// An `i64` constant.
    pub const fn i64(x: i64) -> Operand {
        Operand::Const(Ty::I64, Literal::Int(x))
    }

    /// A `u32` constant.
    pub fn u32(x: u32) -> Operand {
        Operand::Const(Ty::U32, Literal::Int(i64::from(x)))
    }

    /// A `bool` constant.
    pub fn bool(x: bool) -> Operand {
        Operand::Const(Ty::Bool, Literal::Bool(x))
    }
}

impl Stmt {
    /// Visits the operands that the statement reads, without those of the statements inside it.
    pub fn for_each_use(&self, mut f: impl FnMut(Operand)) {
        let at = |mbarrier: &Mbarrier| mbarrier.index;
        match self {
            Stmt::Let(_, expr) => expr.for_each_use(f),
            Stmt::If { condition, .. } | Stmt::Break(condition) | Stmt::All { condition, .. } => f(*condition),
            Stmt::For { from, to, step, .. } => [*from, *to, *step].into_iter().for_each(f),
            Stmt::Load { index, guard, otherwise, .. } => [*index, *otherwise].into_iter().chain(*guard).for_each(f),
            Stmt::Store { index, values, guard, .. } => values.iter().chain(guard).chain([index]).for_each(|x| f(*x)),
            Stmt::Shuffle { value, lane, .. } => [*value, *lane].into_iter().for_each(f),
            Stmt::LoadMatrix { index, .. } => f(*index),
            Stmt::StoreMatrix { values, index, .. } => values.iter().chain([index]).for_each(|x| f(*x)),
            Stmt::WarpgroupMma { sums, clear, steps, .. } => {
                sums.iter().filter(|_| !clear).for_each(|r| f((*r).into()));
                for (left, right) in steps {
                    match left {
                        Left::Registers(registers) => registers.iter().for_each(|x| f(*x)),
                        Left::Shared(panels) => f(panels.index),
                    }
                    f(right.index);
                }
            }
            Stmt::WarpgroupWait { sums, .. } => sums.iter().for_each(|r| f((*r).into())),
            Stmt::Mma { a, b, c, .. } => a.iter().chain(b).chain(c).for_each(|x| f(*x)),
            Stmt::MbarrierInit(m, _) | Stmt::MbarrierArrive(m) | Stmt::CopyAsyncArrive(m) => f(at(m)),
            Stmt::MbarrierExpect(m, x) | Stmt::MbarrierWait(m, x) => [at(m), *x].into_iter().for_each(f),
            Stmt::BulkLoad { to_index, from_index, count, mbarrier, .. } => {
                [*to_index, *from_index, *count, at(mbarrier)].into_iter().for_each(f);
            }
            Stmt::BulkStore { to_index, from_index, count, .. } => {
                [*to_index, *from_index, *count].into_iter().for_each(f);
            }
            Stmt::CopyAsync { to_index, from_index, guard, .. } => {
                [*to_index, *from_index].into_iter().chain(*guard).for_each(f);
            }
            Stmt::ResetTickets { tag, .. } => f(*tag),
            Stmt::Publish { index, values, tag, guard, .. } => {
                values.iter().chain(guard).chain([index, tag]).for_each(|x| f(*x));
            }
            Stmt::Poll { entries, tag, .. } => {
                f(*tag);
                for entry in entries {
                    f(entry.index);
                    entry.values.iter().chain(&entry.tags).for_each(|r| f((*r).into()));
                }
            }
            Stmt::Loop(_)
            | Stmt::SyncWarp
            | Stmt::SetMaxRegisters { .. }
            | Stmt::Barrier { .. }
            | Stmt::FenceInit
            | Stmt::FenceAsync
            | Stmt::FenceDevice
            | Stmt::BulkWait { .. }
            | Stmt::DrawTicket { .. } => {}
        }
    }

    /// Rounds the constants of type `f32`, without those of the statements inside it.
    pub fn round_constants(&mut self) {
        self.for_each_operand(|operand| {
            if let Operand::Const(Ty::F32, Literal::Float(x)) = operand {
                *x = f64::from(*x as f32);
            }
        });
    }

    /// Visits the operands, registers that are also assigned left out, without those of the statements inside it.
    fn for_each_operand(&mut self, mut f: impl FnMut(&mut Operand)) {
        match self {
            Stmt::Let(_, expr) => expr.for_each_operand(f),
            Stmt::If { condition, .. } | Stmt::Break(condition) | Stmt::All { condition, .. } => f(condition),
            Stmt::For { from, to, step, .. } => [from, to, step].into_iter().for_each(f),
            Stmt::Load { index, guard, otherwise, .. } => [index, otherwise].into_iter().chain(guard).for_each(f),
            Stmt::Store { index, values, guard, .. } => values.iter_mut().chain(guard).chain([index]).for_each(f),
            Stmt::Shuffle { value, lane, .. } => [value, lane].into_iter().for_each(f),
            Stmt::LoadMatrix { index, .. } => f(index),
            Stmt::StoreMatrix { values, index, .. } => values.iter_mut().chain([index]).for_each(f),
            Stmt::WarpgroupMma { steps, .. } => {
                for (left, right) in steps {
                    match left {
                        Left::Registers(registers) => registers.iter_mut().for_each(&mut f),
                        Left::Shared(panels) => f(&mut panels.index),
                    }
                    f(&mut right.index);
                }
            }
            Stmt::Mma { a, b, c, .. } => a.iter_mut().chain(b).chain(c).for_each(f),
            Stmt::MbarrierInit(m, _) | Stmt::MbarrierArrive(m) | Stmt::CopyAsyncArrive(m) => f(&mut m.index),
            Stmt::MbarrierExpect(m, x) | Stmt::MbarrierWait(m, x) => [&mut m.index, x].into_iter().for_each(f),
            Stmt::BulkLoad { to_index, from_index, count, mbarrier, .. } => {
                [to_index, from_index, count, &mut mbarrier.index].into_iter().for_each(f);
            }
            Stmt::BulkStore { to_index, from_index, count, .. } => {
                [to_index, from_index, count].into_iter().for_each(f);
            }
            Stmt::CopyAsync { to_index, from_index, guard, .. } => {
                [to_index, from_index].into_iter().chain(guard).for_each(f);
            }
            Stmt::ResetTickets { tag, .. } => f(tag),
            Stmt::Publish { index, values, tag, guard, .. } => {
                values.iter_mut().chain(guard).chain([index, tag]).for_each(f);
            }
            Stmt::Poll { entries, tag, .. } => entries.iter_mut().map(|e| &mut e.index).chain([tag]).for_each(f),
            _ => {}
        }
    }

    /// Visits the registers that a statement other than control flow assigns.
    pub fn for_each_definition(&self, mut f: impl FnMut(Reg)) {
        match self {
            Stmt::Let(dst, _) | Stmt::Shuffle { dst, .. } | Stmt::All { dst, .. } => f(*dst),
            Stmt::DrawTicket { ticket, tag, .. } => [*ticket, *tag].into_iter().for_each(f),
            Stmt::Load { dst, .. } | Stmt::LoadMatrix { dst, .. } => dst.iter().for_each(|r| f(*r)),
            Stmt::Mma { dst, .. } => dst.iter().for_each(|r| f(*r)),
            Stmt::WarpgroupMma { sums, .. } | Stmt::WarpgroupWait { sums, .. } => sums.iter().for_each(|r| f(*r)),
            Stmt::Poll { entries, .. } => {
                entries.iter().flat_map(|e| e.values.iter().chain(&e.tags)).for_each(|r| f(*r));
            }
            _ => {}
        }
    }
}

impl Expr {
    /// Visits the operands.
    pub fn for_each_use(&self, mut f: impl FnMut(Operand)) {
        let mut own = *self;
        own.for_each_operand(|operand| f(*operand));
    }

    fn for_each_operand(&mut self, mut f: impl FnMut(&mut Operand)) {
        match self {
            Expr::Copy(a)
            | Expr::Unary(_, a)
            | Expr::Convert(_, a)
            | Expr::Bits(a)
            | Expr::Exp2Fast(a)
            | Expr::Log2Fast(a)
            | Expr::TanhFast(a)
            | Expr::RecipFast(a)
            | Expr::Unpack(_, _, a) => f(a),
            Expr::Binary(_, a, b) | Expr::Pack(_, a, b) => [a, b].into_iter().for_each(f),
            Expr::Fma(a, b, c) | Expr::Select(a, b, c) => [a, b, c].into_iter().for_each(f),
            Expr::Param(_) | Expr::Special(_) => {}
        }
    }
}

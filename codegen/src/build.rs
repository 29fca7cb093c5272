//! A builder of tile kernels: registers are made as values are computed, nested statements by closures.
//!
//! Integer and boolean constants are folded while building, so that schedules can be written for general parameters
//! and leave no trace of those that are zero or one.

mod fragment;
mod number;
mod shared;

pub use fragment::{PIECE, swizzle};
pub use number::IntoOperand;

use crate::target::WARP;
use crate::tile::{Expr, Kernel, Memory, Operand, Param, ParamId, ParamKind, Reg, SharedId};
use crate::tile::{Mbarrier, Shuffle, Special, Stmt};
use oplus_dsl::ir::{Binary, Literal, Unary};
use oplus_dsl::{Elem, Ty};

/// A kernel under construction.
pub struct Builder {
    kernel: Kernel,
    blocks: Vec<Vec<Stmt>>,
    /// Shared arrays whose memory the next ones may take.
    reusable: Vec<usize>,
}

impl Builder {
    /// An empty kernel of that symbol and number of threads per block.
    pub fn new(name: impl Into<String>, threads: u32) -> Builder {
        let kernel = Kernel {
            name: name.into(),
            params: vec![],
            threads,
            blocks_per_sm: 1,
            keep_reads: false,
            chain_addresses: false,
            shared: vec![],
            regs: vec![],
            body: vec![],
        };
        Builder { kernel, blocks: vec![vec![]], reusable: vec![] }
    }

    /// The shared memory of what is declared, in bytes.
    pub fn shared_bytes_of(declare: impl FnOnce(&mut Builder)) -> u32 {
        let mut b = Builder::new("", WARP);
        declare(&mut b);
        b.finish().shared_layout().1
    }

    /// The finished kernel.
    pub fn finish(mut self) -> Kernel {
        self.kernel.body = self.blocks.pop().unwrap_or_default();
        self.kernel
    }

    /// Bounds the registers so that this many blocks fit a multiprocessor.
    pub fn blocks_per_sm(&mut self, blocks: u32) {
        self.kernel.blocks_per_sm = blocks;
    }

    /// Asks the L2 cache to keep what is read rather than what is written.
    pub fn keep_reads(&mut self) {
        self.kernel.keep_reads = true;
    }

    /// Lets the address of an index that is a sum be found from that of its first operand.
    pub fn chain_addresses(&mut self) {
        self.kernel.chain_addresses = true;
    }

    // ---- declarations

    /// Declares the next kernel parameter.
    pub fn param(&mut self, name: impl Into<String>, kind: ParamKind) -> ParamId {
        self.kernel.params.push(Param { name: name.into(), kind });
        ParamId(self.kernel.params.len() as u32 - 1)
    }

    /// A register that will be assigned later.
    pub fn reg(&mut self, ty: Ty) -> Reg {
        self.kernel.regs.push(ty);
        Reg(self.kernel.regs.len() as u32 - 1)
    }

    /// A register that starts as a value and may be assigned again.
    pub fn var(&mut self, value: Operand) -> Reg {
        let reg = self.reg(self.ty(value));
        self.assign(reg, value);
        reg
    }

    /// Registers that start as values and may be assigned again.
    pub fn vars(&mut self, values: &[Operand]) -> Vec<Reg> {
        values.iter().map(|value| self.var(*value)).collect()
    }

    /// The type of an operand.
    pub fn ty(&self, operand: Operand) -> Ty {
        self.kernel.ty(operand)
    }

    /// The element type behind a memory; `u32` for what has none.
    pub fn elem(&self, memory: Memory) -> Elem {
        self.kernel.elem(memory).unwrap_or(Elem::U32)
    }

    // ---- computations

    /// Appends a statement. Its constants of type `f32` are rounded.
    pub fn push(&mut self, mut stmt: Stmt) {
        stmt.round_constants();
        self.blocks.last_mut().expect("a builder always has an open block").push(stmt);
    }

    /// The value of a computation, in a new register.
    pub fn let_(&mut self, ty: Ty, expr: Expr) -> Operand {
        let reg = self.reg(ty);
        self.push(Stmt::Let(reg, expr));
        reg.into()
    }

    /// Assigns a register.
    pub fn assign(&mut self, reg: Reg, value: Operand) {
        if Operand::Reg(reg) != value {
            self.push(Stmt::Let(reg, Expr::Copy(value)));
        }
    }

    /// A scalar parameter's value.
    pub fn scalar(&mut self, param: ParamId) -> Operand {
        let ty = match self.kernel.params[param.0 as usize].kind {
            ParamKind::Scalar(ty) => ty,
            _ => Ty::I64,
        };
        self.let_(ty, Expr::Param(param))
    }

    /// A built-in number, `i32`.
    pub fn special(&mut self, special: Special) -> Operand {
        self.let_(Ty::I32, Expr::Special(special))
    }

    /// A function of one value.
    pub fn unary(&mut self, op: Unary, x: Operand) -> Operand {
        if let (Unary::Not, Operand::Const(Ty::Bool, Literal::Bool(v))) = (op, x) {
            return Operand::bool(!v);
        }
        self.let_(self.ty(x), Expr::Unary(op, x))
    }

    /// A function of two values of one type.
    pub fn binary(&mut self, op: Binary, a: Operand, b: impl IntoOperand) -> Operand {
        let b = b.into_operand(self.ty(a));
        if let Some(folded) = fold(op, a, b) {
            return folded;
        }
        let ty = if op.is_comparison() { Ty::Bool } else { self.ty(a) };
        self.let_(ty, Expr::Binary(op, a, b))
    }

    /// a + b.
    pub fn add(&mut self, a: Operand, b: impl IntoOperand) -> Operand {
        self.binary(Binary::Add, a, b)
    }

    /// a − b.
    pub fn sub(&mut self, a: Operand, b: impl IntoOperand) -> Operand {
        self.binary(Binary::Sub, a, b)
    }

    /// a·b.
    pub fn mul(&mut self, a: Operand, b: impl IntoOperand) -> Operand {
        self.binary(Binary::Mul, a, b)
    }

    /// a < b.
    pub fn lt(&mut self, a: Operand, b: impl IntoOperand) -> Operand {
        self.binary(Binary::Lt, a, b)
    }

    /// a ≥ b.
    pub fn ge(&mut self, a: Operand, b: impl IntoOperand) -> Operand {
        self.binary(Binary::Ge, a, b)
    }

    /// a = b.
    pub fn eq(&mut self, a: Operand, b: impl IntoOperand) -> Operand {
        self.binary(Binary::Eq, a, b)
    }

    /// a ≠ b.
    pub fn ne(&mut self, a: Operand, b: impl IntoOperand) -> Operand {
        self.binary(Binary::Ne, a, b)
    }

    /// a ∧ b.
    pub fn and(&mut self, a: Operand, b: Operand) -> Operand {
        self.binary(Binary::And, a, b)
    }

    /// Whether 0 ≤ a < b.
    pub fn is_within(&mut self, a: Operand, b: impl IntoOperand) -> Operand {
        let above = self.ge(a, 0);
        let below = self.lt(a, b);
        self.and(above, below)
    }

    /// Quotient and remainder.
    pub fn div_rem(&mut self, a: Operand, b: impl IntoOperand + Copy) -> [Operand; 2] {
        [Binary::Div, Binary::Rem].map(|op| self.binary(op, a, b))
    }

    /// a / b, rounded up.
    pub fn div_ceil(&mut self, a: Operand, b: impl Into<i64>) -> Operand {
        let b = b.into();
        let up = self.add(a, b - 1);
        self.binary(Binary::Div, up, b)
    }

    /// `if c { a } else { b }`.
    pub fn select(&mut self, c: Operand, a: Operand, b: Operand) -> Operand {
        match c {
            Operand::Const(_, Literal::Bool(true)) => a,
            Operand::Const(_, Literal::Bool(false)) => b,
            _ if a == b => a,
            _ => self.let_(self.ty(a), Expr::Select(c, a, b)),
        }
    }

    /// a·b + c, rounded once.
    pub fn fma(&mut self, a: Operand, b: Operand, c: Operand) -> Operand {
        self.let_(self.ty(a), Expr::Fma(a, b, c))
    }

    /// Conversion to a type.
    pub fn convert(&mut self, ty: Ty, x: Operand) -> Operand {
        match x {
            _ if self.ty(x) == ty => x,
            Operand::Const(from, Literal::Int(v)) if from.is_int() && ty.is_int() => {
                Operand::Const(ty, Literal::Int(v))
            }
            _ => self.let_(ty, Expr::Convert(ty.elem().unwrap_or(Elem::U32), x)),
        }
    }

    /// Reinterprets the bits as another type of the same size.
    pub fn bits(&mut self, ty: Ty, x: Operand) -> Operand {
        if self.ty(x) == ty { x } else { self.let_(ty, Expr::Bits(x)) }
    }

    // ---- control flow

    fn nested(&mut self, body: impl FnOnce(&mut Builder)) -> Vec<Stmt> {
        self.blocks.push(vec![]);
        body(self);
        self.blocks.pop().unwrap_or_default()
    }

    /// Statements executed where the condition is true.
    pub fn if_(&mut self, condition: Operand, then: impl FnOnce(&mut Builder)) {
        self.if_else(condition, then, |_| {});
    }

    /// Two-way branch.
    pub fn if_else(
        &mut self,
        condition: Operand,
        then: impl FnOnce(&mut Builder),
        otherwise: impl FnOnce(&mut Builder),
    ) {
        match condition {
            Operand::Const(_, Literal::Bool(true)) => then(self),
            Operand::Const(_, Literal::Bool(false)) => otherwise(self),
            _ => {
                let (then, otherwise) = (self.nested(then), self.nested(otherwise));
                self.push(Stmt::If { condition, then, otherwise });
            }
        }
    }

    /// A counted loop; the body gets the loop variable.
    pub fn for_(
        &mut self,
        from: Operand,
        to: impl IntoOperand,
        step: impl IntoOperand,
        body: impl FnOnce(&mut Builder, Operand),
    ) {
        let ty = self.ty(from);
        let (var, to, step) = (self.reg(ty), to.into_operand(ty), step.into_operand(ty));
        let body = self.nested(|b| body(b, var.into()));
        self.push(Stmt::For { var, from, to, step, body });
    }

    /// An endless loop, left by [`Builder::break_if`].
    pub fn loop_(&mut self, body: impl FnOnce(&mut Builder)) {
        let body = self.nested(body);
        self.push(Stmt::Loop(body));
    }

    /// Leaves the innermost loop where the condition is true.
    pub fn break_if(&mut self, condition: Operand) {
        if condition != Operand::bool(false) {
            self.push(Stmt::Break(condition));
        }
    }

    // ---- memory

    /// Loads `n` consecutive elements where the guard is true, `otherwise` elsewhere.
    pub fn load(
        &mut self,
        memory: Memory,
        index: Operand,
        n: u32,
        guard: Option<Operand>,
        otherwise: Operand,
    ) -> Vec<Operand> {
        let ty = self.elem(memory).value();
        let dst: Vec<Reg> = (0..n).map(|_| self.reg(ty)).collect();
        let values = dst.iter().map(|r| Operand::Reg(*r)).collect();
        let guard = guard.filter(|g| *g != Operand::bool(true));
        self.push(Stmt::Load { dst, memory, index, guard, otherwise });
        values
    }

    /// Loads consecutive elements of 16 bits as `n` packed pairs.
    pub fn load_pairs(&mut self, memory: Memory, index: Operand, n: u32) -> Vec<Operand> {
        let dst: Vec<Reg> = (0..n).map(|_| self.reg(Ty::U32)).collect();
        let pairs = operands(&dst);
        self.push(Stmt::Load { dst, memory, index, guard: None, otherwise: zero(Ty::U32) });
        pairs
    }

    /// Loads one element.
    pub fn load1(&mut self, memory: Memory, index: Operand) -> Operand {
        let zero = zero(self.elem(memory).value());
        self.load(memory, index, 1, None, zero)[0]
    }

    /// Stores consecutive elements where the guard is true.
    pub fn store(&mut self, memory: Memory, index: Operand, values: &[Operand], guard: Option<Operand>) {
        let guard = guard.filter(|g| *g != Operand::bool(true));
        self.push(Stmt::Store { memory, index, values: values.to_vec(), guard });
    }

    // ---- warps and barriers

    /// Each lane's value of another lane.
    pub fn shuffle(&mut self, mode: Shuffle, value: Operand, lane: Operand) -> Operand {
        let dst = self.reg(self.ty(value));
        self.push(Stmt::Shuffle { dst, value, mode, lane });
        dst.into()
    }

    /// Whether the condition holds in all lanes.
    pub fn all(&mut self, condition: Operand) -> Operand {
        let dst = self.reg(Ty::Bool);
        self.push(Stmt::All { dst, condition });
        dst.into()
    }

    /// Waits for all threads of the block.
    pub fn barrier(&mut self) {
        let threads = self.kernel.threads;
        self.push(Stmt::Barrier { id: 0, threads });
    }

    /// An mbarrier of an array.
    pub fn mbarrier(&self, array: SharedId, index: Operand) -> Mbarrier {
        Mbarrier { array, index }
    }
}

/// The values of registers.
pub fn operands(regs: &[Reg]) -> Vec<Operand> {
    regs.iter().map(|reg| Operand::Reg(*reg)).collect()
}

/// A number of type `f32`.
pub fn f32(x: f64) -> Operand {
    Operand::Const(Ty::F32, Literal::Float(x))
}

/// Zero of a type.
pub fn zero(ty: Ty) -> Operand {
    Operand::Const(ty, Literal::zero(ty))
}

/// The value of an integer or boolean operation that needs no instruction.
fn fold(op: Binary, a: Operand, b: Operand) -> Option<Operand> {
    use Binary::{Add, And, Div, Eq, Ge, Lt, Mul, Ne, Or, Rem, Sub};
    let int = |x: Operand| match x {
        Operand::Const(ty, Literal::Int(v)) if ty.is_int() => Some((ty, v)),
        _ => None,
    };
    let truth = |x: Operand| match x {
        Operand::Const(Ty::Bool, Literal::Bool(v)) => Some(v),
        _ => None,
    };
    match (op, truth(a), truth(b)) {
        (And, Some(true), _) | (Or, Some(false), _) => return Some(b),
        (And, _, Some(true)) | (Or, _, Some(false)) => return Some(a),
        (And, Some(false), _) | (And, _, Some(false)) => return Some(Operand::bool(false)),
        (Or, Some(true), _) | (Or, _, Some(true)) => return Some(Operand::bool(true)),
        _ => {}
    }
    match (op, int(a), int(b)) {
        (_, Some((ty, x)), Some((_, y))) if matches!(ty, Ty::I32 | Ty::I64) => {
            let number = |v: i64| Some(Operand::Const(ty, Literal::Int(v)));
            match op {
                Add => number(x + y),
                Sub => number(x - y),
                Mul => number(x * y),
                Div if y != 0 => number(x / y),
                Rem if y != 0 => number(x % y),
                Eq => Some(Operand::bool(x == y)),
                Ne => Some(Operand::bool(x != y)),
                Lt => Some(Operand::bool(x < y)),
                Ge => Some(Operand::bool(x >= y)),
                _ => None,
            }
        }
        (Add, Some((_, 0)), _) | (Mul, Some((_, 1)), _) => Some(b),
        (Add | Sub, _, Some((_, 0))) | (Mul | Div, _, Some((_, 1))) => Some(a),
        (Mul, Some((ty, 0)), _) | (Mul, _, Some((ty, 0))) => Some(zero(ty)),
        (Rem, _, Some((ty, 1))) => Some(zero(ty)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integer_constants_leave_no_statement() {
        let mut b = Builder::new("k", 32);
        let x = b.special(Special::Thread);
        let same = b.mul(x, 1);
        let sum = b.add(Operand::i32(2), 3);
        assert_eq!((same, sum), (x, Operand::i32(5)));
        assert_eq!(b.finish().body.len(), 1);
    }

    #[test]
    fn constant_conditions_take_one_branch() {
        let mut b = Builder::new("k", 32);
        b.if_else(Operand::bool(false), |b| b.barrier(), |b| b.push(Stmt::SyncWarp));
        assert_eq!(b.finish().body, [Stmt::SyncWarp]);
    }
}

//! A kernel as a flat list of instructions: control flow by jumps, computations on numbered slots.

use std::collections::HashMap;

use oplus_dsl::Ty;

use super::lanes::{Operation, literal};
use crate::tile::path::{Path, Step};
use crate::tile::{Expr, Kernel, Operand, ParamId, Reg, Special, Stmt};

/// A register or a constant of a [`Program`].
pub(super) type Slot = usize;

/// A flattened kernel.
pub(super) struct Program<'k> {
    /// The kernel.
    pub kernel: &'k Kernel,
    /// The instructions.
    pub code: Vec<Instruction<'k>>,
    /// The statement of each instruction.
    pub paths: Vec<Path>,
    /// The values of the slots after the registers.
    pub constants: Vec<u64>,
    slots: HashMap<(Ty, u64), Slot>,
    path: Path,
}

/// One step of a warp. Jumps name instructions.
#[derive(Clone, Debug)]
pub(super) enum Instruction<'k> {
    /// A computation.
    Compute { dst: Slot, operation: Operation, args: [Slot; 3] },
    /// A kernel parameter.
    Param { dst: Slot, param: ParamId },
    /// A built-in number.
    Special { dst: Slot, special: Special },
    /// Runs the first branch with some lanes, then from `otherwise` the second one with the rest.
    If { condition: Slot, otherwise: usize },
    /// Ends the first branch.
    Else { end: usize },
    /// Ends the second branch.
    EndIf,
    /// Starts a counted loop; its test follows.
    For { ty: Ty, var: Slot, from: Slot, step: Slot },
    /// Lanes whose variable has reached the bound leave the loop.
    ForTest { ty: Ty, var: Slot, to: Slot, end: usize },
    /// The next iteration of a counted loop.
    ForNext { ty: Ty, var: Slot, step: Slot, test: usize },
    /// Starts an endless loop.
    Loop,
    /// The next iteration of an endless loop.
    LoopNext { start: usize },
    /// Lanes leave the innermost endless loop.
    Break { condition: Slot },
    /// Any other statement.
    Statement(&'k Stmt),
}

impl<'k> Program<'k> {
    /// Flattens a kernel.
    pub(super) fn new(kernel: &'k Kernel) -> Program<'k> {
        let mut program = Program {
            kernel,
            code: vec![],
            paths: vec![],
            constants: vec![],
            slots: HashMap::new(),
            path: Path::default(),
        };
        program.list(&kernel.body);
        program
    }

    /// The slot of an operand. Constants were given one when the kernel was flattened.
    pub(super) fn slot(&self, operand: Operand) -> Slot {
        match operand {
            Operand::Reg(reg) => reg.0 as usize,
            Operand::Const(ty, x) => self.slots.get(&(ty, literal(ty, x))).copied().unwrap_or(0),
        }
    }

    fn operand(&mut self, operand: Operand) -> Slot {
        if let Operand::Const(ty, x) = operand {
            let bits = literal(ty, x);
            let next = self.kernel.regs.len() + self.constants.len();
            if *self.slots.entry((ty, bits)).or_insert(next) == next {
                self.constants.push(bits);
            }
        }
        self.slot(operand)
    }

    fn emit(&mut self, instruction: Instruction<'k>) -> usize {
        self.code.push(instruction);
        self.paths.push(self.path.clone());
        self.code.len() - 1
    }

    fn list(&mut self, list: &'k [Stmt]) {
        for (i, stmt) in list.iter().enumerate() {
            self.path.push(Step::At(i as u32));
            self.statement(stmt);
            self.path.pop();
        }
    }

    fn inside(&mut self, step: Step, list: &'k [Stmt]) {
        self.path.push(step);
        self.list(list);
        self.path.pop();
    }

    fn statement(&mut self, stmt: &'k Stmt) {
        stmt.for_each_use(|operand| {
            self.operand(operand);
        });
        match stmt {
            Stmt::Let(dst, expr) => self.assignment(*dst, expr),
            Stmt::If { condition, then, otherwise } => self.branches(*condition, then, otherwise),
            Stmt::For { .. } => self.counted(stmt),
            Stmt::Loop(body) => {
                let start = self.emit(Instruction::Loop) + 1;
                self.inside(Step::Body, body);
                self.emit(Instruction::LoopNext { start });
            }
            Stmt::Break(condition) => {
                let condition = self.slot(*condition);
                self.emit(Instruction::Break { condition });
            }
            _ => {
                self.emit(Instruction::Statement(stmt));
            }
        }
    }

    fn branches(&mut self, condition: Operand, then: &'k [Stmt], otherwise: &'k [Stmt]) {
        let condition = self.slot(condition);
        let start = self.emit(Instruction::If { condition, otherwise: 0 });
        self.inside(Step::Then, then);
        let middle = self.emit(Instruction::Else { end: 0 });
        self.inside(Step::Else, otherwise);
        let end = self.emit(Instruction::EndIf);
        self.code[start] = Instruction::If { condition, otherwise: middle };
        self.code[middle] = Instruction::Else { end };
    }

    fn counted(&mut self, stmt: &'k Stmt) {
        let Stmt::For { var, from, to, step, body } = stmt else { return };
        let ty = self.kernel.regs[var.0 as usize];
        let [var, from, to, step] = [Operand::Reg(*var), *from, *to, *step].map(|x| self.slot(x));
        self.emit(Instruction::For { ty, var, from, step });
        let test = self.emit(Instruction::ForTest { ty, var, to, end: 0 });
        self.inside(Step::Body, body);
        let end = self.emit(Instruction::ForNext { ty, var, step, test }) + 1;
        self.code[test] = Instruction::ForTest { ty, var, to, end };
    }

    fn assignment(&mut self, dst: Reg, expr: &Expr) {
        let dst = dst.0 as usize;
        let ty = |x| self.kernel.ty(x);
        let (operation, args) = match *expr {
            Expr::Param(param) => {
                self.emit(Instruction::Param { dst, param });
                return;
            }
            Expr::Special(special) => {
                self.emit(Instruction::Special { dst, special });
                return;
            }
            Expr::Copy(a) | Expr::Bits(a) => (Operation::Copy, [a; 3]),
            Expr::Unary(op, a) => (Operation::Unary(op, ty(a)), [a; 3]),
            Expr::Binary(op, a, b) => (Operation::Binary(op, ty(a)), [a, b, b]),
            Expr::Fma(a, b, c) => (Operation::Fma(ty(a)), [a, b, c]),
            Expr::Select(c, a, b) => (Operation::Select, [c, a, b]),
            Expr::Convert(elem, a) => (Operation::Convert(ty(a), elem), [a; 3]),
            Expr::Pack(elem, a, b) => (Operation::Pack(elem), [a, b, b]),
            Expr::Unpack(elem, half, a) => (Operation::Unpack(elem, half), [a; 3]),
            Expr::Exp2Fast(a) => (Operation::Exp2, [a; 3]),
            Expr::Log2Fast(a) => (Operation::Log2, [a; 3]),
            Expr::TanhFast(a) => (Operation::Tanh, [a; 3]),
            Expr::RecipFast(a) => (Operation::Recip, [a; 3]),
        };
        let args = args.map(|x| self.slot(x));
        self.emit(Instruction::Compute { dst, operation, args });
    }
}

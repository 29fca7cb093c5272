//! Indices as sums.
//!
//! Schedules are unrolled, so most indices are an earlier one plus a constant. Seen as a sum of registers and one
//! constant, all accesses of a tile share an address, and the constants become offsets of the instructions.

use oplus_codegen::tile::{Expr, Kernel, Operand, Reg, Stmt};
use oplus_dsl::ir::{Binary, Literal};

/// A sum of registers and a constant, wrapping in the registers' type.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sum {
    pub(super) terms: Vec<Reg>,
    pub(super) constant: i64,
}

/// More terms than this are not worth tracking.
const MOST_TERMS: usize = 4;

/// For every register that is assigned once: the sum it is. Such a register keeps its value wherever it may be read,
/// because it is assigned on every path before.
#[derive(Default)]
pub(super) struct Sums {
    assignments: Vec<u32>,
    sums: Vec<Option<Sum>>,
    pairs: Vec<Option<[Operand; 2]>>,
}

impl Sums {
    /// The sums of a kernel.
    pub(super) fn of(kernel: &Kernel) -> Sums {
        let n = kernel.regs.len();
        let mut sums = Sums { assignments: vec![0; n], sums: vec![None; n], pairs: vec![None; n] };
        sums.count(&kernel.body);
        sums.define(&kernel.body);
        sums
    }

    /// Whether the register is assigned in one place only.
    pub(super) fn is_assigned_once(&self, reg: Reg) -> bool {
        self.assignments[reg.0 as usize] == 1
    }

    /// The operand as a sum.
    pub(super) fn sum(&self, operand: Operand) -> Sum {
        match operand {
            Operand::Const(_, Literal::Int(constant)) => Sum { terms: vec![], constant },
            Operand::Const(_, literal) => Sum { terms: vec![], constant: literal.as_f64() as i64 },
            Operand::Reg(r) => {
                let known = self.sums.get(r.0 as usize).cloned().flatten();
                known.unwrap_or(Sum { terms: vec![r], constant: 0 })
            }
        }
    }

    /// The operands of the addition that an index is, also through copies.
    pub(super) fn pair(&self, index: Reg) -> Option<[Operand; 2]> {
        self.pairs[index.0 as usize]
    }

    fn count(&mut self, block: &[Stmt]) {
        for stmt in block {
            for reg in assigned(stmt) {
                self.assignments[reg.0 as usize] += 1;
            }
            nested(stmt).into_iter().for_each(|inner| self.count(inner));
        }
    }

    /// In order of execution, so that operands are known before their sums.
    fn define(&mut self, block: &[Stmt]) {
        for stmt in block {
            if let Stmt::Let(dst, Expr::Binary(op @ (Binary::Add | Binary::Sub), a, b)) = stmt {
                self.sums[dst.0 as usize] = self.added(*dst, *op, *a, *b);
            }
            if let Stmt::Let(dst, expr) = stmt {
                self.pairs[dst.0 as usize] = self.operands(*dst, expr);
            }
            nested(stmt).into_iter().for_each(|inner| self.define(inner));
        }
    }

    /// The operands of an addition of registers that keep their values, or of what is a copy of one.
    fn operands(&self, dst: Reg, expr: &Expr) -> Option<[Operand; 2]> {
        let keeps = |x: &Operand| !matches!(x, Operand::Reg(r) if !self.is_assigned_once(*r));
        let pair = match expr {
            Expr::Binary(Binary::Add, a, b) => [*a, *b],
            Expr::Copy(Operand::Reg(r)) if self.is_assigned_once(*r) => self.pair(*r)?,
            _ => return None,
        };
        (self.is_assigned_once(dst) && pair.iter().all(keeps)).then_some(pair)
    }

    fn added(&self, dst: Reg, op: Binary, a: Operand, b: Operand) -> Option<Sum> {
        if !self.is_assigned_once(dst) {
            return None;
        }
        let (mut sum, other) = (self.sum(a), self.sum(b));
        match op {
            Binary::Sub if !other.terms.is_empty() => return None,
            Binary::Sub => sum.constant = sum.constant.wrapping_sub(other.constant),
            _ => sum.constant = sum.constant.wrapping_add(other.constant),
        }
        sum.terms.extend(other.terms);
        sum.terms.sort_unstable();
        let stable = sum.terms.iter().all(|r| self.is_assigned_once(*r));
        (stable && sum.terms.len() <= MOST_TERMS).then_some(sum)
    }
}

/// The registers that a statement assigns, without those of the statements in it.
fn assigned(stmt: &Stmt) -> Vec<Reg> {
    match stmt {
        Stmt::Let(dst, _) | Stmt::Shuffle { dst, .. } | Stmt::All { dst, .. } | Stmt::For { var: dst, .. } => {
            vec![*dst]
        }
        Stmt::DrawTicket { ticket, tag, .. } => vec![*ticket, *tag],
        Stmt::Load { dst, .. } | Stmt::LoadMatrix { dst, .. } => dst.clone(),
        Stmt::Mma { dst, .. } => dst.to_vec(),
        Stmt::WarpgroupMma { sums, .. } | Stmt::WarpgroupWait { sums, .. } => sums.clone(),
        Stmt::Poll { entries, .. } => entries.iter().flat_map(|e| e.values.iter().chain(&e.tags)).copied().collect(),
        _ => vec![],
    }
}

/// The blocks in a statement.
fn nested(stmt: &Stmt) -> Vec<&[Stmt]> {
    match stmt {
        Stmt::If { then, otherwise, .. } => vec![then, otherwise],
        Stmt::For { body, .. } | Stmt::Loop(body) => vec![body],
        _ => vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oplus_codegen::build::Builder;
    use oplus_codegen::tile::Special;

    #[test]
    fn constants_are_gathered_through_sums() {
        let mut b = Builder::new("k", 32);
        let (x, y) = (b.special(Special::Thread), b.special(Special::Block));
        let more = b.add(x, Operand::i32(5));
        let both = b.add(y, more);
        let less = b.binary(Binary::Sub, both, Operand::i32(7));
        let product = b.mul(less, Operand::i32(2));
        let sums = Sums::of(&b.finish());
        assert_eq!(sums.sum(less), Sum { terms: vec![Reg(0), Reg(1)], constant: -2 });
        assert_eq!(sums.sum(product).terms.len(), 1);
        assert_eq!(sums.sum(Operand::i32(9)), Sum { terms: vec![], constant: 9 });
    }

    #[test]
    fn what_is_assigned_twice_is_opaque() {
        let mut b = Builder::new("k", 32);
        let x = b.special(Special::Thread);
        let moving = b.var(x);
        let ahead = b.add(moving.into(), Operand::i32(1));
        b.assign(moving, ahead);
        let sums = Sums::of(&b.finish());
        assert_eq!(sums.sum(ahead).constant, 0);
    }
}

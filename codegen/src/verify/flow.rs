//! Definite assignment, and the structure of loops.

use super::{Checker, Fault};
use crate::path::Step;
use crate::tile::{Expr, Mbarrier, Operand, Reg, Stmt};

/// The registers that are assigned on every path to a point.
#[derive(Clone)]
pub(super) struct Assigned(Vec<u64>);

impl Assigned {
    /// No register of `count`.
    pub(super) fn none(count: usize) -> Assigned {
        Assigned(vec![0; count.div_ceil(64)])
    }

    fn contains(&self, reg: Reg) -> bool {
        self.0.get(reg.0 as usize / 64).is_some_and(|word| word >> (reg.0 % 64) & 1 == 1)
    }

    fn insert(&mut self, reg: Reg) {
        if let Some(word) = self.0.get_mut(reg.0 as usize / 64) {
            *word |= 1 << (reg.0 % 64);
        }
    }

    fn keep_common(&mut self, other: &Assigned) {
        self.0.iter_mut().zip(&other.0).for_each(|(word, also)| *word &= also);
    }
}

impl Checker<'_> {
    /// Checks the statement's uses, then the statements inside it, and adds what it assigns.
    pub(super) fn flow(&mut self, stmt: &Stmt, assigned: &mut Assigned) {
        uses(stmt, &mut |operand| {
            if let Operand::Reg(reg) = operand
                && (reg.0 as usize) < self.kernel.regs.len()
                && !assigned.contains(reg)
            {
                self.fault(Fault::Unassigned(reg));
            }
        });
        match stmt {
            Stmt::If { then, otherwise, .. } => self.branches(then, otherwise, assigned),
            Stmt::For { var, to, step, body, .. } => self.counted(*var, [*to, *step], body, assigned),
            Stmt::Loop(body) => self.endless(body, assigned),
            Stmt::Break(_) => match self.loops.last_mut() {
                Some(Some(left)) => left.keep_common(assigned),
                Some(left) => *left = Some(assigned.clone()),
                None => self.fault(Fault::NoLoop),
            },
            _ => definitions(stmt, &mut |reg| {
                if self.controls.contains(&reg) {
                    self.fault(Fault::LoopControl(reg));
                }
                assigned.insert(reg);
            }),
        }
    }

    fn branches(&mut self, then: &[Stmt], otherwise: &[Stmt], assigned: &mut Assigned) {
        let mut other = assigned.clone();
        self.inside(Step::Then, then, assigned);
        self.inside(Step::Else, otherwise, &mut other);
        assigned.keep_common(&other);
    }

    fn counted(&mut self, var: Reg, bounds: [Operand; 2], body: &[Stmt], assigned: &mut Assigned) {
        let depth = self.controls.len();
        if self.controls.contains(&var) || bounds.contains(&Operand::Reg(var)) {
            self.fault(Fault::LoopControl(var));
        }
        assigned.insert(var);
        self.controls.push(var);
        self.controls.extend(bounds.iter().filter_map(|b| if let Operand::Reg(r) = b { Some(*r) } else { None }));
        self.inside(Step::Body, body, &mut assigned.clone());
        self.controls.truncate(depth);
    }

    fn endless(&mut self, body: &[Stmt], assigned: &mut Assigned) {
        self.loops.push(None);
        self.inside(Step::Body, body, &mut assigned.clone());
        match self.loops.pop().flatten() {
            Some(left) => *assigned = left,
            None => self.fault(Fault::NoBreak),
        }
    }

    fn inside(&mut self, step: Step, list: &[Stmt], assigned: &mut Assigned) {
        self.path.push(step);
        self.list(list, assigned);
        self.path.pop();
    }
}

/// The operands that a statement reads, without those of the statements inside it.
fn uses(stmt: &Stmt, f: &mut impl FnMut(Operand)) {
    let at = |mbarrier: &Mbarrier| mbarrier.index;
    match stmt {
        Stmt::Let(_, expr) => expr_uses(expr, f),
        Stmt::If { condition, .. } | Stmt::Break(condition) | Stmt::All { condition, .. } => f(*condition),
        Stmt::For { from, to, step, .. } => [*from, *to, *step].into_iter().for_each(f),
        Stmt::Load { index, guard, otherwise, .. } => [*index, *otherwise].into_iter().chain(*guard).for_each(f),
        Stmt::Store { index, values, guard, .. } => values.iter().chain(guard).chain([index]).for_each(|x| f(*x)),
        Stmt::Shuffle { value, lane, .. } => [*value, *lane].into_iter().for_each(f),
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
        Stmt::AtomicAdd { value, .. } | Stmt::ControlStore { value, .. } => f(*value),
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
        | Stmt::Barrier { .. }
        | Stmt::FenceInit
        | Stmt::FenceAsync
        | Stmt::BulkWait { .. }
        | Stmt::ControlLoad { .. } => {}
    }
}

fn expr_uses(expr: &Expr, f: &mut impl FnMut(Operand)) {
    match *expr {
        Expr::Copy(a)
        | Expr::Unary(_, a)
        | Expr::Convert(_, a)
        | Expr::Bits(a)
        | Expr::Exp2Fast(a)
        | Expr::Log2Fast(a)
        | Expr::TanhFast(a)
        | Expr::RecipFast(a) => f(a),
        Expr::Binary(_, a, b) => [a, b].into_iter().for_each(f),
        Expr::Fma(a, b, c) | Expr::Select(a, b, c) => [a, b, c].into_iter().for_each(f),
        Expr::Param(_) | Expr::Special(_) => {}
    }
}

/// The registers that a simple statement assigns.
fn definitions(stmt: &Stmt, f: &mut impl FnMut(Reg)) {
    match stmt {
        Stmt::Let(dst, _)
        | Stmt::Shuffle { dst, .. }
        | Stmt::All { dst, .. }
        | Stmt::AtomicAdd { dst, .. }
        | Stmt::ControlLoad { dst, .. } => f(*dst),
        Stmt::Load { dst, .. } => dst.iter().for_each(|r| f(*r)),
        Stmt::Poll { entries, .. } => {
            entries.iter().flat_map(|e| e.values.iter().chain(&e.tags)).for_each(|r| f(*r));
        }
        _ => {}
    }
}

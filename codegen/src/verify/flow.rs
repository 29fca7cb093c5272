//! Definite assignment, and the structure of loops.

use super::{Checker, Fault};
use crate::path::Step;
use crate::tile::{Operand, Reg, Stmt};

/// The registers that are assigned on every path to a point.
#[derive(Clone)]
pub(super) struct Assigned(Vec<u64>);

impl Assigned {
    /// A set without registers, of `count`.
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
        stmt.for_each_use(|operand| {
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
            _ => stmt.for_each_definition(|reg| {
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

//! Which instructions of a stage run when.

use crate::cpu::tile::{Combine, Instruction, Reg, TileOp};

use super::Stage;
use super::lower::share_memory;

impl Stage {
    /// Sorts the instructions into those that run once per block, those that run for every tile, and those that give
    /// totals of chunks; then shares memory between registers.
    pub(super) fn sort(&mut self) {
        let varies = self.varying();
        let is_varying = |instruction: &Instruction| instruction.writes().iter().any(|register| varies[register.0]);
        let all = 0..self.code.instructions.len();
        let (body, prologue) = all.partition(|at| self.streamed.is_none() || is_varying(&self.code.instructions[*at]));
        (self.body, self.prologue) = (body, prologue);
        let is_carried = |at: &usize| is_carried(&self.code.instructions[*at].op);
        self.carried = self.body.iter().copied().filter(is_carried).collect();
        if self.is_shared {
            let levels = self.carried_combines().map(|(_, combine)| combine.level).max().unwrap_or(0);
            self.passes = (1..=levels).map(|level| self.pass(level)).collect();
        }
        let lasting: Vec<Reg> = self.carried.iter().flat_map(|at| self.lasting(*at)).collect();
        let stored: Vec<Reg> = self.stores.iter().map(|store| store.register).collect();
        share_memory(&mut self.code, &self.body, &stored, &lasting);
    }

    /// The streamed scans and reductions.
    pub(in crate::cpu) fn carried_combines(&self) -> impl Iterator<Item = (usize, &Combine)> {
        self.carried.iter().filter_map(|at| match &self.code.instructions[*at].op {
            TileOp::Combine(combine) => Some((*at, &**combine)),
            _ => None,
        })
    }

    /// Which registers depend on the streamed index.
    fn varying(&self) -> Vec<bool> {
        let mut varies: Vec<bool> = match self.streamed {
            Some(streamed) => self.code.registers.iter().map(|r| r.dims >> streamed.axis & 1 == 1).collect(),
            None => vec![false; self.code.registers.len()],
        };
        for instruction in &self.code.instructions {
            if is_carried(&instruction.op) || instruction.operands.iter().any(|register| varies[register.0]) {
                instruction.writes().iter().for_each(|register| varies[register.0] = true);
            }
        }
        varies
    }

    /// The instructions of the body that the totals of the scans of a level need, and these scans.
    fn pass(&self, level: usize) -> Vec<usize> {
        let mut needed = vec![false; self.code.registers.len()];
        let mut pass = vec![];
        for &at in self.body.iter().rev() {
            let instruction = &self.code.instructions[at];
            let operands = match &instruction.op {
                TileOp::Combine(combine) if combine.level == level => &combine.elements[1],
                _ if instruction.writes().iter().any(|register| needed[register.0]) => &instruction.operands,
                _ => continue,
            };
            operands.iter().for_each(|register| needed[register.0] = true);
            pass.push(at);
        }
        pass.reverse();
        pass
    }

    /// The registers that a carried instruction keeps from tile to tile.
    fn lasting(&self, at: usize) -> Vec<Reg> {
        let instruction = &self.code.instructions[at];
        match &instruction.op {
            TileOp::Combine(combine) => combine.states.iter().flatten().copied().collect(),
            _ => instruction.writes(),
        }
    }
}

/// Whether an instruction carries something from tile to tile.
fn is_carried(op: &TileOp) -> bool {
    match op {
        TileOp::Combine(combine) => combine.is_streamed,
        TileOp::Capture { .. } => true,
        _ => false,
    }
}

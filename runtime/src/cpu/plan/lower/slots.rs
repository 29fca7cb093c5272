//! Sharing memory between registers.

use std::collections::HashMap;

use oplus_dsl::Ty;

use crate::cpu::tile::{Code, Reg, Register};

/// Gives registers that are never needed at the same time the same memory. `stored` registers are needed to the end,
/// `lasting` ones beyond it; so are those that instructions outside the `order` write.
pub(in crate::cpu::plan) fn share_memory(code: &mut Code, order: &[usize], stored: &[Reg], lasting: &[Reg]) {
    let mut last_use: HashMap<Reg, usize> = HashMap::new();
    for (time, at) in order.iter().enumerate() {
        let instruction = &code.instructions[*at];
        let used = instruction.operands.iter().copied().chain(instruction.writes());
        last_use.extend(used.map(|register| (register, time)));
    }
    last_use.extend(stored.iter().map(|register| (*register, order.len())));
    last_use.retain(|register, _| !lasting.contains(register));
    let mut free: HashMap<Ty, Vec<usize>> = HashMap::new();
    let mut is_owned = vec![false; code.registers.len()];
    for (time, at) in order.iter().enumerate() {
        for register in code.instructions[*at].writes() {
            if !last_use.contains_key(&register) {
                continue;
            }
            is_owned[register.0] = true;
            let ty = code.registers[register.0].ty;
            if let Some(slot) = free.get_mut(&ty).and_then(Vec::pop) {
                code.registers[register.0].slot = slot;
            }
        }
        let instruction = &mut code.instructions[*at];
        let is_spent = |register: &Reg| is_owned[register.0] && last_use.get(register) == Some(&time);
        let spent = (0..instruction.operands.len().min(64)).filter(|k| is_spent(&instruction.operands[*k]));
        instruction.spent = spent.fold(0, |spent, k| spent | 1 << k);
        let used = instruction.operands.iter().copied().chain(instruction.writes());
        for register in used.collect::<std::collections::BTreeSet<_>>() {
            if is_spent(&register) {
                let Register { ty, slot, .. } = code.registers[register.0];
                free.entry(ty).or_default().push(slot);
            }
        }
    }
}

//! Where a kernel's memory lies, and what types its operands have.

use oplus_dsl::{Elem, Ty};

use super::{Kernel, Memory, Operand, Panels, ParamKind, SharedKind};

/// How many elements a register of a type has in an access: two where it is packed.
pub fn elements_of_register(elem: Elem, register: Ty) -> usize {
    if register == Ty::U32 && matches!(elem, Elem::Bf16 | Elem::F16) { 2 } else { 1 }
}

impl SharedKind {
    /// Bytes per entry.
    pub fn bytes(self) -> u32 {
        match self {
            SharedKind::Mbarrier => 8,
            SharedKind::Elem(e) => e.bytes().unwrap_or(8) as u32,
        }
    }
}

impl Panels {
    /// The index of element `place` of row `row`, where the swizzle puts it, if the first element's is `index`.
    pub fn element(&self, index: i64, row: u32, place: u32) -> i64 {
        let (panel, within) = (i64::from(place / self.row * self.apart), i64::from(place % self.row));
        let plain = index + panel + i64::from(row * self.row) + within;
        // Pieces of 8 elements change places with the 128 bytes that they are in.
        plain ^ ((plain / 64 % i64::from(self.row / 8)) * 8)
    }
}

impl Kernel {
    /// The type of an operand.
    pub fn ty(&self, operand: Operand) -> Ty {
        match operand {
            Operand::Reg(r) => self.regs[r.0 as usize],
            Operand::Const(ty, _) => ty,
        }
    }

    /// The element type behind a memory.
    pub fn elem(&self, memory: Memory) -> Option<Elem> {
        match memory {
            Memory::Global(p) => match self.params[p.0 as usize].kind {
                ParamKind::Read(e) | ParamKind::Write(e) => Some(e),
                _ => None,
            },
            Memory::Shared(s) => match self.shared[s.0 as usize].kind {
                SharedKind::Elem(e) => Some(e),
                SharedKind::Mbarrier => None,
            },
        }
    }

    /// Byte offset of every shared array, and the bytes of all; every array starts at a multiple of 128 bytes.
    pub fn shared_layout(&self) -> (Vec<u32>, u32) {
        let mut at = 0;
        let offsets = self.shared.iter().map(|s| {
            let offset = at;
            at = (at + s.len * s.kind.bytes()).next_multiple_of(128);
            offset
        });
        let offsets = offsets.collect();
        (offsets, at)
    }
}

//! The rules of single statements.

use oplus_dsl::ir::Literal;
use oplus_dsl::{Elem, Ty};

use super::{Checker, Fault};
use crate::tile::elements_of_register;
use crate::tile::{Left, Mbarrier, Memory, Operand, Panels, ParamId, ParamKind, PollEntry, SharedId, SharedKind, Stmt};

impl Checker<'_> {
    /// Checks types, kinds and sizes of one statement, not of those inside it.
    pub(super) fn statement(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::Let(dst, expr) => self.assignment(*dst, expr),
            Stmt::If { condition, .. } | Stmt::Break(condition) => self.typed("the condition", *condition, Ty::Bool),
            Stmt::For { .. } => self.for_header(stmt),
            Stmt::Loop(_) | Stmt::SyncWarp | Stmt::FenceInit => {}
            Stmt::SetMaxRegisters { count, .. } => {
                if !count.is_multiple_of(8) || !(24..=256).contains(count) {
                    self.fault(Fault::Registers(*count));
                }
            }
            Stmt::Load { .. } | Stmt::Store { .. } => self.access(stmt),
            Stmt::Shuffle { dst, value, lane, .. } => {
                if let Some(ty) = self.reg(*dst) {
                    self.typed("the value", *value, ty);
                }
                self.typed("the lane", *lane, Ty::I32);
            }
            Stmt::All { dst, condition } => {
                self.typed("the result", (*dst).into(), Ty::Bool);
                self.typed("the condition", *condition, Ty::Bool);
            }
            Stmt::LoadMatrix { .. } | Stmt::Mma { .. } => self.matrix(stmt),
            Stmt::StoreMatrix { .. } => self.store_matrix(stmt),
            Stmt::WarpgroupMma { .. } => self.warpgroup(stmt),
            Stmt::WarpgroupWait { pending, sums } => {
                sums.iter().for_each(|r| self.typed("a sum", (*r).into(), Ty::F32));
                if *pending > 7 {
                    self.fault(Fault::Pending(*pending));
                }
            }
            Stmt::Barrier { id, threads } => self.barrier(*id, *threads),
            Stmt::MbarrierInit(mbarrier, count) => {
                self.mbarrier(*mbarrier);
                if !(1..1 << 20).contains(count) {
                    self.fault(Fault::Arrivals(*count));
                }
            }
            Stmt::MbarrierArrive(mbarrier) | Stmt::CopyAsyncArrive(mbarrier) => self.mbarrier(*mbarrier),
            Stmt::MbarrierWait(mbarrier, parity) => {
                self.mbarrier(*mbarrier);
                self.typed("the parity", *parity, Ty::I32);
            }
            Stmt::MbarrierExpect(..)
            | Stmt::BulkLoad { .. }
            | Stmt::BulkStore { .. }
            | Stmt::BulkWait { .. }
            | Stmt::FenceAsync
            | Stmt::FenceDevice => self.bulk(stmt),
            Stmt::CopyAsync { .. } => self.copy_async(stmt),
            Stmt::DrawTicket { .. } | Stmt::ResetTickets { .. } => self.control(stmt),
            Stmt::Publish { .. } | Stmt::Poll { .. } => self.message(stmt),
        }
    }

    fn for_header(&mut self, stmt: &Stmt) {
        let Stmt::For { var, from, to, step, .. } = stmt else { return };
        let Some(ty) = self.reg(*var) else { return };
        self.class("the loop variable", ty, "i32 or i64", |t| matches!(t, Ty::I32 | Ty::I64));
        self.typed("the first value", *from, ty);
        self.typed("the bound", *to, ty);
        self.typed("the step", *step, ty);
        if let Operand::Const(_, Literal::Int(step @ ..=0)) = step {
            self.fault(Fault::Step(*step));
        }
    }

    fn access(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::Load { dst, memory, index, guard, otherwise } => {
                self.index(*memory, *index);
                self.guard(*guard);
                let Some(elem) = self.elements(*memory) else { return };
                let registers: Vec<Operand> = dst.iter().map(|r| Operand::Reg(*r)).collect();
                let ty = self.vector(elem, &registers);
                registers.iter().for_each(|r| self.typed("a destination", *r, ty));
                self.typed("the value without guard", *otherwise, ty);
            }
            Stmt::Store { memory, index, values, guard } => {
                self.index(*memory, *index);
                self.guard(*guard);
                self.writable(*memory);
                let Some(elem) = self.elements(*memory) else { return };
                let ty = self.vector(elem, values);
                values.iter().for_each(|v| self.typed("a value", *v, ty));
            }
            _ => {}
        }
    }

    /// Checks the number of elements of an access; gives the type that its registers must have.
    fn vector(&mut self, elem: Elem, registers: &[Operand]) -> Ty {
        let found = registers.first().and_then(|first| match first {
            Operand::Reg(r) => self.kernel.regs.get(r.0 as usize).copied(),
            Operand::Const(ty, _) => Some(*ty),
        });
        let each = found.map_or(1, |ty| elements_of_register(elem, ty));
        let count = each * registers.len();
        let bytes = elem.bytes().unwrap_or(8);
        if !matches!(count, 1 | 2 | 4 | 8) || count * bytes > 16 {
            self.fault(Fault::Vector { count, bytes });
        }
        if each > 1 { Ty::U32 } else { elem.value() }
    }

    fn index(&mut self, memory: Memory, index: Operand) {
        let ty = if let Memory::Global(_) = memory { Ty::I64 } else { Ty::I32 };
        self.typed("the index", index, ty);
    }

    fn guard(&mut self, guard: Option<Operand>) {
        if let Some(guard) = guard {
            self.typed("the guard", guard, Ty::Bool);
        }
    }

    fn writable(&mut self, memory: Memory) {
        let Memory::Global(p) = memory else { return };
        if let Some(param) = self.kernel.params.get(p.0 as usize)
            && let kind @ ParamKind::Read(_) = param.kind
        {
            self.kind(&param.name, kind, "writable");
        }
    }

    fn matrix(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::LoadMatrix { dst, array, index, .. } => {
                self.typed("the index", *index, Ty::I32);
                dst.iter().for_each(|r| self.typed("a destination", (*r).into(), Ty::U32));
                if !matches!(dst.len(), 1 | 2 | 4) {
                    self.fault(Fault::Matrices(dst.len()));
                }
                let Some(found) = self.elements(Memory::Shared(*array)) else { return };
                match found.bytes() {
                    Some(2 | 4) => {}
                    _ => self.fault(Fault::Elements { found, expected: "of 2 or 4 bytes" }),
                }
            }
            Stmt::Mma { elem, dst, a, b, c } => {
                if !matches!(elem, Elem::Bf16 | Elem::F16 | Elem::F32) {
                    self.fault(Fault::Elements { found: *elem, expected: "bf16, f16 or f32" });
                }
                dst.iter().for_each(|r| self.typed("a destination", (*r).into(), Ty::F32));
                a.iter().chain(b).for_each(|x| self.typed("a factor", *x, Ty::U32));
                c.iter().for_each(|x| self.typed("a term", *x, Ty::F32));
            }
            _ => {}
        }
    }

    fn store_matrix(&mut self, stmt: &Stmt) {
        let Stmt::StoreMatrix { values, array, index, .. } = stmt else { return };
        if !self.target.isa.stores_matrices() {
            self.fault(Fault::NoStoresOfMatrices(self.target.isa.name()));
        }
        self.typed("the index", *index, Ty::I32);
        values.iter().for_each(|x| self.typed("a value", *x, Ty::U32));
        if !matches!(values.len(), 1 | 2 | 4) {
            self.fault(Fault::Matrices(values.len()));
        }
        let Some(found) = self.elements(Memory::Shared(*array)) else { return };
        if found.bytes() != Some(2) {
            self.fault(Fault::Elements { found, expected: "of 2 bytes" });
        }
    }

    fn warpgroup(&mut self, stmt: &Stmt) {
        let Stmt::WarpgroupMma { elem, sums, steps, .. } = stmt else { return };
        if !self.target.isa.has_warpgroups() || !self.kernel.threads.is_multiple_of(128) {
            self.fault(Fault::NoWarpgroups(self.target.isa.name()));
        }
        if !sums.len().is_multiple_of(4) || !(4..=128).contains(&sums.len()) || steps.is_empty() {
            self.fault(Fault::Warpgroup { sums: sums.len(), steps: steps.len() });
        }
        sums.iter().for_each(|r| self.typed("a sum", (*r).into(), Ty::F32));
        for (left, right) in steps {
            match left {
                Left::Registers(registers) => registers.iter().for_each(|x| self.typed("a factor", *x, Ty::U32)),
                Left::Shared(panels) => self.panels(panels, *elem),
            }
            self.panels(right, *elem);
        }
    }

    fn panels(&mut self, panels: &Panels, elem: Elem) {
        let Panels { array, index, row, apart } = *panels;
        self.typed("the index", index, Ty::I32);
        let Some(found) = self.elements(Memory::Shared(array)) else { return };
        if found != elem || !matches!(elem, Elem::Bf16 | Elem::F16) {
            self.fault(Fault::Elements { found, expected: "the factor's, bf16 or f16" });
        }
        let at = self.kernel.shared_layout().0[array.0 as usize];
        if !matches!(row, 16 | 32 | 64) || !apart.is_multiple_of(8 * row) || !at.is_multiple_of(1024) {
            let name = self.kernel.shared[array.0 as usize].name.clone();
            self.fault(Fault::Panels { name, row, apart });
        }
    }

    fn barrier(&mut self, id: u32, threads: u32) {
        let all = self.kernel.threads;
        let counted = threads > 0 && threads.is_multiple_of(32) && threads <= all;
        if id >= 16 || !counted || (id == 0 && threads != all) {
            self.fault(Fault::Barrier { id, threads, all });
        }
    }

    fn mbarrier(&mut self, mbarrier: Mbarrier) {
        self.typed("the mbarrier's index", mbarrier.index, Ty::I32);
        match self.kernel.shared.get(mbarrier.array.0 as usize) {
            Some(array) if array.kind == SharedKind::Mbarrier => {}
            Some(array) => self.fault(Fault::Kind {
                name: array.name.clone(),
                found: array.kind.to_string(),
                expected: "an array of mbarriers".into(),
            }),
            None => self.fault(Fault::Undeclared(format!("shared array {}", mbarrier.array.0))),
        }
    }

    fn bulk(&mut self, stmt: &Stmt) {
        if !self.target.isa.has_bulk_copies() {
            self.fault(Fault::NoBulkCopies(self.target.isa.name()));
        }
        match *stmt {
            Stmt::MbarrierExpect(mbarrier, bytes) => {
                self.mbarrier(mbarrier);
                self.typed("the bytes", bytes, Ty::I32);
            }
            Stmt::BulkLoad { to, to_index, from, from_index, count, mbarrier } => {
                self.mbarrier(mbarrier);
                self.typed("the count", count, Ty::I32);
                self.copy(from, from_index, to, to_index);
            }
            Stmt::BulkStore { to, to_index, from, from_index, count, .. } => {
                self.typed("the count", count, Ty::I32);
                self.writable(Memory::Global(to));
                self.copy(to, to_index, from, from_index);
            }
            _ => {}
        }
    }

    /// Checks both ends of a copy of elements of one type; gives the type.
    fn copy(&mut self, global: ParamId, global_index: Operand, shared: SharedId, index: Operand) -> Option<Elem> {
        self.copied(global, global_index, shared, index, |one, other| one == other).map(|(one, _)| one)
    }

    /// Checks both ends of a copy, whose element types it gives.
    fn copied(
        &mut self,
        global: ParamId,
        global_index: Operand,
        shared: SharedId,
        index: Operand,
        fit: impl Fn(Elem, Elem) -> bool,
    ) -> Option<(Elem, Elem)> {
        let (memory, array) = (Memory::Global(global), Memory::Shared(shared));
        self.index(memory, global_index);
        self.index(array, index);
        let (one, other) = (self.elements(memory)?, self.elements(array)?);
        if !fit(one, other) {
            let name = self.kernel.shared[shared.0 as usize].name.clone();
            self.fault(Fault::Kind { name, found: other.to_string(), expected: one.to_string() });
        }
        Some((one, other))
    }

    fn copy_async(&mut self, stmt: &Stmt) {
        let Stmt::CopyAsync { to, to_index, from, from_index, elements, guard } = stmt else { return };
        self.guard(*guard);
        let Some((elem, _)) =
            self.copied(*from, *from_index, *to, *to_index, |one, other| one.bytes() == other.bytes())
        else {
            return;
        };
        let bytes = u64::from(*elements) * elem.bytes().unwrap_or(8) as u64;
        if !matches!(bytes, 4 | 8 | 16) {
            self.fault(Fault::CopyBytes(bytes));
        }
    }

    fn control(&mut self, stmt: &Stmt) {
        match *stmt {
            Stmt::DrawTicket { ticket, tag, control } => {
                self.param_kind(control, ParamKind::Control);
                self.typed("the ticket", ticket.into(), Ty::U32);
                self.typed("the tag", tag.into(), Ty::U32);
            }
            Stmt::ResetTickets { control, tag } => {
                self.param_kind(control, ParamKind::Control);
                self.typed("the tag", tag, Ty::U32);
            }
            _ => {}
        }
    }

    fn message(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::Publish { messages, index, values, tag, guard } => {
                self.param_kind(*messages, ParamKind::Messages);
                self.guard(*guard);
                self.typed("the tag", *tag, Ty::U32);
                self.words(*index, values.len(), values.len());
                values.iter().for_each(|v| self.typed("a value", *v, Ty::U32));
            }
            Stmt::Poll { messages, entries, tag } => {
                self.param_kind(*messages, ParamKind::Messages);
                self.typed("the tag", *tag, Ty::U32);
                entries.iter().for_each(|entry| self.entry(entry));
            }
            _ => {}
        }
    }

    fn entry(&mut self, entry: &PollEntry) {
        self.words(entry.index, entry.values.len(), entry.tags.len());
        for reg in entry.values.iter().chain(&entry.tags) {
            self.typed("a value or tag", (*reg).into(), Ty::U32);
        }
    }

    fn words(&mut self, index: Operand, values: usize, tags: usize) {
        self.typed("the index", index, Ty::I64);
        if values == 0 || values != tags {
            self.fault(Fault::Words { values, tags });
        }
        if let Operand::Const(_, Literal::Int(index)) = index
            && values >= 2
            && index % 2 != 0
        {
            self.fault(Fault::OddMessage { words: values, index });
        }
    }

    fn param_kind(&mut self, id: ParamId, expected: ParamKind) {
        match self.kernel.params.get(id.0 as usize) {
            Some(param) if param.kind == expected => {}
            Some(param) => self.kind(&param.name, param.kind, &expected.to_string()),
            None => self.fault(Fault::Undeclared(format!("parameter {}", id.0))),
        }
    }

    /// Reports a parameter that is used as what it is not.
    pub(super) fn kind(&mut self, name: &str, found: ParamKind, expected: &str) {
        self.fault(Fault::Kind { name: name.into(), found: found.to_string(), expected: expected.into() });
    }
}

//! The text of a kernel, as the [specification](super::text) has it.

#[cfg(test)]
mod tests;

use std::fmt::{self, Display, Formatter, Write};

use oplus_dsl::ir::{Binary, Literal, Unary};
use oplus_dsl::{Elem, Ty};

use super::text::{Reference, is_plain, letter, special_name};
use super::{
    Expr, Half, Kernel, Left, Mbarrier, Memory, Operand, Panels, ParamId, ParamKind, PollEntry, Reg, SharedId,
    SharedKind, Shuffle, Stmt,
};
use crate::build::zero;

impl Display for Kernel {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut printer = Printer { kernel: self, out: f, terse: false };
        printer.declarations()?;
        printer.unused()?;
        printer.list(&self.body, 1)
    }
}

impl Display for ParamKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            ParamKind::Read(elem) => write!(f, "read {elem}"),
            ParamKind::Write(elem) => write!(f, "write {elem}"),
            ParamKind::Messages => f.write_str("messages"),
            ParamKind::Control => f.write_str("control"),
            ParamKind::Scalar(ty) => write!(f, "{ty}"),
        }
    }
}

impl Display for SharedKind {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            SharedKind::Elem(elem) => write!(f, "{elem}"),
            SharedKind::Mbarrier => f.write_str("mbarrier"),
        }
    }
}

impl Kernel {
    /// The text without what only a reader of it needs: the line of unused registers, and the types of constants. The hashes of
    /// kernels are made from it, so it must stay as it is.
    pub fn terse(&self) -> String {
        let mut text = String::new();
        let mut printer = Printer { kernel: self, out: &mut text, terse: true };
        // Writing to a String cannot fail.
        let _ = printer.declarations().and_then(|()| printer.list(&self.body, 1));
        text
    }

    /// The first line of a statement's text: all of it, except for the bodies of control flow and the entries of a poll.
    pub fn line(&self, stmt: &Stmt) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = Printer { kernel: self, out: &mut text, terse: false }.head(stmt);
        text
    }
}

/// Prints the parts of a kernel.
struct Printer<'a, W: Write> {
    kernel: &'a Kernel,
    out: W,
    /// Whether constants stand without their types.
    terse: bool,
}

impl<W: Write> Printer<'_, W> {
    fn declarations(&mut self) -> fmt::Result {
        let kernel = self.kernel;
        let params = kernel.params.iter().map(|p| format!("{}: {}", declared(&p.name), p.kind));
        write!(self.out, "kernel {}({})", declared(&kernel.name), params.collect::<Vec<_>>().join(", "))?;
        let keep = if kernel.keep_reads { " keep_reads" } else { "" };
        let chain = if kernel.chain_addresses { " chain_addresses" } else { "" };
        writeln!(self.out, " threads {} blocks_per_sm {}{keep}{chain}", kernel.threads, kernel.blocks_per_sm)?;
        for array in &kernel.shared {
            writeln!(self.out, "shared {}: {}[{}]", declared(&array.name), array.kind, array.len)?;
        }
        Ok(())
    }

    /// The registers that no statement mentions.
    fn unused(&mut self) -> fmt::Result {
        let mut is_used = vec![false; self.kernel.regs.len()];
        mark_used(&self.kernel.body, &mut is_used);
        let unused = (0..).zip(&is_used).filter(|(_, used)| !**used).map(|(k, _)| self.reg(Reg(k)));
        let unused: Vec<String> = unused.collect();
        if unused.is_empty() { Ok(()) } else { writeln!(self.out, "unused {}", unused.join(", ")) }
    }

    fn list(&mut self, list: &[Stmt], depth: usize) -> fmt::Result {
        list.iter().try_for_each(|stmt| self.stmt(stmt, depth))
    }

    fn stmt(&mut self, stmt: &Stmt, depth: usize) -> fmt::Result {
        let indent = "  ".repeat(depth);
        write!(self.out, "{indent}")?;
        self.head(stmt)?;
        writeln!(self.out)?;
        match stmt {
            Stmt::If { then, otherwise, .. } => {
                self.list(then, depth + 1)?;
                if !otherwise.is_empty() {
                    writeln!(self.out, "{indent}}} else {{")?;
                    self.list(otherwise, depth + 1)?;
                }
                writeln!(self.out, "{indent}}}")
            }
            Stmt::For { body, .. } | Stmt::Loop(body) => {
                self.list(body, depth + 1)?;
                writeln!(self.out, "{indent}}}")
            }
            Stmt::Poll { entries, .. } => {
                entries.iter().try_for_each(|entry| self.entry(entry, depth + 1))?;
                writeln!(self.out, "{indent}}}")
            }
            _ => Ok(()),
        }
    }

    fn entry(&mut self, entry: &PollEntry, depth: usize) -> fmt::Result {
        let (index, values, tags) = (self.op(entry.index, Ty::I64), self.regs(&entry.values), self.regs(&entry.tags));
        writeln!(self.out, "{}[{index}] {values} tags {tags}", "  ".repeat(depth))
    }

    fn head(&mut self, stmt: &Stmt) -> fmt::Result {
        let text = match stmt {
            Stmt::Let(reg, expr) => format!("{} = {}", self.reg(*reg), self.expr(self.ty(*reg), expr)),
            Stmt::If { condition, .. } => format!("if {} {{", self.op(*condition, Ty::Bool)),
            Stmt::For { var, from, to, step, .. } => {
                let [from, to, step] = [from, to, step].map(|x| self.op(*x, self.ty(*var)));
                format!("for {} in {from}..{to} step {step} {{", self.reg(*var))
            }
            Stmt::Loop(_) => "loop {".into(),
            Stmt::Break(condition) => format!("break if {}", self.op(*condition, Ty::Bool)),
            Stmt::Load { dst, memory, index, guard, otherwise } => {
                let (place, ty) = (self.place(*memory, *index), self.ty_of(dst));
                let is_plain = guard.is_none() && (self.terse || Some(*otherwise) == ty.map(zero));
                let orelse = if is_plain { String::new() } else { format!(" else {}", self.op(*otherwise, ty)) };
                format!("load {} = {place}{}{orelse}", self.regs(dst), self.guard(*guard))
            }
            Stmt::Store { memory, index, values, guard } => {
                let (place, ty) = (self.place(*memory, *index), self.stored(*memory));
                format!("store {place} = {}{}", self.ops(values, ty), self.guard(*guard))
            }
            Stmt::Poll { messages, tag, .. } => {
                format!("poll {} tag {} {{", self.param(*messages), self.op(*tag, Ty::U32))
            }
            Stmt::SetMaxRegisters { count, more } => {
                format!("registers {} {count}", if *more { "up to" } else { "down to" })
            }
            Stmt::Shuffle { .. } | Stmt::All { .. } | Stmt::SyncWarp | Stmt::Barrier { .. } => self.collective(stmt),
            Stmt::LoadMatrix { .. } | Stmt::StoreMatrix { .. } | Stmt::Mma { .. } => self.matrix(stmt),
            Stmt::WarpgroupMma { .. } | Stmt::WarpgroupWait { .. } => self.matrix(stmt),
            Stmt::DrawTicket { .. } | Stmt::ResetTickets { .. } | Stmt::Publish { .. } => self.message(stmt),
            _ => self.asynchronous(stmt),
        };
        self.out.write_str(&text)
    }

    fn collective(&self, stmt: &Stmt) -> String {
        match stmt {
            Stmt::Shuffle { dst, value, mode, lane } => {
                let mode = match mode {
                    Shuffle::Up => "up",
                    Shuffle::Down => "down",
                    Shuffle::Xor => "xor",
                    Shuffle::Index => "index",
                };
                let (value, lane) = (self.op(*value, self.ty(*dst)), self.op(*lane, Ty::I32));
                format!("{} = shuffle_{mode}({value}, {lane})", self.reg(*dst))
            }
            Stmt::All { dst, condition } => format!("{} = all({})", self.reg(*dst), self.op(*condition, Ty::Bool)),
            Stmt::Barrier { id, threads } => format!("barrier {id}, {threads}"),
            _ => "syncwarp".into(),
        }
    }

    fn matrix(&self, stmt: &Stmt) -> String {
        match stmt {
            Stmt::LoadMatrix { dst, array, index, transposed } => {
                let name = if *transposed { "load_matrix_transposed" } else { "load_matrix" };
                format!("{name} {} = {}", self.regs(dst), self.place(Memory::Shared(*array), *index))
            }
            Stmt::StoreMatrix { values, array, index, transposed } => {
                let name = if *transposed { "store_matrix_transposed" } else { "store_matrix" };
                format!("{name} {} = {}", self.place(Memory::Shared(*array), *index), self.ops(values, Ty::U32))
            }
            Stmt::Mma { elem, dst, a, b, c } => {
                let [a, b] = [&a[..], b].map(|list| self.ops(list, Ty::U32));
                let c = self.ops(c, Ty::F32);
                format!("mma {elem} {} = ({a}) * ({b}) + ({c})", self.regs(dst))
            }
            Stmt::WarpgroupMma { elem, sums, clear, steps, transposed } => {
                let steps: Vec<String> = steps.iter().map(|(left, right)| self.step(*left, *right)).collect();
                let (sign, order) = (if *clear { "=" } else { "+=" }, if *transposed { " transposed" } else { "" });
                format!("warpgroup_mma {elem}{order} {} {sign} {}", self.regs(sums), steps.join(" + "))
            }
            Stmt::WarpgroupWait { pending, sums } => format!("warpgroup_wait {pending} {}", self.regs(sums)),
            _ => String::new(),
        }
    }

    fn step(&self, left: Left, right: Panels) -> String {
        let panels =
            |p: Panels| format!("{} rows {} apart {}", self.place(Memory::Shared(p.array), p.index), p.row, p.apart);
        match left {
            Left::Registers(registers) => format!("({}) * {}", self.ops(&registers, Ty::U32), panels(right)),
            Left::Shared(left) => format!("{} * {}", panels(left), panels(right)),
        }
    }

    fn asynchronous(&self, stmt: &Stmt) -> String {
        match stmt {
            Stmt::MbarrierInit(mbarrier, count) => format!("{}.init {count}", self.mbarrier(*mbarrier)),
            Stmt::MbarrierArrive(mbarrier) => format!("{}.arrive", self.mbarrier(*mbarrier)),
            Stmt::MbarrierExpect(mbarrier, bytes) => {
                format!("{}.expect {}", self.mbarrier(*mbarrier), self.op(*bytes, Ty::I32))
            }
            Stmt::MbarrierWait(mbarrier, parity) => {
                format!("{}.wait {}", self.mbarrier(*mbarrier), self.op(*parity, Ty::I32))
            }
            Stmt::CopyAsyncArrive(mbarrier) => format!("{}.copy_async_arrive", self.mbarrier(*mbarrier)),
            Stmt::BulkLoad { to, to_index, from, from_index, count, mbarrier } => {
                let to = self.place(Memory::Shared(*to), *to_index);
                let from = self.place(Memory::Global(*from), *from_index);
                let count = self.op(*count, Ty::I32);
                format!("bulk_load {to} = {from} × {count} on {}", self.mbarrier(*mbarrier))
            }
            Stmt::BulkStore { to, to_index, from, from_index, count, adds } => {
                let to = self.place(Memory::Global(*to), *to_index);
                let from = self.place(Memory::Shared(*from), *from_index);
                let sign = if *adds { "+=" } else { "=" };
                format!("bulk_store {to} {sign} {from} × {}", self.op(*count, Ty::I32))
            }
            Stmt::BulkWait { pending, read: true } => format!("bulk_wait_read {pending}"),
            Stmt::BulkWait { pending, read: false } => format!("bulk_wait {pending}"),
            Stmt::CopyAsync { to, to_index, from, from_index, elements, guard } => {
                let to = self.place(Memory::Shared(*to), *to_index);
                let from = self.place(Memory::Global(*from), *from_index);
                format!("copy_async {to} = {from} × {elements}{}", self.guard(*guard))
            }
            Stmt::FenceInit => "fence_init".into(),
            Stmt::FenceDevice => "fence_device".into(),
            _ => "fence_async".into(),
        }
    }

    fn message(&self, stmt: &Stmt) -> String {
        match stmt {
            Stmt::DrawTicket { ticket, tag, control } => {
                format!("{}, {} = draw_ticket {}", self.reg(*ticket), self.reg(*tag), self.param(*control))
            }
            Stmt::ResetTickets { control, tag } => {
                format!("reset_tickets {} tag {}", self.param(*control), self.op(*tag, Ty::U32))
            }
            Stmt::Publish { messages, index, values, tag, guard } => {
                let (index, tag) = (self.op(*index, Ty::I64), self.op(*tag, Ty::U32));
                let values = self.ops(values, Ty::U32);
                format!("publish {}[{index}] = {values} tag {tag}{}", self.param(*messages), self.guard(*guard))
            }
            _ => String::new(),
        }
    }

    /// The text of what is assigned to a register of a type.
    fn expr(&self, to: Option<Ty>, expr: &Expr) -> String {
        let op = |x: Operand| self.op(x, to);
        match *expr {
            Expr::Copy(a) => op(a),
            Expr::Unary(function, a) => self.unary(function, a, to),
            Expr::Binary(function, a, b) => self.binary(function, a, b, to),
            Expr::Fma(a, b, c) => format!("fma({}, {}, {})", op(a), op(b), op(c)),
            Expr::Select(c, a, b) => format!("{} ? {} : {}", self.op(c, Ty::Bool), op(a), op(b)),
            Expr::Convert(elem, a) => format!("{elem}({})", self.op(a, None)),
            Expr::Bits(a) => format!("bits({})", self.op(a, None)),
            Expr::Param(p) => self.param(p),
            Expr::Special(special) => special_name(special).into(),
            Expr::Pack(elem, a, b) => format!("pack {elem}({}, {})", self.op(a, Ty::F32), self.op(b, Ty::F32)),
            Expr::Unpack(elem, Half::Low, a) => format!("low {elem}({})", self.op(a, Ty::U32)),
            Expr::Unpack(elem, Half::High, a) => format!("high {elem}({})", self.op(a, Ty::U32)),
            Expr::Exp2Fast(a) => format!("exp2_fast({})", self.op(a, Ty::F32)),
            Expr::Log2Fast(a) => format!("log2_fast({})", self.op(a, Ty::F32)),
            Expr::TanhFast(a) => format!("tanh_fast({})", self.op(a, Ty::F32)),
            Expr::RecipFast(a) => format!("recip_fast({})", self.op(a, Ty::F32)),
        }
    }

    fn unary(&self, op: Unary, a: Operand, to: Option<Ty>) -> String {
        let text = self.op(a, to);
        match (op, a) {
            // Else it would be the negative constant.
            (Unary::Neg, Operand::Const(..)) if !self.terse => format!("-({text})"),
            (Unary::Neg, _) => format!("-{text}"),
            (Unary::Not, _) => format!("!{text}"),
            (Unary::Powi(n), _) => format!("powi({text}, {n})"),
            (named, _) => format!("{}({text})", named.name()),
        }
    }

    fn binary(&self, op: Binary, a: Operand, b: Operand, to: Option<Ty>) -> String {
        let register = |x: Operand| if let Operand::Reg(reg) = x { self.ty(reg) } else { None };
        let [of_left, of_right] = match (op.is_comparison(), register(a), register(b)) {
            (false, ..) => [to, to],
            (true, None, None) => [None, Some(self.kernel.ty(a))],
            (true, left, right) => [left.or(right), left.or(right)],
        };
        let (a, b) = (self.op(a, of_left), self.op(b, of_right));
        match op {
            Binary::Max | Binary::Min => format!("{}({a}, {b})", op.symbol()),
            _ => format!("{a} {} {b}", op.symbol()),
        }
    }

    fn guard(&self, guard: Option<Operand>) -> String {
        guard.map(|g| format!(" if {}", self.op(g, Ty::Bool))).unwrap_or_default()
    }

    fn mbarrier(&self, mbarrier: Mbarrier) -> String {
        self.place(Memory::Shared(mbarrier.array), mbarrier.index)
    }

    fn place(&self, memory: Memory, index: Operand) -> String {
        let (array, ty) = match memory {
            Memory::Global(p) => (self.param(p), Ty::I64),
            Memory::Shared(s) => (self.array(s), Ty::I32),
        };
        format!("{array}[{}]", self.op(index, ty))
    }

    fn param(&self, id: ParamId) -> String {
        reference(self.kernel.param_reference(id.0 as usize), '$', id.0)
    }

    fn array(&self, id: SharedId) -> String {
        reference(self.kernel.array_reference(id.0 as usize), '#', id.0)
    }

    fn regs(&self, regs: &[Reg]) -> String {
        regs.iter().map(|r| self.reg(*r)).collect::<Vec<_>>().join(", ")
    }

    fn ops(&self, operands: &[Operand], place: impl Into<Option<Ty>>) -> String {
        let place = place.into();
        operands.iter().map(|o| self.op(*o, place)).collect::<Vec<_>>().join(", ")
    }

    fn reg(&self, reg: Reg) -> String {
        format!("{}{}", letter(self.ty(reg)), reg.0)
    }

    fn ty(&self, reg: Reg) -> Option<Ty> {
        self.kernel.regs.get(reg.0 as usize).copied()
    }

    /// The type of the first of several registers.
    fn ty_of(&self, regs: &[Reg]) -> Option<Ty> {
        regs.first().and_then(|reg| self.ty(*reg))
    }

    /// The type of what is stored in a memory.
    fn stored(&self, memory: Memory) -> Option<Ty> {
        let exists = match memory {
            Memory::Global(p) => (p.0 as usize) < self.kernel.params.len(),
            Memory::Shared(s) => (s.0 as usize) < self.kernel.shared.len(),
        };
        if exists { self.kernel.elem(memory).map(Elem::value) } else { None }
    }

    /// An operand at a place that wants a type; `None` where the place does not say which.
    fn op(&self, operand: Operand, place: impl Into<Option<Ty>>) -> String {
        match operand {
            Operand::Reg(reg) => self.reg(reg),
            Operand::Const(Ty::Bool, Literal::Bool(b)) => b.to_string(),
            Operand::Const(ty, literal) if self.terse || place.into() == Some(ty) => number(ty, literal),
            Operand::Const(ty, literal) => format!("{}_{ty}", number(ty, literal)),
        }
    }
}

/// A constant without its type.
fn number(ty: Ty, literal: Literal) -> String {
    match literal {
        Literal::Bool(b) => b.to_string(),
        Literal::Int(i) => i.to_string(),
        Literal::Float(x) if ty == Ty::F32 => format!("{:?}", x as f32),
        Literal::Float(x) => format!("{x:?}"),
    }
}

/// A name where it is declared.
fn declared(name: &str) -> String {
    if oplus_dsl::names::is_name(name) { name.to_owned() } else { format!("{name:?}") }
}

/// A parameter or an array where it is used.
fn reference(reference: Option<Reference<'_>>, sign: char, index: u32) -> String {
    match reference {
        Some(Reference::Name(name)) if is_plain(name) => name.to_owned(),
        Some(Reference::Name(name)) => format!("{name:?}"),
        Some(Reference::Index) | None => format!("{sign}{index}"),
    }
}

/// Notes which registers statements read or assign.
fn mark_used(list: &[Stmt], is_used: &mut [bool]) {
    let mut mark = |reg: Reg| is_used.get_mut(reg.0 as usize).map(|used| *used = true);
    for stmt in list {
        stmt.for_each_use(|x| {
            if let Operand::Reg(reg) = x {
                mark(reg);
            }
        });
        stmt.for_each_definition(|reg| {
            mark(reg);
        });
        if let Stmt::For { var, .. } = stmt {
            mark(*var);
        }
    }
    for stmt in list {
        match stmt {
            Stmt::If { then, otherwise, .. } => [then, otherwise].into_iter().for_each(|l| mark_used(l, is_used)),
            Stmt::For { body, .. } | Stmt::Loop(body) => mark_used(body, is_used),
            _ => {}
        }
    }
}

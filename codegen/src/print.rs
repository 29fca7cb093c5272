//! The text of a kernel, for snapshots, messages and `explain`.
//!
//! One statement per line, two spaces per level. A register is its number behind the letter of its type, so that
//! every use shows the type: `i` i32, `l` i64, `u` u32, `w` u64, `f` f32, `d` f64, `p` bool. Constants take the type of
//! the place they stand in. Infix operators and `c ? a : b` as in C, everything else by name.

use std::fmt::{self, Display, Formatter, Write};

use oplus_dsl::Ty;
use oplus_dsl::ir::{Binary, Literal, Unary};

use crate::tile::{
    Expr, Half, Kernel, Left, Mbarrier, Memory, Operand, Panels, ParamId, ParamKind, PollEntry, Reg, SharedId,
    SharedKind, Shuffle, Special, Stmt,
};

impl Display for Kernel {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let params = self.params.iter().map(|p| format!("{}: {}", p.name, p.kind));
        write!(f, "kernel {}({})", self.name, params.collect::<Vec<_>>().join(", "))?;
        let keep = if self.keep_reads { " keep_reads" } else { "" };
        writeln!(f, " threads {} blocks_per_sm {}{keep}", self.threads, self.blocks_per_sm)?;
        for array in &self.shared {
            writeln!(f, "shared {}: {}[{}]", array.name, array.kind, array.len)?;
        }
        Printer { kernel: self, out: f }.list(&self.body, 1)
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
    /// The first line of a statement's text: all of it, except for the bodies of control flow and the entries of a poll.
    pub fn line(&self, stmt: &Stmt) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = Printer { kernel: self, out: &mut text }.head(stmt);
        text
    }
}

/// Prints the parts of a kernel.
struct Printer<'a, W: Write> {
    kernel: &'a Kernel,
    out: W,
}

impl<W: Write> Printer<'_, W> {
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
        let (index, values, tags) = (self.op(entry.index), self.regs(&entry.values), self.regs(&entry.tags));
        writeln!(self.out, "{}[{index}] {values} tags {tags}", "  ".repeat(depth))
    }

    fn head(&mut self, stmt: &Stmt) -> fmt::Result {
        let text = match stmt {
            Stmt::Let(reg, expr) => format!("{} = {}", self.reg(*reg), self.expr(expr)),
            Stmt::If { condition, .. } => format!("if {} {{", self.op(*condition)),
            Stmt::For { var, from, to, step, .. } => {
                let (from, to, step) = (self.op(*from), self.op(*to), self.op(*step));
                format!("for {} in {from}..{to} step {step} {{", self.reg(*var))
            }
            Stmt::Loop(_) => "loop {".into(),
            Stmt::Break(condition) => format!("break if {}", self.op(*condition)),
            Stmt::Load { dst, memory, index, guard, otherwise } => {
                let place = self.place(*memory, *index);
                let orelse = guard.map(|g| format!(" if {} else {}", self.op(g), self.op(*otherwise)));
                format!("load {} = {place}{}", self.regs(dst), orelse.unwrap_or_default())
            }
            Stmt::Store { memory, index, values, guard } => {
                format!("store {} = {}{}", self.place(*memory, *index), self.ops(values), self.guard(*guard))
            }
            Stmt::Poll { messages, tag, .. } => format!("poll {} tag {} {{", self.param(*messages), self.op(*tag)),
            Stmt::SetMaxRegisters { count, more } => {
                format!("registers {} {count}", if *more { "up to" } else { "down to" })
            }
            Stmt::Shuffle { .. } | Stmt::All { .. } | Stmt::SyncWarp | Stmt::Barrier { .. } => self.collective(stmt),
            Stmt::LoadMatrix { .. } | Stmt::Mma { .. } => self.matrix(stmt),
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
                format!("{} = shuffle_{mode}({}, {})", self.reg(*dst), self.op(*value), self.op(*lane))
            }
            Stmt::All { dst, condition } => format!("{} = all({})", self.reg(*dst), self.op(*condition)),
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
            Stmt::Mma { elem, dst, a, b, c } => {
                let [a, b, c] = [&a[..], b, c].map(|list| self.ops(list));
                format!("mma {elem} {} = ({a}) * ({b}) + ({c})", self.regs(dst))
            }
            Stmt::WarpgroupMma { elem, sums, clear, steps, transposed } => {
                let steps: Vec<String> = steps.iter().map(|step| self.step(*step)).collect();
                let (sign, order) = (if *clear { "=" } else { "+=" }, if *transposed { " transposed" } else { "" });
                format!("warpgroup_mma {elem}{order} {} {sign} {}", self.regs(sums), steps.join(" + "))
            }
            Stmt::WarpgroupWait { pending, sums } => format!("warpgroup_wait {pending} {}", self.regs(sums)),
            _ => String::new(),
        }
    }

    fn step(&self, (left, right): (Left, Panels)) -> String {
        let panels =
            |p: Panels| format!("{} rows {} apart {}", self.place(Memory::Shared(p.array), p.index), p.row, p.apart);
        match left {
            Left::Registers(registers) => format!("({}) * {}", self.ops(&registers), panels(right)),
            Left::Shared(left) => format!("{} * {}", panels(left), panels(right)),
        }
    }

    fn asynchronous(&self, stmt: &Stmt) -> String {
        match stmt {
            Stmt::MbarrierInit(mbarrier, count) => format!("{}.init {count}", self.mbarrier(*mbarrier)),
            Stmt::MbarrierArrive(mbarrier) => format!("{}.arrive", self.mbarrier(*mbarrier)),
            Stmt::MbarrierExpect(mbarrier, bytes) => {
                format!("{}.expect {}", self.mbarrier(*mbarrier), self.op(*bytes))
            }
            Stmt::MbarrierWait(mbarrier, parity) => format!("{}.wait {}", self.mbarrier(*mbarrier), self.op(*parity)),
            Stmt::CopyAsyncArrive(mbarrier) => format!("{}.copy_async_arrive", self.mbarrier(*mbarrier)),
            Stmt::BulkLoad { to, to_index, from, from_index, count, mbarrier } => {
                let to = self.place(Memory::Shared(*to), *to_index);
                let from = self.place(Memory::Global(*from), *from_index);
                format!("bulk_load {to} = {from} × {} on {}", self.op(*count), self.mbarrier(*mbarrier))
            }
            Stmt::BulkStore { to, to_index, from, from_index, count } => {
                let to = self.place(Memory::Global(*to), *to_index);
                let from = self.place(Memory::Shared(*from), *from_index);
                format!("bulk_store {to} = {from} × {}", self.op(*count))
            }
            Stmt::BulkWait { pending, read: true } => format!("bulk_wait_read {pending}"),
            Stmt::BulkWait { pending, read: false } => format!("bulk_wait {pending}"),
            Stmt::CopyAsync { to, to_index, from, from_index, elements, guard } => {
                let to = self.place(Memory::Shared(*to), *to_index);
                let from = self.place(Memory::Global(*from), *from_index);
                format!("copy_async {to} = {from} × {elements}{}", self.guard(*guard))
            }
            Stmt::FenceInit => "fence_init".into(),
            _ => "fence_async".into(),
        }
    }

    fn message(&self, stmt: &Stmt) -> String {
        match stmt {
            Stmt::DrawTicket { ticket, tag, control } => {
                format!("{}, {} = draw_ticket {}", self.reg(*ticket), self.reg(*tag), self.param(*control))
            }
            Stmt::ResetTickets { control, tag } => {
                format!("reset_tickets {} tag {}", self.param(*control), self.op(*tag))
            }
            Stmt::Publish { messages, index, values, tag, guard } => {
                let (index, values, tag) = (self.op(*index), self.ops(values), self.op(*tag));
                format!("publish {}[{index}] = {values} tag {tag}{}", self.param(*messages), self.guard(*guard))
            }
            _ => String::new(),
        }
    }

    fn expr(&self, expr: &Expr) -> String {
        match *expr {
            Expr::Copy(a) => self.op(a),
            Expr::Unary(op, a) => self.unary(op, a),
            Expr::Binary(op, a, b) => match infix(op) {
                Some(sign) => format!("{} {sign} {}", self.op(a), self.op(b)),
                None => format!("{}({}, {})", if op == Binary::Max { "max" } else { "min" }, self.op(a), self.op(b)),
            },
            Expr::Fma(a, b, c) => format!("fma({}, {}, {})", self.op(a), self.op(b), self.op(c)),
            Expr::Select(c, a, b) => format!("{} ? {} : {}", self.op(c), self.op(a), self.op(b)),
            Expr::Convert(elem, a) => format!("{elem}({})", self.op(a)),
            Expr::Bits(a) => format!("bits({})", self.op(a)),
            Expr::Param(p) => self.param(p),
            Expr::Special(special) => name_of(special).into(),
            Expr::Pack(elem, a, b) => format!("pack {elem}({}, {})", self.op(a), self.op(b)),
            Expr::Unpack(elem, Half::Low, a) => format!("low {elem}({})", self.op(a)),
            Expr::Unpack(elem, Half::High, a) => format!("high {elem}({})", self.op(a)),
            Expr::Exp2Fast(a) => format!("exp2_fast({})", self.op(a)),
            Expr::Log2Fast(a) => format!("log2_fast({})", self.op(a)),
            Expr::TanhFast(a) => format!("tanh_fast({})", self.op(a)),
            Expr::RecipFast(a) => format!("recip_fast({})", self.op(a)),
        }
    }

    fn unary(&self, op: Unary, a: Operand) -> String {
        let a = self.op(a);
        match op {
            Unary::Neg => format!("-{a}"),
            Unary::Not => format!("!{a}"),
            Unary::Powi(n) => format!("powi({a}, {n})"),
            named => format!("{}({a})", format!("{named:?}").to_lowercase()),
        }
    }

    fn guard(&self, guard: Option<Operand>) -> String {
        guard.map(|g| format!(" if {}", self.op(g))).unwrap_or_default()
    }

    fn mbarrier(&self, mbarrier: Mbarrier) -> String {
        self.place(Memory::Shared(mbarrier.array), mbarrier.index)
    }

    fn place(&self, memory: Memory, index: Operand) -> String {
        let array = match memory {
            Memory::Global(p) => self.param(p),
            Memory::Shared(s) => self.array(s),
        };
        format!("{array}[{}]", self.op(index))
    }

    fn param(&self, id: ParamId) -> String {
        self.kernel.params.get(id.0 as usize).map_or_else(|| format!("param{}?", id.0), |p| p.name.clone())
    }

    fn array(&self, id: SharedId) -> String {
        self.kernel.shared.get(id.0 as usize).map_or_else(|| format!("shared{}?", id.0), |s| s.name.clone())
    }

    fn regs(&self, regs: &[Reg]) -> String {
        regs.iter().map(|r| self.reg(*r)).collect::<Vec<_>>().join(", ")
    }

    fn ops(&self, operands: &[Operand]) -> String {
        operands.iter().map(|o| self.op(*o)).collect::<Vec<_>>().join(", ")
    }

    fn reg(&self, reg: Reg) -> String {
        let letter = match self.kernel.regs.get(reg.0 as usize) {
            Some(Ty::I32) => 'i',
            Some(Ty::I64) => 'l',
            Some(Ty::U32) => 'u',
            Some(Ty::U64) => 'w',
            Some(Ty::F32) => 'f',
            Some(Ty::F64) => 'd',
            Some(Ty::Bool) => 'p',
            Some(Ty::Call | Ty::Wide | Ty::Tuple) | None => '?',
        };
        format!("{letter}{}", reg.0)
    }

    fn op(&self, operand: Operand) -> String {
        match operand {
            Operand::Reg(reg) => self.reg(reg),
            Operand::Const(_, Literal::Bool(b)) => b.to_string(),
            Operand::Const(_, Literal::Int(i)) => i.to_string(),
            Operand::Const(Ty::F32, Literal::Float(x)) => format!("{:?}", x as f32),
            Operand::Const(_, Literal::Float(x)) => format!("{x:?}"),
        }
    }
}

/// The sign written between the operands, if there is one.
fn infix(op: Binary) -> Option<&'static str> {
    Some(match op {
        Binary::Add => "+",
        Binary::Sub => "-",
        Binary::Mul => "*",
        Binary::Div => "/",
        Binary::Rem => "%",
        Binary::Max | Binary::Min => return None,
        Binary::Lt => "<",
        Binary::Le => "<=",
        Binary::Gt => ">",
        Binary::Ge => ">=",
        Binary::Eq => "==",
        Binary::Ne => "!=",
        Binary::And => "&",
        Binary::Or => "|",
        Binary::Xor => "^",
        Binary::Shl => "<<",
        Binary::Shr => ">>",
    })
}

fn name_of(special: Special) -> &'static str {
    match special {
        Special::Thread => "thread",
        Special::Block => "block",
        Special::BlockY => "block_y",
        Special::Blocks => "blocks",
        Special::Lane => "lane",
        Special::Warp => "warp",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{Builder, zero};
    use oplus_dsl::Elem;

    #[test]
    fn every_kind_of_statement() {
        let mut b = Builder::new("sample", 64);
        let x = b.param("x", ParamKind::Read(Elem::Bf16));
        let y = b.param("y", ParamKind::Write(Elem::Bf16));
        let n = b.param("n", ParamKind::Scalar(Ty::I64));
        let messages = b.param("messages", ParamKind::Messages);
        let control = b.param("control", ParamKind::Control);
        let tile = b.shared("tile", SharedKind::Elem(Elem::Bf16), 256);
        let full = b.shared("full", SharedKind::Mbarrier, 2);

        let (at, from) = (Operand::i32(8), Operand::i64(16));
        let mbarrier = b.mbarrier(full, Operand::i32(1));
        let thread = b.special(Special::Thread);
        let first = b.eq(thread, Operand::i32(0));
        let size = b.scalar(n);
        let (ticket, launch, tag) = (b.reg(Ty::U32), b.reg(Ty::U32), b.var(Operand::u32(0)));
        b.if_else(
            first,
            |b| {
                b.push(Stmt::MbarrierInit(mbarrier, 1));
                b.push(Stmt::FenceInit);
                b.push(Stmt::MbarrierExpect(mbarrier, Operand::i32(256)));
                let count = Operand::i32(128);
                b.push(Stmt::BulkLoad { to: tile, to_index: at, from: x, from_index: from, count, mbarrier });
                b.push(Stmt::DrawTicket { ticket, tag: launch, control });
                b.push(Stmt::ResetTickets { control, tag: launch.into() });
            },
            |b| {
                let guard = Some(first);
                b.push(Stmt::CopyAsync { to: tile, to_index: at, from: x, from_index: from, elements: 8, guard });
                b.push(Stmt::CopyAsyncArrive(mbarrier));
                b.push(Stmt::MbarrierArrive(mbarrier));
            },
        );
        b.barrier();
        b.push(Stmt::MbarrierWait(mbarrier, Operand::i32(0)));
        b.for_(Operand::i64(0), size, Operand::i64(4), |b, i| {
            let loaded = b.load(Memory::Global(x), i, 2, Some(first), zero(Ty::F32));
            let half = b.let_(Ty::F32, Expr::Convert(Elem::Bf16, loaded[0]));
            let other = b.shuffle(Shuffle::Up, half, Operand::i32(1));
            let most = b.binary(Binary::Max, other, loaded[1]);
            let sum = b.fma(most, Operand::Const(Ty::F32, Literal::Float(0.1)), half);
            b.store(Memory::Global(y), i, &[sum, most], None);
        });
        let matrices = b.load_matrix(tile, at, 2, true);
        let accumulator = [0, 1, 2, 3].map(|_| b.var(zero(Ty::F32)));
        b.mma(Elem::Bf16, accumulator, [matrices[0]; 4], [matrices[1]; 2]);
        let packed = b.pack(Elem::F16, accumulator[0].into(), accumulator[3].into());
        b.unpack(Elem::F16, packed);
        let panels = |index| Panels { array: tile, index: Operand::i32(index), row: 16, apart: 128 };
        b.push(Stmt::WarpgroupMma {
            elem: Elem::F16,
            sums: accumulator.to_vec(),
            clear: false,
            steps: vec![(Left::Registers([packed; 4]), panels(0)), (Left::Shared(panels(0)), panels(128))],
            transposed: true,
        });
        b.push(Stmt::WarpgroupWait { pending: 0, sums: accumulator.to_vec() });
        b.push(Stmt::FenceAsync);
        b.push(Stmt::BulkStore { to: y, to_index: from, from: tile, from_index: at, count: Operand::i32(128) });
        b.push(Stmt::BulkWait { pending: 0, read: true });
        b.push(Stmt::Publish {
            messages,
            index: from,
            values: vec![Operand::u32(1), Operand::u32(2)],
            tag: tag.into(),
            guard: Some(first),
        });
        b.loop_(|b| {
            let entries = vec![PollEntry { index: from, values: vec![ticket], tags: vec![tag] }];
            b.push(Stmt::Poll { messages, entries, tag: Operand::u32(1) });
            let here = b.eq(tag.into(), Operand::u32(1));
            let done = b.all(here);
            b.break_if(done);
            b.push(Stmt::SyncWarp);
        });
        insta::assert_snapshot!(b.finish().to_string());
    }
}

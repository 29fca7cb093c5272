//! Random kernels, well formed only in that what they name exists.

use oplus_codegen::tile::{
    Expr, Half, Kernel, Left, Mbarrier, Memory, Operand, Panels, Param, ParamId, ParamKind, PollEntry, Reg, Shared,
    SharedId, SharedKind, Shuffle, Special, Stmt,
};
use oplus_dsl::ir::{Binary, Literal, Unary};
use oplus_dsl::rng::Rng;
use oplus_dsl::{Elem, Ty};
use proptest::prelude::*;

use super::round_trip;

const TYPES: [Ty; 7] = [Ty::I32, Ty::I64, Ty::U32, Ty::U64, Ty::F32, Ty::F64, Ty::Bool];
const ELEMS: [Elem; 6] = [Elem::F32, Elem::Bf16, Elem::F16, Elem::F64, Elem::I32, Elem::Bool];
/// Names that are easily mistaken for something else, among others, and some twice.
const NAMES: [&str; 16] = [
    "x",
    "y",
    "x.bar",
    "δ",
    "i0",
    "f31",
    "thread",
    "true",
    "inf_f32",
    "load",
    "pack",
    "two words",
    "quote\" \\ \n\u{7}",
    "1d",
    "",
    "max",
];

/// Makes the parts of a kernel.
struct Maker {
    rng: Rng,
    regs: Vec<Ty>,
}

impl Maker {
    fn reg(&mut self) -> Reg {
        Reg(self.rng.below(self.regs.len()) as u32)
    }

    fn regs(&mut self) -> Vec<Reg> {
        (0..=self.rng.below(3)).map(|_| self.reg()).collect()
    }

    fn literal(&mut self, ty: Ty) -> Literal {
        let bits = self.rng.bits();
        let float = self.rng.pick(&[0.0, -0.0, 1.0, -1.5, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e30, 0.1]);
        let float = if self.rng.once_in(2) || f64::from_bits(bits).is_nan() { float } else { f64::from_bits(bits) };
        let whole = self.rng.pick(&[0, 1, -1, 7, i64::MIN, i64::MAX, bits as i64]);
        match ty {
            Ty::Bool => Literal::Bool(self.rng.once_in(2)),
            Ty::F64 => Literal::Float(float),
            Ty::F32 => Literal::Float(f64::from(float as f32)),
            _ => Literal::Int(whole),
        }
    }

    fn op(&mut self) -> Operand {
        if self.rng.once_in(2) {
            return self.reg().into();
        }
        let ty = self.rng.pick(&TYPES);
        Operand::Const(ty, self.literal(ty))
    }

    fn ops(&mut self) -> Vec<Operand> {
        (0..=self.rng.below(3)).map(|_| self.op()).collect()
    }

    fn array<T, const N: usize>(&mut self, mut make: impl FnMut(&mut Maker) -> T) -> [T; N] {
        std::array::from_fn(|_| make(self))
    }

    fn guard(&mut self) -> Option<Operand> {
        if self.rng.once_in(2) { Some(self.op()) } else { None }
    }

    fn param(&mut self) -> ParamId {
        ParamId(self.rng.below(NAMES.len()) as u32)
    }

    fn shared(&mut self) -> SharedId {
        SharedId(self.rng.below(NAMES.len()) as u32)
    }

    fn memory(&mut self) -> Memory {
        if self.rng.once_in(2) { Memory::Global(self.param()) } else { Memory::Shared(self.shared()) }
    }

    fn mbarrier(&mut self) -> Mbarrier {
        Mbarrier { array: self.shared(), index: self.op() }
    }

    fn count(&mut self) -> u32 {
        self.rng.bits() as u32
    }

    fn expr(&mut self) -> Expr {
        let unary: Vec<Unary> = Unary::all().chain([Unary::Powi(-3), Unary::Powi(i32::MIN)]).collect();
        let binary: Vec<Binary> = Binary::all().collect();
        let special = [Special::Thread, Special::Block, Special::BlockY, Special::Blocks, Special::Lane, Special::Warp];
        let elem = self.rng.pick(&ELEMS);
        let [a, b, c] = self.array(Maker::op);
        match self.rng.below(15) {
            0 => Expr::Copy(a),
            1 => Expr::Unary(self.rng.pick(&unary), a),
            2 => Expr::Binary(self.rng.pick(&binary), a, b),
            3 => Expr::Fma(a, b, c),
            4 => Expr::Select(a, b, c),
            5 => Expr::Convert(elem, a),
            6 => Expr::Bits(a),
            7 => Expr::Param(self.param()),
            8 => Expr::Special(self.rng.pick(&special)),
            9 => Expr::Pack(elem, a, b),
            10 => Expr::Unpack(elem, self.rng.pick(&[Half::Low, Half::High]), a),
            11 => Expr::Exp2Fast(a),
            12 => Expr::Log2Fast(a),
            13 => Expr::TanhFast(a),
            _ => Expr::RecipFast(a),
        }
    }

    fn panels(&mut self) -> Panels {
        Panels { array: self.shared(), index: self.op(), row: self.count(), apart: self.count() }
    }

    fn step(&mut self) -> (Left, Panels) {
        let left =
            if self.rng.once_in(2) { Left::Registers(self.array(Maker::op)) } else { Left::Shared(self.panels()) };
        (left, self.panels())
    }

    fn list(&mut self, depth: usize) -> Vec<Stmt> {
        (0..self.rng.below(8)).map(|_| self.stmt(depth)).collect()
    }

    fn stmt(&mut self, depth: usize) -> Stmt {
        match self.rng.below(if depth == 0 { 7 } else { 10 }) {
            0..3 => Stmt::Let(self.reg(), self.expr()),
            3 => self.of_memory(),
            4 => self.of_matrices(),
            5 => self.of_barriers(),
            6 => self.of_messages(),
            7 => Stmt::If { condition: self.op(), then: self.list(depth - 1), otherwise: self.list(depth - 1) },
            8 => Stmt::Loop(self.list(depth - 1)),
            _ => {
                let [from, to, step] = self.array(Maker::op);
                Stmt::For { var: self.reg(), from, to, step, body: self.list(depth - 1) }
            }
        }
    }

    fn of_memory(&mut self) -> Stmt {
        let (to_index, from_index, count) = (self.op(), self.op(), self.op());
        let (shared, global) = (self.shared(), self.param());
        match self.rng.below(6) {
            0 => {
                let (guard, otherwise) = (self.guard(), self.op());
                Stmt::Load { dst: self.regs(), memory: self.memory(), index: to_index, guard, otherwise }
            }
            1 => Stmt::Store { memory: self.memory(), index: to_index, values: self.ops(), guard: self.guard() },
            2 => {
                let mbarrier = self.mbarrier();
                Stmt::BulkLoad { to: shared, to_index, from: global, from_index, count, mbarrier }
            }
            3 => Stmt::BulkStore { to: global, to_index, from: shared, from_index, count, adds: self.rng.once_in(2) },
            4 => Stmt::BulkWait { pending: self.count(), read: self.rng.once_in(2) },
            _ => {
                let (elements, guard) = (self.count(), self.guard());
                Stmt::CopyAsync { to: shared, to_index, from: global, from_index, elements, guard }
            }
        }
    }

    fn of_matrices(&mut self) -> Stmt {
        let elem = self.rng.pick(&ELEMS);
        match self.rng.below(5) {
            0 => {
                let transposed = self.rng.once_in(2);
                Stmt::LoadMatrix { dst: self.regs(), array: self.shared(), index: self.op(), transposed }
            }
            4 => {
                let transposed = self.rng.once_in(2);
                Stmt::StoreMatrix { values: self.ops(), array: self.shared(), index: self.op(), transposed }
            }
            1 => {
                let (a, b, c) = (self.array(Maker::op), self.array(Maker::op), self.array(Maker::op));
                Stmt::Mma { elem, dst: self.array(Maker::reg), a, b, c }
            }
            2 => {
                let steps = (0..=self.rng.below(2)).map(|_| self.step()).collect();
                let [clear, transposed] = self.array(|m| m.rng.once_in(2));
                Stmt::WarpgroupMma { elem, sums: self.regs(), clear, steps, transposed }
            }
            _ => {
                let sums = if self.rng.once_in(2) { vec![] } else { self.regs() };
                Stmt::WarpgroupWait { pending: self.count(), sums }
            }
        }
    }

    fn of_barriers(&mut self) -> Stmt {
        let mbarrier = self.mbarrier();
        match self.rng.below(13) {
            0 => Stmt::MbarrierInit(mbarrier, self.count()),
            1 => Stmt::MbarrierArrive(mbarrier),
            2 => Stmt::MbarrierExpect(mbarrier, self.op()),
            3 => Stmt::MbarrierWait(mbarrier, self.op()),
            4 => Stmt::CopyAsyncArrive(mbarrier),
            5 => Stmt::FenceInit,
            6 => Stmt::FenceAsync,
            7 => Stmt::SyncWarp,
            8 => Stmt::Barrier { id: self.count(), threads: self.count() },
            9 => Stmt::SetMaxRegisters { count: self.count(), more: self.rng.once_in(2) },
            10 => Stmt::Break(self.op()),
            11 => Stmt::All { dst: self.reg(), condition: self.op() },
            _ => {
                let mode = self.rng.pick(&[Shuffle::Up, Shuffle::Down, Shuffle::Xor, Shuffle::Index]);
                Stmt::Shuffle { dst: self.reg(), value: self.op(), mode, lane: self.op() }
            }
        }
    }

    fn of_messages(&mut self) -> Stmt {
        let messages = self.param();
        match self.rng.below(4) {
            0 => Stmt::DrawTicket { ticket: self.reg(), tag: self.reg(), control: messages },
            1 => Stmt::ResetTickets { control: messages, tag: self.op() },
            2 => {
                let (index, values, guard) = (self.op(), self.ops(), self.guard());
                Stmt::Publish { messages, index, values, tag: self.op(), guard }
            }
            _ => {
                let entry = |m: &mut Maker| PollEntry { index: m.op(), values: m.regs(), tags: m.regs() };
                let entries = (0..self.rng.below(3)).map(|_| entry(self)).collect();
                Stmt::Poll { messages, entries, tag: self.op() }
            }
        }
    }

    fn param_kind(&mut self) -> ParamKind {
        match self.rng.below(5) {
            0 => ParamKind::Read(self.rng.pick(&ELEMS)),
            1 => ParamKind::Write(self.rng.pick(&ELEMS)),
            2 => ParamKind::Messages,
            3 => ParamKind::Control,
            _ => ParamKind::Scalar(self.rng.pick(&TYPES)),
        }
    }

    fn kernel(&mut self) -> Kernel {
        let param = |m: &mut Maker| Param { name: m.rng.pick(&NAMES).to_owned(), kind: m.param_kind() };
        let shared = |m: &mut Maker| {
            let kind = if m.rng.once_in(3) { SharedKind::Mbarrier } else { SharedKind::Elem(m.rng.pick(&ELEMS)) };
            Shared { name: m.rng.pick(&NAMES).to_owned(), kind, len: m.count() }
        };
        Kernel {
            name: self.rng.pick(&["kernel", "k", "no name"]).to_owned(),
            params: NAMES.iter().map(|_| param(self)).collect(),
            threads: self.count(),
            blocks_per_sm: self.count(),
            keep_reads: self.rng.once_in(2),
            chain_addresses: self.rng.once_in(2),
            shared: NAMES.iter().map(|_| shared(self)).collect(),
            body: self.list(3),
            regs: self.regs.clone(),
        }
    }
}

fn kernel(seed: u64) -> Kernel {
    let mut rng = Rng::new(seed);
    let regs = (0..rng.below(40) + 1).map(|_| rng.pick(&TYPES)).collect();
    Maker { rng, regs }.kernel()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_kernel_reads_back(seed: u64) {
        round_trip(&kernel(seed));
    }

    #[test]
    fn no_text_makes_the_parser_panic(seed: u64, at: prop::sample::Index, cut: prop::sample::Index, put in ".{0,3}") {
        let text = kernel(seed).to_string();
        let mut letters: Vec<char> = text.chars().collect();
        let from = at.index(letters.len());
        let to = (from + cut.index(8)).min(letters.len());
        letters.splice(from..to, put.chars());
        let changed: String = letters.into_iter().collect();
        if let Ok(read) = changed.parse::<Kernel>() {
            prop_assert_eq!(read.to_string().parse(), Ok(read));
        }
    }
}

//! Statements.

use oplus_dsl::Ty;

use super::super::{Left, Panels, PollEntry, Reg, Stmt};
use super::lex::Token;
use super::{Parsed, Parser};
use crate::build::zero;
use crate::tile::path::Step;

impl Parser {
    /// Statements up to the end of the text or a `}`.
    pub(super) fn body(&mut self) -> Parsed<Vec<Stmt>> {
        let mut list = vec![];
        while *self.peek() != Token::End && !self.is_sign("}") {
            self.path.push(Step::At(list.len() as u32));
            self.lines.insert(self.path.clone(), self.tokens[self.at].line);
            let stmt = self.statement();
            self.path.pop();
            list.push(stmt?);
        }
        Ok(list)
    }

    fn statement(&mut self) -> Parsed<Stmt> {
        let stmt = match self.peek().clone() {
            Token::Word(_) if self.is_register() => self.of_registers()?,
            Token::Word(word) => {
                let at = self.at;
                self.advance();
                match self.keyword(&word)? {
                    Some(stmt) => stmt,
                    None => {
                        self.at = at;
                        self.of_mbarrier()?
                    }
                }
            }
            Token::Quoted(_) | Token::Sign("$" | "#") => self.of_mbarrier()?,
            _ => return self.fail_expected("a statement"),
        };
        self.end_of_line()?;
        Ok(stmt)
    }

    /// The statement of a word that has been read, if one begins with it.
    fn keyword(&mut self, word: &str) -> Parsed<Option<Stmt>> {
        Ok(Some(match word {
            "if" => self.branch()?,
            "for" => self.counted_loop()?,
            "loop" => self.endless_loop()?,
            "break" => {
                self.word("if")?;
                Stmt::Break(self.operand(Ty::Bool)?)
            }
            "load" => self.load()?,
            "store" => self.store()?,
            "load_matrix" | "load_matrix_transposed" => self.load_matrix(word == "load_matrix_transposed")?,
            "store_matrix" | "store_matrix_transposed" => self.store_matrix(word == "store_matrix_transposed")?,
            "mma" => self.mma()?,
            "warpgroup_mma" => self.warpgroup_mma()?,
            "warpgroup_wait" => {
                let pending = self.count("how many products may be outstanding")?;
                let sums = if *self.peek() == Token::Line { vec![] } else { self.registers()? };
                Stmt::WarpgroupWait { pending, sums }
            }
            "syncwarp" => Stmt::SyncWarp,
            "barrier" => {
                let id = self.count("the barrier's id")?;
                self.sign(",")?;
                Stmt::Barrier { id, threads: self.count("a number of threads")? }
            }
            "registers" => self.max_registers()?,
            _ => return self.asynchronous(word),
        }))
    }

    fn asynchronous(&mut self, word: &str) -> Parsed<Option<Stmt>> {
        Ok(Some(match word {
            "fence_init" => Stmt::FenceInit,
            "fence_async" => Stmt::FenceAsync,
            "fence_device" => Stmt::FenceDevice,
            "bulk_load" => {
                let (to, to_index) = self.shared_place()?;
                self.sign("=")?;
                let (from, from_index) = self.global_place()?;
                self.times()?;
                let count = self.operand(Ty::I32)?;
                self.word("on")?;
                let mbarrier = self.mbarrier()?;
                Stmt::BulkLoad { to, to_index, from, from_index, count, mbarrier }
            }
            "bulk_store" => {
                let (to, to_index) = self.global_place()?;
                let adds = self.accept("+=");
                if !adds {
                    self.sign("=")?;
                }
                let (from, from_index) = self.shared_place()?;
                self.times()?;
                Stmt::BulkStore { to, to_index, from, from_index, count: self.operand(Ty::I32)?, adds }
            }
            "bulk_wait" | "bulk_wait_read" => {
                let pending = self.count("how many copies may be outstanding")?;
                Stmt::BulkWait { pending, read: word == "bulk_wait_read" }
            }
            "copy_async" => {
                let (to, to_index) = self.shared_place()?;
                self.sign("=")?;
                let (from, from_index) = self.global_place()?;
                self.times()?;
                let elements = self.count("a number of elements")?;
                Stmt::CopyAsync { to, to_index, from, from_index, elements, guard: self.guard()? }
            }
            _ => return self.message(word),
        }))
    }

    fn message(&mut self, word: &str) -> Parsed<Option<Stmt>> {
        Ok(Some(match word {
            "reset_tickets" => {
                let control = self.param_name()?;
                self.word("tag")?;
                Stmt::ResetTickets { control, tag: self.operand(Ty::U32)? }
            }
            "publish" => {
                let (messages, index) = self.global_place()?;
                self.sign("=")?;
                let values = self.operands(Ty::U32)?;
                self.word("tag")?;
                let tag = self.operand(Ty::U32)?;
                Stmt::Publish { messages, index, values, tag, guard: self.guard()? }
            }
            "poll" => self.poll()?,
            _ => return Ok(None),
        }))
    }

    // ---- control flow

    fn branch(&mut self) -> Parsed<Stmt> {
        let condition = self.operand(Ty::Bool)?;
        self.open()?;
        let then = self.inside(Step::Then, Parser::body)?;
        self.sign("}")?;
        if !self.accept_word("else") {
            return Ok(Stmt::If { condition, then, otherwise: vec![] });
        }
        self.open()?;
        let otherwise = self.inside(Step::Else, Parser::body)?;
        self.sign("}")?;
        Ok(Stmt::If { condition, then, otherwise })
    }

    /// `for v in a..b step s {`
    fn counted_loop(&mut self) -> Parsed<Stmt> {
        let var = self.register()?;
        let ty = self.registers.ty(var);
        self.word("in")?;
        let from = self.operand(ty)?;
        self.sign("..")?;
        let to = self.operand(ty)?;
        self.word("step")?;
        let step = self.operand(ty)?;
        self.open()?;
        let body = self.inside(Step::Body, Parser::body)?;
        self.sign("}")?;
        Ok(Stmt::For { var, from, to, step, body })
    }

    fn endless_loop(&mut self) -> Parsed<Stmt> {
        self.open()?;
        let body = self.inside(Step::Body, Parser::body)?;
        self.sign("}")?;
        Ok(Stmt::Loop(body))
    }

    /// The `{` of a body, last in its line.
    fn open(&mut self) -> Parsed<()> {
        self.sign("{")?;
        self.end_of_line()
    }

    // ---- memory

    fn load(&mut self) -> Parsed<Stmt> {
        let dst = self.registers()?;
        let ty = self.registers.ty(dst[0]);
        self.sign("=")?;
        let (memory, index) = self.place()?;
        let guard = self.guard()?;
        let otherwise = match guard {
            Some(_) => {
                self.word("else")?;
                self.operand(ty)?
            }
            None if self.accept_word("else") => self.operand(ty)?,
            None => zero(ty),
        };
        Ok(Stmt::Load { dst, memory, index, guard, otherwise })
    }

    fn store(&mut self) -> Parsed<Stmt> {
        let (memory, index) = self.place()?;
        self.sign("=")?;
        let values = self.operands(self.stored(memory))?;
        Ok(Stmt::Store { memory, index, values, guard: self.guard()? })
    }

    /// `×` or `x`, before the size of a copy.
    fn times(&mut self) -> Parsed<()> {
        if self.accept("×") || self.accept_word("x") { Ok(()) } else { self.fail_expected("`×` and a size") }
    }

    // ---- registers and mbarriers

    /// `r = …` or `r, r = draw_ticket c`
    fn of_registers(&mut self) -> Parsed<Stmt> {
        let first = self.register()?;
        if self.accept(",") {
            let tag = self.register()?;
            self.sign("=")?;
            self.word("draw_ticket")?;
            return Ok(Stmt::DrawTicket { ticket: first, tag, control: self.param_name()? });
        }
        self.sign("=")?;
        self.assignment(first)
    }

    /// `m[k].wait 0` and the like
    fn of_mbarrier(&mut self) -> Parsed<Stmt> {
        const EXPECTED: &str = "`init`, `arrive`, `expect`, `wait` or `copy_async_arrive`";
        let mbarrier = self.mbarrier()?;
        self.sign(".")?;
        let Token::Word(word) = self.peek().clone() else { return self.fail_expected(EXPECTED) };
        let at = self.at;
        self.advance();
        Ok(match word.as_str() {
            "init" => Stmt::MbarrierInit(mbarrier, self.count("a number of arrivals")?),
            "arrive" => Stmt::MbarrierArrive(mbarrier),
            "expect" => Stmt::MbarrierExpect(mbarrier, self.operand(Ty::I32)?),
            "wait" => Stmt::MbarrierWait(mbarrier, self.operand(Ty::I32)?),
            "copy_async_arrive" => Stmt::CopyAsyncArrive(mbarrier),
            _ => {
                self.at = at;
                return self.fail_expected(EXPECTED);
            }
        })
    }

    fn max_registers(&mut self) -> Parsed<Stmt> {
        let more = self.accept_word("up");
        if !more && !self.accept_word("down") {
            return self.fail_expected("`up to` or `down to`");
        }
        self.word("to")?;
        Ok(Stmt::SetMaxRegisters { count: self.count("a number of registers")?, more })
    }

    // ---- matrices

    fn load_matrix(&mut self, transposed: bool) -> Parsed<Stmt> {
        let dst = self.registers()?;
        self.sign("=")?;
        let (array, index) = self.shared_place()?;
        Ok(Stmt::LoadMatrix { dst, array, index, transposed })
    }

    fn store_matrix(&mut self, transposed: bool) -> Parsed<Stmt> {
        let (array, index) = self.shared_place()?;
        self.sign("=")?;
        Ok(Stmt::StoreMatrix { values: self.operands(Ty::U32)?, array, index, transposed })
    }

    fn mma(&mut self) -> Parsed<Stmt> {
        let elem = self.elem()?;
        let at = self.at;
        let Ok(dst) = <[Reg; 4]>::try_from(self.registers()?) else {
            self.at = at;
            return self.fail("expected 4 registers of a product");
        };
        self.sign("=")?;
        let a = self.tuple(Ty::U32)?;
        self.sign("*")?;
        let b = self.tuple(Ty::U32)?;
        self.sign("+")?;
        Ok(Stmt::Mma { elem, dst, a, b, c: self.tuple(Ty::F32)? })
    }

    fn warpgroup_mma(&mut self) -> Parsed<Stmt> {
        let elem = self.elem()?;
        let transposed = self.accept_word("transposed");
        let sums = self.registers()?;
        let clear = !self.accept("+=");
        if clear {
            self.sign("=")?;
        }
        let mut steps = vec![self.matrix_step()?];
        while self.accept("+") {
            steps.push(self.matrix_step()?);
        }
        Ok(Stmt::WarpgroupMma { elem, sums, clear, steps, transposed })
    }

    fn matrix_step(&mut self) -> Parsed<(Left, Panels)> {
        let left = if self.is_sign("(") { Left::Registers(self.tuple(Ty::U32)?) } else { Left::Shared(self.panels()?) };
        self.sign("*")?;
        Ok((left, self.panels()?))
    }

    fn panels(&mut self) -> Parsed<Panels> {
        let (array, index) = self.shared_place()?;
        self.word("rows")?;
        let row = self.count("the elements of a row")?;
        self.word("apart")?;
        Ok(Panels { array, index, row, apart: self.count("how many elements panels are apart")? })
    }

    // ---- messages

    fn poll(&mut self) -> Parsed<Stmt> {
        let messages = self.param_name()?;
        self.word("tag")?;
        let tag = self.operand(Ty::U32)?;
        self.open()?;
        let mut entries = vec![];
        while self.accept("[") {
            let index = self.operand(Ty::I64)?;
            self.sign("]")?;
            let values = self.registers()?;
            self.word("tags")?;
            entries.push(PollEntry { index, values, tags: self.registers()? });
            self.end_of_line()?;
        }
        self.sign("}")?;
        Ok(Stmt::Poll { messages, entries, tag })
    }
}

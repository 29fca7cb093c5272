//! The registers that a text mentions.

use oplus_dsl::Ty;

use super::super::text::{letter, register};
use super::super::{Operand, Reg};
use super::lex::Token;
use super::{Parsed, Parser};

/// The most registers of a kernel.
const MAX_REGISTERS: u32 = 1 << 20;

/// The types of the registers seen so far.
#[derive(Default)]
pub(super) struct Registers(Vec<Option<Ty>>);

impl Registers {
    /// The type of every register up to the last one that was mentioned; `i32` of those that were not.
    pub(super) fn types(&self) -> Vec<Ty> {
        self.0.iter().map(|ty| ty.unwrap_or(Ty::I32)).collect()
    }

    /// Notes a register; `Err` gives the type that it has elsewhere.
    fn note(&mut self, ty: Ty, number: u32) -> Result<Reg, Ty> {
        let index = number as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, None);
        }
        let known = *self.0[index].get_or_insert(ty);
        if known == ty { Ok(Reg(number)) } else { Err(known) }
    }

    /// The type of a register that was noted.
    pub(super) fn ty(&self, reg: Reg) -> Ty {
        self.0.get(reg.0 as usize).copied().flatten().unwrap_or(Ty::I32)
    }
}

impl Parser {
    /// Whether the next token is a register, rather than a conversion such as `f32(`.
    pub(super) fn is_register(&self) -> bool {
        let names = matches!(self.peek(), Token::Word(word) if register(word).is_some());
        names && *self.peek_at(1) != Token::Sign("(")
    }

    pub(super) fn register(&mut self) -> Parsed<Reg> {
        let found = if let Token::Word(word) = self.peek() { register(word) } else { None };
        let Some((ty, number)) = found else {
            return self.fail_expected("a register such as `f7` or `i2`");
        };
        if number >= MAX_REGISTERS {
            return self.fail(format!("a kernel has at most {MAX_REGISTERS} registers"));
        }
        match self.registers.note(ty, number) {
            Ok(reg) => {
                self.advance();
                Ok(reg)
            }
            Err(known) => {
                let other = format!("{}{number}", letter(Some(known)));
                self.fail(format!("register {number} is {ty} here, but {known} where it stands as `{other}`"))
            }
        }
    }

    pub(super) fn registers(&mut self) -> Parsed<Vec<Reg>> {
        self.list(Parser::register)
    }

    /// The type of an operand that has been read.
    pub(super) fn ty_of(&self, operand: Operand) -> Ty {
        match operand {
            Operand::Reg(reg) => self.registers.ty(reg),
            Operand::Const(ty, _) => ty,
        }
    }
}

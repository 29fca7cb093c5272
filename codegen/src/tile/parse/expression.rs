//! Expressions: the text behind `=` of an assignment.

use oplus_dsl::ir::{Binary, Unary};
use oplus_dsl::{Elem, Ty};

use super::super::text::special;
use super::super::{Expr, Half, Operand, Reg, Shuffle, Stmt};
use super::lex::Token;
use super::operand::Raw;
use super::{Parsed, Parser};

const EXPECTED: &str = "an operand, a function, a sign, or the name of a number among the parameters";

/// The signs between two operands, as tokens have them.
const INFIX: [&str; 16] = ["+", "-", "*", "/", "%", "<", "<=", ">", ">=", "==", "!=", "&", "|", "^", "<<", ">>"];

impl Parser {
    /// `r = …`, of which the register and the sign have been read.
    pub(super) fn assignment(&mut self, dst: Reg) -> Parsed<Stmt> {
        let to = self.registers.ty(dst);
        if let Some(stmt) = self.collective(dst, to)? {
            return Ok(stmt);
        }
        self.expr(to).map(|expr| Stmt::Let(dst, expr))
    }

    /// A shuffle or a vote.
    fn collective(&mut self, dst: Reg, to: Ty) -> Parsed<Option<Stmt>> {
        let Token::Word(word) = self.peek().clone() else { return Ok(None) };
        let mode = match word.as_str() {
            "shuffle_up" => Shuffle::Up,
            "shuffle_down" => Shuffle::Down,
            "shuffle_xor" => Shuffle::Xor,
            "shuffle_index" => Shuffle::Index,
            "all" => {
                self.advance();
                let [condition] = self.tuple(Ty::Bool)?;
                return Ok(Some(Stmt::All { dst, condition }));
            }
            _ => return Ok(None),
        };
        if *self.peek_at(1) != Token::Sign("(") {
            return Ok(None);
        }
        self.advance();
        self.sign("(")?;
        let value = self.operand(to)?;
        self.sign(",")?;
        let lane = self.operand(Ty::I32)?;
        self.sign(")")?;
        Ok(Some(Stmt::Shuffle { dst, value, mode, lane }))
    }

    fn expr(&mut self, to: Ty) -> Parsed<Expr> {
        if self.is_operand() {
            return self.infix(to);
        }
        match self.peek().clone() {
            Token::Sign("-") => self.negation(to),
            Token::Sign("!") => {
                self.advance();
                self.operand(to).map(|a| Expr::Unary(Unary::Not, a))
            }
            Token::Sign("$") | Token::Quoted(_) => self.param_name().map(Expr::Param),
            Token::Word(word) if *self.peek_at(1) == Token::Sign("(") => self.function(&word, to),
            Token::Word(word) if self.is_half(&word) => self.half(&word),
            Token::Word(word) => match special(&word) {
                Some(special) => {
                    self.advance();
                    Ok(Expr::Special(special))
                }
                None => self.param_name().map(Expr::Param),
            },
            _ => self.fail_expected(EXPECTED),
        }
    }

    /// `-a` or `-(1.0)`
    fn negation(&mut self, to: Ty) -> Parsed<Expr> {
        self.advance();
        let a = if self.is_sign("(") {
            let [a] = self.tuple(to)?;
            a
        } else {
            self.operand(to)?
        };
        Ok(Expr::Unary(Unary::Neg, a))
    }

    /// `a`, `a + b`, `c ? a : b`
    fn infix(&mut self, to: Ty) -> Parsed<Expr> {
        let first = self.raw()?;
        if self.accept("?") {
            let condition = self.typed(first, Some(Ty::Bool))?;
            let a = self.operand(to)?;
            self.sign(":")?;
            return Ok(Expr::Select(condition, a, self.operand(to)?));
        }
        let op = match self.peek() {
            Token::Sign(sign) if INFIX.contains(sign) => Binary::from_symbol(sign),
            _ => None,
        };
        let Some(op) = op else { return self.typed(first, Some(to)).map(Expr::Copy) };
        self.advance();
        let second = self.raw()?;
        self.binary(op, [first, second], to)
    }

    fn binary(&mut self, op: Binary, [first, second]: [Raw; 2], to: Ty) -> Parsed<Expr> {
        let known = |raw: &Raw| if let Raw::Typed(operand) = raw { Some(*operand) } else { None };
        let place = match op.is_comparison() {
            false => Some(to),
            true => known(&first).or(known(&second)).map(|operand| self.ty_of(operand)),
        };
        let a = self.typed(first, place)?;
        Ok(Expr::Binary(op, a, self.typed(second, place)?))
    }

    /// `name(…)`
    fn function(&mut self, name: &str, to: Ty) -> Parsed<Expr> {
        let at = self.at;
        self.advance();
        let fast = |make: fn(Operand) -> Expr| move |p: &mut Parser| p.tuple(Ty::F32).map(|[a]| make(a));
        match name {
            "max" | "min" => {
                let [a, b] = self.tuple(to)?;
                Ok(Expr::Binary(if name == "max" { Binary::Max } else { Binary::Min }, a, b))
            }
            "fma" => self.tuple(to).map(|[a, b, c]| Expr::Fma(a, b, c)),
            "powi" => self.power(to),
            "bits" => self.untyped().map(Expr::Bits),
            "exp2_fast" => fast(Expr::Exp2Fast)(self),
            "log2_fast" => fast(Expr::Log2Fast)(self),
            "tanh_fast" => fast(Expr::TanhFast)(self),
            "recip_fast" => fast(Expr::RecipFast)(self),
            _ => match (Unary::from_name(name), Elem::from_name(name)) {
                (Some(op), _) => self.tuple(to).map(|[a]| Expr::Unary(op, a)),
                (None, Some(elem)) => self.untyped().map(|a| Expr::Convert(elem, a)),
                (None, None) => {
                    self.at = at;
                    self.fail(format!("there is no function `{name}`"))
                }
            },
        }
    }

    /// `(a)`, where nothing says a constant's type.
    fn untyped(&mut self) -> Parsed<Operand> {
        self.sign("(")?;
        let raw = self.raw()?;
        let operand = self.typed(raw, None)?;
        self.sign(")")?;
        Ok(operand)
    }

    /// `(a, -3)` of a power
    fn power(&mut self, to: Ty) -> Parsed<Expr> {
        self.sign("(")?;
        let a = self.operand(to)?;
        self.sign(",")?;
        let sign = if self.accept("-") { "-" } else { "" };
        let exponent = match self.peek() {
            Token::Number(digits) => format!("{sign}{digits}").parse().ok(),
            _ => None,
        };
        let Some(exponent) = exponent else { return self.fail_expected("a whole exponent of 32 bits") };
        self.advance();
        self.sign(")")?;
        Ok(Expr::Unary(Unary::Powi(exponent), a))
    }

    /// Whether this is `pack bf16(` or a like.
    fn is_half(&self, word: &str) -> bool {
        matches!(word, "pack" | "low" | "high") && matches!(self.peek_at(1), Token::Word(_))
    }

    /// `pack bf16(a, b)`, `low bf16(a)`, `high bf16(a)`
    fn half(&mut self, word: &str) -> Parsed<Expr> {
        self.advance();
        let elem = self.elem()?;
        match word {
            "pack" => self.tuple(Ty::F32).map(|[a, b]| Expr::Pack(elem, a, b)),
            _ => {
                let half = if word == "low" { Half::Low } else { Half::High };
                self.tuple(Ty::U32).map(|[a]| Expr::Unpack(elem, half, a))
            }
        }
    }
}

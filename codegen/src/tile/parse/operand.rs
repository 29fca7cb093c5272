//! Operands, places in memory, and names.

use oplus_dsl::ir::Literal;
use oplus_dsl::{Elem, Ty};

use super::super::{Mbarrier, Memory, Operand, ParamId, ParamKind, SharedId, SharedKind};
use super::lex::Token;
use super::{Object, Parsed, Parser};

/// An operand before its type is known.
pub(super) enum Raw {
    /// A register, or a constant with its type.
    Typed(Operand),
    /// A constant that takes the type of its place: its digits with their sign, and where they stand.
    Digits { text: String, at: usize },
}

impl Parser {
    /// Whether an operand begins here.
    pub(super) fn is_operand(&self) -> bool {
        match self.peek() {
            Token::Number(_) => true,
            Token::Sign("-") => is_number(self.peek_at(1)),
            Token::Word(_) => self.is_register() || is_number(self.peek()),
            _ => false,
        }
    }

    /// An operand at a place of a type.
    pub(super) fn operand(&mut self, place: Ty) -> Parsed<Operand> {
        let raw = self.raw()?;
        self.typed(raw, Some(place))
    }

    pub(super) fn operands(&mut self, place: Ty) -> Parsed<Vec<Operand>> {
        self.list(|p| p.operand(place))
    }

    /// `(a, b, …)`, as many as there must be.
    pub(super) fn tuple<const N: usize>(&mut self, place: Ty) -> Parsed<[Operand; N]> {
        self.sign("(")?;
        let at = self.at;
        let all = self.operands(place)?;
        let found = all.len();
        let Ok(all) = all.try_into() else {
            self.at = at;
            return self.fail(format!("expected {N} operands, found {found}"));
        };
        self.sign(")")?;
        Ok(all)
    }

    pub(super) fn raw(&mut self) -> Parsed<Raw> {
        if self.is_register() {
            return self.register().map(|reg| Raw::Typed(reg.into()));
        }
        let at = self.at;
        let sign = if self.is_sign("-") && is_number(self.peek_at(1)) { "-" } else { "" };
        let places = sign.len();
        let word = match self.peek_at(places) {
            Token::Number(word) => word.clone(),
            Token::Word(word) if is_number(self.peek_at(places)) => word.clone(),
            _ => return self.fail_expected("a register or a constant"),
        };
        self.at = at + places;
        self.advance();
        let (digits, ty) = split(&word);
        let text = format!("{sign}{digits}");
        match (ty, digits) {
            (Some(ty), _) => self.constant(&text, ty, at).map(Raw::Typed),
            (None, "true" | "false") => self.constant(&text, Ty::Bool, at).map(Raw::Typed),
            (None, _) => Ok(Raw::Digits { text, at }),
        }
    }

    /// An operand at a place that has a type, or whose type nothing says.
    pub(super) fn typed(&mut self, raw: Raw, place: Option<Ty>) -> Parsed<Operand> {
        match (raw, place) {
            (Raw::Typed(operand), _) => Ok(operand),
            (Raw::Digits { text, at }, Some(ty)) => self.constant(&text, ty, at),
            (Raw::Digits { text, at }, None) => {
                self.at = at;
                let example = if text.contains('.') { "f32" } else { "i32" };
                self.fail(format!("nothing here says of which type {text} is: it may be written `{text}_{example}`"))
            }
        }
    }

    fn constant(&mut self, text: &str, ty: Ty, at: usize) -> Parsed<Operand> {
        let is_whole = text.trim_start_matches('-').chars().all(|c| c.is_ascii_digit());
        let literal = match (text, ty) {
            ("true" | "false", _) => Some(Literal::Bool(text == "true")),
            // The shortest digits of an f32 name another f64.
            (_, Ty::F32) => text.parse::<f32>().ok().map(|x| Literal::Float(f64::from(x))),
            (_, ty) if !ty.is_float() && is_whole => whole(text).map(Literal::Int),
            _ => text.parse().ok().map(Literal::Float),
        };
        match literal {
            Some(literal) => Ok(Operand::Const(ty, literal)),
            None => {
                self.at = at;
                self.fail(format!("`{text}` is no constant of type {ty}"))
            }
        }
    }

    /// `if c`, where it stands.
    pub(super) fn guard(&mut self) -> Parsed<Option<Operand>> {
        if self.accept_word("if") { self.operand(Ty::Bool).map(Some) } else { Ok(None) }
    }

    // ---- names

    fn object(&mut self, what: &str) -> Parsed<Object> {
        let found = match self.peek().clone() {
            Token::Word(name) | Token::Quoted(name) => match self.names.get(&name) {
                Some(object) => *object,
                None => return self.fail(format!("there is no parameter and no array `{name}`")),
            },
            Token::Sign(sign @ ("$" | "#")) => {
                self.advance();
                return self.numbered(sign);
            }
            _ => return self.fail_expected(what),
        };
        self.advance();
        Ok(found)
    }

    /// The parameter or array of an index.
    fn numbered(&mut self, sign: &str) -> Parsed<Object> {
        let (what, len) = match sign {
            "$" => ("parameter", self.kernel.params.len()),
            _ => ("array", self.kernel.shared.len()),
        };
        let at = self.at;
        let index = self.count(&format!("the index of a {what}"))?;
        if index as usize >= len {
            self.at = at;
            return self.fail(format!("there is no {what} of index {index}: there are {len}"));
        }
        Ok(if sign == "$" { Object::Param(ParamId(index)) } else { Object::Array(SharedId(index)) })
    }

    pub(super) fn param_name(&mut self) -> Parsed<ParamId> {
        let at = self.at;
        match self.object("the name of a parameter")? {
            Object::Param(id) => Ok(id),
            Object::Array(_) => {
                self.at = at;
                self.fail("expected a parameter, found an array")
            }
        }
    }

    // ---- memory

    /// `name[index]`
    pub(super) fn place(&mut self) -> Parsed<(Memory, Operand)> {
        let (memory, ty) = match self.object("the name of a parameter or an array")? {
            Object::Param(id) => (Memory::Global(id), Ty::I64),
            Object::Array(id) => (Memory::Shared(id), Ty::I32),
        };
        self.sign("[")?;
        let index = self.operand(ty)?;
        self.sign("]")?;
        Ok((memory, index))
    }

    pub(super) fn global_place(&mut self) -> Parsed<(ParamId, Operand)> {
        let at = self.at;
        match self.place()? {
            (Memory::Global(id), index) => Ok((id, index)),
            (Memory::Shared(_), _) => {
                self.at = at;
                self.fail("expected a parameter, found an array")
            }
        }
    }

    pub(super) fn shared_place(&mut self) -> Parsed<(SharedId, Operand)> {
        let at = self.at;
        match self.place()? {
            (Memory::Shared(id), index) => Ok((id, index)),
            (Memory::Global(_), _) => {
                self.at = at;
                self.fail("expected an array, found a parameter")
            }
        }
    }

    pub(super) fn mbarrier(&mut self) -> Parsed<Mbarrier> {
        self.shared_place().map(|(array, index)| Mbarrier { array, index })
    }

    /// The type of what is stored in a memory; `u32` where nothing is.
    pub(super) fn stored(&self, memory: Memory) -> Ty {
        let elem = match memory {
            Memory::Global(p) => match self.kernel.params[p.0 as usize].kind {
                ParamKind::Read(elem) | ParamKind::Write(elem) => Some(elem),
                _ => None,
            },
            Memory::Shared(s) => match self.kernel.shared[s.0 as usize].kind {
                SharedKind::Elem(elem) => Some(elem),
                SharedKind::Mbarrier => None,
            },
        };
        elem.map_or(Ty::U32, Elem::value)
    }
}

/// Whether a token is a constant without sign.
fn is_number(token: &Token) -> bool {
    match token {
        Token::Number(_) => true,
        Token::Word(word) => matches!(split(word).0, "true" | "false" | "inf" | "NaN"),
        _ => false,
    }
}

/// A constant's digits, and its type where that is written behind them.
fn split(word: &str) -> (&str, Option<Ty>) {
    let typed = word.rsplit_once('_').and_then(|(digits, name)| Some((digits, Ty::from_name(name)?)));
    typed.map_or((word, None), |(digits, ty)| (digits, Some(ty)))
}

/// A whole number: of a `u64` above all `i64` that of the same bits.
fn whole(text: &str) -> Option<i64> {
    text.parse::<i64>().ok().or_else(|| text.parse::<u64>().ok().map(|bits| bits as i64))
}

//! Reads the [text form](super::text) of kernels.
//!
//! The parser checks the form only: parameters and arrays must be declared, and a register must have one type. Whether
//! the kernel means something is for [`crate::verify`] to say. No text makes it panic, and its time and memory are
//! linear in the text.

mod expression;
mod lex;
mod operand;
mod registers;
mod statement;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::str::FromStr;

pub use oplus_dsl::parse::ParseError;
use oplus_dsl::{Elem, Ty};

use self::lex::{Placed, Token};
use self::registers::Registers;
use super::{Kernel, Param, ParamId, ParamKind, Shared, SharedId, SharedKind};
use crate::tile::path::{Path, Step};

/// The longest text that is read, in bytes.
const MAX_BYTES: usize = 1 << 26;

/// The most statements of which one stands inside the other.
const MAX_DEPTH: usize = 128;

/// A kernel that was read from a text, and the lines of its statements.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// The kernel.
    pub kernel: Kernel,
    lines: HashMap<Path, u32>,
}

impl Source {
    /// Reads a kernel.
    ///
    /// # Errors
    ///
    /// Where the text departs from the form, and what was expected there.
    pub fn parse(text: &str) -> Result<Source, ParseError> {
        if text.len() > MAX_BYTES {
            let message = format!("a kernel's text has at most {MAX_BYTES} bytes");
            return Err(ParseError { line: 1, column: 1, message });
        }
        let mut parser = Parser::new(lex::tokens(text)?);
        parser.kernel()?;
        parser.kernel.regs = parser.registers.types();
        Ok(Source { kernel: parser.kernel, lines: parser.lines })
    }

    /// The line of the text, from 1, in which a statement begins; 1 for the kernel as a whole.
    pub fn line(&self, path: &Path) -> u32 {
        self.lines.get(path).copied().unwrap_or(1)
    }
}

impl FromStr for Kernel {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Kernel, ParseError> {
        Source::parse(text).map(|source| source.kernel)
    }
}

type Parsed<T> = Result<T, ParseError>;

/// The thing that a name stands for.
#[derive(Clone, Copy)]
enum Object {
    Param(ParamId),
    Array(SharedId),
}

struct Parser {
    tokens: Vec<Placed>,
    at: usize,
    kernel: Kernel,
    names: HashMap<String, Object>,
    registers: Registers,
    path: Path,
    depth: usize,
    lines: HashMap<Path, u32>,
}

/// Declarations.
impl Parser {
    fn new(tokens: Vec<Placed>) -> Parser {
        let kernel = Kernel {
            name: String::new(),
            params: vec![],
            threads: 0,
            blocks_per_sm: 0,
            keep_reads: false,
            chain_addresses: false,
            shared: vec![],
            regs: vec![],
            body: vec![],
        };
        let (names, registers, lines) = (HashMap::new(), Registers::default(), HashMap::new());
        Parser { tokens, at: 0, kernel, names, registers, path: Path::default(), depth: 0, lines }
    }

    fn kernel(&mut self) -> Parsed<()> {
        self.header()?;
        while self.accept_word("shared") {
            self.shared()?;
        }
        if self.accept_word("unused") {
            self.list(|p| p.register().map(drop))?;
            self.end_of_line()?;
        }
        self.kernel.body = self.body()?;
        if *self.peek() == Token::End { Ok(()) } else { self.fail_expected("a statement") }
    }

    /// `kernel name(x: read f32, …) threads 128 blocks_per_sm 2 keep_reads chain_addresses`
    fn header(&mut self) -> Parsed<()> {
        self.word("kernel")?;
        self.kernel.name = self.declared_name("the kernel's symbol")?;
        self.sign("(")?;
        if !self.accept(")") {
            self.list(Parser::param)?;
            self.sign(")")?;
        }
        self.word("threads")?;
        self.kernel.threads = self.count("a number of threads")?;
        self.word("blocks_per_sm")?;
        self.kernel.blocks_per_sm = self.count("a number of blocks")?;
        self.kernel.keep_reads = self.accept_word("keep_reads");
        self.kernel.chain_addresses = self.accept_word("chain_addresses");
        self.end_of_line()
    }

    fn param(&mut self) -> Parsed<()> {
        let name = self.declared_name("the name of a parameter")?;
        self.sign(":")?;
        let kind = self.param_kind()?;
        let id = ParamId(self.kernel.params.len() as u32);
        self.names.entry(name.clone()).or_insert(Object::Param(id));
        self.kernel.params.push(Param { name, kind });
        Ok(())
    }

    fn param_kind(&mut self) -> Parsed<ParamKind> {
        const EXPECTED: &str = "`read`, `write`, `messages`, `control` or the type of a number";
        let Token::Word(word) = self.peek().clone() else { return self.fail_expected(EXPECTED) };
        let kind = match (word.as_str(), Ty::from_name(&word)) {
            ("messages", _) => ParamKind::Messages,
            ("control", _) => ParamKind::Control,
            ("read" | "write", _) => {
                self.advance();
                let elem = self.elem()?;
                return Ok(if word == "read" { ParamKind::Read(elem) } else { ParamKind::Write(elem) });
            }
            (_, Some(ty)) => ParamKind::Scalar(ty),
            _ => return self.fail_expected(EXPECTED),
        };
        self.advance();
        Ok(kind)
    }

    /// `shared tile: bf16[256]`
    fn shared(&mut self) -> Parsed<()> {
        let name = self.declared_name("the name of an array")?;
        self.sign(":")?;
        let kind = if self.accept_word("mbarrier") { SharedKind::Mbarrier } else { SharedKind::Elem(self.elem()?) };
        self.sign("[")?;
        let len = self.count("a number of elements")?;
        self.sign("]")?;
        let id = SharedId(self.kernel.shared.len() as u32);
        self.names.entry(name.clone()).or_insert(Object::Array(id));
        self.kernel.shared.push(Shared { name, kind, len });
        self.end_of_line()
    }

    /// A name where it is declared: a word that need not be quoted, or quoted.
    fn declared_name(&mut self, what: &str) -> Parsed<String> {
        match self.peek().clone() {
            Token::Word(name) | Token::Quoted(name) => {
                self.advance();
                Ok(name)
            }
            _ => self.fail_expected(what),
        }
    }

    /// A step into a statement's part, whose statements the closure reads.
    fn inside<T>(&mut self, step: Step, read: impl FnOnce(&mut Parser) -> Parsed<T>) -> Parsed<T> {
        if self.depth == MAX_DEPTH {
            return self.fail(format!("statements stand inside each other at most {MAX_DEPTH} deep"));
        }
        self.depth += 1;
        self.path.push(step);
        let read = read(self);
        self.path.pop();
        self.depth -= 1;
        read
    }
}

/// Tokens.
impl Parser {
    fn peek(&self) -> &Token {
        self.peek_at(0)
    }

    /// The token so many places on.
    fn peek_at(&self, places: usize) -> &Token {
        &self.tokens[(self.at + places).min(self.tokens.len() - 1)].token
    }

    fn advance(&mut self) {
        self.at = (self.at + 1).min(self.tokens.len() - 1);
    }

    fn is_sign(&self, sign: &str) -> bool {
        matches!(self.peek(), Token::Sign(found) if *found == sign)
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Token::Word(found) if found == word)
    }

    fn accept(&mut self, sign: &str) -> bool {
        let found = self.is_sign(sign);
        if found {
            self.advance();
        }
        found
    }

    fn accept_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        if found {
            self.advance();
        }
        found
    }

    fn sign(&mut self, sign: &str) -> Parsed<()> {
        if self.accept(sign) { Ok(()) } else { self.fail_expected(&format!("`{sign}`")) }
    }

    fn word(&mut self, word: &str) -> Parsed<()> {
        if self.accept_word(word) { Ok(()) } else { self.fail_expected(&format!("`{word}`")) }
    }

    fn end_of_line(&mut self) -> Parsed<()> {
        if *self.peek() != Token::Line {
            return self.fail_expected("the end of the line");
        }
        self.advance();
        Ok(())
    }

    /// One or more, with commas between them.
    fn list<T>(&mut self, mut read: impl FnMut(&mut Parser) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut all = vec![read(self)?];
        while self.accept(",") {
            all.push(read(self)?);
        }
        Ok(all)
    }

    fn elem(&mut self) -> Parsed<Elem> {
        let found = if let Token::Word(word) = self.peek() { Elem::from_name(word) } else { None };
        match found {
            Some(elem) => {
                self.advance();
                Ok(elem)
            }
            None => self.fail_expected("an element type"),
        }
    }

    /// A number that is part of the statement, not an operand.
    fn count(&mut self, what: &str) -> Parsed<u32> {
        let found = if let Token::Number(digits) = self.peek() { digits.parse().ok() } else { None };
        match found {
            Some(count) => {
                self.advance();
                Ok(count)
            }
            None => self.fail_expected(what),
        }
    }

    fn fail<T>(&self, message: impl Into<String>) -> Parsed<T> {
        let Placed { line, column, .. } = self.tokens[self.at];
        Err(ParseError { line, column, message: message.into() })
    }

    fn fail_expected<T>(&self, what: &str) -> Parsed<T> {
        self.fail(format!("expected {what}, found {}", self.peek().describe()))
    }
}

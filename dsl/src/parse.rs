//! Reads the text form of programs that [`crate::print`] writes.
//!
//! The parser checks the form only: names must be declared before they are used and values numbered in order.
//! Whether the program means something is for [`crate::verify`] to say. No text makes it panic, and its time and memory
//! are linear in the text but for the look-up of names.

mod lex;
mod nodes;
#[cfg(test)]
mod tests;

use thiserror::Error;

use crate::elem::{Elem, Ty};
use crate::ir::{Axis, AxisSet, Domain, Field, Literal, Node, Op, Operator, Output, Param, Program, Value};

use lex::{Placed, Token};

/// The longest text that is read, in bytes.
pub const MAX_BYTES: usize = 1 << 24;

/// Where a text departs from the form, and how.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{line}:{column}: {message}")]
pub struct ParseError {
    /// The line, from 1.
    pub line: u32,
    /// The character of the line, from 1.
    pub column: u32,
    /// The thing that was expected there.
    pub message: String,
}

/// Reads a program.
pub fn parse(text: &str) -> Result<Program, ParseError> {
    if text.len() > MAX_BYTES {
        let message = format!("a program's text has at most {MAX_BYTES} bytes");
        return Err(ParseError { line: 1, column: 1, message });
    }
    let mut parser = Parser { tokens: lex::tokens(text)?, at: 0, program: empty() };
    parser.program()?;
    Ok(parser.program)
}

fn empty() -> Program {
    Program { name: String::new(), axes: vec![], params: vec![], operators: vec![], nodes: vec![], outputs: vec![] }
}

type Parsed<T> = Result<T, ParseError>;

struct Parser {
    tokens: Vec<Placed>,
    at: usize,
    program: Program,
}

/// Declarations.
impl Parser {
    fn program(&mut self) -> Parsed<()> {
        self.word("program")?;
        self.program.name = self.name("a name for the program")?;
        self.sign("{")?;
        while !self.accept("}") {
            self.statement()?;
        }
        if *self.peek() == Token::End { Ok(()) } else { self.fail_expected("the end of the text") }
    }

    fn statement(&mut self) -> Parsed<()> {
        match self.peek().clone() {
            Token::Value(_) => self.node(),
            Token::Name(word) => match word.as_str() {
                "axes" => self.axes(),
                "param" => self.param(),
                "operator" => self.operator(),
                "output" => self.output(),
                _ => self.fail_expected("`axes`, `param`, `operator`, `output`, a value or `}`"),
            },
            _ => self.fail_expected("`axes`, `param`, `operator`, `output`, a value or `}`"),
        }
    }

    fn axes(&mut self) -> Parsed<()> {
        self.advance();
        loop {
            if self.program.axes.len() == 64 {
                return self.fail("a program has at most 64 axes");
            }
            let name = self.name("the name of an axis")?;
            self.program.axes.push(name);
            if !self.accept(",") {
                return self.sign(";");
            }
        }
    }

    fn param(&mut self) -> Parsed<()> {
        self.advance();
        let name = self.name("the name of a parameter")?;
        self.sign(":")?;
        let elem = self.elem()?;
        let or = if self.accept("|") { Some(self.elem()?) } else { None };
        let axes = self.axis_list()?;
        let default = if self.accept("=") { Some(self.literal()?) } else { None };
        self.program.params.push(Param { name, axes, elem, or, default });
        self.sign(";")
    }

    fn output(&mut self) -> Parsed<()> {
        self.advance();
        let name = self.name("the name of an output")?;
        let (elem, axes) = self.tensor()?;
        self.sign("=")?;
        let value = self.value()?;
        self.program.outputs.push(Output { name, axes, elem, value });
        self.sign(";")
    }

    fn tensor(&mut self) -> Parsed<(Elem, Vec<Axis>)> {
        self.sign(":")?;
        let elem = self.elem()?;
        Ok((elem, self.axis_list()?))
    }

    fn operator(&mut self) -> Parsed<()> {
        self.advance();
        let name = self.name("the name of an operator")?;
        let fields = self.tuple(|p| {
            let name = p.name("the name of a field")?;
            p.sign(":")?;
            Ok(Field { name, ty: p.ty()? })
        })?;
        self.sign("{")?;
        self.word("identity")?;
        let identity = self.tuple(Parser::literal)?;
        self.sign(";")?;
        let gauge = self.gauge(&fields)?;
        let domain = self.domain(&fields)?;
        let mut body = vec![];
        while let Token::Value(_) = self.peek() {
            let node = self.body_node(&fields, body.len())?;
            body.push(node);
        }
        self.word("combine")?;
        let combine = self.tuple(Parser::value)?;
        self.sign(";")?;
        self.program.operators.push(Operator { name, fields, identity, body, combine, gauge, domain });
        self.sign("}")
    }

    fn gauge(&mut self, fields: &[Field]) -> Parsed<Option<u32>> {
        if *self.peek() != Token::Name("gauge".to_owned()) {
            return Ok(None);
        }
        self.advance();
        let field = self.index_or_name("field", |_, name| fields.iter().position(|f| f.name == name))?;
        self.sign(";")?;
        Ok(Some(field))
    }

    /// `where { … holds (%2); no overflow; }`
    fn domain(&mut self, fields: &[Field]) -> Parsed<Domain> {
        let mut domain = Domain::default();
        if *self.peek() != Token::Name("where".to_owned()) {
            return Ok(domain);
        }
        self.advance();
        self.sign("{")?;
        while let Token::Value(_) = self.peek() {
            let ty = self.numbered(domain.body.len())?;
            self.sign("=")?;
            let op = match *self.peek() == Token::Name("input".to_owned()) {
                true => self.field_of(fields)?,
                false => self.map()?,
            };
            self.sign(";")?;
            domain.body.push(Node { op, ty, axes: AxisSet::EMPTY });
        }
        self.word("holds")?;
        domain.conditions = self.tuple(Parser::value)?;
        self.sign(";")?;
        if *self.peek() == Token::Name("no".to_owned()) {
            self.advance();
            self.word("overflow")?;
            self.sign(";")?;
            domain.no_overflow = true;
        }
        self.sign("}")?;
        Ok(domain)
    }

    /// `input m`
    fn field_of(&mut self, fields: &[Field]) -> Parsed<Op> {
        self.advance();
        self.index_or_name("field", |_, name| fields.iter().position(|f| f.name == name)).map(Op::Input)
    }

    fn body_node(&mut self, fields: &[Field], number: usize) -> Parsed<Node> {
        let ty = self.numbered(number)?;
        self.sign("=")?;
        let op = if *self.peek() == Token::Name("input".to_owned()) { self.input(fields)? } else { self.map()? };
        self.sign(";")?;
        Ok(Node { op, ty, axes: AxisSet::EMPTY })
    }

    fn node(&mut self) -> Parsed<()> {
        let ty = self.numbered(self.program.nodes.len())?;
        let axes = self.axis_list()?.into_iter().collect();
        self.sign("=")?;
        let op = self.op()?;
        self.program.nodes.push(Node { op, ty, axes });
        self.sign(";")
    }

    /// `%3: f32`
    fn numbered(&mut self, number: usize) -> Parsed<Ty> {
        if *self.peek() != Token::Value(number as u32) {
            return self.fail_expected(&format!("`%{number}`"));
        }
        self.advance();
        self.sign(":")?;
        self.ty()
    }
}

/// Small pieces.
impl Parser {
    fn peek(&self) -> &Token {
        &self.tokens[self.at].token
    }

    /// Moves past a token; the end is never passed.
    fn advance(&mut self) {
        self.at = (self.at + 1).min(self.tokens.len() - 1);
    }

    fn fail<T>(&self, message: impl Into<String>) -> Parsed<T> {
        let Placed { line, column, .. } = self.tokens[self.at];
        Err(ParseError { line, column, message: message.into() })
    }

    fn fail_expected<T>(&self, expected: &str) -> Parsed<T> {
        self.fail(format!("expected {expected}, found {}", self.peek().describe()))
    }

    fn accept(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek(), Token::Sign(s) if *s == sign);
        if found {
            self.advance();
        }
        found
    }

    fn sign(&mut self, sign: &str) -> Parsed<()> {
        if self.accept(sign) { Ok(()) } else { self.fail_expected(&format!("`{sign}`")) }
    }

    fn word(&mut self, word: &str) -> Parsed<()> {
        let found = matches!(self.peek(), Token::Name(name) if name == word);
        if !found {
            return self.fail_expected(&format!("`{word}`"));
        }
        self.advance();
        Ok(())
    }

    fn name(&mut self, what: &str) -> Parsed<String> {
        let Token::Name(name) = self.peek().clone() else { return self.fail_expected(what) };
        self.advance();
        Ok(name)
    }

    fn value(&mut self) -> Parsed<Value> {
        let Token::Value(k) = *self.peek() else { return self.fail_expected("a value such as `%0`") };
        self.advance();
        Ok(Value(k))
    }

    /// `#3`, or a name that has a number.
    fn index_or_name(&mut self, what: &str, find: impl Fn(&Program, &str) -> Option<usize>) -> Parsed<u32> {
        let k = match self.peek() {
            Token::Index(k) => *k,
            Token::Name(name) => match find(&self.program, name) {
                Some(k) => k as u32,
                None => return self.fail(format!("there is no {what} named `{name}`")),
            },
            _ => return self.fail_expected(&format!("the {what}")),
        };
        self.advance();
        Ok(k)
    }

    fn axis(&mut self) -> Parsed<Axis> {
        if matches!(self.peek(), Token::Index(k) if *k >= 64) {
            return self.fail("a program has at most 64 axes");
        }
        let find = |program: &Program, name: &str| program.axis(name).map(|axis| axis.0 as usize);
        self.index_or_name("axis", find).map(Axis)
    }

    fn axis_list(&mut self) -> Parsed<Vec<Axis>> {
        if !self.accept("[") {
            return Ok(vec![]);
        }
        self.list("]", Parser::axis)
    }

    fn tuple<T>(&mut self, item: impl FnMut(&mut Parser) -> Parsed<T>) -> Parsed<Vec<T>> {
        self.sign("(")?;
        self.list(")", item)
    }

    fn list<T>(&mut self, end: &str, mut item: impl FnMut(&mut Parser) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut items = vec![];
        if self.accept(end) {
            return Ok(items);
        }
        loop {
            items.push(item(self)?);
            if !self.accept(",") {
                self.sign(end)?;
                return Ok(items);
            }
        }
    }

    fn elem(&mut self) -> Parsed<Elem> {
        let what = "an element type";
        let name = self.name(what)?;
        self.known(Elem::from_name(&name), what, &name)
    }

    fn ty(&mut self) -> Parsed<Ty> {
        let what = "a type";
        let name = self.name(what)?;
        self.known(Ty::from_name(&name), what, &name)
    }

    /// The meaning of the name just read, or an error at the name.
    fn known<T>(&mut self, found: Option<T>, what: &str, name: &str) -> Parsed<T> {
        found.map_or_else(
            || {
                self.at = self.at.saturating_sub(1);
                self.fail(format!("expected {what}, found `{name}`"))
            },
            Ok,
        )
    }

    fn literal(&mut self) -> Parsed<Literal> {
        let negative = self.accept("-");
        let literal = match self.peek() {
            Token::Name(word) if !negative && word == "true" => Some(Literal::Bool(true)),
            Token::Name(word) if !negative && word == "false" => Some(Literal::Bool(false)),
            Token::Name(word) if word == "inf" => Some(Literal::Float(f64::INFINITY)),
            Token::Name(word) if !negative && word == "nan" => return self.nan(),
            Token::Number(digits) => number(digits, negative),
            _ => None,
        };
        let Some(literal) = literal else { return self.fail_expected("a literal") };
        self.advance();
        Ok(match literal {
            Literal::Float(x) if negative && x == f64::INFINITY => Literal::Float(-x),
            literal => literal,
        })
    }

    /// `nan`, or `nan(0x…)` with its bits.
    fn nan(&mut self) -> Parsed<Literal> {
        self.advance();
        if !self.accept("(") {
            return Ok(Literal::Float(f64::NAN));
        }
        let Token::Number(digits) = self.peek() else { return self.fail_expected("the bits of a NaN") };
        let bits = digits.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok());
        let Some(x) = bits.map(f64::from_bits).filter(|x| x.is_nan()) else {
            return self.fail_expected("the bits of a NaN");
        };
        self.advance();
        self.sign(")")?;
        Ok(Literal::Float(x))
    }

    fn integer<T: TryFrom<i64>>(&mut self) -> Parsed<T> {
        let start = self.at;
        if let Literal::Int(i) = self.literal()?
            && let Ok(i) = T::try_from(i)
        {
            return Ok(i);
        }
        self.at = start;
        self.fail("expected an integer in range")
    }
}

/// A decimal: an integer without a point and an exponent, a float with one.
fn number(digits: &str, negative: bool) -> Option<Literal> {
    let signed = if negative { format!("-{digits}") } else { digits.to_owned() };
    if digits.bytes().all(|c| c.is_ascii_digit()) {
        return signed.parse().ok().map(Literal::Int);
    }
    let decimal = digits.bytes().all(|c| c.is_ascii_digit() || b".e+-".contains(&c));
    if decimal { signed.parse().ok().map(Literal::Float) } else { None }
}

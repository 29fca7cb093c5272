//! Characters to tokens.

use crate::names::{continues_name, starts_name};

use super::ParseError;

/// A piece of the text.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// Identifiers joined by dots.
    Name(String),
    /// A number without sign, as written.
    Number(String),
    /// `%` and a number.
    Value(u32),
    /// `#` and a number.
    Index(u32),
    /// A sign of one or two characters.
    Sign(&'static str),
    /// The end of the text.
    End,
}

/// A token and where it begins, both counted from 1.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) token: Token,
    pub(super) line: u32,
    pub(super) column: u32,
}

/// Signs, longer ones first.
const SIGNS: [&str; 27] = [
    "<<", ">>", "<=", ">=", "==", "!=", "{", "}", "(", ")", "[", "]", ",", ";", ":", "=", ".", "+", "-", "*", "/", "%",
    "<", ">", "&", "|", "^",
];

impl Token {
    /// The token as a message quotes it.
    pub(super) fn describe(&self) -> String {
        match self {
            Token::Name(name) => format!("`{name}`"),
            Token::Number(number) => format!("`{number}`"),
            Token::Value(k) => format!("`%{k}`"),
            Token::Index(k) => format!("`#{k}`"),
            Token::Sign(sign) => format!("`{sign}`"),
            Token::End => "the end of the text".to_owned(),
        }
    }
}

/// All tokens, [`Token::End`] last.
pub(super) fn tokens(text: &str) -> Result<Vec<Placed>, ParseError> {
    let mut lexer = Lexer { rest: text, line: 1, column: 1 };
    let mut tokens = vec![];
    loop {
        lexer.skip_blanks();
        let (line, column) = (lexer.line, lexer.column);
        let token = lexer.token().map_err(|message| ParseError { line, column, message })?;
        let done = token == Token::End;
        tokens.push(Placed { token, line, column });
        if done {
            return Ok(tokens);
        }
    }
}

struct Lexer<'a> {
    rest: &'a str,
    line: u32,
    column: u32,
}

impl<'a> Lexer<'a> {
    /// Takes the characters for which the condition holds.
    fn take_while(&mut self, mut condition: impl FnMut(char) -> bool) -> &'a str {
        let end = self.rest.find(|c| !condition(c)).unwrap_or(self.rest.len());
        self.take(end)
    }

    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        for c in taken.chars() {
            (self.line, self.column) = if c == '\n' { (self.line + 1, 1) } else { (self.line, self.column + 1) };
        }
        self.rest = rest;
        taken
    }

    /// Skips white space, and comments from `//` to the end of the line.
    fn skip_blanks(&mut self) {
        loop {
            self.take_while(char::is_whitespace);
            if !self.rest.starts_with("//") {
                return;
            }
            self.take_while(|c| c != '\n');
        }
    }

    fn token(&mut self) -> Result<Token, String> {
        let mut chars = self.rest.chars();
        let (Some(first), second) = (chars.next(), chars.next()) else { return Ok(Token::End) };
        let numbered = second.is_some_and(|c| c.is_ascii_digit());
        match first {
            '%' if numbered => self.numbered().map(Token::Value),
            '#' if numbered => self.numbered().map(Token::Index),
            c if starts_name(c) => Ok(Token::Name(self.name())),
            c if c.is_ascii_digit() => Ok(Token::Number(self.number())),
            c => match SIGNS.into_iter().find(|sign| self.rest.starts_with(sign)) {
                Some(sign) => {
                    self.take(sign.len());
                    Ok(Token::Sign(sign))
                }
                None => Err(format!("unexpected character `{}`", c.escape_default())),
            },
        }
    }

    fn numbered(&mut self) -> Result<u32, String> {
        self.take(1);
        let digits = self.take_while(|c| c.is_ascii_digit());
        digits.parse().map_err(|_| format!("the number {digits} is too large"))
    }

    fn name(&mut self) -> String {
        let mut name = self.take_while(continues_name).to_owned();
        while self.rest.strip_prefix('.').is_some_and(|rest| rest.starts_with(starts_name)) {
            name.push_str(self.take(1));
            name.push_str(self.take_while(continues_name));
        }
        name
    }

    /// A decimal with an optional fraction and exponent, or a hexadecimal number.
    fn number(&mut self) -> String {
        let mut number = self.take_while(char::is_alphanumeric).to_owned();
        if self.rest.strip_prefix('.').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
            number.push_str(self.take(1));
            number.push_str(self.take_while(char::is_alphanumeric));
        }
        if number.ends_with('e') && self.rest.starts_with(['+', '-']) {
            number.push_str(self.take(1));
            number.push_str(self.take_while(char::is_alphanumeric));
        }
        number
    }
}

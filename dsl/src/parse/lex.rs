//! Characters to tokens.

use crate::characters::Characters;
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
    let mut lexer = Lexer(Characters::of(text));
    let mut tokens = vec![];
    loop {
        lexer.skip_blanks();
        let (line, column) = (lexer.0.line, lexer.0.column);
        let token = lexer.token().map_err(|message| ParseError { line, column, message })?;
        let done = token == Token::End;
        tokens.push(Placed { token, line, column });
        if done {
            return Ok(tokens);
        }
    }
}

struct Lexer<'a>(Characters<'a>);

impl Lexer<'_> {
    /// Skips white space, and comments from `//` to the end of the line.
    fn skip_blanks(&mut self) {
        loop {
            self.0.take_while(char::is_whitespace);
            if !self.0.rest.starts_with("//") {
                return;
            }
            self.0.take_while(|c| c != '\n');
        }
    }

    fn token(&mut self) -> Result<Token, String> {
        let mut chars = self.0.rest.chars();
        let (Some(first), second) = (chars.next(), chars.next()) else { return Ok(Token::End) };
        let numbered = second.is_some_and(|c| c.is_ascii_digit());
        match first {
            '%' if numbered => self.numbered().map(Token::Value),
            '#' if numbered => self.numbered().map(Token::Index),
            c if starts_name(c) => Ok(Token::Name(self.0.take_names(starts_name, continues_name))),
            c if c.is_ascii_digit() => Ok(Token::Number(self.0.take_number(char::is_alphanumeric))),
            _ => self.0.take_sign(&SIGNS).map(Token::Sign),
        }
    }

    fn numbered(&mut self) -> Result<u32, String> {
        self.0.take(1);
        let digits = self.0.take_while(|c| c.is_ascii_digit());
        digits.parse().map_err(|_| format!("the number {digits} is too large"))
    }
}

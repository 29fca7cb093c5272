//! The mistakes of a text, for people and for editors.

use std::fmt;

use proc_macro2::Span;

use crate::diagnostics::{Diagnostic, Diagnostics};

/// Why a text does not compile: all its mistakes at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    /// The mistakes, in the order of their places. There is at least one.
    pub mistakes: Vec<TextMistake>,
}

/// A mistake in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextMistake {
    /// The mistake and what to write instead, in the words of `scan!`.
    pub message: String,
    /// The kind of mistake: a [code](crate::Mistake::code), or `not-a-token` for what the lexer refuses.
    pub code: &'static str,
    /// The first character that is wrong.
    pub start: Position,
    /// Behind the last character that is wrong.
    pub end: Position,
}

/// A place in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    /// The distance from the text's start, in bytes.
    pub byte: usize,
}

impl TextError {
    /// The mistakes that were found in a text's tokens.
    pub(super) fn of(mistakes: &Diagnostics) -> TextError {
        let mut mistakes: Vec<TextMistake> = mistakes.iter().map(TextMistake::of).collect();
        mistakes.sort_by_key(|mistake| (mistake.start, mistake.end));
        TextError { mistakes }
    }

    /// The error of a text that the lexer refuses from a place on.
    pub(super) fn of_lexer(text: &str, span: Span) -> TextError {
        let start = Position::start(span);
        let found = text.get(start.byte..).and_then(|rest| rest.chars().next());
        let message = match found {
            Some(open @ ('(' | '[' | '{')) => format!("this `{open}` is never closed"),
            Some(close @ (')' | ']' | '}')) => format!("this `{close}` closes nothing that is open here"),
            Some(quote @ ('"' | '\'')) => format!("the text that begins at this {quote} is never closed"),
            Some('/') => "this comment is never closed".into(),
            Some(other) => format!("no token of the language begins with `{other}`"),
            None => "the text ends within a token".into(),
        };
        let wide = found.map_or((0, 0), |found| (1, found.len_utf8()));
        let end = Position { column: start.column + wide.0, byte: start.byte + wide.1, ..start };
        TextError { mistakes: vec![TextMistake { message, code: "not-a-token", start, end }] }
    }

    /// A text of more bytes than are counted.
    pub(super) fn too_long(bytes: usize) -> TextError {
        let start = Position { line: 1, column: 1, byte: 0 };
        let message = format!("a text has less than 2 GiB, this one has {bytes} bytes; compile it in parts");
        TextError { mistakes: vec![TextMistake { message, code: "not-a-token", start, end: start }] }
    }
}

impl TextMistake {
    fn of(diagnostic: &Diagnostic) -> TextMistake {
        let Diagnostic { mistake, extent } = diagnostic;
        let (start, end) = (Position::start(extent.first), Position::end(extent.last));
        TextMistake { message: mistake.to_string(), code: mistake.code(), start, end }
    }
}

impl Position {
    fn start(span: Span) -> Position {
        let (at, bytes) = (span.start(), span.byte_range());
        Position { line: at.line, column: at.column + 1, byte: bytes.start }
    }

    fn end(span: Span) -> Position {
        let (at, bytes) = (span.end(), span.byte_range());
        Position { line: at.line, column: at.column + 1, byte: bytes.end }
    }
}

impl fmt::Display for TextMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.start.line, self.start.column, self.message)
    }
}

impl fmt::Display for TextError {
    /// One line per mistake: `line:column: message`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.mistakes.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for TextError {}

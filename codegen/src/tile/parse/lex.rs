//! Characters to tokens.

use super::ParseError;

/// A piece of the text.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// Identifiers joined by dots.
    Word(String),
    /// A text in double quotes.
    Quoted(String),
    /// A number without sign, as written.
    Number(String),
    /// A sign of one or two characters.
    Sign(&'static str),
    /// The end of a line outside parentheses and brackets.
    Line,
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
const SIGNS: [&str; 34] = [
    "..", "<<", ">>", "<=", ">=", "==", "!=", "+=", "{", "}", "(", ")", "[", "]", ",", ":", "=", ".", "+", "-", "*",
    "/", "%", "<", ">", "&", "|", "^", "?", "!", "×", "$", "#", ";",
];

impl Token {
    /// The token as a message quotes it.
    pub(super) fn describe(&self) -> String {
        match self {
            Token::Word(text) | Token::Number(text) => format!("`{text}`"),
            Token::Quoted(name) => format!("{name:?}"),
            Token::Sign(sign) => format!("`{sign}`"),
            Token::Line => "the end of the line".to_owned(),
            Token::End => "the end of the text".to_owned(),
        }
    }
}

/// All tokens, [`Token::Line`] and [`Token::End`] last. Empty lines leave none.
pub(super) fn tokens(text: &str) -> Result<Vec<Placed>, ParseError> {
    let mut lexer = Lexer { rest: text, line: 1, column: 1 };
    let (mut tokens, mut open) = (Vec::<Placed>::new(), 0_u32);
    loop {
        lexer.skip_blanks();
        let (line, column) = (lexer.line, lexer.column);
        let token = lexer.token().map_err(|message| ParseError { line, column, message })?;
        match token {
            Token::Sign("(" | "[") => open += 1,
            Token::Sign(")" | "]") => open = open.saturating_sub(1),
            Token::Line if open > 0 || tokens.last().is_none_or(|last| last.token == Token::Line) => continue,
            Token::End if tokens.last().is_some_and(|last| last.token != Token::Line) => {
                tokens.push(Placed { token: Token::Line, line, column });
            }
            _ => {}
        }
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

    /// Skips white space within the line, and comments from `//` to its end.
    fn skip_blanks(&mut self) {
        self.take_while(|c| c.is_whitespace() && c != '\n');
        if self.rest.starts_with("//") {
            self.take_while(|c| c != '\n');
        }
    }

    fn token(&mut self) -> Result<Token, String> {
        let Some(first) = self.rest.chars().next() else { return Ok(Token::End) };
        match first {
            '\n' => {
                self.take(1);
                Ok(Token::Line)
            }
            '"' => self.quoted().map(Token::Quoted),
            c if c == '_' || c.is_alphabetic() => Ok(Token::Word(self.word())),
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

    fn word(&mut self) -> String {
        let goes_on = |c: char| c == '_' || c.is_alphanumeric();
        let mut word = self.take_while(goes_on).to_owned();
        while self.rest.strip_prefix('.').is_some_and(|rest| rest.starts_with(|c: char| c == '_' || c.is_alphabetic()))
        {
            word.push_str(self.take(1));
            word.push_str(self.take_while(goes_on));
        }
        word
    }

    /// A decimal with an optional fraction, exponent and type.
    fn number(&mut self) -> String {
        let is_part = |c: char| c == '_' || c.is_alphanumeric();
        let mut number = self.take_while(is_part).to_owned();
        if self.rest.strip_prefix('.').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
            number.push_str(self.take(1));
            number.push_str(self.take_while(is_part));
        }
        if number.ends_with('e') && self.rest.starts_with(['+', '-']) {
            number.push_str(self.take(1));
            number.push_str(self.take_while(is_part));
        }
        number
    }

    fn quoted(&mut self) -> Result<String, String> {
        self.take(1);
        let mut text = String::new();
        loop {
            text.push_str(self.take_while(|c| !matches!(c, '"' | '\\' | '\n')));
            match self.rest.chars().next() {
                Some('"') => {
                    self.take(1);
                    return Ok(text);
                }
                Some('\\') => text.push(self.escaped()?),
                _ => return Err("the quotes are not closed on this line".to_owned()),
            }
        }
    }

    /// The character that a backslash and what follows stand for.
    fn escaped(&mut self) -> Result<char, String> {
        self.take(1);
        let c = self.rest.chars().next().ok_or("the text ends after a backslash")?;
        self.take(c.len_utf8());
        match c {
            '"' | '\\' | '\'' => Ok(c),
            'n' => Ok('\n'),
            'r' => Ok('\r'),
            't' => Ok('\t'),
            '0' => Ok('\0'),
            'u' => {
                let digits = self.take_while(|c| c != '}' && c != '\n' && c != '"');
                let code = digits.strip_prefix('{').and_then(|hex| u32::from_str_radix(hex, 16).ok());
                let is_closed = self.rest.starts_with('}');
                let found = code.filter(|_| is_closed).and_then(char::from_u32);
                self.take(usize::from(is_closed));
                found.ok_or_else(|| "`\\u` must be followed by a character's number such as {3b4}".to_owned())
            }
            other => Err(format!("`\\{}` stands for no character", other.escape_default())),
        }
    }
}

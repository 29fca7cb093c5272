//! Characters to tokens.

use oplus_dsl::characters::Characters;

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
    let mut lexer = Lexer(Characters::of(text));
    let (mut tokens, mut open) = (Vec::<Placed>::new(), 0_u32);
    loop {
        lexer.skip_blanks();
        let (line, column) = (lexer.0.line, lexer.0.column);
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

struct Lexer<'a>(Characters<'a>);

impl Lexer<'_> {
    /// Skips white space within the line, and comments from `//` to its end.
    fn skip_blanks(&mut self) {
        self.0.take_while(|c| c.is_whitespace() && c != '\n');
        if self.0.rest.starts_with("//") {
            self.0.take_while(|c| c != '\n');
        }
    }

    fn token(&mut self) -> Result<Token, String> {
        let starts_word = |c: char| c == '_' || c.is_alphabetic();
        let is_part = |c: char| c == '_' || c.is_alphanumeric();
        match self.0.rest.chars().next() {
            None => Ok(Token::End),
            Some('\n') => {
                self.0.take(1);
                Ok(Token::Line)
            }
            Some('"') => self.quoted().map(Token::Quoted),
            Some(c) if starts_word(c) => Ok(Token::Word(self.0.take_names(starts_word, is_part))),
            Some(c) if c.is_ascii_digit() => Ok(Token::Number(self.0.take_number(is_part))),
            Some(_) => self.0.take_sign(&SIGNS).map(Token::Sign),
        }
    }

    fn quoted(&mut self) -> Result<String, String> {
        self.0.take(1);
        let mut text = String::new();
        loop {
            text.push_str(self.0.take_while(|c| !matches!(c, '"' | '\\' | '\n')));
            match self.0.rest.chars().next() {
                Some('"') => {
                    self.0.take(1);
                    return Ok(text);
                }
                Some('\\') => text.push(self.escaped()?),
                _ => return Err("the quotes are not closed on this line".to_owned()),
            }
        }
    }

    /// The character that a backslash and what follows stand for.
    fn escaped(&mut self) -> Result<char, String> {
        self.0.take(1);
        let c = self.0.rest.chars().next().ok_or("the text ends after a backslash")?;
        self.0.take(c.len_utf8());
        match c {
            '"' | '\\' | '\'' => Ok(c),
            'n' => Ok('\n'),
            'r' => Ok('\r'),
            't' => Ok('\t'),
            '0' => Ok('\0'),
            'u' => {
                let digits = self.0.take_while(|c| c != '}' && c != '\n' && c != '"');
                let code = digits.strip_prefix('{').and_then(|hex| u32::from_str_radix(hex, 16).ok());
                let is_closed = self.0.rest.starts_with('}');
                let found = code.filter(|_| is_closed).and_then(char::from_u32);
                self.0.take(usize::from(is_closed));
                found.ok_or_else(|| "`\\u` must be followed by a character's number such as {3b4}".to_owned())
            }
            other => Err(format!("`\\{}` stands for no character", other.escape_default())),
        }
    }
}

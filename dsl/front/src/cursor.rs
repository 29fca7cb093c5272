//! A position in a list of tokens, with Rust's multi-character operators put together.

use proc_macro2::{Delimiter, Group, Spacing, TokenStream, TokenTree};

use crate::diagnostics::Diagnostics;
use crate::extent::Extent;
use crate::mistake::Mistake;
use crate::syntax::Name;

/// How deep expressions may nest, so that no input can exhaust the stack.
pub(crate) const DEPTH: u32 = 100;

/// Rust's operators and separators of more than one character, longest first.
const JOINED: [&str; 24] = [
    "<<=", ">>=", "...", "..=", "==", "!=", "<=", ">=", "&&", "||", "<<", ">>", "+=", "-=", "*=", "/=", "%=", "^=",
    "&=", "|=", "->", "=>", "::", "..",
];

/// A list of tokens, read from front to back. Methods that fail report the mistake and return `None`.
pub(crate) struct Cursor<'a> {
    tokens: Vec<TokenTree>,
    at: usize,
    /// Where the list ends: its closing delimiter or separator.
    end: Extent,
    depth: u32,
    mistakes: &'a mut Diagnostics,
}

impl<'a> Cursor<'a> {
    /// Reads a whole input.
    pub(crate) fn new(tokens: TokenStream, mistakes: &'a mut Diagnostics) -> Cursor<'a> {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let end = tokens.last().map_or(Extent::whole(), Extent::from);
        Cursor { tokens, at: 0, end, depth: 0, mistakes }
    }

    /// Reads the inside of a group.
    pub(crate) fn inside(&mut self, group: &Group) -> Cursor<'_> {
        Cursor {
            tokens: group.stream().into_iter().collect(),
            at: 0,
            end: group.span_close().into(),
            depth: self.depth,
            mistakes: self.mistakes,
        }
    }

    /// Reads a part that was split off.
    pub(crate) fn part(&mut self, part: Part) -> Cursor<'_> {
        Cursor { tokens: part.tokens, at: 0, end: part.end, depth: self.depth, mistakes: self.mistakes }
    }

    /// The parts between separators. A separator at the end adds no part.
    pub(crate) fn split(&mut self, separator: char) -> Vec<Part> {
        let is_separator = |token: &TokenTree| matches!(token, TokenTree::Punct(p) if p.as_char() == separator);
        let mut parts = vec![Part { tokens: vec![], end: self.end, ended: false }];
        for token in self.tokens.split_off(self.at) {
            let Some(part) = parts.last_mut() else { break };
            if is_separator(&token) {
                (part.end, part.ended) = (Extent::from(&token), true);
                parts.push(Part { tokens: vec![], end: self.end, ended: false });
            } else {
                part.tokens.push(token);
            }
        }
        if parts.last().is_some_and(|part| part.tokens.is_empty()) {
            parts.pop();
        }
        parts
    }

    /// The parts that end with a token that fits.
    pub(crate) fn split_after(&mut self, ends: impl Fn(&TokenTree) -> bool) -> Vec<Part> {
        let mut parts: Vec<Part> = vec![];
        let mut open = false;
        for token in self.tokens.split_off(self.at) {
            let (extent, closes) = (Extent::from(&token), ends(&token));
            match parts.last_mut() {
                Some(part) if open => {
                    part.tokens.push(token);
                    part.end = extent;
                }
                _ => parts.push(Part { tokens: vec![token], end: extent, ended: false }),
            }
            open = !closes;
        }
        parts
    }

    /// Reports a mistake.
    pub(crate) fn report(&mut self, extent: Extent, mistake: Mistake) {
        self.mistakes.report(extent, mistake);
    }

    /// How many mistakes are reported so far.
    pub(crate) fn mistakes(&self) -> usize {
        self.mistakes.len()
    }

    /// Reports that something else stands where `expected` should, at the next token.
    pub(crate) fn expected<T>(&mut self, expected: &str) -> Option<T> {
        let (extent, found) = (self.extent(), self.found());
        self.report(extent, Mistake::Unexpected { expected: expected.into(), found });
        None
    }

    /// Whether the nesting limit is passed; reports it.
    pub(crate) fn too_deep(&mut self, depth: u32) -> bool {
        let deep = self.depth + depth > DEPTH;
        if deep {
            let extent = self.extent();
            self.report(extent, Mistake::TooDeep {});
        }
        deep
    }

    /// Runs `read` one level deeper.
    pub(crate) fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        if self.too_deep(1) {
            return None;
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    /// Whether nothing is left.
    pub(crate) fn is_done(&self) -> bool {
        self.at >= self.tokens.len()
    }

    /// Reports what is left, if anything is.
    pub(crate) fn finish(&mut self, expected: &str) {
        if !self.is_done() {
            self.expected::<()>(expected);
        }
    }

    /// The next token.
    pub(crate) fn peek(&self) -> Option<&TokenTree> {
        self.tokens.get(self.at)
    }

    /// The token after the next one.
    pub(crate) fn peek_second(&self) -> Option<&TokenTree> {
        self.tokens.get(self.at + 1)
    }

    /// The token so many after the next one.
    pub(crate) fn peek_at(&self, further: usize) -> Option<&TokenTree> {
        self.tokens.get(self.at + further)
    }

    /// The next tokens up to braces, so many at most, as they are written.
    pub(crate) fn words(&self, most: usize) -> String {
        let is_body = |token: &&TokenTree| matches!(token, TokenTree::Group(g) if g.delimiter() == Delimiter::Brace);
        let next = self.tokens[self.at.min(self.tokens.len())..].iter().take(most);
        next.take_while(|token| !is_body(token)).map(ToString::to_string).collect()
    }

    /// Takes the next token.
    pub(crate) fn next(&mut self) -> Option<TokenTree> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    /// Where the next token stands, or the end of the list.
    pub(crate) fn extent(&self) -> Extent {
        self.peek().map_or(self.end, Extent::from)
    }

    /// The next token in words.
    pub(crate) fn found(&self) -> String {
        match self.peek() {
            None => "nothing more".into(),
            Some(TokenTree::Group(group)) => format!("`{}`", opening(group.delimiter())),
            Some(TokenTree::Punct(punct)) => format!("`{}`", self.peek_operator().unwrap_or(punct.to_string())),
            Some(other) => format!("`{other}`"),
        }
    }

    /// The operator that begins at the next token.
    pub(crate) fn peek_operator(&self) -> Option<String> {
        let mut text = String::new();
        for token in self.tokens[self.at.min(self.tokens.len())..].iter().take(3) {
            let TokenTree::Punct(punct) = token else { break };
            text.push(punct.as_char());
            if punct.spacing() == Spacing::Alone {
                break;
            }
        }
        let joined = JOINED.iter().find(|joined| text.starts_with(**joined)).map(|joined| joined.to_string());
        joined.or_else(|| text.chars().next().map(String::from))
    }

    /// Whether two stars are next, which are a power elsewhere.
    pub(crate) fn is_power(&self) -> bool {
        let is_star = |token: Option<&TokenTree>| match token {
            Some(TokenTree::Punct(punct)) if punct.as_char() == '*' => Some(punct.spacing()),
            _ => None,
        };
        is_star(self.peek()) == Some(Spacing::Joint) && is_star(self.peek_second()).is_some()
    }

    /// Takes an operator if it is next; gives its place.
    pub(crate) fn take_operator(&mut self, operator: &str) -> Option<Extent> {
        if self.peek_operator().as_deref() != Some(operator) {
            return None;
        }
        let first = self.extent();
        self.at += operator.len() - 1;
        let extent = first.to(self.extent());
        self.at += 1;
        Some(extent)
    }

    /// Takes an operator that must be next.
    pub(crate) fn operator(&mut self, operator: &str) -> Option<Extent> {
        match self.take_operator(operator) {
            Some(extent) => Some(extent),
            None => self.expected(&format!("`{operator}`")),
        }
    }

    /// Whether a word is next.
    pub(crate) fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Some(TokenTree::Ident(ident)) if ident == word)
    }

    /// Takes a word if it is next; gives its place.
    pub(crate) fn take_word(&mut self, word: &str) -> Option<Extent> {
        let extent = self.extent();
        self.is_word(word).then(|| {
            self.at += 1;
            extent
        })
    }

    /// Takes an identifier.
    pub(crate) fn name(&mut self, expected: &str) -> Option<Name> {
        let Some(TokenTree::Ident(ident)) = self.peek() else {
            return self.expected(expected);
        };
        let name = Name::new(ident.clone());
        self.at += 1;
        Some(name)
    }

    /// Takes a group of a delimiter if it is next.
    pub(crate) fn take_group(&mut self, delimiter: Delimiter) -> Option<Group> {
        let Some(TokenTree::Group(group)) = self.peek() else { return None };
        let group = (group.delimiter() == delimiter).then(|| group.clone())?;
        self.at += 1;
        Some(group)
    }

    /// Takes a group of a delimiter that must be next; `what` says what it holds.
    pub(crate) fn group(&mut self, delimiter: Delimiter, what: &str) -> Option<Group> {
        match self.take_group(delimiter) {
            Some(group) => Some(group),
            None => self.expected(&format!("{what} in `{}`", both(delimiter))),
        }
    }

    /// Skips tokens until one fits or nothing is left.
    pub(crate) fn skip_until(&mut self, fits: impl Fn(&TokenTree) -> bool) {
        while self.peek().is_some_and(|token| !fits(token)) {
            self.at += 1;
        }
    }
}

/// Tokens between separators.
pub(crate) struct Part {
    tokens: Vec<TokenTree>,
    end: Extent,
    /// Whether a separator follows.
    pub(crate) ended: bool,
}

impl Part {
    /// The position of a lone `=`, an assignment's.
    pub(crate) fn assignment(&self) -> Option<usize> {
        let char_at = |i: usize| match self.tokens.get(i) {
            Some(TokenTree::Punct(punct)) => Some((punct.as_char(), punct.spacing())),
            _ => None,
        };
        (0..self.tokens.len()).find(|&i| {
            let before = i.checked_sub(1).and_then(char_at);
            let joined = |c| "=!<>+-*/%^&|".contains(c);
            char_at(i).is_some_and(|(c, _)| c == '=')
                && !before.is_some_and(|(c, spacing)| joined(c) && spacing == Spacing::Joint)
                && !(char_at(i) == Some(('=', Spacing::Joint)) && matches!(char_at(i + 1), Some(('=' | '>', _))))
        })
    }

    /// The tokens before position `at` and those after it.
    pub(crate) fn divide(mut self, at: usize) -> (Part, Part) {
        let right = self.tokens.split_off(at + 1);
        let end = self.tokens.pop().map_or(self.end, |token| Extent::from(&token));
        (Part { tokens: self.tokens, end, ended: true }, Part { tokens: right, end: self.end, ended: self.ended })
    }

    /// Whether it reads `key = …`.
    pub(crate) fn starts_with_key(&self) -> bool {
        matches!(self.tokens.first(), Some(TokenTree::Ident(_))) && self.assignment() == Some(1)
    }

    /// Whether the first token is that word.
    pub(crate) fn starts_with_word(&self, word: &str) -> bool {
        matches!(self.tokens.first(), Some(TokenTree::Ident(ident)) if ident == word)
    }

    /// The first token if that is a word.
    pub(crate) fn first_word(&self) -> Option<String> {
        match self.tokens.first() {
            Some(TokenTree::Ident(ident)) => Some(ident.to_string()),
            _ => None,
        }
    }

    /// Whether it has no tokens.
    pub(crate) fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// All tokens' place.
    pub(crate) fn extent(&self) -> Extent {
        let ends = self.tokens.first().zip(self.tokens.last());
        ends.map_or(self.end, |(first, last)| Extent::from(first).to(Extent::from(last)))
    }
}

/// The opening character of a delimiter.
fn opening(delimiter: Delimiter) -> &'static str {
    &both(delimiter)[..both(delimiter).len() / 2]
}

/// Both characters of a delimiter.
fn both(delimiter: Delimiter) -> &'static str {
    match delimiter {
        Delimiter::Parenthesis => "()",
        Delimiter::Brace => "{}",
        Delimiter::Bracket => "[]",
        Delimiter::None => "",
    }
}

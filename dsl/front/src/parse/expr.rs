//! Expressions: Rust's tokens and precedence.

use oplus_dsl::ir::{Binary, Literal};
use proc_macro2::{Delimiter, TokenTree};

use crate::cursor::{Cursor, DEPTH, Part};
use crate::extent::Extent;
use crate::mistake::Mistake;
use crate::syntax::{Argument, Body, Expr, ExprKind, Infix, Name};

use super::{body, function, literal};

/// Binary operators with their precedence, loosest first.
const BINARY: [(&str, u32, Binary); 18] = [
    ("||", 1, Binary::Or),
    ("&&", 2, Binary::And),
    ("==", 3, Binary::Eq),
    ("!=", 3, Binary::Ne),
    ("<", 3, Binary::Lt),
    ("<=", 3, Binary::Le),
    (">", 3, Binary::Gt),
    (">=", 3, Binary::Ge),
    ("|", 4, Binary::Or),
    ("^", 5, Binary::Xor),
    ("&", 6, Binary::And),
    ("<<", 7, Binary::Shl),
    (">>", 7, Binary::Shr),
    ("+", 8, Binary::Add),
    ("-", 8, Binary::Sub),
    ("*", 9, Binary::Mul),
    ("/", 9, Binary::Div),
    ("%", 9, Binary::Rem),
];

/// The precedence of comparisons, which do not chain.
const COMPARISON: u32 = 3;

/// The advice against brackets.
pub(super) const INDEXING: &str = "tensors have named axes: take a position with `first`, `last` or `shift`";

/// Words of Rust that begin something the language leaves out, and what to write instead.
const UNSUPPORTED: [(&str, &str); 22] = [
    ("for", "a loop over an axis is a `scan`, a `reduce` or a `sum`"),
    ("while", "a loop over an axis is a `scan`, a `reduce` or a `sum`"),
    ("loop", "a loop over an axis is a `scan`, a `reduce` or a `sum`"),
    ("match", "choose with `if … { … } else { … }`"),
    ("return", "end the block with its value, without a semicolon"),
    ("break", "a loop over an axis is a `scan`, a `reduce` or a `sum`"),
    ("continue", "a loop over an axis is a `scan`, a `reduce` or a `sum`"),
    ("let", "write `let name = …;` as a statement of its own"),
    ("unsafe", "write the expression without it"),
    ("move", "a helper `fn name(x) { … }` takes the place of a closure"),
    ("async", "write the expression without it"),
    ("fn", "declare helper functions beside the kernels, not inside them"),
    ("const", OUTSIDE),
    ("static", OUTSIDE),
    ("use", OUTSIDE),
    ("struct", OUTSIDE),
    ("enum", OUTSIDE),
    ("trait", OUTSIDE),
    ("impl", OUTSIDE),
    ("type", OUTSIDE),
    ("mod", OUTSIDE),
    ("extern", OUTSIDE),
];

/// The advice against an item inside a body.
const OUTSIDE: &str = "declare it outside of `scan!`; a constant of the kernel is a `let name = …;`";

/// Words that Rust keeps for itself and that cannot be names.
const KEYWORDS: [&str; 23] = [
    "_", "as", "abstract", "become", "box", "crate", "do", "dyn", "else", "false", "final", "if", "in", "macro", "mut",
    "override", "priv", "pub", "ref", "self", "super", "true", "where",
];

/// Whether a word cannot name anything in Rust.
pub(crate) fn is_keyword(word: &str) -> bool {
    let others = ["Self", "await", "gen", "try", "typeof", "unsized", "virtual", "yield"];
    KEYWORDS.contains(&word) || others.contains(&word) || UNSUPPORTED.iter().any(|(known, _)| *known == word)
}

/// The name of a statement that begins with a word of Rust, and what to write instead, if it is none of this language.
/// `assigns` tells whether another statement may be part of it.
pub(super) fn not_a_statement(word: &str, assigns: bool) -> Option<(String, &'static str)> {
    if word == "if" && assigns {
        let instead = "an `if` is a value: write `y = if c { a } else { b };` for each output";
        return Some(("`if` as a statement is".into(), instead));
    }
    let (_, instead) = UNSUPPORTED.iter().find(|(known, _)| *known == word && *known != "let")?;
    Some((format!("`{word}` is"), instead))
}

/// Reads an expression that takes all tokens; a mistake gives [`ExprKind::Wrong`].
pub(super) fn whole(cursor: &mut Cursor, next: &str) -> Expr {
    let extent = cursor.extent();
    match expr(cursor) {
        None => Expr::wrong(extent),
        Some(value) => {
            rest(cursor, next);
            value
        }
    }
}

/// Reports what stands behind an expression.
fn rest(cursor: &mut Cursor, next: &str) {
    let operator = cursor.peek_operator();
    match operator.as_deref() {
        Some("+=" | "-=" | "*=" | "/=" | "%=" | "&=" | "|=" | "^=" | "<<=" | ">>=") => {
            unsupported(
                cursor,
                "compound assignment is",
                "values do not change: bind the new value with another `let`",
            );
        }
        Some(".." | "..=" | ".") => unsupported(cursor, "ranges are", "an axis is always taken whole"),
        Some("@") => {
            unsupported(cursor, "`@` is", "a product of matrices is `sum(K, a * b)` over the axis that both have")
        }
        _ => cursor.finish(next),
    }
}

/// Reads the expressions of a list.
pub(super) fn list(cursor: &mut Cursor) -> Vec<Expr> {
    let parts = cursor.split(',');
    parts.into_iter().map(|part| whole(&mut cursor.part(part), "`,` or an operator")).collect()
}

/// Reads one expression.
pub(super) fn expr(cursor: &mut Cursor) -> Option<Expr> {
    cursor.deeper(|cursor| binary(cursor, 0))
}

/// Precedence climbing: operators that bind tighter than `loosest`.
fn binary(cursor: &mut Cursor, loosest: u32) -> Option<Expr> {
    let mut left = cast(cursor)?;
    let mut compared = false;
    while let Some((text, precedence, op)) = next_binary(cursor).filter(|(_, p, _)| *p > loosest) {
        if cursor.is_power() {
            unsupported(cursor, "`**` is", "write `powi(x, 2)` for whole powers, `exp(y * ln(x))` for others");
            return None;
        }
        let Some(at) = cursor.take_operator(text) else { break };
        if precedence == COMPARISON && std::mem::replace(&mut compared, true) {
            cursor.report(at, Mistake::ChainedComparison {});
            return None;
        }
        let right = cursor.deeper(|cursor| binary(cursor, precedence))?;
        let extent = left.extent.to(right.extent);
        let infix = Infix { op, text, extent: at };
        left = node(cursor, ExprKind::Binary(infix, Box::new(left), Box::new(right)), extent)?;
    }
    Some(left)
}

fn next_binary(cursor: &Cursor) -> Option<(&'static str, u32, Binary)> {
    let operator = cursor.peek_operator()?;
    BINARY.into_iter().find(|(text, ..)| *text == operator)
}

/// `x as f32`.
fn cast(cursor: &mut Cursor) -> Option<Expr> {
    let mut value = unary(cursor)?;
    while cursor.take_word("as").is_some() {
        let last = cursor.extent();
        let elem = function::elem(cursor)?;
        let extent = value.extent.to(last);
        value = node(cursor, ExprKind::Cast(Box::new(value), elem), extent)?;
    }
    Some(value)
}

fn unary(cursor: &mut Cursor) -> Option<Expr> {
    let kind: fn(Box<Expr>) -> ExprKind = match cursor.peek_operator().as_deref() {
        Some("-") => ExprKind::Neg,
        Some("!") => ExprKind::Not,
        _ => return postfix(cursor),
    };
    let first = cursor.extent();
    cursor.next();
    let value = cursor.deeper(unary)?;
    let extent = first.to(value.extent);
    node(cursor, kind(Box::new(value)), extent)
}

/// Calls and fields.
fn postfix(cursor: &mut Cursor) -> Option<Expr> {
    let mut value = primary(cursor)?;
    loop {
        let last = cursor.extent();
        if let Some(group) = cursor.take_group(Delimiter::Parenthesis) {
            let mut inside = cursor.inside(&group);
            let parts = inside.split(',');
            let arguments = parts.into_iter().map(|part| argument(&mut inside, part)).collect();
            let extent = value.extent.to(last);
            value = node(cursor, ExprKind::Call(Box::new(value), arguments), extent)?;
        } else if cursor.peek_operator().as_deref() == Some(".") {
            value = field(cursor, value)?;
        } else if let Some((what, instead)) = unsupported_postfix(cursor) {
            unsupported(cursor, what, instead);
            return None;
        } else {
            return Some(value);
        }
    }
}

fn unsupported_postfix(cursor: &Cursor) -> Option<(&'static str, &'static str)> {
    if matches!(cursor.peek(), Some(TokenTree::Group(g)) if g.delimiter() == Delimiter::Bracket) {
        return Some(("indexing is", INDEXING));
    }
    match cursor.peek_operator()?.as_str() {
        "?" => Some(("`?` is", "operations do not fail")),
        "::" => Some(("paths are", "write the function's or the operator's name alone")),
        "!" => Some(("macros are", "write the expression itself")),
        _ => None,
    }
}

fn argument(inside: &mut Cursor, part: Part) -> Argument {
    let has_key = part.starts_with_key();
    let mut part = inside.part(part);
    let key = if has_key { part.name("an argument's name") } else { None };
    part.take_operator("=");
    Argument { key, value: whole(&mut part, "`,` or an operator") }
}

fn field(cursor: &mut Cursor, value: Expr) -> Option<Expr> {
    cursor.operator(".")?;
    if matches!(cursor.peek(), Some(TokenTree::Literal(_))) {
        unsupported(cursor, "fields by number are", "take values apart with `let (x, y) = …;`");
        return None;
    }
    let name = cursor.name("a field's name")?;
    if matches!(cursor.peek(), Some(TokenTree::Group(g)) if g.delimiter() == Delimiter::Parenthesis) {
        let instead = format!("write `{}(x)` for `x.{}()`", name.text, name.text);
        report(cursor, name.extent(), "methods are", &instead);
        return None;
    }
    let extent = value.extent.to(name.extent());
    node(cursor, ExprKind::Field(Box::new(value), name), extent)
}

fn primary(cursor: &mut Cursor) -> Option<Expr> {
    let extent = cursor.extent();
    let Some(token) = cursor.peek().cloned() else { return cursor.expected("an expression") };
    let kind = match token {
        TokenTree::Literal(token) => {
            cursor.next();
            let text = token.to_string();
            let Some(number) = literal::number(&text) else {
                cursor.report(extent, Mistake::BadLiteral { literal: text });
                return None;
            };
            ExprKind::Literal(number)
        }
        TokenTree::Ident(ident) => return word(cursor, &ident.to_string()),
        TokenTree::Group(_) => return group(cursor),
        TokenTree::Punct(_) => return punctuation(cursor),
    };
    node(cursor, kind, extent)
}

fn word(cursor: &mut Cursor, word: &str) -> Option<Expr> {
    let extent = cursor.extent();
    if word == "if" {
        return conditional(cursor);
    }
    if let Some((_, instead)) = UNSUPPORTED.iter().find(|(known, _)| *known == word) {
        unsupported(cursor, &format!("`{word}` is"), instead);
        return None;
    }
    let name = cursor.name("a name")?;
    let kind = match word {
        "true" => ExprKind::Literal(Literal::Bool(true)),
        "false" => ExprKind::Literal(Literal::Bool(false)),
        _ => ExprKind::Name(name),
    };
    node(cursor, kind, extent)
}

fn punctuation(cursor: &mut Cursor) -> Option<Expr> {
    let (what, instead) = match cursor.peek_operator().as_deref() {
        Some("&" | "&&") => ("references are", "write the value itself"),
        Some("*") => ("dereferencing is", "write the value itself"),
        Some("|" | "||") => ("closures are", "declare a helper `fn name(x) { … }` beside the kernel"),
        Some(".." | "..=") => ("ranges are", "an axis is always taken whole"),
        _ => return cursor.expected("an expression"),
    };
    unsupported(cursor, what, instead);
    None
}

/// `(x)`, `(x, y)`, `(a: x)`, `{ … }`.
fn group(cursor: &mut Cursor) -> Option<Expr> {
    let extent = cursor.extent();
    if let Some(group) = cursor.take_group(Delimiter::Brace) {
        let body = cursor.deeper(|cursor| Some(body::block(cursor, &group)))?;
        return node(cursor, ExprKind::Block(Box::new(body)), extent);
    }
    let none = cursor.take_group(Delimiter::None);
    let Some(group) = none.or_else(|| cursor.take_group(Delimiter::Parenthesis)) else {
        unsupported(cursor, "arrays are", "write values in parentheses, `(x, y)`");
        return None;
    };
    let kind = cursor.deeper(|cursor| Some(parenthesised(&mut cursor.inside(&group))))?;
    node(cursor, kind, extent)
}

fn parenthesised(inside: &mut Cursor) -> ExprKind {
    if matches!(inside.peek_second(), Some(TokenTree::Punct(p)) if p.as_char() == ':' && p.spacing() == proc_macro2::Spacing::Alone)
    {
        return ExprKind::Fields(named(inside));
    }
    let mut values = list(inside);
    match values.len() {
        1 => values.pop().map_or(ExprKind::Wrong, |value| value.kind),
        _ => ExprKind::Tuple(values),
    }
}

/// `a: x, b: y`.
fn named(inside: &mut Cursor) -> Vec<(Name, Expr)> {
    let parts = inside.split(',');
    let read = |part| {
        let mut part = inside.part(part);
        let name = part.name("a field's name")?;
        part.operator(":")?;
        Some((name, whole(&mut part, "`,` or an operator")))
    };
    parts.into_iter().filter_map(read).collect()
}

/// `if c { a } else { b }`.
fn conditional(cursor: &mut Cursor) -> Option<Expr> {
    let first = cursor.take_word("if")?;
    if cursor.is_word("let") {
        unsupported(cursor, "`if let` is", "compare the value: `if x > 0 { … } else { … }`");
        return None;
    }
    let condition = expr(cursor)?;
    let then = cursor.group(Delimiter::Brace, "the value if the condition holds,")?;
    let then = cursor.deeper(|cursor| Some(body::block(cursor, &then)))?;
    if cursor.take_word("else").is_none() {
        return cursor.expected("`else { … }`: an `if` is a value");
    }
    let last = cursor.extent();
    let otherwise = if cursor.is_word("if") {
        Body::of(cursor.deeper(conditional)?)
    } else {
        let group = cursor.group(Delimiter::Brace, "the value if the condition does not hold,")?;
        cursor.deeper(|cursor| Some(body::block(cursor, &group)))?
    };
    let extent = first.to(last.to(otherwise.extent));
    node(cursor, ExprKind::If(Box::new(condition), Box::new(then), Box::new(otherwise)), extent)
}

/// Makes an expression, unless it is too deep to be walked.
fn node(cursor: &mut Cursor, kind: ExprKind, extent: Extent) -> Option<Expr> {
    let expr = Expr::new(kind, extent);
    if expr.height > DEPTH {
        cursor.report(extent, Mistake::TooDeep {});
        return None;
    }
    Some(expr)
}

/// Reports a construct that the language leaves out, at the next token, and skips the rest.
pub(super) fn unsupported(cursor: &mut Cursor, what: &str, instead: &str) {
    let extent = cursor.extent();
    report(cursor, extent, what, instead);
    cursor.skip_until(|_| false);
}

fn report(cursor: &mut Cursor, extent: Extent, what: &str, instead: &str) {
    cursor.report(extent, Mistake::Unsupported { what: what.into(), instead: instead.into() });
}

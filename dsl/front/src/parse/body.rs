//! Statements and patterns.

use proc_macro2::{Delimiter, Group, TokenTree};

use crate::cursor::{Cursor, Part};
use crate::extent::Extent;
use crate::mistake::Mistake;
use crate::syntax::{Body, Expr, Pattern, Statement};

use super::expr;

/// Reads the inside of braces: statements, then the value if the last part has no `;`.
pub(super) fn block(cursor: &mut Cursor, group: &Group) -> Body {
    let extent = Extent::from(&TokenTree::Group(group.clone()));
    let mut body = Body { statements: vec![], value: None, extent, is_whole: true };
    let mut inside = cursor.inside(group);
    for part in inside.split(';') {
        let before = inside.mistakes();
        statement(&mut inside, part, &mut body);
        body.is_whole &= inside.mistakes() == before;
    }
    body
}

fn statement(inside: &mut Cursor, part: Part, body: &mut Body) {
    let (ended, extent) = (part.ended, part.extent());
    let is_let = part.starts_with_word("let");
    let foreign = part.first_word().and_then(|word| expr::not_a_statement(&word, part.assignment().is_some()));
    if let Some((what, instead)) = foreign {
        let mut part = inside.part(part);
        expr::unsupported(&mut part, &what, instead);
    } else if let Some(at) = part.assignment() {
        let (left, right) = part.divide(at);
        let mut left = inside.part(left);
        left.take_word("let");
        let pattern = whole_pattern(&mut left).unwrap_or(Pattern::Ignore);
        let value = expr::whole(&mut inside.part(right), "`;` or an operator");
        body.statements.push(if is_let { Statement::Let(pattern, value) } else { Statement::Assign(pattern, value) });
    } else if is_let {
        let mut part = inside.part(part);
        part.take_word("let");
        whole_pattern(&mut part);
        part.expected::<()>("`= value`");
    } else if part.is_empty() {
        inside.report(extent, Mistake::Unexpected { expected: "a statement".into(), found: "`;`".into() });
    } else {
        let before = inside.mistakes();
        let value = expr::whole(&mut inside.part(part), "`;` or an operator");
        body.is_whole &= inside.mistakes() == before;
        push_value(inside, value, ended, body);
    }
}

/// An expression is the body's value if it stands last; elsewhere it has no effect.
fn push_value(inside: &mut Cursor, value: Expr, ended: bool, body: &mut Body) {
    if !ended {
        body.value = Some(Box::new(value));
    } else if body.is_whole {
        let instead = "a value without a name has no effect: write `let name = …;`, or leave out the `;` at the end";
        let mistake = Mistake::Unsupported { what: "expression statements are".into(), instead: instead.into() };
        inside.report(value.extent, mistake);
    }
}

fn whole_pattern(cursor: &mut Cursor) -> Option<Pattern> {
    let pattern = pattern(cursor)?;
    if matches!(cursor.peek(), Some(TokenTree::Group(g)) if g.delimiter() == Delimiter::Bracket) {
        expr::unsupported(cursor, "indexing is", expr::INDEXING);
    } else if cursor.peek_operator().as_deref() == Some(":") {
        expr::unsupported(cursor, "types of `let` are", "leave the type out, or convert the value with `as`");
    } else {
        cursor.finish("`=`");
    }
    Some(pattern)
}

/// `name`, `_` or `(p, q)`.
fn pattern(cursor: &mut Cursor) -> Option<Pattern> {
    if let Some(group) = cursor.take_group(Delimiter::Parenthesis) {
        let extent = Extent::from(&TokenTree::Group(group.clone()));
        return cursor.deeper(|cursor| {
            let mut inside = cursor.inside(&group);
            let parts = inside.split(',');
            let read = |part| {
                let mut part = inside.part(part);
                let pattern = pattern(&mut part);
                part.finish("`,`");
                pattern
            };
            Some(Pattern::Tuple(parts.into_iter().map(read).collect::<Option<_>>()?, extent))
        });
    }
    if cursor.is_word("mut") {
        expr::unsupported(cursor, "`mut` is", "values do not change: bind the new value with another `let`");
        return None;
    }
    let name = cursor.name("a name or `(x, y)`")?;
    Some(if name.text == "_" { Pattern::Ignore } else { Pattern::Name(name) })
}

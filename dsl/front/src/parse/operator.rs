//! `op Name(fields) where conditions { identity (…); combine(l, r) (…); gauge m; }`, or with a state of its own,
//! `op Name(fields) -> (state) { combine(l, r) (…); }`.

use proc_macro2::{Delimiter, Group, TokenTree};

use crate::cursor::Cursor;
use crate::extent::Extent;
use crate::mistake::Mistake;
use crate::syntax::{Body, Combine, DomainItem, Expr, ExprKind, FieldItem, Head, Name, OperatorItem, Values};

use super::{body, expr, function};

/// Reads what follows `op`.
pub(super) fn operator(cursor: &mut Cursor, head: Head) -> Option<OperatorItem> {
    let name = cursor.name("the operator's name")?;
    let (fields, everywhere) = (vec![], DomainItem::default());
    let mut item = OperatorItem {
        head,
        name,
        fields,
        state: None,
        domain: everywhere,
        identity: None,
        combine: None,
        gauge: None,
    };
    if let Some(group) = cursor.group(Delimiter::Parenthesis, "the operator's fields") {
        let mut inside = cursor.inside(&group);
        for part in inside.split(',') {
            item.fields.extend(field(&mut inside.part(part)));
        }
    }
    if cursor.take_operator("->").is_some() {
        state(cursor, &mut item);
    }
    if let Some(word) = cursor.take_word("where") {
        item.domain = domain(cursor, word);
    }
    if let Some(group) = cursor.group(Delimiter::Brace, "the operator's clauses") {
        clauses(&mut cursor.inside(&group), &mut item);
        require(cursor, &item, group.span_close().into());
    }
    Some(item)
}

/// `(s: [V, K])`: the state that elements act on.
fn state(cursor: &mut Cursor, item: &mut OperatorItem) {
    let extent = cursor.extent();
    let Some(group) = cursor.group(Delimiter::Parenthesis, "the operator's state") else { return };
    let mut inside = cursor.inside(&group);
    let mut states = inside.split(',').into_iter().map(|part| field(&mut inside.part(part))).collect::<Vec<_>>();
    if states.len() != 1 {
        cursor.report(extent, Mistake::StateCount { operator: item.name.text.clone() });
    }
    item.state = if states.is_empty() { None } else { states.remove(0) };
}

/// `name`, `name: type`, `name: [axes]` or `name: type[axes]`.
fn field(cursor: &mut Cursor) -> Option<FieldItem> {
    let name = cursor.name("a field's name")?;
    let (mut elem, mut axes) = (None, vec![]);
    if cursor.take_operator(":").is_some() {
        let is_bare = matches!(cursor.peek(), Some(TokenTree::Group(_)));
        if !is_bare {
            let extent = cursor.extent();
            elem = Some((function::elem(cursor)?, extent));
        }
        if let Some(group) = cursor.take_group(Delimiter::Bracket) {
            axes = function::axes(&mut cursor.inside(&group));
        }
    }
    cursor.finish("`,`, `: type` or `: [axes]`");
    Some(FieldItem { name, elem, axes })
}

/// Conditions, separated by commas or `&&`, up to the operator's clauses; they follow a word.
fn domain(cursor: &mut Cursor, word: Extent) -> DomainItem {
    let mut domain = DomainItem::default();
    while !is_brace(cursor.peek()) || domain.conditions.is_empty() && !domain.no_overflow {
        if cursor.is_word("no") && matches!(cursor.peek_second(), Some(TokenTree::Ident(word)) if word == "overflow") {
            cursor.next();
            cursor.next();
            domain.no_overflow = true;
        } else {
            let extent = cursor.extent();
            domain.conditions.extend(conjuncts(condition(cursor, word).unwrap_or_else(|| Expr::wrong(extent))));
        }
        if cursor.take_operator(",").is_none() {
            break;
        }
    }
    if !is_brace(cursor.peek()) && !domain.conditions.iter().any(|condition| matches!(condition.kind, ExprKind::Wrong))
    {
        cursor.expected::<()>("`,`, an operator or the clauses in `{}`");
        domain.conditions.push(Expr::wrong(cursor.extent()));
    }
    cursor.skip_until(|token| is_brace(Some(token)));
    domain
}

fn condition(cursor: &mut Cursor, word: Extent) -> Option<Expr> {
    if is_brace(cursor.peek()) {
        let (expected, found) = ("a condition on the fields, as in `where x >= 0`".into(), cursor.found());
        cursor.report(word, Mistake::Unexpected { expected, found });
        return None;
    }
    expr::expr(cursor)
}

fn is_brace(token: Option<&TokenTree>) -> bool {
    matches!(token, Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace)
}

/// The parts of `a && b && c`.
fn conjuncts(condition: Expr) -> Vec<Expr> {
    let mut parts = vec![condition];
    while let Some(Expr { kind: ExprKind::Binary(infix, ..), .. }) = parts.first()
        && infix.text == "&&"
        && let ExprKind::Binary(_, left, right) = parts.remove(0).kind
    {
        parts.splice(0..0, [*left, *right]);
    }
    parts
}

fn clauses(cursor: &mut Cursor, item: &mut OperatorItem) {
    while !cursor.is_done() {
        if clause(cursor, item).is_none() {
            cursor.skip_until(|token| matches!(token, TokenTree::Punct(p) if p.as_char() == ';'));
            cursor.take_operator(";");
        }
    }
}

/// Reads one clause; `None` if the rest of it must be skipped.
fn clause(cursor: &mut Cursor, item: &mut OperatorItem) -> Option<()> {
    let extent = cursor.extent();
    let duplicate = if cursor.take_word("identity").is_some() {
        let group = cursor.group(Delimiter::Parenthesis, "the identity's values")?;
        let identity = values(cursor, &group);
        cursor.operator(";")?;
        item.identity.replace(identity).map(|_| "identity (…);")
    } else if cursor.take_word("combine").is_some() {
        let combine = combine(cursor)?;
        item.combine.replace(combine).map(|_| "combine(l, r) (…);")
    } else if cursor.take_word("gauge").is_some() {
        let gauge = cursor.name("the gauge field's name")?;
        cursor.operator(";")?;
        item.gauge.replace(gauge).map(|_| "gauge field;")
    } else if cursor.is_word("where") {
        let instead = "write it before the braces, as in `op Name(x) where x >= 0 { … }`";
        cursor.report(
            extent,
            Mistake::Unsupported { what: "`where` among the clauses is".into(), instead: instead.into() },
        );
        return None;
    } else {
        let found = cursor.found();
        cursor.report(extent, Mistake::UnknownClause { found });
        return None;
    };
    if let Some(clause) = duplicate {
        let operator = item.name.text.clone();
        cursor.report(extent, Mistake::DuplicateClause { operator, clause: clause.into() });
    }
    Some(())
}

/// `(l, r) (…);` or `(l, r) { … }`.
fn combine(cursor: &mut Cursor) -> Option<Combine> {
    let group = cursor.group(Delimiter::Parenthesis, "the operands' names, as in `combine(l, r)`,")?;
    let [left, right] = operands(&mut cursor.inside(&group))?;
    let body = if let Some(group) = cursor.take_group(Delimiter::Brace) {
        cursor.take_operator(";");
        body::block(cursor, &group)
    } else {
        let group = cursor.group(Delimiter::Parenthesis, "the combination's fields")?;
        let Values { list, extent } = values(cursor, &group);
        cursor.operator(";")?;
        tuple(list, extent)
    };
    Some(Combine { left, right, body })
}

fn operands(cursor: &mut Cursor) -> Option<[Name; 2]> {
    let left = cursor.name("the left operand's name")?;
    cursor.operator(",")?;
    let right = cursor.name("the right operand's name")?;
    cursor.take_operator(",");
    cursor.finish("`)`: an operator combines two operands");
    Some([left, right])
}

/// One value is itself; several are a tuple.
fn tuple(mut list: Vec<Expr>, extent: Extent) -> Body {
    let value = if list.len() == 1 { list.pop() } else { None };
    Body::of(value.unwrap_or_else(|| Expr::new(ExprKind::Tuple(list), extent)))
}

fn values(cursor: &mut Cursor, group: &Group) -> Values {
    Values { list: expr::list(&mut cursor.inside(group)), extent: Extent::from(&TokenTree::Group(group.clone())) }
}

/// Reports the clauses that are missing, at the closing brace.
fn require(cursor: &mut Cursor, item: &OperatorItem, end: Extent) {
    let missing = [
        (item.identity.is_none() && item.state.is_none(), "identity; add `identity (…);` with one value per field"),
        (item.combine.is_none(), "combination; add `combine(l, r) (…);` with one value per field"),
    ];
    for (_, clause) in missing.into_iter().filter(|(is_missing, _)| *is_missing) {
        cursor.report(end, Mistake::MissingClause { operator: item.name.text.clone(), clause: clause.into() });
    }
}

//! Tokens to the surface tree.
//!
//! The parser splits first and reads afterwards: items end at their braces, statements at `;`, arguments at `,`. A
//! mistake therefore costs the part it stands in and nothing else, and all mistakes of a block are found in one run.
//! It is written on tokens rather than on a parser of Rust expressions because the language is smaller than Rust, has
//! a form that Rust lacks (`init = (b: h0)`), and must bound its nesting: no input may exhaust the stack.

mod body;
mod expr;
mod function;
mod literal;
mod operator;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::cursor::{Cursor, Part};
use crate::diagnostics::Diagnostics;
use crate::mistake::Mistake;
use crate::syntax::{Block, Head};

pub(crate) use expr::is_keyword;

/// Reads the body of a `scan!` invocation.
pub(crate) fn block(tokens: TokenStream, mistakes: &mut Diagnostics) -> Block {
    let mut block = Block::default();
    let mut cursor = Cursor::new(tokens, mistakes);
    for part in items(&mut cursor) {
        item(&mut cursor.part(part), &mut block);
    }
    block
}

/// The items: each ends at a brace.
fn items(cursor: &mut Cursor) -> Vec<Part> {
    cursor.split_after(|token| matches!(token, TokenTree::Group(g) if g.delimiter() == Delimiter::Brace))
}

fn item(cursor: &mut Cursor, block: &mut Block) -> Option<()> {
    let head = head(cursor);
    if cursor.take_word("op").is_some() {
        block.operators.push(operator::operator(cursor, head)?);
    } else if cursor.take_word("fn").is_some() {
        function::function(cursor, head, block)?;
    } else {
        let (extent, found) = (cursor.extent(), cursor.found());
        cursor.report(extent, Mistake::UnknownItem { found });
    }
    Some(())
}

/// Attributes and visibility.
fn head(cursor: &mut Cursor) -> Head {
    let mut head = Head::default();
    while cursor.peek_operator().as_deref() == Some("#") {
        let hash = cursor.next();
        let Some(group) = cursor.take_group(Delimiter::Bracket) else { break };
        if is_attribute(&mut cursor.inside(&group)) {
            head.attributes.extend(hash);
            head.attributes.extend([TokenTree::Group(group)]);
        }
    }
    if cursor.is_word("pub") {
        head.visibility.extend(cursor.next());
        let group = cursor.take_group(Delimiter::Parenthesis);
        let group = group.filter(|group| is_restriction(&mut cursor.inside(group)));
        head.visibility.extend(group.map(TokenTree::Group));
    }
    head
}

/// Whether this is the inside of an attribute: `name`, `name(…)` or `name = value`. Reports it otherwise.
fn is_attribute(inside: &mut Cursor) -> bool {
    if path(inside).is_none() {
        return false;
    }
    let is_value = if inside.take_operator("=").is_none() {
        inside.take_group(Delimiter::Parenthesis);
        true
    } else if matches!(inside.peek(), Some(TokenTree::Literal(_))) {
        inside.next().is_some()
    } else {
        let call = path(inside).and_then(|()| inside.operator("!"));
        call.and_then(|_| inside.take_group(Delimiter::Parenthesis)).is_some()
    };
    if !is_value || !inside.is_done() {
        inside.expected::<()>("an attribute, `name`, `name(…)` or `name = \"value\"`,");
        return false;
    }
    true
}

/// Whether this is the inside of `pub(…)`. Reports it otherwise.
fn is_restriction(inside: &mut Cursor) -> bool {
    inside.take_word("in");
    let is_path = path(inside).is_some();
    inside.finish("`)`");
    is_path && inside.is_done()
}

/// `a::b`.
fn path(cursor: &mut Cursor) -> Option<()> {
    cursor.take_operator("::");
    segment(cursor)?;
    while cursor.take_operator("::").is_some() {
        segment(cursor)?;
    }
    Some(())
}

/// A name of a path: no keyword but those that name a module.
fn segment(cursor: &mut Cursor) -> Option<()> {
    let is_module = ["crate", "self", "super"].iter().any(|word| cursor.is_word(word));
    let is_reserved = matches!(cursor.peek(), Some(TokenTree::Ident(name)) if is_keyword(&name.to_string()));
    if is_reserved && !is_module { cursor.expected("a name") } else { cursor.name("a name").map(drop) }
}

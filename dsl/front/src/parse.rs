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
    while matches!(cursor.peek_second(), Some(TokenTree::Group(g)) if g.delimiter() == Delimiter::Bracket)
        && cursor.peek_operator().as_deref() == Some("#")
    {
        head.attributes.extend(cursor.next());
        head.attributes.extend(cursor.next());
    }
    if cursor.is_word("pub") {
        head.visibility.extend(cursor.next());
        head.visibility.extend(cursor.take_group(Delimiter::Parenthesis).map(TokenTree::Group));
    }
    head
}

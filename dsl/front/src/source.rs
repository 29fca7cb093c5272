//! The programs of a Rust source file, for tools that compile ahead of time.

use std::fmt;

use oplus_dsl::ir::Program;
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::diagnostics::Diagnostics;

/// Why the programs of a source file cannot be told.
#[derive(Clone, Debug)]
pub enum SourceError {
    /// The text is not made of Rust's tokens.
    NotRust {
        /// Line (from 1) of the first wrong token.
        line: usize,
        /// The lexer's message.
        message: String,
    },
    /// A `scan!` block has mistakes.
    Mistakes(Diagnostics),
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SourceError::NotRust { line, message } => write!(f, "{line}: {message}"),
            SourceError::Mistakes(mistakes) => mistakes.fmt(f),
        }
    }
}

impl std::error::Error for SourceError {}

/// The programs of all `scan! { … }` invocations of a Rust source file, in its order, wherever they stand.
///
/// The file is read as tokens and not compiled: `cfg` is not evaluated, and a renamed macro (`use oplus::scan as s`) is
/// not found.
///
/// # Errors
/// When the text is not Rust, or a block has mistakes; those of the first wrong block.
pub fn scan_source_file(text: &str) -> Result<Vec<Program>, SourceError> {
    let tokens: TokenStream = text.parse().map_err(|error: proc_macro2::LexError| SourceError::NotRust {
        line: error.span().start().line,
        message: error.to_string(),
    })?;
    let mut programs = vec![];
    for block in blocks(tokens) {
        programs.extend(crate::programs(block).map_err(SourceError::Mistakes)?);
    }
    Ok(programs)
}

/// The bodies of `scan!`, outermost first. Iterative, so that no nesting exhausts the stack.
pub(crate) fn blocks(tokens: TokenStream) -> Vec<TokenStream> {
    let mut found = vec![];
    let mut open = vec![tokens.into_iter().collect::<Vec<TokenTree>>()];
    while let Some(tokens) = open.pop() {
        let mut inside = vec![];
        for (i, token) in tokens.iter().enumerate() {
            let TokenTree::Group(group) = token else { continue };
            if i >= 2 && is_scan(&tokens[i - 2], &tokens[i - 1]) && group.delimiter() != Delimiter::None {
                found.push(group.stream());
            } else {
                inside.push(group.stream().into_iter().collect());
            }
        }
        open.extend(inside.into_iter().rev());
    }
    found
}

fn is_scan(name: &TokenTree, bang: &TokenTree) -> bool {
    matches!(name, TokenTree::Ident(ident) if ident == "scan")
        && matches!(bang, TokenTree::Punct(punct) if punct.as_char() == '!')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        scan_source_file(text).expect("a valid file").into_iter().map(|program| program.name).collect()
    }

    #[test]
    fn every_invocation_is_found_wherever_it_stands() {
        let text = r#"
            //! scan! { not this }
            use oplus::scan;
            oplus::scan! { pub fn first(x: [T]) -> (y: [T]) { y = scan(T, Sum(x)); } }
            mod inner { fn f() { scan!(fn second(x: [T]) -> (y: []) { y = sum(T, x); }); } }
            const TEXT: &str = "scan! { nor this }";
        "#;
        assert_eq!(names(text), ["first", "second"]);
        assert!(names("fn main() {}").is_empty());
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        let error = scan_source_file("\nscan! { pub fn f(x: [T]) -> (y: [T]) { y = z; } }").expect_err("a mistake");
        assert!(error.to_string().starts_with("2:44: there is no value `z`"), "{error}");
        let error = scan_source_file("fn main() { \"").expect_err("not Rust");
        assert!(matches!(error, SourceError::NotRust { line: 1, .. }), "{error}");
    }
}

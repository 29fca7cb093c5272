//! Where in the user's tokens something stands.

use proc_macro2::{Span, TokenTree};

/// The tokens from `first` to `last`, both included. Rust on stable cannot join spans, so both ends travel.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// The first token.
    pub first: Span,
    /// The last token; the same for a single one.
    pub last: Span,
}

impl Extent {
    /// From the first token of `self` to the last one of `other`.
    #[must_use]
    pub fn to(self, other: Extent) -> Extent {
        Extent { first: self.first, last: other.last }
    }

    /// The whole invocation of the macro.
    pub fn whole() -> Extent {
        Span::call_site().into()
    }

    /// Line (from 1) and column (from 1) of the first character.
    pub fn line_column(self) -> (usize, usize) {
        let start = self.first.start();
        (start.line, start.column + 1)
    }

    /// Whether both stand at the same tokens.
    pub fn same(self, other: Extent) -> bool {
        let key = |e: Extent| (format!("{:?}", e.first), format!("{:?}", e.last));
        key(self) == key(other)
    }
}

impl From<Span> for Extent {
    fn from(span: Span) -> Extent {
        Extent { first: span, last: span }
    }
}

impl From<&TokenTree> for Extent {
    fn from(token: &TokenTree) -> Extent {
        match token {
            TokenTree::Group(group) => Extent { first: group.span_open(), last: group.span_close() },
            other => other.span().into(),
        }
    }
}

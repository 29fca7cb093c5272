//! Mistakes with their place: collected, never thrown, so that the user sees all of them at once.

use std::fmt;

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};

use crate::extent::Extent;
use crate::mistake::Mistake;

/// How many mistakes are reported at once; the others are reported when these are mended.
const MOST: usize = 500;

/// One mistake and the tokens that are wrong.
#[derive(Clone, Debug)]
pub struct Diagnostic {
    /// The mistake and what to write instead.
    pub mistake: Mistake,
    /// The smallest part of the input that shows it.
    pub extent: Extent,
}

/// All mistakes of an input, in the order they were found.
#[derive(Clone, Debug, Default)]
pub struct Diagnostics {
    list: Vec<Diagnostic>,
}

impl Diagnostics {
    /// Adds a mistake, unless there are very many or the same one is already reported at the same place: a helper function is lowered once
    /// per call.
    pub fn report(&mut self, extent: Extent, mistake: Mistake) {
        if !self.is_full() && !self.list.iter().any(|d| d.mistake == mistake && d.extent.same(extent)) {
            self.list.push(Diagnostic { mistake, extent });
        }
    }

    /// Whether no more mistakes are told.
    pub fn is_full(&self) -> bool {
        self.list.len() >= MOST
    }

    /// Whether there is no mistake.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// How many mistakes there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// The mistakes, in the order they were found.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnostic> {
        self.list.iter()
    }

    /// A `compile_error!` per mistake, each on the tokens that are wrong.
    pub fn to_tokens(&self) -> TokenStream {
        self.list.iter().map(Diagnostic::to_tokens).collect()
    }
}

impl Diagnostic {
    fn to_tokens(&self) -> TokenStream {
        let message = self.mistake.to_string();
        // rustc underlines from the first token of an erroneous item to its last: each end gets its own span.
        let path = quote_spanned!(self.extent.first=> ::core::compile_error!);
        let body = quote_spanned!(self.extent.last=> { #message });
        quote!(#path #body)
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, column) = self.extent.line_column();
        write!(f, "{line}:{column}: {}", self.mistake)
    }
}

impl fmt::Display for Diagnostics {
    /// One line per mistake: `line:column: message`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.list.iter().enumerate().try_for_each(|(i, diagnostic)| {
            let separator = if i == 0 { "" } else { "\n" };
            write!(f, "{separator}{diagnostic}")
        })
    }
}

impl std::error::Error for Diagnostics {}

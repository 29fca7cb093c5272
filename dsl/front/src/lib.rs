//! The front end of `scan!`.

mod cursor;
mod diagnostics;
mod expand;
mod extent;
mod generated;
mod library;
mod lower;
mod mistake;
mod names;
mod parse;
mod source;
mod suggest;
pub mod syntax;

use oplus_dsl::ir::Program;
use proc_macro2::TokenStream;
use quote::quote;

pub use diagnostics::{Diagnostic, Diagnostics};
pub use extent::Extent;
pub use mistake::Mistake;
pub use source::{SourceError, scan_source_file};

/// The Rust items that a block stands for; with mistakes, a `compile_error!` for each beside items of the same names.
pub fn expand(tokens: TokenStream) -> TokenStream {
    let mut mistakes = Diagnostics::default();
    let block = parse::block(tokens, &mut mistakes);
    let lowered = lower::lower(&block, &mut mistakes);
    if mistakes.is_empty() { expand::items(&block, &lowered) } else { expand::fallback(block, &mistakes) }
}

/// The modules `operators` and `kernels` of the standard library.
pub fn expand_standard() -> TokenStream {
    let operators = expand(library::OPERATORS.parse().unwrap_or_default());
    let kernels = expand(library::KERNELS.parse().unwrap_or_default());
    quote! {
        /// The standard operators, which every `scan!` block can use by name. The items here document them.
        pub mod operators {
            #operators
        }

        /// The standard kernels: ready to call, with gradients.
        ///
        /// Rows come first and the time T, which is scanned, last. A single long row has B = 1.
        pub mod kernels {
            #kernels
        }
    }
}

/// The programs of a block's kernels, in its order.
///
/// # Errors
/// All mistakes of the block.
pub fn programs(tokens: TokenStream) -> Result<Vec<Program>, Diagnostics> {
    let mut mistakes = Diagnostics::default();
    let block = parse::block(tokens, &mut mistakes);
    let lowered = lower::lower(&block, &mut mistakes);
    if mistakes.is_empty() { Ok(lowered.kernels.into_iter().flatten().collect()) } else { Err(mistakes) }
}

/// The programs of the standard kernels, in the order of `standard/kernels.rs`.
pub fn standard_programs() -> Vec<Program> {
    let tokens = library::KERNELS.parse().unwrap_or_default();
    programs(tokens).unwrap_or_default()
}

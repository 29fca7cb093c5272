//! The front end of `scan!`.

mod cursor;
mod diagnostics;
mod extent;
mod generated;
mod library;
mod lower;
mod mistake;
mod names;
mod parse;
mod suggest;
pub mod syntax;

use oplus_dsl::ir::Program;
use proc_macro2::TokenStream;

pub use diagnostics::{Diagnostic, Diagnostics};
pub use extent::Extent;
pub use mistake::Mistake;

/// The programs of the standard kernels.
pub fn standard_programs() -> Vec<Program> {
    let tokens = library::KERNELS.parse().unwrap_or_default();
    programs(tokens).unwrap_or_default()
}

/// The programs of a block's kernels, in its order.
pub fn programs(tokens: TokenStream) -> Result<Vec<Program>, Diagnostics> {
    let mut mistakes = Diagnostics::default();
    let block = parse::block(tokens, &mut mistakes);
    let lowered = lower::lower(&block, &mut mistakes);
    if mistakes.is_empty() { Ok(lowered.kernels.into_iter().flatten().collect()) } else { Err(mistakes) }
}

//! The front end of `scan!`.

mod cursor;
mod diagnostics;
mod extent;
mod mistake;
mod parse;
mod suggest;
pub mod syntax;

pub use diagnostics::{Diagnostic, Diagnostics};
pub use extent::Extent;
pub use mistake::Mistake;

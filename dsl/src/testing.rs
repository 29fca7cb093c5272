//! Operators and programs for tests, of this crate and of those that execute programs.
//!
//! Unlike the rest of the crate this module panics when it is used wrongly.

mod expression;
pub mod operators;

pub use expression::{Expression, operator};

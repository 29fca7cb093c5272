//! Operators and programs for tests, of this crate and of those that execute programs.
//!
//! Known operators are in [`operators`]; [`family`] makes random ones that are associative by construction, and
//! [`program`] and [`recurrence`] random programs around them, with [`inputs`] to run them on. Everything is a function of a seed.
//! Unlike the rest of the crate this module panics when it is used wrongly.

mod expression;
mod families;
mod inputs;
pub mod operators;
mod programs;
mod recurrences;

pub use expression::{Expression, operator};
pub use families::{Domain, Family, family};
pub use inputs::inputs;
pub use programs::{Ingredients, program};
pub use recurrences::recurrence;

//! Operators and programs for tests, of this crate and of those that execute programs.
//!
//! Known operators are in [`operators`] and, in text form, [`texts`]; [`family`] makes random ones that are associative by construction, and
//! [`program`] and [`recurrence`] random programs around them, with [`inputs`] to run them on, whole or [`cut`]. Everything random
//! is a function of a seed. [`Deep`] makes programs of very
//! many operations. [`relative_error`] says how far results are from what is right.
//! Unlike the rest of the crate this module panics when it is used wrongly.

mod cut;
mod deep;
mod error;
mod expression;
mod families;
mod inputs;
pub mod operators;
mod part;
mod programs;
mod recurrences;
pub mod texts;

pub use cut::cut;
pub use deep::Deep;
pub use error::relative_error;
pub use expression::{Expression, operator, operator_on};
pub use families::{Domain, Family, family};
pub use inputs::inputs;
pub use part::Part;
pub use programs::{Ingredients, program};
pub use recurrences::recurrence;

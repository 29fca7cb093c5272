//! Calls on several ranks: sharded = whole, and what goes wrong.

mod errors;
mod exchanges;
mod harness;
mod library;
mod random;
mod ring;
mod typed;

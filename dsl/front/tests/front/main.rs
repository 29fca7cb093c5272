//! Tests of the front end, from tokens to programs and Rust items.

mod arbitrary;
mod batched;
mod common;
mod depth;
mod diagnostics;
mod domains;
mod expansion;
mod functions;
mod meaning;
mod packed;
mod programs;
mod standard;
mod texts;
mod transitions;

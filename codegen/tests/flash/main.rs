//! The schedule of pairs on a simulated device, against the interpreter.

#[path = "../common/mod.rs"]
#[allow(dead_code)]
mod common;

mod attention;
mod backward;
mod harness;
mod overlap;
mod programs;

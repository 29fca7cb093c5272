//! The standard models: the laws of their one-step forms, and independent loops that share no code with the compiler.

mod attention_loops;
mod harness;
mod laws;
mod log_decay;
mod s6;
mod s6_loops;
mod second;
mod steps;

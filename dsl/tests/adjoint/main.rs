//! The adjoint of programs: values against forward mode and finite differences, and structure.

mod gradients;
mod harness;
mod operators;
mod programs;

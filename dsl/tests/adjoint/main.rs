//! The adjoint of programs: values against forward mode and finite differences, and structure.

mod corners;
mod gradients;
mod harness;
mod matrices;
mod operators;
mod programs;
mod random;
mod rules;
mod second;
mod structure;
mod text;

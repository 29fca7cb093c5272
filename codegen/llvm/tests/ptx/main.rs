//! Hand-written tile kernels through LLVM and `ptxas`.

mod check;
mod clean;
#[path = "../../../tests/common/mod.rs"]
#[allow(dead_code)]
mod common;
mod copies;
mod folding;
mod matrix;
mod memory;
mod numbers;
mod pairs;
#[path = "../../../tests/flash/programs.rs"]
#[allow(dead_code)]
mod programs;
mod registers;
mod spills;
mod spills_attention;
mod spills_gated_linear;
mod spills_gradients;
mod spills_selective;
mod structure;
mod survey;

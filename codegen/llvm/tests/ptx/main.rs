//! Hand-written tile kernels through LLVM and `ptxas`.

mod check;
mod copies;
mod folding;
mod matrix;
mod memory;
mod numbers;
mod structure;

//! Hand-written tile kernels through LLVM and `ptxas`.

mod check;
mod copies;
mod memory;
mod numbers;
mod structure;

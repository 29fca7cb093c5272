//! The schedule of chunks: which stages it takes, and its kernels on a simulated device against the interpreter.

mod block_constants;
mod channels;
mod finals;
mod harness;
mod recognition;
mod run;

//! The CPU engine: any program on threads and vector units, without a compiler at run time.
//!
//! A program is cut into stages ([`plan`]); a stage walks over the indices of some axes in tiles small enough for the
//! nearest caches, and evaluates its straight-line code over each tile, one operation at a time, with loops that the
//! Rust compiler has turned into vector code ([`frame`], [`map`], [`sweep`]). Maps before and after a scan are part of
//! its stage, so tensors are read and written once. Tasks of fixed size run on the engine's own threads
//! ([`pool`], [`run`]).
//!
//! Sums of products of tensors with axes of their own are products of matrices by a library ([`matmul`]), tile by tile between maps of
//! the same stage. Attention is made of such sums.
//!
//! A recurrence that multiplies its state by a matrix at every step has a walk of its own ([`matrix`]), between stages that compute
//! what it reads and what is made of what it gives.
//!
//! # Numbers
//!
//! Operations are those of the program IR in the storage type; elementary functions of `f32` are within 4 units in the
//! last place ([`math`]), those of `f64` are the standard library's. Scans and reductions combine in an order that
//! depends on the sizes, the strides and the instruction set only: neither the number of threads nor their timing
//! changes a bit. How a scan combines does not even depend on the length of its axis ([`plan`]): where a sequence is cut at
//! multiples of 16,384, counted from its start, and each part starts from the last state of the one before, the parts have the
//! bits of the whole.
//!
//! One thing that depends on the numbers: a stretch of elements whose total loses a finite state, as where the product of
//! decays above 1 overflows, is taken step by step instead ([`lost`]). Whether it does depends on its own elements and on the
//! state before it only. What no total shows is lost: a product that has underflowed forgets a state that would grow again.

mod arithmetic;
mod compiled;
mod error;
mod explain;
mod flip;
mod frame;
mod kernel;
mod lanes;
mod linear;
mod loops;
mod lost;
mod map;
mod math;
mod matmul;
mod matrix;
mod memory;
mod native;
mod near;
mod nest;
mod operations;
mod partition;
mod plan;
mod pool;
mod recurrence;
mod run;
mod simd;
mod storage;
mod sums;
mod sweep;
#[cfg(test)]
mod tests;
mod tile;
mod turn;
mod values;
mod view;

pub(crate) use compiled::Compiled;
pub(crate) use error::CpuError;
pub use explain::{CpuPlan, Walk};
pub(crate) use view::{Data, DataMut, View, ViewMut};

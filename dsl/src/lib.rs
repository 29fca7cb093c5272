//! The program IR of oplus, and everything that is true of a program before any hardware is known.

pub mod adjoint;
pub mod alternative;
pub mod batched;
pub mod build;
pub mod characters;
mod copy;
pub mod decay;
pub mod elem;
pub mod forward;
pub mod interpret;
pub mod ir;
pub mod laws;
pub mod names;
pub mod packed;
pub mod parse;
pub mod print;
pub mod rebase;
pub mod relative;
pub mod rewrite;
pub mod rng;
pub mod scalar;
pub mod segmented;
pub mod shard;
pub mod simplify;
pub mod specialize;
pub mod step;
pub mod testing;
pub mod transition;
pub mod typing;
pub mod unfused;
mod uses;
pub mod verify;
pub mod walk;

pub use elem::{Elem, Ty};

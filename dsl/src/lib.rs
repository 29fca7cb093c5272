//! The program IR of oplus, and everything that is true of a program before any hardware is known.

pub mod elem;
pub mod ir;

pub use elem::{Elem, Ty};

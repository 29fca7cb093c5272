//! From a stage and a schedule to a tile kernel.

pub mod carry;
pub mod point;
pub mod scalar;

//! The parts of a thread block, which every schedule is built from. Nothing here knows a schedule.

pub mod args;
pub mod carry;
pub(crate) mod evaluate;
pub(crate) mod lane_sum;
pub mod persistent;
pub mod point;
pub mod pressure;
pub mod reads;
pub(crate) mod rematerialise;
pub(crate) mod ring;
pub mod scalar;
pub mod steps;
#[cfg(test)]
mod tests;

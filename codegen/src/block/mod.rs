//! The parts of a thread block, which every schedule is built from. Nothing here knows a schedule.

pub mod args;
pub(crate) mod bits;
pub mod carry;
pub(crate) mod copy;
pub(crate) mod copy_loop;
pub(crate) mod evaluate;
pub(crate) mod fragment;
pub(crate) mod halves;
pub(crate) mod lane_sum;
pub(crate) mod layout;
pub(crate) mod matmul;
pub(crate) mod messages;
pub(crate) mod non_finite;
pub(crate) mod output;
pub(crate) mod pair;
pub(crate) mod parts;
pub mod persistent;
pub mod point;
pub(crate) mod powers;
pub(crate) mod prepare;
pub mod pressure;
pub mod reads;
pub(crate) mod rematerialise;
pub(crate) mod ring;
pub(crate) mod roles;
pub mod scalar;
pub(crate) mod sequence;
pub(crate) mod split_tile;
pub(crate) mod state_step;
pub mod steps;
#[cfg(test)]
mod tests;
pub(crate) mod tf32;
pub(crate) mod thread;
pub(crate) mod two_parts;

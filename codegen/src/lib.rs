//! From programs to kernels: planner, schedules, tile IR and its simulator.

pub mod build;
pub mod lower;
pub mod target;
pub mod tile;

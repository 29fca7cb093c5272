//! From programs to kernels: planner, schedules, tile IR and its simulator.

pub mod build;
pub mod target;
pub mod tile;

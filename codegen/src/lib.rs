//! From programs to kernels: planner, schedules, tile IR and its simulator.

pub mod abi;
pub mod block;
pub mod build;
pub mod explain;
pub mod key;
pub mod math;
mod operands;
pub mod passes;
pub mod path;
pub mod plan;
pub mod schedules;
pub mod simulate;
pub mod stage;
pub mod target;
pub mod tile;
pub mod verify;
pub mod words;

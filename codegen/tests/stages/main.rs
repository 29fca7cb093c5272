//! From programs to stages and plans.

mod absent;
mod among;
mod backward_scan;
mod cut;
mod depth;
mod explain;
mod gated;
mod hoist;
mod large;
mod memory;
mod pairwise;
mod plan;
mod programs;
mod registers;
mod run;
mod sizes;

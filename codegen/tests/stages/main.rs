//! From programs to stages and plans.

mod absent;
mod among;
mod cut;
mod depth;
mod explain;
mod memory;
mod paired;
mod plan;
mod programs;
mod run;
mod two_way;

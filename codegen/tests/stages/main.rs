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
mod registers;
mod run;
mod sizes;
mod two_way;

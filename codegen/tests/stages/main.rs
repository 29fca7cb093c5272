//! From programs to stages and plans.

mod cut;
mod explain;
mod plan;
mod programs;
mod run;

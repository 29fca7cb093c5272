//! From programs to stages and plans.

mod cut;
mod plan;
mod programs;
mod run;

//! Schedules on a simulated device, against the interpreter.

#[macro_use]
mod operators;

mod borders;
mod chunks_back;
mod device;
mod elements;
mod laws;
mod lookback;
mod map;
mod matrix;
mod models;
mod oracle;
mod pairs;
mod parts;
mod plans;
mod rows;
mod states;
mod two_way;

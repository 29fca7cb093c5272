//! Schedules on a simulated device, against the interpreter.

mod device;
mod map;
mod oracle;
mod plans;
mod rows;
mod states;

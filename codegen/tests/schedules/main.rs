//! Schedules on a simulated device, against the interpreter.

#[macro_use]
mod operators;

mod across;
mod borders;
mod call_pieces;
mod chunk_delta;
mod chunk_delta_backward;
mod chunkwise_backward;
mod delta_prepared_walks;
mod delta_readers;
mod delta_scaled;
mod device;
mod elements;
mod finals;
mod flash;
mod gated_linear;
mod large;
mod laws;
mod less_memory;
mod lookback;
mod lost;
mod map;
mod matrix;
mod models;
mod more_rows;
mod narrow_axes;
mod oracle;
mod partial_sums;
mod plans;
mod recurrence;
mod rows;
mod sequences;
mod split_axis;
mod state_space;
mod state_space_backward;

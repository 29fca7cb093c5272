//! The standard models: the laws of their one-step forms, and independent loops that share no code with the compiler.

mod attention;
mod attention_loops;
mod delta;
mod delta_loops;
mod duality;
mod empty_parts;
mod gated;
mod gated_loops;
mod harness;
mod laws;
mod log_decay;
mod merged_parts;
mod recurrence_loops;
mod s6;
mod s6_loops;
mod second;
mod softmax_loops;
mod space;
mod space_loops;
mod spaces;
mod ssd;
mod ssd_combined;
mod ssd_loops;
mod steps;

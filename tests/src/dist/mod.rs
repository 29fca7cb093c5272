//! Kernels on several ranks: checked against the CPU, and timed as the ranks grow.

mod case;
mod faults;
mod member;
mod processes;
mod programs;
mod ring;
mod shard;
mod time;

use serde::Serialize;

pub use case::{Case, library, timed};
pub use member::{Member, Settings};
pub use processes::{Child, in_threads, meet, spawn};
pub use programs::programs;

/// One line of the result.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Line {
    /// The case.
    pub case: String,
    /// `check`, or how the times were taken: `one` (a single rank), `all` (every rank has as many tokens as the single one),
    /// `parts` (the same, with rows in parts).
    pub kind: &'static str,
    /// How many ranks there were.
    pub ranks: usize,
    /// Size of the whole axis that is divided.
    pub tokens: usize,
    /// The device of each rank.
    pub device: String,
    /// The largest difference from the CPU, of outputs and gradients, relative to the largest number of its tensor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<f64>,
    /// Whether all runs gave the same bits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub same_bits: Option<bool>,
    /// How many runs there were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runs: Option<usize>,
    /// Why the case was not run, or in what it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Milliseconds of a forward call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forward_ms: Option<f64>,
    /// Milliseconds of a forward call and its gradient.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub both_ms: Option<f64>,
    /// Weak scaling: the time of one rank with its tokens over that of all ranks with as many each; forward, and with gradient.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weak: Option<[f64; 2]>,
    /// Strong scaling: the time of one rank with all tokens over ranks times that of all ranks; forward, and with gradient.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strong: Option<[f64; 2]>,
}

/// The largest difference from the CPU, relative to the largest number of a tensor, that a check allows.
pub const TOLERANCE: f64 = 1e-3;

impl Line {
    /// Whether a check has passed, or there was nothing to check.
    pub fn is_right(&self) -> bool {
        self.error.is_none_or(|error| error <= TOLERANCE) && self.same_bits != Some(false)
    }
}

//! The bench program's parts: what is timed, and how.

mod cache;
pub mod candidates;
pub mod cases;
pub mod delta;
pub mod document;
mod glance;
pub mod host;
pub mod linear;
pub mod matrix;
pub mod own;
pub mod plot;
pub mod random;
pub mod results;
pub mod run;
mod sample;
pub mod sections;
pub mod selective;
pub mod timer;

use thiserror::Error;

/// Why a case has no time.
#[derive(Debug, Error)]
pub enum BenchError {
    /// The library refused.
    #[error("{0}")]
    Oplus(#[from] oplus::Error),
    /// The driver refused.
    #[error("the CUDA driver: {0}")]
    Driver(#[from] cudarc::driver::DriverError),
    /// The result is wrong, so that its time means nothing.
    #[error("output {output}: relative error {error:.1e} is above {bound:.1e}")]
    Wrong {
        /// Which output.
        output: usize,
        /// ‖ours − reference‖ / ‖reference‖.
        error: f64,
        /// The largest error that is allowed.
        bound: f64,
    },
    /// Results cannot be drawn.
    #[error("no picture: {0}")]
    Plot(String),
    /// The tables of benchmarks cannot be made.
    #[error("no tables: {0}")]
    Document(String),
    /// The device is not a GPU.
    #[error("a benchmark needs a GPU: {0}")]
    NoGpu(String),
    /// The planner refused.
    #[error("no plan: {0}")]
    Plan(#[from] oplus_codegen::plan::PlanError),
    /// The library has no such kernel.
    #[error("the library has no kernel `{0}`")]
    NoKernel(String),
}

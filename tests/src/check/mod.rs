//! The check program's parts: every kernel under every schedule on a real GPU, against the interpreter.

pub mod bound;
pub mod case;
pub mod data;
pub mod derived;
pub mod faults;
pub mod inputs;
pub mod large;
pub mod oracle;
pub mod parts;
pub mod poison;
pub mod reach;
pub mod report;
pub mod rules;
pub mod run;
pub mod scenario;
pub mod selective;
pub mod source;
pub mod stability;

use std::sync::Arc;

use cudarc::driver::CudaContext;
use oplus_dsl::interpret::Array;
use rayon::prelude::*;
use thiserror::Error;

use case::Case;
use report::{Line, Report};
use run::{Runner, Runs};

/// Why a check fails.
#[derive(Clone, Debug, Error)]
pub enum CheckError {
    /// The library refused.
    #[error("{0}")]
    Oplus(#[from] oplus::Error),
    /// The driver refused.
    #[error("the CUDA driver: {0}")]
    Driver(#[from] cudarc::driver::DriverError),
    /// The interpreter refused.
    #[error("the interpreter: {0}")]
    Oracle(String),
    /// An output is beyond its bound.
    #[error("`{output}` at {index} is {found:e} instead of {wanted:e}, beyond its bound of {bound:.1e}")]
    Wrong {
        /// Which output.
        output: String,
        /// Which element, in row-major order.
        index: usize,
        /// The computed number.
        found: f64,
        /// The expected number.
        wanted: f64,
        /// How far it may be from that.
        bound: f64,
    },
    /// A kernel wrote beside its output.
    #[error("`{output}`: the element {at} of the memory around it has changed")]
    Trespass {
        /// Which output.
        output: String,
        /// Where in the memory.
        at: usize,
    },
    /// Two runs of the same call differ.
    #[error("run {run} gives other bits for `{output}` at {index}: {found:e} instead of {wanted:e}")]
    Bits {
        /// Which run.
        run: usize,
        /// Which output.
        output: String,
        /// Which element, in row-major order.
        index: usize,
        /// The number of this run.
        found: f64,
        /// The number of the first run.
        wanted: f64,
    },
    /// Something else than what was to happen.
    #[error("{0}")]
    Unexpected(String),
}

/// Checks cases on all threads, each with a stream of its own.
pub fn cases(suite: &str, cases: &[Case], context: Option<&Arc<CudaContext>>, report: &Report, runs: Runs) {
    let runner = || Runner::new(context, report, runs);
    // One after the other from the front, and not in halves.
    cases.iter().par_bridge().for_each_init(runner, |runner, case| {
        match runner {
            Ok(runner) => runner.check(case),
            Err(e) => report.add(&Line { check: case.to_string(), error: Some(e.to_string()), ..Line::default() }),
        }
        report.progress(suite, cases.len());
    });
}

/// Checks that two arrays are the same to the bit.
fn same_bits(run: usize, output: &str, before: &Array, now: &Array) -> Result<(), CheckError> {
    let bits = |array: &Array, i: usize| array.data.get(i).as_f64().to_bits();
    let differs = (0..before.data.len()).find(|&i| bits(before, i) != bits(now, i));
    differs.map_or(Ok(()), |index| {
        let (found, wanted) = (now.data.get(index).as_f64(), before.data.get(index).as_f64());
        Err(CheckError::Bits { run, output: output.to_owned(), index, found, wanted })
    })
}

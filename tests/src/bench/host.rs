//! Timing on the CPU: a case and a plain copy of as many bytes, turn by turn.

use std::time::Instant;

use oplus::Device;
use rayon::prelude::*;

use super::BenchError;
use super::cases::{Case, Work};
use super::run::{Line, Prepared};

/// Turns of case and copy. The least time of each counts: whatever else the machine does can only add to it.
const TURNS: usize = 30;

/// Times a case on the CPU and gives its line; a failure is part of the line.
pub fn line(case: &Case, seed: u64) -> Line {
    let (times, error) = match run(case, seed) {
        Ok(times) => (Some(times), None),
        Err(error) => (None, Some(error.to_string())),
    };
    let plan = Some(format!("{} threads", rayon::current_num_threads()));
    let [ms, copy_ms] = [0, 1].map(|k| times.map(|times| times[k]));
    let ratio = times.map(|[ms, copy]| ms / copy);
    let (case, bytes) = (case.name.clone(), case.bytes);
    Line { case, implementation: "oplus-cpu", ms, copy_ms, ratio, bytes, plan, candidate: None, error }
}

/// The least milliseconds of the case and of the copy.
fn run(case: &Case, seed: u64) -> Result<[f64; 2], BenchError> {
    let mut copy = Copy::of(case.bytes);
    let prepared = match case.work {
        Work::Copy(_) => None,
        _ => Some(Prepared::new(case, &Device::Cpu, seed, true)?),
    };
    let mut least = [f64::INFINITY; 2];
    for _ in 0..TURNS {
        let start = Instant::now();
        match &prepared {
            Some(prepared) => prepared.run()?,
            None => copy.run(),
        }
        let between = Instant::now();
        copy.run();
        let times = [between.duration_since(start), between.elapsed()].map(|time| time.as_secs_f64() * 1e3);
        least = [least[0].min(times[0]), least[1].min(times[1])];
    }
    Ok(least)
}

/// A copy by all threads, of memory that has been touched before.
struct Copy {
    from: Vec<f32>,
    to: Vec<f32>,
}

impl Copy {
    /// The copy that moves so many bytes: half of them are read, half are written.
    fn of(bytes: u64) -> Copy {
        let n = (bytes / 8) as usize;
        Copy { from: vec![1.0; n], to: vec![2.0; n] }
    }

    /// One run of neighbours per thread.
    fn run(&mut self) {
        let part = self.to.len().div_ceil(rayon::current_num_threads()).max(1);
        self.to.par_chunks_mut(part).zip(self.from.par_chunks(part)).for_each(|(to, from)| to.copy_from_slice(from));
    }
}

//! Timing on the CPU: a case and a plain copy of as many bytes, turn by turn, and one thread's plain loop where the case has one.

use std::time::Instant;

use oplus::Device;
use rayon::prelude::*;

use super::BenchError;
use super::cases::{Case, Work};
use super::own::{self, Plain};
use super::run::{Line, Prepared, relative};

/// Turns of case, copy and loop. The least time of each counts: whatever else the machine does can only add to it.
const TURNS: usize = 30;

/// The largest relative distance of a case from its plain loop.
const BOUND: f64 = 1e-4;

/// Times a case on the CPU and gives its lines; a failure is part of them.
pub fn lines(case: &Case, seed: u64) -> Vec<Line> {
    let (times, error) = match run(case, seed) {
        Ok(times) => (Some(times), None),
        Err(error) => (None, Some(error.to_string())),
    };
    let copy_ms = times.map(|times| times.copy);
    let line = |implementation, ms: Option<f64>, threads: usize, error| Line {
        case: case.name.clone(),
        implementation,
        ms,
        copy_ms,
        ratio: ms.zip(copy_ms).map(|(ms, copy)| ms / copy),
        bytes: case.bytes,
        plan: Some(if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") }),
        candidate: None,
        error,
    };
    let ours = line("oplus-cpu", times.map(|times| times.ours), rayon::current_num_threads(), error);
    let plain = times.and_then(|times| times.plain).map(|ms| line("plain-loop", Some(ms), 1, None));
    [ours].into_iter().chain(plain).collect()
}

/// The least milliseconds of each.
#[derive(Clone, Copy)]
struct Times {
    ours: f64,
    copy: f64,
    plain: Option<f64>,
}

fn run(case: &Case, seed: u64) -> Result<Times, BenchError> {
    let mut copy = Copy::of(case.bytes);
    let prepared = match case.work {
        Work::Copy(_) => None,
        _ => Some(Prepared::new(case, &Device::Cpu, seed, true)?),
    };
    let mut plain = match (&prepared, own::plain(case)) {
        (Some(prepared), Some(plain)) => Some(PlainLoop::new(case, prepared, plain)?),
        _ => None,
    };
    let mut least = Times { ours: f64::INFINITY, copy: f64::INFINITY, plain: plain.as_ref().map(|_| f64::INFINITY) };
    for _ in 0..TURNS {
        let start = Instant::now();
        match &prepared {
            Some(prepared) => prepared.run()?,
            None => copy.run(),
        }
        least.ours = least.ours.min(milliseconds(start));
        let start = Instant::now();
        copy.run();
        least.copy = least.copy.min(milliseconds(start));
        if let (Some(plain), Some(least)) = (&mut plain, &mut least.plain) {
            let start = Instant::now();
            plain.run();
            *least = least.min(milliseconds(start));
        }
    }
    if let (Some(plain), Some(prepared)) = (&plain, &prepared) {
        plain.compare(prepared)?;
    }
    Ok(least)
}

/// The milliseconds since a moment.
fn milliseconds(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

/// One thread's plain loop over a case's tensors.
struct PlainLoop {
    plain: Plain,
    steps: usize,
    inputs: Vec<Vec<f32>>,
    results: Vec<Vec<f32>>,
}

impl PlainLoop {
    fn new(case: &Case, prepared: &Prepared, plain: Plain) -> Result<PlainLoop, BenchError> {
        prepared.run()?;
        let [rows, steps] = [0, 1].map(|axis| case.inputs[0].0[axis]);
        let [inputs, results] = [prepared.read()?, prepared.written()?].map(|all| series(all, rows * steps));
        Ok(PlainLoop { plain, steps, inputs, results })
    }

    fn run(&mut self) {
        let inputs: Vec<&[f32]> = self.inputs.iter().map(Vec::as_slice).collect();
        (self.plain)(self.steps, &inputs, &mut self.results);
    }

    /// Whether the engine and the loop found the same.
    fn compare(&self, prepared: &Prepared) -> Result<(), BenchError> {
        let ours = series(prepared.written()?, self.results[0].len());
        for (output, (ours, plain)) in ours.iter().zip(&self.results).enumerate() {
            let error = relative(ours, plain);
            if error.is_nan() || error > BOUND {
                return Err(BenchError::Wrong { output, error, bound: BOUND });
            }
        }
        Ok(())
    }
}

/// The tensors of so many numbers: all but states before the first step and after the last.
fn series(all: Vec<Vec<f32>>, len: usize) -> Vec<Vec<f32>> {
    all.into_iter().filter(|tensor| tensor.len() == len).collect()
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

//! The shared part of the adapters' examples: a language model of bytes is trained twice on a book, once with the scan by oplus
//! and once with the scan as a loop over time of the framework's own operations.
//!
//! The book is Lewis Carroll's "Alice's Adventures in Wonderland" of 1865, which is in the public domain.

mod curve;
mod text;

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};

/// Trains a small Mamba on a book, twice: with the scan by oplus, and by the framework's own operations.
#[derive(Parser)]
pub(crate) struct Args {
    /// The file to learn.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../learning/alice.txt"))]
    text: PathBuf,
    /// Where to draw the losses.
    #[arg(long, default_value = "mamba.svg")]
    svg: PathBuf,
    /// Steps of training.
    #[arg(long, default_value_t = 150)]
    steps: usize,
    /// Sequences of a step.
    #[arg(long, default_value_t = 8)]
    batch: usize,
    /// Bytes of a sequence.
    #[arg(long, default_value_t = 128)]
    times: usize,
    /// Width of the stream between blocks; the blocks are twice as wide.
    #[arg(long, default_value_t = 48)]
    width: usize,
    /// Blocks.
    #[arg(long, default_value_t = 2)]
    layers: usize,
    /// States of a channel.
    #[arg(long, default_value_t = 8)]
    states: usize,
    /// The step size.
    #[arg(long, default_value_t = 0.004)]
    rate: f64,
    /// The seed of weights and text.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where to train. `cuda` needs the feature of that name.
    #[arg(long, value_enum, default_value_t = Place::Cpu)]
    device: Place,
}

/// Where a model is trained.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum Place {
    /// On the CPU.
    Cpu,
    /// On the first GPU.
    Cuda,
}

/// Sizes of a model.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    /// Width of the stream between blocks.
    pub(crate) width: usize,
    /// Blocks.
    pub(crate) layers: usize,
    /// States of a channel.
    pub(crate) states: usize,
}

/// A training that is to be made.
pub(crate) struct Plan {
    /// Who computes the scan.
    pub(crate) scan: Scan,
    /// The sizes of the model.
    pub(crate) sizes: Sizes,
    /// The step size.
    pub(crate) rate: f64,
    /// Where it is made.
    pub(crate) device: Place,
}

/// Who computes the scan.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Scan {
    /// One call of oplus.
    Oplus,
    /// A loop over time by the framework's own operations.
    Loop,
}

/// A model in training.
pub(crate) trait Learner {
    /// One step on sequences of bytes and the bytes that follow each: the loss before it, in nats per byte.
    fn step(&mut self, bytes: &[u8], targets: &[u8], batch: usize) -> Result<f32, Box<dyn Error>>;
}

/// The results of a training.
struct Training {
    name: String,
    losses: Vec<f32>,
    /// The median step.
    step: Duration,
}

/// Trains both models of a framework, prints their times and draws their losses.
pub(crate) fn compare<L: Learner>(
    framework: &str,
    make: impl Fn(&Plan, &mut fastrand::Rng) -> Result<L, Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let args = Args::parse();
    let text = fs::read(&args.text).map_err(|e| format!("{}: {e}", args.text.display()))?;
    if text.len() <= args.times {
        return Err(format!("{} bytes of text are too few", text.len()).into());
    }
    println!("{} bytes of text", text.len());
    let sizes = Sizes { width: args.width, layers: args.layers, states: args.states };
    let mut trainings = vec![];
    for (scan, name) in
        [(Scan::Oplus, "scan by oplus".to_owned()), (Scan::Loop, format!("loop over time in {framework}"))]
    {
        let plan = Plan { scan, sizes, rate: args.rate, device: args.device };
        let mut learner = make(&plan, &mut fastrand::Rng::with_seed(args.seed))?;
        trainings.push(train(name, &mut learner, &text, &args)?);
    }
    for Training { name, losses, step } in &trainings {
        let ms = step.as_secs_f64() * 1e3;
        println!("{name:28} {ms:8.1} ms per step, loss {:.3} nats per byte", mean_of_last(losses));
    }
    let [ours, theirs] = &trainings[..] else { return Ok(()) };
    let apart = ours.losses.iter().zip(&theirs.losses).take(10).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    println!("losses of the first ten steps differ by {apart:.1e} at most; curves in {}", args.svg.display());
    curve::draw(&args.svg, &format!("Byte-level Mamba in {framework}: loss while training"), &trainings)
}

fn train(name: String, learner: &mut impl Learner, text: &[u8], args: &Args) -> Result<Training, Box<dyn Error>> {
    let style = ProgressStyle::with_template("{bar:40} step {pos}/{len}   loss {msg}   {elapsed} of {duration}")?;
    let bar = ProgressBar::new(args.steps as u64).with_style(style);
    let mut random = fastrand::Rng::with_seed(args.seed);
    let (mut losses, mut durations) = (vec![], vec![]);
    for step in 0..args.steps {
        let (bytes, targets) = text::pieces(text, args.batch, args.times, &mut random);
        let start = Instant::now();
        let loss = learner.step(&bytes, &targets, args.batch)?;
        durations.push(start.elapsed());
        losses.push(loss);
        bar.set_message(format!("{loss:.3}"));
        bar.inc(1);
        if step % 50 == 0 || step + 1 == args.steps {
            bar.suspend(|| println!("{name}: step {step:4}   loss {loss:.3} nats"));
        }
    }
    bar.finish_and_clear();
    durations.sort();
    let step = durations.get(durations.len() / 2).copied().unwrap_or_default();
    Ok(Training { name, losses, step })
}

/// The mean loss of the last twenty steps.
fn mean_of_last(losses: &[f32]) -> f32 {
    let last = &losses[losses.len().saturating_sub(20)..];
    last.iter().sum::<f32>() / last.len() as f32
}

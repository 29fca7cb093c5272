//! A byte-level Mamba that learns to write like this repository's documentation.
//!
//! Embedding, Mamba blocks (norm, short convolution, selective scan with gate) and head are trained on the Markdown files
//! and doc comments of the repository. Scans, norm, convolution, loss and optimiser are `scan!` text, their gradients
//! derived; matrix products come from `ndarray` and cuBLAS. Afterwards the model reads a prompt in one pass and goes on byte by byte
//! with the kernels' one-step forms.
//!
//! `cargo run --release -p oplus --example mamba` takes under two minutes on two cores and draws `mamba.svg`; `-- --help`
//! lists the options. With `--features jit` it runs on the first GPU and trains a larger model.
//!
//! `--gpus N` trains on N GPUs, each of which has a part of the times of every sequence; `--cpu-ranks N` does the same on N
//! threads. All ranks have the same weights, to the bit, and every run has.

mod blas;
mod block;
mod curve;
mod kernels;
mod model;
mod ranks;
mod tensors;
mod text;
mod weights;

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::thread;
use std::time::Instant;

use curve::Curve;
use indicatif::{ProgressBar, ProgressStyle};
use model::{Decoder, Model, Sizes};
use oplus::{Device, Tensor};
use ranks::{Ranks, groups};
use weights::Optimizer;

/// Trains a byte-level Mamba on a text and lets it write.
#[derive(clap::Parser)]
struct Args {
    /// A file, or a folder whose Markdown files and Rust doc comments are the text.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/.."))]
    text: PathBuf,
    /// Where to draw the loss.
    #[arg(long, default_value = "mamba.svg")]
    svg: PathBuf,
    /// Steps of training.
    #[arg(long)]
    steps: Option<usize>,
    /// Sequences of a step.
    #[arg(long)]
    batch: Option<usize>,
    /// Bytes of a sequence.
    #[arg(long)]
    times: Option<usize>,
    /// Width of the stream between blocks; the blocks are twice as wide.
    #[arg(long)]
    width: Option<usize>,
    /// Blocks.
    #[arg(long)]
    layers: Option<usize>,
    /// States of a channel.
    #[arg(long)]
    states: Option<usize>,
    /// The largest step size.
    #[arg(long, default_value_t = 0.005)]
    rate: f32,
    /// The text that the model is asked to continue.
    #[arg(long, default_value = "A scan is ")]
    prompt: String,
    /// Bytes to write.
    #[arg(long, default_value_t = 400)]
    length: usize,
    /// How bold the writing is.
    #[arg(long, default_value_t = 0.7)]
    temperature: f32,
    /// GPUs among which the times of every sequence are divided; needs the feature `jit`, and NCCL.
    #[arg(long, value_name = "N", conflicts_with = "cpu_ranks")]
    gpus: Option<usize>,
    /// Threads among which the times of every sequence are divided, on the CPU.
    #[arg(long, value_name = "N")]
    cpu_ranks: Option<usize>,
    /// The seed of all randomness.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// How much is trained.
struct Effort {
    steps: usize,
    batch: usize,
    times: usize,
    sizes: Sizes,
}

impl Args {
    /// How many ranks train.
    fn ranks(&self) -> Result<usize, Box<dyn Error>> {
        if self.gpus.is_some() && !cfg!(feature = "jit") {
            return Err("--gpus needs the feature `jit`: the kernels of this example are not committed".into());
        }
        match self.gpus.or(self.cpu_ranks).unwrap_or(1) {
            0 => Err("there must be one rank at least".into()),
            ranks => Ok(ranks),
        }
    }

    /// The sizes and steps that were asked for; the rest as it suits the device.
    fn effort(&self, device: &Device) -> Effort {
        let large = matches!(device, Device::Cuda(_));
        let or = |given: Option<usize>, small: usize, big: usize| given.unwrap_or(if large { big } else { small });
        let (width, layers) = (or(self.width, 64, 256), or(self.layers, 2, 4));
        let sizes = Sizes { width, layers, states: or(self.states, 8, 16) };
        let (steps, batch) = (or(self.steps, 300, 150), or(self.batch, 8, 32));
        Effort { steps, batch, times: or(self.times, 128, 512), sizes }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = <Args as clap::Parser>::parse();
    let device = if cfg!(feature = "jit") { Device::default() } else { Device::Cpu };
    let effort = args.effort(&device);
    let text = text::read(&args.text)?;
    let (train, held_out) = text.split_at(text.len() / 20 * 19);
    if held_out.len() <= effort.times {
        return Err(format!("{} bytes of text are too few", text.len()).into());
    }
    let mut model = Model::new(effort.sizes, args.seed, &device)?;
    println!("{} bytes of text; {} weights on {device}", text.len(), model.len());
    let curve = match args.ranks()? {
        1 => train_on((train, held_out), &mut model, &effort, (&args, None))?,
        _ => {
            let (trained, curve) = train_on_ranks((train, held_out), &effort, &args)?;
            model = trained;
            curve
        }
    };
    curve.draw(&args.svg)?;
    let last = curve.held_out.last().map_or(f32::NAN, |(_, loss)| *loss);
    println!("held-out text: {last:.3} nats per byte; curve in {}", args.svg.display());
    write(&model, &args)
}

/// How often the loss on text that it does not train on is found while training.
const EVALUATIONS: usize = 10;

/// Trains the model on the first of two texts; the losses on both.
fn train_on(
    (text, held_out): (&[u8], &[u8]),
    model: &mut Model,
    effort: &Effort,
    (args, ranks): (&Args, Option<&Ranks>),
) -> Result<Curve, Box<dyn Error>> {
    let is_first = ranks.is_none_or(|ranks| ranks.times.rank() == 0);
    let style = ProgressStyle::with_template("{bar:40} step {pos}/{len}   loss {msg}   {elapsed} of {duration}")?;
    let bar = if is_first { ProgressBar::new(effort.steps as u64) } else { ProgressBar::hidden() }.with_style(style);
    let mut random = fastrand::Rng::with_seed(args.seed);
    let (mut optimizer, mut curve, start) = (Optimizer::default(), Curve::default(), Instant::now());
    let between = effort.steps.div_ceil(EVALUATIONS);
    for step in 0..effort.steps {
        let (bytes, targets) = text::pieces(text, effort.batch, effort.times, &mut random);
        let own = |bytes: Vec<u8>| ranks.map_or(bytes.clone(), |ranks| ranks.part(&bytes));
        let (loss, mut gradient) = model.gradient(&own(bytes), &own(targets), effort.batch, ranks)?;
        optimizer.update(model.tensors(), &gradient.tensors(), args.rate * schedule(step, effort.steps))?;
        curve.steps.push(loss);
        if is_first && ((step + 1) % between == 0 || step + 1 == effort.steps) {
            curve.held_out.push((step + 1, evaluate(model, held_out, effort)?));
        }
        bar.set_message(format!("{loss:.3}"));
        bar.inc(1);
        if is_first && (step % 50 == 0 || step + 1 == effort.steps) {
            let line = format!("step {step:4}   loss {loss:.3} nats   {:5.1} s", start.elapsed().as_secs_f32());
            bar.suspend(|| println!("{line}"));
        }
    }
    bar.finish_and_clear();
    Ok(curve)
}

/// Trains on several ranks; the model of the first, to which the others' must be equal, and its losses.
fn train_on_ranks(texts: (&[u8], &[u8]), effort: &Effort, args: &Args) -> Result<(Model, Curve), Box<dyn Error>> {
    let train = |group: oplus::dist::Group, device: Device| -> Result<(Model, Curve), String> {
        let ranks = Ranks::new(&group, effort.batch, effort.times).map_err(|e| e.to_string())?;
        let mut model = Model::new(effort.sizes, args.seed, &device).map_err(|e| e.to_string())?;
        let curve = train_on(texts, &mut model, effort, (args, Some(&ranks))).map_err(|e| e.to_string())?;
        Ok((model, curve))
    };
    let mut trained = thread::scope(|scope| {
        let train = &train;
        let ranks = groups(args.gpus, args.cpu_ranks)?.into_iter();
        let ranks: Vec<_> = ranks.map(|(group, device)| scope.spawn(move || train(group, device))).collect();
        let trained = ranks.into_iter().map(|rank| rank.join().unwrap_or_else(|_| Err("a rank has panicked".into())));
        Ok::<_, Box<dyn Error>>(trained.collect::<Result<Vec<_>, String>>()?)
    })?;
    let weights = |model: &mut Model| -> Result<Vec<Vec<u32>>, oplus::Error> {
        let bits = |tensor: &mut Tensor| Ok(tensor.to_vec::<f32>()?.into_iter().map(f32::to_bits).collect());
        model.tensors().into_iter().map(bits).collect()
    };
    let first = weights(&mut trained[0].0)?;
    for (rank, (model, _)) in trained.iter_mut().enumerate().skip(1) {
        if weights(model)? != first {
            return Err(format!("the weights of rank {rank} are not those of rank 0").into());
        }
    }
    println!("{} ranks, each with a part of the times; their weights agree in every bit", trained.len());
    Ok(trained.swap_remove(0))
}

/// The step size over its largest: rising at first, then falling along half a cosine to a tenth.
fn schedule(step: usize, steps: usize) -> f32 {
    let warm = (step as f32 + 1.0) / 20.0;
    let done = step as f32 / steps as f32;
    warm.min(0.55 + 0.45 * (std::f32::consts::PI * done).cos())
}

/// The loss on text that the model has not seen.
fn evaluate(model: &Model, text: &[u8], effort: &Effort) -> Result<f32, Box<dyn Error>> {
    let mut random = fastrand::Rng::with_seed(0);
    let mut sum = 0.0;
    for _ in 0..8 {
        let (bytes, targets) = text::pieces(text, effort.batch, effort.times, &mut random);
        sum += model.loss(&bytes, &targets, effort.batch)?;
    }
    Ok(sum / 8.0)
}

/// Continues the prompt.
fn write(model: &Model, args: &Args) -> Result<(), Box<dyn Error>> {
    let mut random = fastrand::Rng::with_seed(args.seed);
    let mut decoder = Decoder::prefill(model, args.prompt.as_bytes())?;
    let mut stepwise = Decoder::new(model)?;
    args.prompt.bytes().try_for_each(|byte| stepwise.push(byte))?;
    let apart = decoder.logits().iter().zip(stepwise.logits()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    println!("the prompt in one pass and in single steps: logits differ by {apart:.1e} at most");
    let (mut written, start) = (args.prompt.clone().into_bytes(), Instant::now());
    for _ in 0..args.length {
        let byte = decoder.sample(args.temperature, &mut random);
        written.push(byte);
        decoder.push(byte)?;
    }
    let speed = args.length as f32 / start.elapsed().as_secs_f32();
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{}\n\n({speed:.0} bytes per second, one step each)", String::from_utf8_lossy(&written))?;
    Ok(())
}

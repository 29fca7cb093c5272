//! Checks kernels on several ranks against the CPU, and times weak and strong scaling, one JSON line each.

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Parser;
use oplus::Device;
use oplus_tests::dist::{Child, Line, Settings, in_threads, meet, programs, spawn};

/// Checks kernels on several ranks against the CPU, and the ring against one device, forward and every gradient, and times weak and strong scaling.
///
/// Every rank is a process with a GPU of its own; NCCL moves tensors between them. The lines go to the terminal and to a file:
/// checks of the four timed kernels, their times on one rank and on all, checks of the kernels of the library, and what goes
/// wrong on purpose. The exit status is 0 if every check has passed.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// How many GPUs; all of the machine if it is not said.
    #[arg(long, value_name = "RANKS", conflicts_with = "cpu")]
    gpus: Option<usize>,
    /// This many ranks on the CPU, threads that share its processors: for checks, not for times.
    #[arg(long, value_name = "RANKS")]
    cpu: Option<usize>,
    /// This many ranks on one GPU, threads that exchange through the CPU: for checks, not for times.
    #[arg(long, value_name = "RANKS", conflicts_with_all = ["cpu", "gpus"])]
    threads: Option<usize>,
    /// Tokens of each rank in measurements; several with commas, 0 for no measurement.
    #[arg(long, value_delimiter = ',', default_value = "65536")]
    tokens: Vec<usize>,
    /// How often each call is timed.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Also time calls that divide their rows into this many parts, of which one is exchanged while the next is computed; 1 for none.
    #[arg(long, default_value_t = 2)]
    parts: usize,
    /// How often the timed kernels are run for their bits.
    #[arg(long, default_value_t = 100)]
    bits: usize,
    /// Tokens of all ranks in checks of the timed kernels.
    #[arg(long, value_name = "TOKENS", default_value_t = 4099)]
    checked: usize,
    /// For how many seconds kernels of the library are checked.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    library: u64,
    /// Only the cases whose name has this in it.
    #[arg(long, default_value = "")]
    only: String,
    /// Check each program that the timed kernels are divided into by itself, on one GPU against the CPU, and nothing else.
    #[arg(long)]
    programs: bool,
    /// A file for the lines, beside the terminal.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The rank of this process among those that were started for it.
    #[arg(long, hide = true, requires_all = ["meet", "gpus"])]
    rank: Option<usize>,
    /// The folder in which they find each other.
    #[arg(long, hide = true)]
    meet: Option<PathBuf>,
}

type Failure = Box<dyn std::error::Error>;

impl Args {
    fn settings(&self) -> Settings {
        Settings {
            tokens: self.tokens.iter().copied().filter(|tokens| *tokens > 0).collect(),
            runs: self.runs,
            parts: self.parts,
            bits: self.bits,
            checked: self.checked,
            only: self.only.clone(),
            library: Duration::from_secs(self.library),
        }
    }

    /// Says lines as they come, with the seconds since the start on the error stream.
    fn printer(&self) -> Result<impl FnMut(&Line) + Send, Failure> {
        let mut file = self.out.as_ref().map(std::fs::File::create).transpose()?;
        let start = Instant::now();
        Ok(move |line: &Line| {
            let text = serde_json::to_string(line).unwrap_or_default();
            println!("{text}");
            eprintln!("[{:.1} s] {} {}", start.elapsed().as_secs_f64(), line.kind, line.case);
            let _ = file.as_mut().map(|file| writeln!(file, "{text}"));
        })
    }

    /// Starts a process for every GPU.
    fn start(&self) -> Result<(), Failure> {
        let there = Device::cuda_count();
        let ranks = self.gpus.unwrap_or(there);
        if ranks == 0 || ranks > there {
            return Err(
                format!("there are {there} GPUs here, not {ranks}; `--cpu 2` checks the same on the CPU").into()
            );
        }
        let mut arguments: Vec<String> = std::env::args().skip(1).collect();
        if self.gpus.is_none() {
            arguments.extend(["--gpus".into(), ranks.to_string()]);
        }
        spawn(ranks, &arguments)
    }
}

fn verdict(right: bool) -> Result<(), Failure> {
    if right { Ok(()) } else { Err("not everything is as it should be; see the lines".into()) }
}

fn main() -> Result<(), Failure> {
    let args = Args::parse();
    let settings = args.settings();
    if args.programs {
        return verdict(programs(&Device::default(), &args.only, args.checked, &mut args.printer()?)?);
    }
    if let Some(ranks) = args.cpu.or(args.threads) {
        if ranks == 0 {
            return Err("there must be at least one rank".into());
        }
        let device = if args.cpu.is_some() { Device::Cpu } else { Device::cuda(0)? };
        return verdict(in_threads(ranks, &device, &settings, &mut args.printer()?)?);
    }
    match (args.rank, args.gpus, &args.meet) {
        (Some(rank), Some(size), Some(folder)) => {
            let member = meet(&Child { rank, size, folder: folder.clone() })?;
            let mut print = if rank == 0 { Some(args.printer()?) } else { None };
            verdict(member.run(&settings, &mut |line| {
                if let Some(print) = &mut print {
                    print(line)
                }
            })?)
        }
        _ => args.start(),
    }
}

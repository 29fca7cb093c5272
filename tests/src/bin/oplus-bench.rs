//! Times the library's kernels on the yardstick's cases, one JSON line each.

use std::path::PathBuf;

use clap::Parser;
use oplus_tests::bench::cases::{self, Group};
use oplus_tests::bench::run::{self, How};
use oplus_tests::bench::{document, host, results::Results, timer::Timer};
use regex_lite::Regex;

/// Times oplus on a GPU or on the CPU.
///
/// On a GPU each case is checked against the CPU first (a large one by its first sequences and heads), then run 10 times
/// to warm up and 50 times for the median, with the L2 cache flushed before each run. On the CPU each case takes turns with a plain copy of as many bytes by as many
/// threads; the least time of each counts.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// Where to run.
    #[arg(long, value_enum, default_value_t = Place::Gpu)]
    device: Place,
    /// Only the cases of this group.
    #[arg(long)]
    group: Option<Group>,
    /// Only the cases whose names match this regular expression.
    #[arg(long, value_name = "REGEX")]
    case: Option<Regex>,
    /// Seed of the random inputs; the clock by default, so that every run has fresh ones.
    #[arg(long)]
    seed: Option<u64>,
    /// A folder of baked kernels to look in first.
    #[arg(long, value_name = "FOLDER")]
    kernels: Option<PathBuf>,
    /// On a GPU, read other memory after the cache was overwritten, so that a run does not wait while that is written to memory. Names of
    /// cases then end in `-clean`.
    #[arg(long)]
    clean_cache: bool,
    /// Do not compare results of a GPU with the CPU before timing them.
    #[arg(long)]
    unchecked: bool,
    /// On a GPU, time this many of the next plans in the planner's order as well, and write the lines that `oplus tune` reads, with
    /// the estimates and the whole call. Gradients then compute what they need of the forward pass themselves.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    more: usize,
    /// On a GPU, take the kernels for all devices, which GPUs before Hopper run.
    #[arg(long)]
    portable: bool,
    /// Also draw the results: speeds beside the fastest peers, which --beside names, and shares of the copy bandwidth.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// JSON lines to draw besides: peers' results, or our own of an earlier run.
    #[arg(long, value_name = "FILE", requires = "svg")]
    beside: Vec<PathBuf>,
    /// Time nothing; draw what --beside names.
    #[arg(long, requires = "beside")]
    draw_only: bool,
    /// Time nothing; write the tables of docs/book/src/benchmarks.md and their picture from docs/benchmarks.jsonl, in the repository whose root
    /// this is.
    #[arg(long, value_name = "FOLDER", num_args = 0..=1, default_missing_value = ".")]
    document: Option<PathBuf>,
    /// Only name the cases.
    #[arg(long)]
    list: bool,
}

/// Where the cases run.
#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum Place {
    Gpu,
    Cpu,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    if let Some(root) = &args.document {
        document::write(root)?.iter().for_each(|path| println!("{}", path.display()));
        return Ok(());
    }
    oplus::source::use_fast_tier(false);
    if let Some(folder) = &args.kernels {
        oplus::source::Folder::open(folder)?.register();
    }
    let wanted = |case: &cases::Case| {
        let is_for_this = case.group != Group::Own || args.device == Place::Cpu;
        args.group.map_or(is_for_this, |g| g == case.group) && args.case.as_ref().is_none_or(|r| r.is_match(&case.name))
    };
    let cases: Vec<_> = cases::all().into_iter().filter(wanted).collect();
    if args.list {
        cases.iter().for_each(|case| println!("{}", case.name));
        return Ok(());
    }
    let mut text = String::new();
    for file in &args.beside {
        text += &std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
        text.push('\n');
    }
    if !args.draw_only {
        time(&args, &cases, |line| text += &format!("{line}\n"))?;
    }
    Ok(args.svg.map_or(Ok(()), |svg| Results::read(&text).draw(&svg))?)
}

/// Times the cases and prints their lines as they come.
fn time(args: &Args, cases: &[cases::Case], mut also: impl FnMut(&str)) -> Result<(), Box<dyn std::error::Error>> {
    let mut timer = if args.device == Place::Gpu { Some(Timer::new(args.clean_cache)?) } else { None };
    let how = How { check: !args.unchecked, more: args.more, portable: args.portable };
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
    for case in cases {
        let lines = match &mut timer {
            Some(timer) => run::lines(case, timer, seed, how),
            None => host::lines(case, seed),
        };
        for line in lines {
            let line = serde_json::to_string(&line)?;
            println!("{line}");
            also(&line);
        }
    }
    Ok(())
}

//! Checks the library on a GPU: every kernel under every schedule, against the interpreter with stated bounds.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use cudarc::driver::CudaContext;
use oplus_tests::check::case::{self, Case, Extent};
use oplus_tests::check::report::Report;
use oplus_tests::check::scenario::{self, Scenario, World};
use oplus_tests::check::source::Recorder;
use oplus_tests::check::{cases, faults, large, stability};
use regex_lite::Regex;

/// Checks oplus on a GPU.
///
/// Every standard kernel and its gradient, and random programs, run under every schedule that a plan may choose, for
/// lengths of 0, 1, 2, around warps and tiles, and primes, for every element type and several layouts. Outputs are
/// compared with the interpreter within bounds that follow from the program (see `oplus_tests::check::bound`), the memory
/// around them must not change, and every run must give the same bits. Then faults, streams, threads and graphs, 100 runs
/// of long scans beside a busy stream, and more than 2^31 elements.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// A minute's worth under compute-sanitizer.
    #[arg(long, conflicts_with = "long")]
    quick: bool,
    /// More lengths and more programs.
    #[arg(long)]
    long: bool,
    /// Only checks whose names match this regular expression.
    #[arg(long, value_name = "REGEX")]
    only: Option<Regex>,
    /// How often each call runs; all runs must give the same bits.
    #[arg(long, default_value_t = 2)]
    repeat: usize,
    /// Threads, each with a stream of its own; one per core by default.
    #[arg(long)]
    threads: Option<usize>,
    /// A folder of baked kernels to look in first.
    #[arg(long, value_name = "FOLDER")]
    kernels: Option<PathBuf>,
    /// Write every result as a JSON line.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a receipt for every committed kernel that passed, for `oplus receipts`.
    #[arg(long, value_name = "FILE")]
    receipts: Option<PathBuf>,
    /// Run on the CPU instead.
    #[arg(long)]
    cpu: bool,
    /// Only name the cases.
    #[arg(long)]
    list: bool,
}

/// What is to be run.
struct Suites {
    cases: Vec<(&'static str, Vec<Case>)>,
    scenarios: Vec<(&'static str, Vec<Scenario>)>,
}

impl Args {
    fn extent(&self) -> Extent {
        match (self.quick, self.long) {
            (true, _) => Extent::Quick,
            (_, true) => Extent::Long,
            _ => Extent::Default,
        }
    }

    fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|r| r.is_match(name))
    }

    /// All suites, without what `--only` leaves out. Random programs have kernels of their own, which need the compiler.
    fn suites(&self) -> Suites {
        let extent = self.extent();
        let programs = match extent {
            _ if !cfg!(feature = "jit") && !self.cpu => 0,
            Extent::Quick => 6,
            Extent::Default => 150,
            Extent::Long => 1000,
        };
        let mut cases = vec![("kernels", case::standard_cases(extent)), ("programs", case::random_cases(0..programs))];
        let mut scenarios = vec![("faults", faults::scenarios()), ("bits", stability::scenarios(extent))];
        scenarios.push(("large", large::scenarios(extent)));
        cases.iter_mut().for_each(|(_, cases)| cases.retain(|case| self.wants(&case.to_string())));
        scenarios.iter_mut().for_each(|(_, all)| all.retain(|one| !self.cpu && self.wants(&one.name)));
        Suites { cases, scenarios }
    }
}

impl Suites {
    fn list(&self) {
        self.cases.iter().flat_map(|(_, cases)| cases).for_each(|case| println!("{case}"));
        self.scenarios.iter().flat_map(|(_, all)| all).for_each(|one| println!("{}", one.name));
    }

    fn run(&self, args: &Args, context: Option<&Arc<CudaContext>>, report: &Report) {
        for (suite, list) in &self.cases {
            cases(suite, list, context, report, args.repeat.max(1));
        }
        if let Some(context) = context {
            let world = World { context: context.clone(), extent: args.extent() };
            self.scenarios.iter().for_each(|(suite, all)| scenario::run(suite, all, &world, report));
        }
    }
}

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let args = Args::parse();
    let suites = args.suites();
    if args.list {
        suites.list();
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(threads) = args.threads {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build_global()?;
    }
    let recorder = Arc::new(Recorder::new(args.kernels.as_deref())?);
    oplus::source::register(recorder.clone());
    let context = if args.cpu { None } else { Some(CudaContext::new(0)?) };
    let out = args.json.as_ref().map(File::create).transpose()?;
    let report = Report::new(out.map(|file| Box::new(BufWriter::new(file)) as Box<dyn Write + Send>));
    suites.run(&args, context.as_ref(), &report);
    if let (Some(path), Some(context)) = (&args.receipts, &context) {
        std::fs::write(path, report.receipts(&recorder, &context.name()?))?;
    }
    Ok(if report.summary() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

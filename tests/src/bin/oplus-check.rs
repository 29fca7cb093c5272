//! Checks the library on a GPU: every kernel under every schedule, against the interpreter with stated bounds.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use cudarc::driver::CudaContext;
use oplus_codegen::target::Target;
use oplus_tests::check::case::{self, Case, Extent};
use oplus_tests::check::parts::{self, Part, Told};
use oplus_tests::check::reach;
use oplus_tests::check::report::{Line, Receipts, Report, Sink};
use oplus_tests::check::run::Runs;
use oplus_tests::check::scenario::{self, Scenario, World};
use oplus_tests::check::source::Recorder;
use oplus_tests::check::{CheckError, cases, derived, faults, large, poison, rules, selective, stability};
use regex_lite::Regex;

/// Checks oplus on a GPU.
///
/// Every standard kernel and its gradient, and random programs, run under every schedule that a plan may choose, for
/// lengths of 0, 1, 2, around warps and tiles, and primes, for every element type and several layouts. Outputs are
/// compared with the interpreter within bounds that follow from the program (see `oplus_tests::check::bound`), the memory
/// around them must not change, and every run must give the same bits. Then faults, streams, threads and graphs, 100 runs
/// of long scans beside a busy stream, the rules of other libraries for low precision, more than 2^31 elements, and
/// the selective scan with any number of states.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// A minute's worth under compute-sanitizer.
    #[arg(long, conflicts_with = "long")]
    quick: bool,
    /// More lengths and more programs.
    #[arg(long)]
    long: bool,
    /// Only kernels that are committed, each in a few cases: what `--receipts` takes, in the least time.
    #[arg(long, conflicts_with_all = ["quick", "long", "cpu"])]
    committed: bool,
    /// Only kernels for all devices, which GPUs before Hopper run: in the cases of `--committed`, all that there are, and in the
    /// other checks.
    #[arg(long, conflicts_with_all = ["quick", "long", "cpu", "committed"])]
    portable: bool,
    /// Only checks whose names match this regular expression.
    #[arg(long, value_name = "REGEX")]
    only: Option<Regex>,
    /// How often each call runs; all runs must give the same bits.
    #[arg(long, default_value_t = 2)]
    repeat: usize,
    /// Threads of a process, each with a stream of its own; one per core by default, two where there are more processes.
    #[arg(long)]
    threads: Option<usize>,
    /// Processes that share the cases; the driver compiles one kernel of a process at a time.
    #[arg(long, value_name = "N", default_value_t = 1)]
    processes: usize,
    /// Runs only these cases and tells another process of them.
    #[arg(long, value_name = "K/N", hide = true)]
    part: Option<Part>,
    /// Runs only the cases of committed kernels at these places
    #[arg(long, value_delimiter = ',', value_name = "PLACES", hide = true, requires = "committed")]
    cases: Option<Vec<usize>>,
    /// Only what becomes of a context after a fault, from which it does not recover.
    #[arg(long, hide = true)]
    poisoned: bool,
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

/// The suites that are to be run.
struct Suites {
    cases: Vec<(&'static str, Vec<Case>)>,
    scenarios: Vec<Vec<Scenario>>,
    /// The places of cases among all of them, for parts.
    chosen: Vec<usize>,
}

/// Cases in which `--committed` checks a kernel.
const OF_EACH: usize = 8;

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
    fn suites(&self) -> Result<Suites, CheckError> {
        let extent = self.extent();
        let programs = match extent {
            _ if !cfg!(feature = "jit") && !self.cpu => 0,
            Extent::Quick => 6,
            Extent::Default => 150,
            Extent::Long => 1000,
        };
        if self.committed {
            return self.committed_suite();
        }
        let kernels = if self.portable { case::committed_cases() } else { case::standard_cases(extent) };
        let mut cases = vec![("kernels", kernels), ("programs", case::random_cases(0..programs))];
        let mut scenarios = vec![faults::scenarios(), stability::scenarios(extent)];
        scenarios.extend([rules::scenarios(extent), large::scenarios(extent)]);
        if cfg!(feature = "jit") {
            scenarios.push(selective::scenarios(extent));
            scenarios.push(derived::scenarios(extent));
        }
        cases.iter_mut().for_each(|(_, cases)| cases.retain(|case| self.wants(&case.to_string())));
        scenarios.iter_mut().for_each(|all| all.retain(|one| !self.cpu && self.wants(&one.name)));
        if let Some(part) = self.part {
            cases.iter_mut().for_each(|(_, cases)| *cases = part.of(std::mem::take(cases)));
            scenarios.clear();
        }
        Ok(Suites { cases, scenarios, chosen: vec![] })
    }

    /// The cases that reach every committed kernel, or those of them that another process has chosen.
    fn committed_suite(&self) -> Result<Suites, CheckError> {
        let mut cases = case::committed_cases();
        cases.retain(|case| self.wants(&case.to_string()));
        let mut chosen = match &self.cases {
            Some(chosen) => chosen.clone(),
            None => reach::covering(&cases, &Target::H200, OF_EACH)?.0,
        };
        // The longest begin first, so that none is left alone at the end.
        chosen.sort_by_cached_key(|place| std::cmp::Reverse(cases.get(*place).map_or(0, Case::cost)));
        let mut list: Vec<Case> = chosen.iter().filter_map(|place| cases.get(*place).cloned()).collect();
        if let Some(part) = self.part {
            list = part.of(list);
        }
        Ok(Suites { cases: vec![("kernels", list)], scenarios: vec![], chosen })
    }

    fn runs(&self) -> Runs {
        Runs { repeat: self.repeat.max(1), committed: self.committed, portable: self.portable }
    }

    /// Where lines go besides the report: to the file of `--json`, or to the process that has started this one.
    fn sink(&self, recorder: &Arc<Recorder>) -> std::io::Result<Option<Box<Sink>>> {
        if self.part.is_some() {
            let recorder = recorder.clone();
            let tell = move |line: &Line| {
                println!("{}", serde_json::to_string(&Told::new(line, &recorder)).unwrap_or_default());
            };
            return Ok(Some(Box::new(tell)));
        }
        let Some(path) = &self.json else { return Ok(None) };
        let mut file = BufWriter::new(File::create(path)?);
        let write = move |line: &Line| {
            // A file that cannot be written costs the lines, not the verdict.
            let _ = serde_json::to_writer(&mut file, line).map(|()| file.write_all(b"\n"));
        };
        Ok(Some(Box::new(write)))
    }

    /// The arguments of the processes of parts.
    fn of_parts(&self, chosen: &[usize]) -> Vec<String> {
        let flags = [
            ("--quick", self.quick),
            ("--long", self.long),
            ("--cpu", self.cpu),
            ("--committed", self.committed),
            ("--portable", self.portable),
        ];
        let mut all: Vec<String> = flags.iter().filter(|(_, given)| *given).map(|(flag, _)| (*flag).into()).collect();
        let threads = self.threads.unwrap_or(2);
        all.extend([format!("--repeat={}", self.repeat), format!("--threads={threads}")]);
        if self.committed {
            let places: Vec<String> = chosen.iter().map(ToString::to_string).collect();
            all.push(format!("--cases={}", places.join(",")));
        }
        all.extend(self.only.as_ref().map(|only| format!("--only={only}")));
        all.extend(self.kernels.as_ref().map(|folder| format!("--kernels={}", folder.display())));
        all
    }
}

impl Suites {
    fn list(&self) {
        self.cases.iter().flat_map(|(_, cases)| cases).for_each(|case| println!("{case}"));
        self.scenarios.iter().flatten().for_each(|one| println!("{}", one.name));
    }

    fn run(
        &self,
        args: &Args,
        context: Option<&Arc<CudaContext>>,
        report: &Report,
        recorder: &Recorder,
    ) -> std::io::Result<()> {
        if args.processes > 1 {
            let total = self.cases.iter().map(|(_, cases)| cases.len()).sum();
            parts::run(args.processes, total, &args.of_parts(&self.chosen), report, recorder)?;
        } else {
            self.cases.iter().for_each(|(suite, list)| cases(suite, list, context, report, args.runs()));
        }
        if let Some(context) = context {
            let world = World { context: context.clone(), extent: args.extent(), portable: args.portable };
            self.scenarios.iter().for_each(|all| scenario::run(all, &world, report));
        }
        Ok(())
    }
}

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let args = Args::parse();
    oplus::source::use_fast_tier(false);
    if args.poisoned {
        poison::run()?;
        return Ok(ExitCode::SUCCESS);
    }
    let suites = args.suites()?;
    if args.list {
        suites.list();
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(threads) = args.threads {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build_global()?;
    }
    let recorder = Arc::new(Recorder::new(args.kernels.as_deref())?);
    // SAFETY: it gives the kernels of sources that verify them, for the launches that it is asked for.
    #[allow(unsafe_code)]
    unsafe {
        oplus::source::register(recorder.clone());
    }
    let context = if args.cpu { None } else { Some(CudaContext::new(0)?) };
    let receipts = match (&args.receipts, &context) {
        (Some(path), Some(context)) => {
            Some(Receipts { path: path.clone(), device: context.name()?, recorder: recorder.clone() })
        }
        _ => None,
    };
    let report = Report::new(args.sink(&recorder)?).quiet(args.part.is_some()).keeping(receipts);
    suites.run(&args, context.as_ref(), &report, &recorder)?;
    if args.part.is_some() {
        return Ok(ExitCode::SUCCESS);
    }
    report.finish()?;
    Ok(if report.summary() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

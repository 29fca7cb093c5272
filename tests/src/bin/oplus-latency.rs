//! Times what calls cost the host, one JSON line each, in microseconds.

use std::process::{Command, Stdio};

use clap::{Parser, ValueEnum};
use cudarc::driver::CudaContext;
use oplus::{Device, Elem, Tensor};
use oplus_tests::latency::{Family, Line, Users, calls};

/// Times what calls cost the host: the first calls of committed kernels, queueing a call, and with the compiler in the
/// program (feature `jit`) the first calls of user's kernels, compiled and then read from the cache on disk.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// A folder of baked kernels to look in first.
    #[arg(long, value_name = "FOLDER")]
    kernels: Option<std::path::PathBuf>,
    /// Only time the first calls of committed kernels, each family in so many processes: their median, least and most.
    #[arg(long, value_name = "PROCESSES")]
    first: Option<usize>,
    /// With --first, also time the parts of a first call that need no driver: reading, deriving, planning, unpacking. What
    /// remains of a first call is the driver's.
    #[arg(long)]
    parts: bool,
    /// Memory that the pool of the device has before a first call, as in a program that has run for a while; without it the
    /// driver also finds memory for outputs.
    #[arg(long, value_name = "MIB", default_value_t = 0)]
    pool: usize,
    /// Only time the first calls of one family of committed kernels, in this process.
    #[arg(long, value_name = "FAMILY")]
    family: Option<Family>,
    /// Only time the first calls of one kernel of a user's.
    #[arg(long, value_name = "KERNEL")]
    users: Option<Users>,
}

/// Processes in which the first calls of a family are timed, if nothing else is said.
const PROCESSES: usize = 5;

fn print(line: &Line) -> Result<(), serde_json::Error> {
    serde_json::to_string(line).map(|text| println!("{text}"))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    if let Some(folder) = &args.kernels {
        oplus::source::Folder::open(folder)?.register();
    }
    if args.family.is_some() || args.users.is_some() {
        return in_this_process(&args);
    }
    for family in Family::value_variants() {
        first_calls_of(*family, &args, false)?;
        if args.parts {
            first_calls_of(*family, &args, true)?;
        }
    }
    if args.first.is_some() {
        return Ok(());
    }
    let stream = CudaContext::new(0)?.new_stream()?;
    let device = Device::from_stream(stream.clone())?;
    calls(&device, &stream)?.iter().try_for_each(print)?;
    if cfg!(feature = "jit") {
        Users::value_variants().iter().try_for_each(|users| first_calls_of_users(*users))?;
    }
    Ok(())
}

/// The first calls of the one family or kernel that is asked for.
fn in_this_process(args: &Args) -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::from_stream(CudaContext::new(0)?.new_stream()?)?;
    if args.pool > 0 {
        drop(Tensor::zeros(Elem::F32, &[args.pool << 18], &device)?);
        device.synchronize()?;
    }
    if let Some(family) = args.family.filter(|_| args.parts) {
        return Ok(family.parts(&device)?.iter().try_for_each(print)?);
    }
    if let Some(family) = args.family {
        family.first_calls(&device)?.iter().try_for_each(print)?;
    }
    if let Some(users) = args.users {
        users.first_calls(&device)?.iter().try_for_each(print)?;
    }
    Ok(())
}

fn name_of(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Several processes, since each has one first call.
fn first_calls_of(family: Family, args: &Args, parts: bool) -> Result<(), Box<dyn std::error::Error>> {
    let mut runs: Vec<Vec<Line>> = vec![];
    for _ in 0..args.first.unwrap_or(PROCESSES).max(1) {
        let mut child = Command::new(std::env::current_exe()?);
        child.args(["--family", &name_of(&family), "--pool", &args.pool.to_string()]).stderr(Stdio::inherit());
        if parts {
            child.arg("--parts");
        }
        if let Some(folder) = &args.kernels {
            child.arg("--kernels").arg(folder);
        }
        let output = child.output()?;
        if !output.status.success() {
            return Err(format!("first calls of {} failed", name_of(&family)).into());
        }
        let text = String::from_utf8(output.stdout)?;
        runs.push(text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?);
    }
    for (place, line) in runs[0].iter().enumerate() {
        let mut times: Vec<f64> = runs.iter().filter_map(|run| Some(run.get(place)?.us)).collect();
        times.sort_by(f64::total_cmp);
        let (median, least, most) = (times[times.len() / 2], times[0], times[times.len() - 1]);
        println!(
            "{}",
            serde_json::json!({ "case": line.case, "us": median, "least": least, "most": most, "processes": times.len() })
        );
    }
    Ok(())
}

/// Two processes with caches of their own, the library's and the driver's: the first one compiles, the second one reads.
fn first_calls_of_users(users: Users) -> Result<(), Box<dyn std::error::Error>> {
    let cache = tempfile::tempdir()?;
    for source in ["compiled", "from disk"] {
        println!("{}", serde_json::json!({ "source": source }));
        let mut child = Command::new(std::env::current_exe()?);
        let child = child.env("OPLUS_CACHE", cache.path()).env("CUDA_CACHE_PATH", cache.path().join("driver"));
        if !child.args(["--users", &name_of(&users)]).status()?.success() {
            return Err(format!("first calls of {}, {source}, failed", name_of(&users)).into());
        }
    }
    Ok(())
}

//! Times what calls cost the host, one JSON line each, in microseconds.

use std::process::Command;

use clap::{Parser, ValueEnum};
use cudarc::driver::CudaContext;
use oplus::{Device, kernels};
use oplus_tests::latency::{Line, Users, calls, first_call, first_calls_of_models};

/// Times what calls cost the host: queueing a call, the first calls of committed kernels, and with the compiler in the
/// program (feature `jit`) the first calls of user's kernels, compiled and then read from the cache on disk.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// A folder of baked kernels to look in first.
    #[arg(long, value_name = "FOLDER")]
    kernels: Option<std::path::PathBuf>,
    /// Only time the first calls of one kernel of a user's.
    #[arg(long, value_name = "KERNEL")]
    users: Option<Users>,
}

fn print(line: &Line) -> Result<(), serde_json::Error> {
    serde_json::to_string(line).map(|text| println!("{text}"))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    if let Some(folder) = &args.kernels {
        oplus::source::Folder::open(folder)?.register();
    }
    let stream = CudaContext::new(0)?.new_stream()?;
    let device = Device::from_stream(stream.clone())?;
    if let Some(users) = args.users {
        return Ok(users.first_calls(&device)?.iter().try_for_each(print)?);
    }
    print(&first_call("first-cumsum", kernels::cumsum::kernel(), &device)?)?;
    print(&first_call("first-affine", kernels::affine::kernel(), &device)?)?;
    first_calls_of_models(&device)?.iter().try_for_each(print)?;
    calls(&device, &stream)?.iter().try_for_each(print)?;
    if cfg!(feature = "jit") {
        for users in Users::value_variants() {
            first_calls_of(*users)?;
        }
    }
    Ok(())
}

/// Two processes with caches of their own, the library's and the driver's: the first one compiles, the second one reads.
fn first_calls_of(users: Users) -> Result<(), Box<dyn std::error::Error>> {
    let cache = tempfile::tempdir()?;
    let name = users.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    for source in ["compiled", "from disk"] {
        println!("{}", serde_json::json!({ "source": source }));
        let mut child = Command::new(std::env::current_exe()?);
        let child = child.env("OPLUS_CACHE", cache.path()).env("CUDA_CACHE_PATH", cache.path().join("driver"));
        if !child.args(["--users", &name]).status()?.success() {
            return Err(format!("first calls of {name}, {source}, failed").into());
        }
    }
    Ok(())
}

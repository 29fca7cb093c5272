//! Times what calls cost the host, one JSON line each, in microseconds.

use std::process::Command;
use std::sync::Arc;

use clap::Parser;
use cudarc::driver::CudaContext;
use oplus::{Device, kernels};
use oplus_tests::latency::{Line, calls, first_call, users_kernel};

/// Times what calls cost the host: queueing a call, the first call of a committed kernel, and with the compiler in the
/// program (feature `jit`) the first call of a user's kernel, compiled and then read from the cache on disk.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// A folder of baked kernels to look in first.
    #[arg(long, value_name = "FOLDER")]
    kernels: Option<std::path::PathBuf>,
    /// Only time the first call of a user's kernel, under this name.
    #[arg(long, hide = true, value_name = "CASE")]
    users: Option<String>,
}

fn print(line: &Line) -> Result<(), serde_json::Error> {
    serde_json::to_string(line).map(|text| println!("{text}"))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    if let Some(folder) = &args.kernels {
        oplus::source::register(Arc::new(oplus::source::Folder::open(folder)?));
    }
    let stream = CudaContext::new(0)?.new_stream()?;
    let device = Device::from_stream(stream.clone())?;
    if let Some(case) = &args.users {
        return Ok(print(&first_call(case, &users_kernel("users_affine")?, &device)?)?);
    }
    print(&first_call("first-cumsum", kernels::cumsum::kernel(), &device)?)?;
    print(&first_call("first-affine", kernels::affine::kernel(), &device)?)?;
    calls(&device, &stream)?.iter().try_for_each(print)?;
    if cfg!(feature = "jit") {
        // Processes of their own with a cache of their own: the first one compiles, the second one reads.
        let cache = tempfile::tempdir()?;
        for case in ["first-users-compiled", "first-users-from-disk"] {
            let mut child = Command::new(std::env::current_exe()?);
            if !child.env("OPLUS_CACHE", cache.path()).args(["--users", case]).status()?.success() {
                return Err(format!("{case} failed").into());
            }
        }
    }
    Ok(())
}

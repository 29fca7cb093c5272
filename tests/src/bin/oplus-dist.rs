//! Checks kernels on several ranks against one device, and times weak and strong scaling, one JSON line each.

use std::io::Write;

use clap::Parser;
use oplus::Device;
use oplus_tests::dist::{Line, Ranks, cases};

/// The largest difference from one device, relative to the largest number of a tensor.
const TOLERANCE: f64 = 1e-3;

/// Checks kernels on several ranks against one device, and times them. Ranks are threads of this process, one for each GPU, or on
/// the CPU; tensors are exchanged through the memory of the CPU.
#[derive(Parser)]
#[command(version)]
struct Args {
    /// This many ranks on the CPU, which share its processors: for checks, not for times.
    #[arg(long, value_name = "RANKS")]
    cpu: Option<usize>,
    /// Tokens of one device.
    #[arg(long, default_value_t = 65_536)]
    tokens: usize,
    /// How often each call is timed.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Only the cases whose name has this in it.
    #[arg(long, default_value = "")]
    only: String,
    /// A file for the lines, beside the terminal.
    #[arg(long, value_name = "FILE")]
    out: Option<std::path::PathBuf>,
}

impl Args {
    fn devices(&self) -> Result<Vec<Device>, Box<dyn std::error::Error>> {
        if let Some(ranks) = self.cpu {
            return if ranks > 0 { Ok(vec![Device::Cpu; ranks]) } else { Err("--cpu needs at least one rank".into()) };
        }
        match Device::cuda_count() {
            0 | 1 => Err("there are not two GPUs here; `--cpu 2` checks the same on the CPU".into()),
            count => Ok((0..count).map(Device::cuda).collect::<Result<_, _>>()?),
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args = Args::parse();
    let all = Ranks { devices: args.devices()? };
    let mut file = args.out.as_ref().map(std::fs::File::create).transpose()?;
    let mut print = |line: &Line| -> Result<(), Box<dyn std::error::Error>> {
        let text = serde_json::to_string(line)?;
        println!("{text}");
        Ok(file.as_mut().map_or(Ok(()), |file| writeln!(file, "{text}"))?)
    };
    let mut wrong = vec![];
    for case in cases().iter().filter(|case| case.name.contains(&args.only)) {
        let checked = all.check(case, args.tokens.min(10_007))?;
        let is_right = checked.error.is_some_and(|error| error <= TOLERANCE) && checked.same_bits == Some(true);
        print(&checked)?;
        wrong.extend((!is_right).then_some(case.name));
        let mut ranks = 1;
        while ranks <= all.devices.len() {
            let some = Ranks { devices: all.devices[..ranks].to_vec() };
            print(&some.time(case, "strong", args.tokens, args.runs)?)?;
            print(&some.time(case, "weak", args.tokens * ranks, args.runs)?)?;
            ranks *= 2;
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(format!("not as on one device: {}", wrong.join(", ")).into()) }
}

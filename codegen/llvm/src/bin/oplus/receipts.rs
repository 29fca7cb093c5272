//! `oplus receipts`.

use crate::Outcome;
use oplus_llvm::library::{Manifest, apply_receipts};
use std::path::PathBuf;

/// Enters what a check on a GPU found into the manifest of committed kernels.
///
/// FILE has one JSON object per kernel and line, as the check program writes them: key, blake3 (the hash of the PTX
/// that ran), device, date, worst_error (in units of the kernel's error bound). A receipt for another text than the
/// committed one is refused.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The lines.
    file: PathBuf,
    /// The folder with the manifest.
    #[arg(long, value_name = "DIR", default_value = "kernels-generated")]
    out: PathBuf,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let read = std::fs::read_to_string(&args.file);
    let lines = read.map_err(|e| format!("{}: {e}", args.file.display()))?;
    let manifest = Manifest::read(&args.out)?;
    let mut manifest = manifest.ok_or_else(|| format!("{} has no manifest.toml", args.out.display()))?;
    let changed = apply_receipts(&mut manifest, &lines).map_err(|e| format!("{}: {e}", args.file.display()))?;
    let path = args.out.join("manifest.toml");
    std::fs::write(&path, manifest.text()).map_err(|e| format!("{}: {e}", path.display()))?;
    let without = manifest.kernel.iter().filter(|e| e.receipt.is_none()).count();
    println!("{changed} receipts entered; {without} of {} kernels have none", manifest.kernel.len());
    Ok(())
}

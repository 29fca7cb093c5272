//! `oplus receipts`.

use crate::Outcome;
use crate::library::{Entry, Manifest, apply_receipts};
use crate::output::say;
use std::error::Error;
use std::path::{Path, PathBuf};

/// Enters what a check on a GPU found into the manifest of committed kernels.
///
/// FILE has one JSON object per kernel and line, as the check program writes them: key, blake3 (the hash of the PTX
/// that ran), device, date, worst_error (in units of the kernel's error bound). A receipt for another text than the
/// committed one is refused. With --check nothing is entered: every kernel must have its receipt.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The lines.
    #[arg(required_unless_present = "check")]
    file: Option<PathBuf>,
    /// Change nothing; fail when a kernel has no receipt.
    #[arg(long, conflicts_with = "file")]
    check: bool,
    /// The folder with the manifest.
    #[arg(long, value_name = "DIR", default_value = "kernels-generated")]
    out: PathBuf,
}

pub(crate) fn run(args: &Args) -> Outcome {
    match &args.file {
        Some(file) => enter(file, &args.out),
        None => check(&manifest(&args.out)?),
    }
}

fn manifest(folder: &Path) -> Result<Manifest, Box<dyn Error>> {
    let manifest = Manifest::read(folder)?;
    Ok(manifest.ok_or_else(|| format!("{} has no manifest.toml", folder.display()))?)
}

/// Enters the receipts of a file and rewrites the manifest.
fn enter(file: &Path, out: &Path) -> Outcome {
    let lines = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let mut manifest = manifest(out)?;
    let changed = apply_receipts(&mut manifest, &lines).map_err(|e| format!("{}: {e}", file.display()))?;
    let path = out.join("manifest.toml");
    std::fs::write(&path, manifest.text()).map_err(|e| format!("{}: {e}", path.display()))?;
    say!("{changed} receipts entered; {} of {} kernels have none", without(&manifest).len(), manifest.kernel.len());
    Ok(())
}

/// Every kernel must have a receipt. That PTX and manifest agree is for `oplus generate --check` to say.
fn check(manifest: &Manifest) -> Outcome {
    let without = without(manifest);
    if without.is_empty() {
        say!("{} kernels, all with a receipt", manifest.kernel.len());
        return Ok(());
    }
    let list: String = without.iter().map(|file| format!("\n  {file}")).collect();
    Err(format!("{} of {} kernels have no receipt:{list}", without.len(), manifest.kernel.len()).into())
}

/// The symbols of kernels that have no receipt for their text.
fn without(manifest: &Manifest) -> Vec<&str> {
    let lacks = |e: &&Entry| e.receipt.as_ref().is_none_or(|receipt| receipt.blake3 != e.blake3);
    manifest.kernel.iter().filter(lacks).map(|e| e.symbol.as_str()).collect()
}

//! `oplus bake`.

use crate::Outcome;
use crate::library::{Batch, Checks, Contents, counts};
use crate::output::say;
use crate::programs::{
    all_variants, compile, in_sources, named, ordered_variants, parse_elem, parse_isa, sharded_variants, with_others,
};
use oplus_codegen::target::Isa;
use oplus_dsl::Elem;
use oplus_llvm::ptxas::Ptxas;
use std::path::{Path, PathBuf};

/// Writes the PTX of a crate's own kernels into a folder, so that the program needs no compiler where it runs.
///
/// The folder is to be committed. The program registers it as a kernel source: by path with
/// `Folder::open("…")?.register()`, or inside the program with `include!("…/table.rs")` and
/// `Embedded::new(KERNELS).register()`. With a version of oplus that makes other kernels it is to be baked again.
///
/// Kernels for which `ptxas` finds too few registers are counted and left out: calls take the fastest of the others. So are
/// kernels that cannot be made for another reason; these are named, and the command fails after it has written the others.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The crate whose `scan!` blocks are compiled, by its manifest.
    #[arg(long, value_name = "Cargo.toml", conflicts_with = "source")]
    manifest_path: Option<PathBuf>,
    /// Rust file, or folder of Rust files, whose `scan!` blocks are compiled.
    #[arg(long, value_name = "PATH")]
    source: Option<PathBuf>,
    /// Only the kernel of this name, of the sources or (without any) of the standard library. May be repeated.
    #[arg(long, value_name = "NAME")]
    kernel: Vec<String>,
    /// The folder to write.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Element types of calls.
    #[arg(long, value_delimiter = ',', value_parser = parse_elem, default_value = "f32,bf16,f16")]
    elem: Vec<Elem>,
    /// Instruction sets: sm_80 runs on every GPU since Ampere, sm_90a is for Hopper.
    #[arg(long, value_delimiter = ',', value_parser = parse_isa, default_value = "sm_80,sm_90a")]
    isa: Vec<Isa>,
    /// Also the kernels of ordered calls, of kernels and of their one-step forms.
    #[arg(long)]
    ordered: bool,
    /// Also the kernels of calls that are divided along this axis over several ranks, and of their gradients. May be repeated.
    #[arg(long, value_name = "AXIS")]
    sharded: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Outcome {
    let source = args.source.clone().or_else(|| args.manifest_path.as_deref().map(folder_of));
    let programs = match source {
        Some(path) => in_sources(&path)?,
        None if args.kernel.is_empty() => return Err("say what to bake: --source, --manifest-path or --kernel".into()),
        None => oplus_front::library_programs(),
    };
    if programs.is_empty() {
        return Err("there is no kernel in any `scan!` block".into());
    }
    let programs = with_others(&named(programs, &args.kernel)?)?;
    let mut variants = all_variants(&programs, &args.elem, &args.isa)?;
    if args.ordered {
        variants.extend(ordered_variants(&programs, &args.elem)?);
    }
    for axis in &args.sharded {
        let (own, refused) = sharded_variants(&programs, axis, &args.elem, &args.isa)?;
        refused.iter().for_each(|line| eprintln!("{line}"));
        variants.extend(own);
    }
    variants.sort_by_cached_key(|variant| variant.key().to_string());
    variants.dedup_by_key(|variant| variant.key());
    let ptxas = Ptxas::find().ok();
    let checks = Checks { ptxas: ptxas.as_ref(), ..Checks::default() };
    let batch = compile(&variants, checks, "oplus bake")?;
    keep(batch, &args.out, if ptxas.is_none() { "; not checked, for want of ptxas" } else { "" })
}

/// Writes the kernels that were made, and says which were not. That some spill is no failure where their programs have others;
/// that one cannot be made at all is, though the others are there.
fn keep(mut batch: Batch, out: &Path, remark: &str) -> Outcome {
    let left_out = batch.take_spilling();
    let failed = std::mem::take(&mut batch.failed);
    let made = batch.built.len();
    let list: String = failed.iter().map(|error| format!("\n{error}")).collect();
    if made == 0 {
        return Err(format!("none of {} kernels can be made:{list}", failed.len()).into());
    }
    let mut contents = Contents::new(batch.built);
    contents.inherit(out)?;
    let changed = contents.write(out)?.len();
    for line in counts(&left_out) {
        eprintln!("{line}");
    }
    let absent = left_out.len() + failed.len();
    let without = if absent == 0 { String::new() } else { format!(", {absent} left out") };
    say!("{made} kernels{without}, {} bytes of PTX, {changed} files changed{remark}", contents.bytes()["ptx"]);
    if failed.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{} of {} kernels cannot be made; the others are in {}:{list}",
        failed.len(),
        made + absent,
        out.display()
    )
    .into())
}

/// The folder of a crate's manifest.
fn folder_of(manifest: &Path) -> PathBuf {
    manifest.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::{Manifest, Variant, build};
    use oplus_codegen::schedules::{Fold, Loader, LookBack, Rows, Schedule};

    /// A kernel that can be made, and one that cannot: its instruction set has no bulk copies.
    fn batch(with_sound: bool) -> Batch {
        let program = oplus_front::library_programs().into_iter().find(|p| p.name == "cumsum").unwrap();
        let stage = oplus_codegen::stage::cut(&program.instantiate(Elem::F32)).unwrap().stages.remove(0);
        let rows = Rows { warps: 4, row_warps: 1, lanes: 32, rows: 1, vector: 4, vectors: 1 };
        let (fold, loader) = (Fold::Blocks, Loader::Bulk);
        let (scan_warps, reduce_warps) = (2, 1);
        let bulk = LookBack { scan_warps, reduce_warps, vector: 4, vectors: 1, stages: 2, window: 1, fold, loader };
        let variant = |schedule| Variant { stage: stage.clone(), schedule, isa: Isa::Sm80 };
        let sound = with_sound.then(|| variant(Schedule::Rows(rows)));
        let variants: Vec<Variant> = sound.into_iter().chain([variant(Schedule::LookBack(bulk))]).collect();
        build(&variants, Checks::default(), "oplus bake", || ())
    }

    #[test]
    fn what_could_be_made_is_kept_and_the_rest_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let message = keep(batch(true), folder.path(), "").unwrap_err().to_string();
        assert!(message.starts_with("1 of 2 kernels cannot be made; the others are in "), "{message}");
        assert!(
            message.contains("cumsum under lookback(") && message.contains("sm_80 has no bulk copies"),
            "{message}"
        );
        let manifest = Manifest::read(folder.path()).unwrap().expect("a manifest");
        assert_eq!(manifest.kernel.len(), 1);
        assert!(folder.path().join(&manifest.kernel[0].file).exists());
    }

    #[test]
    fn nothing_is_written_where_nothing_could_be_made() {
        let folder = tempfile::tempdir().unwrap();
        let message = keep(batch(false), folder.path(), "").unwrap_err().to_string();
        assert!(message.starts_with("none of 1 kernels can be made:"), "{message}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

//! `oplus bake`.

use crate::Outcome;
use crate::programs::{all_of, all_variants, compile, in_sources, named, ordered_variants, parse_elem, parse_isa};
use oplus_codegen::target::Isa;
use oplus_dsl::Elem;
use oplus_llvm::library::{BuildError, Checks, Contents};
use oplus_llvm::ptxas::Ptxas;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Writes the PTX of a crate's own kernels into a folder, so that the program needs no compiler where it runs.
///
/// The folder is to be committed. The program registers it as a kernel source: by path with `Folder::open`, or inside
/// the program with `include!("…/table.rs")` and `Embedded::new(KERNELS)`.
///
/// Kernels for which `ptxas` finds too few registers are counted and left out: calls take the fastest of the others.
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
    let programs = named(programs, &args.kernel)?;
    let mut variants = all_variants(&programs, &args.elem, &args.isa)?;
    if args.ordered {
        variants.extend(ordered_variants(&programs, &args.elem)?);
        variants.sort_by_cached_key(|variant| variant.key().to_string());
        variants.dedup_by_key(|variant| variant.key());
    }
    let ptxas = Ptxas::find().ok();
    let checks = Checks { ptxas: ptxas.as_ref(), ..Checks::default() };
    let mut batch = compile(&variants, checks, "oplus bake")?;
    let left_out = batch.take_spilling();
    let mut contents = Contents::new(all_of(batch)?);
    contents.inherit(&args.out)?;
    let changed = contents.write(&args.out)?.len();
    let unchecked = if ptxas.is_none() { "; not checked, for want of ptxas" } else { "" };
    for line in summary(&left_out) {
        eprintln!("{line}");
    }
    let made = variants.len() - left_out.len();
    let without = if left_out.is_empty() { String::new() } else { format!(", {} left out", left_out.len()) };
    println!("{made} kernels{without}, {} bytes of PTX, {changed} files changed{unchecked}", contents.bytes());
    Ok(())
}

/// The folder of a crate's manifest.
fn folder_of(manifest: &Path) -> PathBuf {
    manifest.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}

/// A line for every program that kernels are left out of: how many, and of which kinds of schedule.
fn summary(left_out: &[BuildError]) -> Vec<String> {
    let mut programs: BTreeMap<&str, (usize, BTreeSet<String>)> = BTreeMap::new();
    for error in left_out {
        let (count, kinds) = programs.entry(&error.program).or_default();
        let schedule = error.schedule.to_string();
        let kind = schedule.split('(').next().unwrap_or_default();
        *count += 1;
        kinds.insert(format!("{kind} on {}", error.isa.name()));
    }
    let line = |(program, (count, kinds)): (&str, (usize, BTreeSet<String>))| {
        let kinds = kinds.into_iter().collect::<Vec<_>>().join(", ");
        format!("{program}: {count} kernels are left out, for they spill ({kinds})")
    };
    programs.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use oplus_codegen::schedule::{Fold, Loader, LookBack, Schedule};
    use oplus_llvm::library::BuildReason;
    use oplus_llvm::ptxas::{Facts, PtxasError};

    fn spilling(program: &str, isa: Isa) -> BuildError {
        let schedule = LookBack {
            scan_warps: 2,
            reduce_warps: 1,
            vector: 4,
            vectors: 2,
            stages: 2,
            window: 1,
            fold: Fold::Strict,
            loader: Loader::Registers,
        };
        let facts = Facts { registers: 255, shared: 0, stack: 0, spills: 8, code: 0 };
        let reason = BuildReason::Ptxas(PtxasError::Spills(facts));
        BuildError { program: program.into(), schedule: Box::new(Schedule::LookBack(schedule)), isa, reason }
    }

    #[test]
    fn kernels_that_are_left_out_are_counted_by_program() {
        let errors =
            [spilling("b", Isa::Sm80), spilling("a", Isa::Sm90a), spilling("b", Isa::Sm80), spilling("b", Isa::Sm90a)];
        assert_eq!(
            summary(&errors),
            [
                "a: 1 kernels are left out, for they spill (lookback on sm_90a)",
                "b: 3 kernels are left out, for they spill (lookback on sm_80, lookback on sm_90a)"
            ]
        );
    }
}

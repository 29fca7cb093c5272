//! `oplus bake`.

use crate::Outcome;
use crate::programs::{
    all_of, all_variants, compile, in_sources, named, ordered_variants, parse_elem, parse_isa, with_others,
};
use oplus_codegen::target::Isa;
use oplus_dsl::Elem;
use oplus_llvm::library::{Checks, Contents, counts};
use oplus_llvm::ptxas::Ptxas;
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
    let programs = with_others(&named(programs, &args.kernel)?)?;
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
    for line in counts(&left_out) {
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

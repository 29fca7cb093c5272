//! `oplus generate`.

use crate::Outcome;
use crate::library::{Checks, Contents, Difference, Manifest, Older, Variant};
use crate::models::{model_variants, ranked_variants, settings_variants};
use crate::output::say;
use crate::programs::{all_of, all_variants, compile, named};
use crate::tiles::{self, Tiles};
use oplus_codegen::target::Isa;
use oplus_dsl::Elem;
use oplus_llvm::ptxas::Ptxas;
use std::error::Error;
use std::path::{Path, PathBuf};

/// Writes the PTX of the standard kernels, their machine code for Hopper, their manifest and their look-up tables.
///
/// The files are a function of the sources: nothing changes when it is run twice. Receipts of kernels that did not
/// change are kept. Needs `ptxas`, which every kernel must pass without spills. A kernel whose text has passed this version of
/// `ptxas` before is not assembled again, unless --assemble asks for it. Scans that can lose a state may spill a few bytes, for
/// the branch of single steps. Another text under the key of a kernel that is in the folder is an error: the compiler's
/// version, which is part of every key, has to be raised first.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Change nothing; fail when a file is not what would be written.
    #[arg(long)]
    check: bool,
    /// Assemble every kernel, also those whose text has passed this version of `ptxas` before.
    #[arg(long)]
    assemble: bool,
    /// Make, or check, only the table of the kernels' tile IR, which takes neither LLVM nor `ptxas`.
    #[arg(long)]
    tiles: bool,
    /// The folder of the crates of committed kernels.
    #[arg(long, value_name = "DIR", default_value = "kernels-generated")]
    out: PathBuf,
}

/// The standard kernels that are committed under all schedules, and in which element types: those that most programs start
/// from. Of [models](crate::models) there are some. The others are baked or compiled when they are needed; all of them at
/// once would take too long to assemble in every check.
const COMMITTED: [(&[Elem], &[&str]); 6] = [
    (&[Elem::F32, Elem::F64, Elem::Bf16, Elem::F16], &["copy", "copy_flags"]),
    (&[Elem::F32, Elem::Bf16], &["cumsum", "cumsum_time_first", "affine", "log_decay_channels"]),
    (&[Elem::F32], &["cumprod", "cummax", "cummin", "cumargmax", "cumargmin", "logcumsumexp", "ema", "log_decay"]),
    (&[Elem::F64], &["cumsum", "cummax", "cummin", "affine", "log_decay"]),
    (&[Elem::F16], &["cumsum", "affine"]),
    (&[Elem::F32], &["affine_time_first", "segmented_cumsum", "segmented_affine", "complex_affine"]),
];

/// A crate's files of kernels may have so many bytes: the registry takes packages of 10 MiB.
const MOST_BYTES: u64 = 9_700_000;

const COMMAND: &str = "oplus generate";

pub(crate) fn run(args: &Args) -> Outcome {
    let variants = committed()?;
    of_tiles(variants.clone(), args.check)?;
    if args.tiles {
        return Ok(());
    }
    let ptxas = Ptxas::find()?;
    let older = Manifest::read(&args.out)?;
    let older = older.as_ref().map(|manifest| Older { folder: &args.out, manifest });
    let checks = Checks { ptxas: Some(&ptxas), older, again: args.assemble };
    let mut contents = Contents::of_crates(all_of(compile(&variants, checks, COMMAND)?)?);
    contents.inherit(&args.out)?;
    contents.check_keys(&args.out)?;
    let differences = if args.check { contents.differences(&args.out)? } else { contents.write(&args.out)? };
    if args.check && !differences.is_empty() {
        let list: String = differences.iter().map(|d: &Difference| format!("\n  {d}")).collect();
        return Err(format!("{} is out of date; run `{COMMAND}`:{list}", args.out.display()).into());
    }
    let (count, changed) = (variants.len(), differences.len());
    say!("{count} kernels, {}, {changed} files changed", packages(&contents, &args.out)?.join(" and "));
    Ok(())
}

/// Compares the table of tile IR with that of these kernels and those of all plans of the models' settings, or writes it.
fn of_tiles(mut variants: Vec<Variant>, check: bool) -> Outcome {
    variants.extend(settings_variants()?);
    variants.extend(ranked_variants()?);
    variants.sort_by_cached_key(|variant| variant.key().to_string());
    variants.dedup_by_key(|variant| variant.key());
    let (tiles, path) = (Tiles::of(&variants)?, tiles::path());
    let table = tiles.to_string();
    if check {
        let there = std::fs::read_to_string(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        if there != table {
            let apart: String = tiles::lines_apart(&table, &there).iter().map(|line| format!("\n  {line}")).collect();
            return Err(format!("the tile IR is not that of {}; run `{COMMAND}`:{apart}", path.display()).into());
        }
    } else {
        std::fs::write(&path, table).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    }
    say!("{} kernels of tile IR", tiles.count());
    Ok(())
}

/// The contents and sizes of each crate's files, in words. A crate that is too large is an error.
fn packages(contents: &Contents, out: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mut said = vec![];
    for (folder, bytes) in contents.bytes() {
        let path = out.join(folder);
        let files = std::fs::read_dir(&path)?.map(|file| Ok(file?.metadata()?.len()));
        let packed = files.sum::<std::io::Result<u64>>()?;
        if packed > MOST_BYTES {
            return Err(format!("{} has {packed} bytes, more than {MOST_BYTES}", path.display()).into());
        }
        said.push(format!("{bytes} bytes in {packed} of {}", path.display()));
    }
    Ok(said)
}

/// The committed kernels, in order of their keys.
fn committed() -> Result<Vec<Variant>, Box<dyn Error>> {
    let mut all = model_variants()?;
    for (elems, names) in COMMITTED {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        all.extend(all_variants(&named(oplus_front::standard_programs(), &names)?, elems, &Isa::ALL)?);
    }
    all.sort_by_cached_key(|variant| variant.key().to_string());
    all.dedup_by_key(|variant| variant.key());
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    /// Schedules that change with the planner would be found only when all kernels are made again, which takes minutes.
    #[test]
    fn the_manifest_has_the_kernels_that_are_to_be_committed() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels-generated");
        let manifest = Manifest::read(&folder).unwrap().expect("a manifest");
        let there: BTreeSet<String> = manifest.kernel.iter().map(|entry| entry.key.clone()).collect();
        let all = committed().unwrap();
        let wanted: BTreeSet<String> = all.iter().map(|variant| variant.key().to_string()).collect();
        let missing: Vec<String> = all
            .iter()
            .filter(|variant| !there.contains(&variant.key().to_string()))
            .map(|variant| format!("{} on {}: {}", variant.stage.program.name, variant.isa.name(), variant.schedule))
            .collect();
        assert!(missing.is_empty(), "not committed:\n{}", missing.join("\n"));
        assert_eq!(there.difference(&wanted).count(), 0, "committed kernels that nothing asks for");
    }
}

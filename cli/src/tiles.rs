//! The committed table of tile IR, by which a change that moves code without changing a kernel is seen to do just that.
//!
//! A line is for the kernels of one program under one kind of schedule for one instruction set: how many there are, and the hash
//! of their keys and of their tile IR, with tabs between them. Its kernels are the committed ones and those that any plan of
//! the models' settings launches, with the shorter kernels that stand in for them. `oplus generate` writes the table, and
//! `oplus generate --check --tiles` computes the table again, without LLVM and `ptxas`, and compares.

use crate::library::Variant;
use oplus_codegen::key::tile_hash;
use oplus_codegen::schedules::{LowerError, lower, lower_fast_tier};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;

/// The table of the sources that this program was built from.
pub(crate) fn path() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/survey/tiles.tsv"))
}

/// The kernels that one line is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Family {
    program: String,
    isa: &'static str,
    schedule: &'static str,
}

/// Kernels as `key tile-hash`, in order, by their families.
#[derive(Debug, Default)]
pub(crate) struct Tiles(BTreeMap<Family, Vec<String>>);

impl Tiles {
    /// The table of kernels.
    ///
    /// # Errors
    /// When one of them cannot be lowered.
    pub(crate) fn of(variants: &[Variant]) -> Result<Tiles, LowerError> {
        let lines: Vec<String> = variants.par_iter().with_max_len(1).map(line).collect::<Result<_, _>>()?;
        let mut all = Tiles::default();
        for (Variant { stage, schedule, isa }, line) in variants.iter().zip(lines) {
            let (program, isa, schedule) = (stage.program.name.clone(), isa.name(), schedule.name());
            all.0.entry(Family { program, isa, schedule }).or_default().push(line);
        }
        all.0.values_mut().for_each(|lines| {
            lines.sort();
            lines.dedup();
        });
        Ok(all)
    }

    /// How many kernels there are.
    pub(crate) fn count(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }
}

/// The table's line for a kernel: its key, the hash of its tile IR, and that of the kernel that stands in for it.
fn line(variant: &Variant) -> Result<String, LowerError> {
    let Variant { stage, schedule, isa } = variant;
    let own = tile_hash(&lower(stage, schedule, *isa)?);
    let short = lower_fast_tier(stage, schedule, *isa)?.as_ref().map(tile_hash).unwrap_or_default();
    Ok(format!("{} {own} {short}", variant.key()))
}

impl Display for Tiles {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "# program, isa, schedule, kernels, hash of their tile IR; written by `oplus generate`")?;
        for (Family { program, isa, schedule }, lines) in &self.0 {
            let hash = blake3::hash(lines.join("\n").as_bytes()).to_hex();
            writeln!(f, "{program}\t{isa}\t{schedule}\t{}\t{}", lines.len(), &hash[..16])?;
        }
        Ok(())
    }
}

/// The lines of one table that another lacks.
pub(crate) fn lines_apart<'a>(table: &'a str, other: &str) -> Vec<&'a str> {
    table.lines().filter(|line| other.lines().all(|own| own != *line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_tell_which_families_are_apart() {
        let (old, new) = ("# a\np\tsm_80\trows\t2\tabc\nq\tsm_80\tmap\t1\tdef\n", "# a\np\tsm_80\trows\t2\tabd\n");
        assert_eq!(lines_apart(new, old), ["p\tsm_80\trows\t2\tabd"]);
        assert_eq!(lines_apart(old, new), ["p\tsm_80\trows\t2\tabc", "q\tsm_80\tmap\t1\tdef"]);
    }
}

//! The committed table of tile IR, by which a change that moves code without changing a kernel is seen to do just that.
//!
//! A line is for the kernels of one program under one kind of schedule for one instruction set: how many there are, and the hash
//! of their keys and of their tile IR, with tabs between them. Its kernels are the committed ones and those that any plan of
//! the models' settings launches, with their kernels of the fast-compile tier. `oplus generate` writes the table, and
//! `oplus generate --check --tiles` computes the table again, without LLVM and `ptxas`, and compares. Both read the text of every
//! kernel back, which must give that kernel again.

use crate::library::Variant;
use oplus_codegen::key::tile_hash;
use oplus_codegen::schedules::{LowerError, lower, lower_fast_tier};
use oplus_codegen::tile::{Kernel, ParseError};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;
use thiserror::Error;

/// The table of the sources that this program was built from.
pub(crate) fn path() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/survey/tiles.tsv"))
}

/// Why there is no table of some kernels.
#[derive(Debug, Error)]
pub(crate) enum TilesError {
    /// A kernel cannot be lowered.
    #[error(transparent)]
    Lower(#[from] LowerError),
    /// The text of a kernel cannot be read.
    #[error("the text of the kernel `{name}` is not read back: {error}")]
    Text {
        /// The kernel's symbol.
        name: String,
        /// The parser's error.
        error: ParseError,
    },
    /// The text of a kernel gives another kernel.
    #[error("the text of the kernel `{0}` is read back as another kernel")]
    Other(String),
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
    /// [`TilesError`] says which kernel cannot be lowered, or is not read back from its text.
    pub(crate) fn of(variants: &[Variant]) -> Result<Tiles, TilesError> {
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

/// The table's line for a kernel: its key, the hash of its tile IR, and that of its kernel of the fast-compile tier.
fn line(variant: &Variant) -> Result<String, TilesError> {
    let Variant { stage, schedule, isa } = variant;
    let own = checked_hash(&lower(stage, schedule, *isa)?)?;
    let short = lower_fast_tier(stage, schedule, *isa)?;
    let short = short.as_ref().map(checked_hash).transpose()?.unwrap_or_default();
    Ok(format!("{} {own} {short}", variant.key()))
}

/// The hash of a kernel whose text gives it again.
fn checked_hash(kernel: &Kernel) -> Result<String, TilesError> {
    let read: Result<Kernel, ParseError> = kernel.to_string().parse();
    match read {
        Ok(read) if read == *kernel => Ok(tile_hash(kernel)),
        Ok(_) => Err(TilesError::Other(kernel.name.clone())),
        Err(error) => Err(TilesError::Text { name: kernel.name.clone(), error }),
    }
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
    use oplus_codegen::tile::{Expr, Operand, Reg, Stmt};

    /// A kernel of one statement, which gives register 0 a number.
    fn kernel() -> Kernel {
        "kernel k() threads 32 blocks_per_sm 1\n  i0 = 1\n".parse().expect("reads")
    }

    #[test]
    fn kernels_whose_texts_do_not_give_them_again_are_errors() {
        let good = kernel();
        assert_eq!(checked_hash(&good).expect("is read back"), tile_hash(&good));
        // The text of this kernel says nothing of a register that is not there.
        let mut other = kernel();
        other.body.push(Stmt::Let(Reg(7), Expr::Copy(Operand::i32(1))));
        let error = checked_hash(&other).expect_err("has no such register");
        assert!(error.to_string().contains("the text of the kernel `k` is"), "{error}");
    }

    #[test]
    fn tables_tell_which_families_are_apart() {
        let (old, new) = ("# a\np\tsm_80\trows\t2\tabc\nq\tsm_80\tmap\t1\tdef\n", "# a\np\tsm_80\trows\t2\tabd\n");
        assert_eq!(lines_apart(new, old), ["p\tsm_80\trows\t2\tabd"]);
        assert_eq!(lines_apart(old, new), ["p\tsm_80\trows\t2\tabc", "q\tsm_80\tmap\t1\tdef"]);
    }
}

//! Folders of compiled kernels: PTX files, a manifest that says what each is, and a table to embed them.
//!
//! ```text
//! manifest.toml             what is here: keys, schedules, hashes, receipts
//! ptx/<symbol>.<isa>.ptx    the kernels
//! table.rs                  key, seal and text of every kernel, ascending, for a program that embeds the folder
//! ```
//!
//! The committed kernels are two crates instead, whose tables and files of shards `oplus generate` writes:
//!
//! ```text
//! manifest.toml             what is in both crates
//! src/table.rs              the table of the crate of PTX
//! shards/<family>.<n>.ptx.zst         its kernels, neighbours compressed together
//! sm90/src/table.rs         the table of the crate of machine code for Hopper
//! sm90/shards/<family>.<n>.cubin.zst  its kernels
//! ```
//!
//! The driver loads machine code at once and has to compile PTX. Drivers that do not take the machine code, because they are
//! older than the `ptxas` that made it, are given the PTX.
//!
//! A folder is a function of the kernels in it and of the version of `ptxas`: made again, it is the same to the byte.
//! Another version leaves the machine code of unchanged kernels as it is. Only receipts come from elsewhere, and stay as
//! long as the code does that they were given for.

mod build;
mod folder;
mod manifest;
mod receipt;
mod shards;
mod table;

pub(crate) use build::{Batch, Built, Checks, Older, Variant, build, counts};
pub(crate) use folder::{Contents, Difference};
pub(crate) use manifest::{Entry, Manifest, Receipt};
pub(crate) use receipt::apply_receipts;

use std::path::PathBuf;

/// Why a folder of kernels could not be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LibraryError {
    /// A file could not be read or written.
    #[error("{}: {error}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{}: {reason}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The fault, in words.
        reason: String,
    },
    /// Committed texts have changed under keys that are as they were.
    #[error(
        "the text of {} kernels changed under keys that did not; raise COMPILER_VERSION in codegen/src/key.rs, so that no cache \
         gives the older text, and generate them again:{}",
        .symbols.len(),
        list(.symbols)
    )]
    EqualKeys {
        /// Their symbols.
        symbols: Vec<String>,
    },
    /// A receipt is for no kernel of the folder.
    #[error("line {line}: {reason}")]
    Receipt {
        /// Its line in the file of receipts.
        line: usize,
        /// The fault, in words.
        reason: String,
    },
}

/// The first few symbols, one on each line.
fn list(symbols: &[String]) -> String {
    const SHOWN: usize = 10;
    let mut lines: String = symbols.iter().take(SHOWN).map(|symbol| format!("\n  {symbol}")).collect();
    if symbols.len() > SHOWN {
        lines.push_str("\n  …");
    }
    lines
}

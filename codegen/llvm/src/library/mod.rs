//! Folders of compiled kernels: PTX files, a manifest that says what each is, and a table to embed them.
//!
//! ```text
//! manifest.toml             what is here: keys, schedules, hashes, receipts
//! ptx/<symbol>.<isa>.ptx    the kernels
//! table.rs                  key, seal and text of every kernel, ascending, for a program that embeds the folder
//! ```
//!
//! In the crate of committed kernels files are compressed (`.gz`), and `cubin/<symbol>.sm_90a.cubin.gz` is the machine
//! code of a kernel for Hopper: loading it takes the driver 0.1 ms, compiling the PTX 30 to 300 ms. Drivers that do not
//! take it, because they are older than the `ptxas` that made it, are given the PTX.
//!
//! A folder is a function of the kernels in it and of the version of `ptxas`: made again, it is the same to the byte.
//! Another version leaves the machine code of unchanged kernels as it is. Only receipts come from elsewhere, and stay as
//! long as the code does that they were given for.

mod build;
mod folder;
mod manifest;
mod receipt;
mod table;

pub use build::{Batch, BuildError, BuildReason, Built, Checks, Older, Variant, build, counts};
pub use folder::{Contents, Difference};
pub use manifest::{Cubin, Entry, MACHINE, Manifest, Receipt};
pub use receipt::{ReceiptLine, apply_receipts};

use std::path::PathBuf;

/// Why a folder of kernels could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
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
        /// What is wrong.
        reason: String,
    },
    /// Committed texts have changed under keys that are as they were.
    #[error(
        "the text of {} kernels changed under keys that did not; raise COMPILER_VERSION in codegen/src/key.rs, so that no cache \
         gives the older text, and generate them again:{}",
        .files.len(),
        list(.files)
    )]
    EqualKeys {
        /// Their files.
        files: Vec<String>,
    },
    /// A receipt is for no kernel of the folder.
    #[error("line {line}: {reason}")]
    Receipt {
        /// Its line in the file of receipts.
        line: usize,
        /// What is wrong.
        reason: String,
    },
}

/// The first few files, one on each line.
fn list(files: &[String]) -> String {
    const SHOWN: usize = 10;
    let mut lines: String = files.iter().take(SHOWN).map(|file| format!("\n  {file}")).collect();
    if files.len() > SHOWN {
        lines.push_str("\n  …");
    }
    lines
}

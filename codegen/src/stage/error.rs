//! Why a program cannot be cut.

use oplus_dsl::typing::TypeError;
use thiserror::Error;

use crate::passes::PassError;

/// The most operations of a program, those of its operators included.
pub const MAX_OPERATIONS: usize = 10_000;

/// The number of scans, reductions, positions and exponentials that may depend on each other.
pub const MAX_NESTED: usize = 200;

/// Why a program cannot be cut.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum CutError {
    /// The element type of the call is still open.
    #[error("the program is generic: instantiate it with an element type first")]
    Generic,
    /// The program has too many operations.
    #[error(
        "`{program}` has {operations} operations, more than the {MAX_OPERATIONS} that are planned for a GPU; \
         split it into several kernels"
    )]
    TooLarge {
        /// The program's name.
        program: String,
        /// The number of its operations, those of its operators included.
        operations: usize,
    },
    /// Too many operations along axes depend on each other.
    #[error(
        "in `{program}` {nested} scans, reductions, positions and exponentials depend on each other, more than the \
         {MAX_NESTED} that are planned for a GPU; split it into several kernels"
    )]
    TooNested {
        /// The program's name.
        program: String,
        /// Their number from the first to the last.
        nested: usize,
    },
    /// The program is not well typed.
    #[error("the program is not well typed: {0}")]
    Type(#[from] TypeError),
    /// A pass over the program has failed.
    #[error(transparent)]
    Pass(#[from] PassError),
}

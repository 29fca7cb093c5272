//! Why a kernel could not be compiled.

use oplus_codegen::target::Isa;

/// Why a kernel could not be compiled.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// The kernel uses an instruction that the target does not have.
    #[error("{what} needs another instruction set than {}", .isa.name())]
    Unsupported {
        /// The statement.
        what: &'static str,
        /// The instruction set asked for.
        isa: Isa,
    },
    /// The kernel breaks a rule of the tile IR.
    #[error("not a valid tile kernel: {0}")]
    Invalid(String),
    /// LLVM reported an error.
    #[error("LLVM: {0}")]
    Llvm(String),
}

impl From<inkwell::builder::BuilderError> for CompileError {
    fn from(error: inkwell::builder::BuilderError) -> CompileError {
        CompileError::Llvm(error.to_string())
    }
}

impl From<inkwell::support::LLVMString> for CompileError {
    fn from(error: inkwell::support::LLVMString) -> CompileError {
        CompileError::Llvm(error.to_string())
    }
}

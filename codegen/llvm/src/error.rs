//! Why a kernel could not be compiled.

use oplus_codegen::verify::VerifyError;

/// Why a kernel could not be compiled.
#[derive(Debug, thiserror::Error)]
pub enum CompileError {
    /// The kernel breaks rules of the tile IR, or uses what the instruction set lacks.
    #[error("not a valid tile kernel:{}", list(.0))]
    Invalid(Vec<VerifyError>),
    /// A statement that the verifier lets pass and the lowering does not know.
    #[error("cannot be lowered: {0}")]
    Lowering(String),
    /// LLVM reported an error.
    #[error("LLVM: {0}")]
    Llvm(String),
}

fn list(errors: &[VerifyError]) -> String {
    errors.iter().map(|e| format!("\n  {e}")).collect()
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

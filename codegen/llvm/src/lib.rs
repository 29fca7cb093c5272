//! Tile IR to PTX through LLVM 22. The only crate that links LLVM; it knows neither CUDA nor the runtime.
//!
//! [`compile`] is the whole of it: elementary functions become arithmetic, statements become LLVM IR, LLVM makes PTX.
//! No two operations are ever fused or reordered where that could change a bit, so a kernel's results do not depend on
//! the version of LLVM. [`ptxas`] assembles PTX where NVIDIA's assembler is at hand.

mod backend;
mod error;
pub mod host;
mod lower;
pub mod ptxas;

pub use error::CompileError;

use backend::Effort;
use lower::Start;
use oplus_codegen::target::{Isa, Target};
use oplus_codegen::tile::Kernel;

/// The PTX text of a kernel for an instruction set. The same kernel gives the same text every time, on every thread.
///
/// # Errors
///
/// [`CompileError::Invalid`] when the kernel breaks a rule of the tile IR (as every use of what the instruction set
/// lacks does), [`CompileError::Lowering`] and [`CompileError::Llvm`] when LLVM lacks or refuses what it would become.
pub fn compile(kernel: &Kernel, isa: Isa) -> Result<String, CompileError> {
    compile_with(kernel, isa, Text { device: isa, effort: Effort::Full, start: Start::InOrder })
}

/// The PTX text of a kernel for devices of one instruction set, made of the tile IR for another that these have, too. Its launch may
/// begin before the launch ahead of it on the stream has ended (programmatic dependent launch): its threads wait for that with
/// `griddepcontrol.wait` before they touch memory. Launched in order it does the same. Where devices have no such
/// instruction the text is that of [`compile`].
///
/// # Errors
///
/// As [`compile`].
pub fn compile_early(kernel: &Kernel, isa: Isa, device: Isa) -> Result<String, CompileError> {
    if device.has_early_launches() {
        compile_with(kernel, isa, Text { device, effort: Effort::Full, start: Start::Early })
    } else {
        compile(kernel, isa)
    }
}

/// Lowers a tile kernel to PTX in about half the time of [`compile`]: LLVM leaves it to whoever assembles the text to find
/// equal instructions and those that can be fused. The text is longer and gives the same results.
///
/// # Errors
///
/// As [`compile`].
pub fn compile_quickly(kernel: &Kernel, isa: Isa) -> Result<String, CompileError> {
    compile_with(kernel, isa, Text { device: isa, effort: Effort::Little, start: Start::InOrder })
}

/// The identity of the compiler from tile IR to PTX: LLVM's version, and a hash of this crate's sources.
pub fn identity() -> String {
    format!("LLVM {}, lowering {}", llvm_version(), env!("OPLUS_LLVM_SOURCES"))
}

/// The version of LLVM, such as `22.1.0`.
pub fn llvm_version() -> String {
    let (major, minor, patch) = inkwell::support::get_llvm_version();
    format!("{major}.{minor}.{patch}")
}

/// How a text is made.
#[derive(Clone, Copy)]
struct Text {
    /// The instruction set of the devices that it is for.
    device: Isa,
    effort: Effort,
    start: Start,
}

fn compile_with(kernel: &Kernel, isa: Isa, text: Text) -> Result<String, CompileError> {
    let target = Target { isa, ..Target::H200 };
    oplus_codegen::verify::verify(kernel, &target).map_err(CompileError::Invalid)?;
    let context = inkwell::context::Context::create();
    let module = lower::lower(&context, kernel, isa, text.start)?;
    backend::ptx(&module, text.device, text.effort)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_identity_names_llvm_and_these_sources() {
        let identity = super::identity();
        assert!(identity.starts_with("LLVM 22."), "{identity}");
        let hash = identity.split(' ').next_back().unwrap();
        assert!(hash.len() == 64 && hash.chars().all(|c| c.is_ascii_hexdigit()), "{identity}");
    }
}

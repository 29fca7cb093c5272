//! LLVM IR to PTX: the target machine, the passes, the text.

use crate::CompileError;
use inkwell::OptimizationLevel;
use inkwell::llvm_sys::support::LLVMParseCommandLineOptions;
use inkwell::module::Module;
use inkwell::passes::PassBuilderOptions;
use inkwell::targets::{CodeModel, FileType, InitializationConfig, RelocMode, Target, TargetMachine, TargetTriple};
use oplus_codegen::target::Isa;
use std::ffi::{CStr, c_char, c_int};
use std::sync::Once;

/// The triple of every kernel.
const TRIPLE: &str = "nvptx64-nvidia-cuda";

/// Registers to values, common subexpressions, empty blocks; and nothing that unrolls, vectorises or moves code:
/// schedules decide that, and what stretches a value's life costs registers that `ptxas` does not have.
const PASSES: &str = "function(mem2reg,early-cse,simplifycfg)";

/// The PTX features each instruction set is written in: the lowest that have what the lowering emits.
fn features(isa: Isa) -> &'static str {
    match isa {
        Isa::Sm80 => "+ptx78",
        Isa::Sm90a => "+ptx80",
    }
}

/// How much LLVM does for short and fast text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    Full,
    Little,
}

/// The PTX of a verified module.
pub(crate) fn ptx(module: &Module<'_>, isa: Isa, effort: Effort) -> Result<String, CompileError> {
    module.verify()?;
    let machine = machine(isa, effort)?;
    module.set_triple(&TargetTriple::create(TRIPLE));
    module.set_data_layout(&machine.get_target_data().get_data_layout());
    module.run_passes(PASSES, &machine, PassBuilderOptions::create())?;
    let text = machine.write_to_memory_buffer(module, FileType::Assembly)?;
    Ok(tidy(&String::from_utf8_lossy(text.as_slice())))
}

/// Initialises the target and sets LLVM's options, both once per process.
fn initialise() {
    static INITIALISED: Once = Once::new();
    INITIALISED.call_once(|| {
        set_options();
        Target::initialize_nvptx(&InitializationConfig::default());
    });
}

/// LLVM's options. `ptxas` does what they turn off, and does it with its registers in mind.
///
/// * Loop strength reduction keeps a pointer per access of an unrolled loop, two registers each, instead of one base.
/// * Hoisting out of loops, and merging of equal instructions, keep what is cheaper to compute again: addresses, and
///   the comparisons of guards and of operators.
const OPTIONS: [&CStr; 3] = [c"-disable-lsr", c"-disable-machine-licm", c"-disable-machine-cse"];

/// Sets [`OPTIONS`], which only a command line can.
#[allow(unsafe_code)]
fn set_options() {
    let arguments: Vec<*const c_char> = [c"oplus"].iter().chain(&OPTIONS).map(|text| text.as_ptr()).collect();
    // SAFETY: `arguments` are so many strings that end with a zero byte and live forever, and LLVM only reads them. The
    // options are global to LLVM: this runs once, before any machine is made.
    unsafe { LLVMParseCommandLineOptions(arguments.len() as c_int, arguments.as_ptr(), c"".as_ptr()) };
}

fn machine(isa: Isa, effort: Effort) -> Result<TargetMachine, CompileError> {
    initialise();
    let target = Target::from_triple(&TargetTriple::create(TRIPLE))?;
    target
        .create_target_machine(
            &TargetTriple::create(TRIPLE),
            isa.name(),
            features(isa),
            match effort {
                Effort::Full => OptimizationLevel::Default,
                Effort::Little => OptimizationLevel::None,
            },
            RelocMode::Default,
            CodeModel::Default,
        )
        .ok_or_else(|| CompileError::Llvm(format!("no NVPTX target machine for {}", isa.name())))
}

/// The text without comments, blank lines and trailing blanks.
fn tidy(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or("").trim_end());
    let lines = lines.filter(|line| !line.trim().is_empty() && line.trim() != "\0");
    lines.map(|line| format!("{}\n", line.trim_end_matches('\0'))).collect()
}

#[cfg(test)]
mod tests {
    use super::tidy;

    #[test]
    fn comments_and_blank_lines_go() {
        assert_eq!(tidy("//\n\n.version 8.0 // x\n\tret;  \n"), ".version 8.0\n\tret;\n");
    }
}

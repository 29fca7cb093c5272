//! The common part of the tests: PTX that `ptxas` accepts, and questions about its text.

use oplus_codegen::target::Isa;
use oplus_codegen::tile::Kernel;
use oplus_llvm::ptxas::{Facts, Ptxas};

/// The PTX of a kernel, which `ptxas` accepts without spills.
pub(crate) fn ptx(kernel: &Kernel, isa: Isa) -> String {
    assembled(kernel, isa).0
}

/// The PTX of a kernel, which `ptxas` accepts without spills, and the assembler's facts.
pub(crate) fn assembled(kernel: &Kernel, isa: Isa) -> (String, Facts) {
    let ptx = oplus_llvm::compile(kernel, isa).unwrap_or_else(|e| panic!("{}: {e}", kernel.name));
    let facts = assembled_from(&ptx, &kernel.name, isa);
    (ptx, facts)
}

/// The assembler's facts of a text.
pub(crate) fn assembled_from(ptx: &str, name: &str, isa: Isa) -> Facts {
    let assembled = Ptxas::find().and_then(|p| p.assemble(ptx, isa));
    assembled.unwrap_or_else(|e| panic!("{name} on {}: {e}\n{ptx}", isa.name())).facts
}

/// How many lines of the text contain `what`.
pub(crate) fn count(ptx: &str, what: &str) -> usize {
    ptx.lines().filter(|line| line.contains(what)).count()
}

/// Fails with the text unless it contains `what`.
#[track_caller]
pub(crate) fn contains(ptx: &str, what: &str) {
    assert!(ptx.contains(what), "no `{what}` in\n{ptx}");
}

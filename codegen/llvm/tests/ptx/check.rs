//! The common part of the tests: PTX that `ptxas` accepts, and questions about its text.

use oplus_codegen::key::Key;
use oplus_codegen::target::Isa;
use oplus_codegen::tile::Kernel;
use oplus_llvm::ptxas::{Facts, Ptxas};
use std::collections::BTreeSet;
use std::sync::Mutex;

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

/// Compiles the kernel of a key for its instruction set and assembles it for a device, unless another test of this process does, which fails
/// in its place. Kernels of several programs have the same text but for their names.
pub(crate) fn assemble_once(key: Key, own: Isa, device: Isa, kernel: impl FnOnce() -> Kernel) {
    static COMPILED: Mutex<BTreeSet<(Key, Isa)>> = Mutex::new(BTreeSet::new());
    static ASSEMBLED: Mutex<BTreeSet<(String, Isa)>> = Mutex::new(BTreeSet::new());
    if !COMPILED.lock().expect("no panic").insert((key, device)) {
        return;
    }
    let kernel = kernel();
    let text = oplus_llvm::compile(&kernel, own).unwrap_or_else(|e| panic!("{}: {e}", kernel.name));
    let nameless = text.replace(&kernel.name, "kernel");
    if ASSEMBLED.lock().expect("no panic").insert((nameless, device)) {
        assembled_from(&text, &kernel.name, device);
    }
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

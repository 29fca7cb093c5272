//! Says what to install when LLVM 22 is missing, before the linker or `llvm-sys` say it in their words.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    println!("cargo:rerun-if-env-changed=LLVM_SYS_221_PREFIX");
    let prefix = std::env::var("LLVM_SYS_221_PREFIX").unwrap_or_default();
    let bin = Path::new(&prefix).join("bin");
    if prefix.is_empty() || ["llvm-config", "llvm-config-22"].iter().any(|name| bin.join(name).exists()) {
        return ExitCode::SUCCESS;
    }
    println!("cargo::error=oplus-llvm needs LLVM 22, and `{}` has no llvm-config", bin.display());
    println!(
        "cargo::error=  apt-get install llvm-22-dev libpolly-22-dev zlib1g-dev libzstd-dev  (see https://apt.llvm.org)"
    );
    println!(
        "cargo::error=  or set LLVM_SYS_221_PREFIX to where it is installed; the CPU and committed kernels need none"
    );
    ExitCode::FAILURE
}

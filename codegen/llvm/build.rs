//! Says what to install when LLVM 22 is missing, before the linker or `llvm-sys` say it in their words, and tells the crate the
//! hash of its own sources, by which caches know that its code is of another version.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    println!("cargo:rerun-if-env-changed=LLVM_SYS_221_PREFIX");
    println!("cargo:rerun-if-changed=src");
    match hash_of_sources() {
        Ok(hash) => println!("cargo:rustc-env=OPLUS_LLVM_SOURCES={hash}"),
        Err(error) => {
            println!("cargo::error=the sources of oplus-llvm cannot be read: {error}");
            return ExitCode::FAILURE;
        }
    }
    if cfg!(feature = "docs") {
        return ExitCode::SUCCESS;
    }
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

/// The hash of all sources, in the order of their names. A build script runs in the folder of its crate.
fn hash_of_sources() -> std::io::Result<blake3::Hash> {
    let mut files = vec![];
    collect(Path::new("src"), &mut files)?;
    files.sort();
    let mut hasher = blake3::Hasher::new();
    for file in files {
        let contents = std::fs::read(&file)?;
        let names: Vec<_> = file.iter().map(|part| part.to_string_lossy()).collect();
        hasher.update(format!("{} {}\n", names.join("/"), contents.len()).as_bytes());
        hasher.update(&contents);
    }
    Ok(hasher.finalize())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

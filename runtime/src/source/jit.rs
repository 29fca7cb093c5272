//! The compiler inside the program.

use std::sync::{Arc, OnceLock};

use oplus_codegen::lower::{lower, stand_in};

use super::{Code, Compile, DiskCache, Isa, KernelSource, Launch, cache_folder};
use crate::Error;

/// LLVM.
struct Llvm;

impl Compile for Llvm {
    fn compile(&self, launch: &Launch, isa: Isa) -> Result<Code, Error> {
        let kernel = lower(&launch.stage, &launch.schedule, isa).map_err(|e| failed(launch, &e))?;
        oplus_llvm::compile(&kernel, isa).map(Code::from).map_err(|e| failed(launch, &e))
    }

    fn stand_in(&self, launch: &Launch, isa: Isa) -> Result<Option<Code>, Error> {
        let kernel = stand_in(&launch.stage, &launch.schedule, isa).map_err(|e| failed(launch, &e))?;
        let text = kernel.map(|kernel| oplus_llvm::compile_quickly(&kernel, isa)).transpose();
        Ok(text.map_err(|e| failed(launch, &e))?.map(Code::from))
    }
}

fn failed(launch: &Launch, reason: &dyn std::error::Error) -> Error {
    Error::Compile { key: launch.key.to_string(), reason: reason.to_string() }
}

/// The compiler behind the user's cache.
pub(super) fn compiler() -> Arc<dyn KernelSource> {
    static COMPILER: OnceLock<Arc<DiskCache<Llvm>>> = OnceLock::new();
    COMPILER.get_or_init(|| Arc::new(DiskCache::new(cache_folder(), Llvm))).clone()
}

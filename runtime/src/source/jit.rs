//! The compiler inside the program.

use std::sync::{Arc, OnceLock};

use oplus_codegen::schedules::{lower, lower_fast_tier};

use super::{Code, Compile, DiskCache, Isa, KernelSource, Launch, cache_folder, cache_size};
use crate::Error;

/// LLVM.
struct Llvm;

impl Compile for Llvm {
    fn compile(&self, launch: &Launch, isa: Isa) -> Result<Code, Error> {
        let kernel = lower(&launch.stage, &launch.schedule, isa).map_err(|e| failed(launch, &e))?;
        oplus_llvm::compile_early(&kernel, isa, launch.device).map(Code::from).map_err(|e| failed(launch, &e))
    }

    fn identity(&self) -> String {
        oplus_llvm::identity()
    }

    fn fast_tier(&self, launch: &Launch, isa: Isa) -> Result<Option<Code>, Error> {
        let kernel = lower_fast_tier(&launch.stage, &launch.schedule, isa).map_err(|e| failed(launch, &e))?;
        let text = kernel.map(|kernel| oplus_llvm::compile_quickly(&kernel, isa)).transpose();
        Ok(text.map_err(|e| failed(launch, &e))?.map(Code::from))
    }
}

fn failed(launch: &Launch, reason: &dyn std::error::Error) -> Error {
    Error::Compile { key: launch.key.to_string(), reason: reason.to_string() }
}

/// A compiler whose settings make no sense: it says so whenever it is asked.
struct Misconfigured(Error);

impl KernelSource for Misconfigured {
    fn find(&self, _: &Launch, _: Isa) -> Result<Option<Code>, Error> {
        Err(self.0.clone())
    }
}

/// The compiler behind the user's cache.
pub(super) fn compiler() -> Arc<dyn KernelSource> {
    static COMPILER: OnceLock<Arc<dyn KernelSource>> = OnceLock::new();
    let make = || -> Arc<dyn KernelSource> {
        match cache_size() {
            Ok(bytes) => Arc::new(DiskCache::new(cache_folder(), Llvm).with_size(bytes)),
            Err(error) => Arc::new(Misconfigured(error)),
        }
    };
    COMPILER.get_or_init(make).clone()
}

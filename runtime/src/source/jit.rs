//! The compiler inside the program.

use std::sync::{Arc, OnceLock};

use super::{Code, Compile, DiskCache, Isa, KernelSource, Launch, cache_folder};
use crate::Error;

/// LLVM.
struct Llvm;

impl Compile for Llvm {
    fn compile(&self, launch: &Launch, isa: Isa) -> Result<Code, Error> {
        let failed = |reason: String| Error::Compile { key: launch.key.to_string(), reason };
        let kernel =
            oplus_codegen::lower::lower(&launch.stage, &launch.schedule, isa).map_err(|e| failed(e.to_string()))?;
        let text = oplus_llvm::compile(&kernel, isa).map_err(|e| failed(e.to_string()))?;
        Ok(text.into())
    }
}

/// The compiler behind the user's cache.
pub(super) fn compiler() -> Arc<dyn KernelSource> {
    static COMPILER: OnceLock<Arc<DiskCache<Llvm>>> = OnceLock::new();
    COMPILER.get_or_init(|| Arc::new(DiskCache::new(cache_folder(), Llvm))).clone()
}

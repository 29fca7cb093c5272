//! The native half of the Python package `oplus`: kernels from text, called on tensors of other libraries through DLPack.
//!
//! Python sees of it `_native.pyi`; the Python layer beside it knows NumPy, PyTorch and JAX.

mod allocator;
mod arguments;
mod call;
mod compile;
mod elements;
mod errors;
mod explain;
mod import;
mod kernel;
mod modes;
mod torch;

use pyo3::prelude::*;

/// The native module.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::allocator::use_allocator;
    #[pymodule_export]
    use super::arguments::TensorType;
    #[pymodule_export]
    use super::call::Saved;
    #[pymodule_export]
    use super::compile::{compile, standard};
    #[pymodule_export]
    use super::errors::Error;
    #[pymodule_export]
    use super::explain::{Explanation, Part};
    #[pymodule_export]
    use super::import::synchronize;
    #[pymodule_export]
    use super::kernel::Kernel;
    #[pymodule_export]
    use super::modes::{Ordered, is_ordered};
    #[pymodule_export]
    use super::torch::Torch;

    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("COMPILES", cfg!(feature = "jit"))?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

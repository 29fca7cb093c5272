//! Recurrences as equations: associative scans with derived gradients on GPU and CPU.

mod bind;
mod call;
mod construct;
#[cfg(test)]
#[allow(clippy::all, dropping_copy_types, dead_code, reason = "not yet called: see the module")]
mod cpu;
mod cuda;
mod device;
mod element;
mod error;
mod execute;
pub mod explain;
mod gradient;
mod host;
mod interpreted;
mod kernel;
mod layout;
mod shapes;
pub mod source;
mod tensor;
mod transfer;

pub use call::Call;
pub use cuda::CudaDevice;
pub use device::Device;
pub use element::Element;
pub use error::Error;
pub use explain::Explanation;
pub use kernel::Kernel;
pub use oplus_codegen::target::Target;
pub use oplus_dsl::Elem;
pub use oplus_macros::scan;
pub use shapes::Shapes;
pub use tensor::Tensor;

// `scan!` names this crate `oplus` also where it is this crate.
extern crate self as oplus;

oplus_macros::standard! {}

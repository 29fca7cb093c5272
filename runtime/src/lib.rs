//! Recurrences as equations: associative scans with derived gradients on GPU and CPU.

mod bind;
mod construct;
mod cuda;
mod device;
mod element;
mod error;
mod layout;
mod source;
mod tensor;

pub use cuda::CudaDevice;
pub use device::Device;
pub use element::Element;
pub use error::Error;
pub use oplus_dsl::Elem;
pub use tensor::Tensor;

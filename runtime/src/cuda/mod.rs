//! The GPU: contexts, streams, memory, modules and launches, on top of the driver API.
//!
//! The driver is loaded when it is first asked for. A machine without it, or without a GPU, gets [`Error::NoCuda`] and
//! never a panic; it is looked for again at the next call. The caller's contexts and streams are used as they are; nothing here waits for the GPU except copies
//! to the host.

#![allow(unsafe_code)]
#![cfg_attr(not(feature = "gpu"), allow(unreachable_code, unused_variables, reason = "no device can exist"))]

mod allocate;
mod allocation;
mod background;
mod capture;
mod constants;
mod context;
mod driver;
mod early;
mod launch;
mod linked;
mod memory;
mod module;
mod nccl;
mod peek;
mod pool;
mod scratch;
mod sharing;
mod stream;

use cudarc::driver::{DriverError, result, sys};

pub use allocate::{Allocate, Allocated};
pub(crate) use context::Context;
pub(crate) use launch::{Pointers, Prepared};
pub(crate) use memory::{DeviceMemory, UPLOAD, hold};
pub(crate) use nccl::{Exchange, Nccl, Place, Transfer, unique_id};
pub(crate) use sharing::Access;
pub use stream::CudaDevice;

/// How many GPUs there are; 0 without a driver.
pub(crate) fn device_count() -> usize {
    let driver = linked::linked().and_then(|_| driver::driver());
    driver.ok().and_then(|_| result::device::get_count().ok()).map_or(0, |n| n as usize)
}

/// The driver's name of an error.
fn name(error: DriverError) -> String {
    error.error_name().map_or_else(|_| format!("error {}", error.0 as u32), |name| name.to_string_lossy().into_owned())
}

/// Whether an error makes its context unusable for good.
fn is_sticky(error: DriverError) -> bool {
    use sys::CUresult as E;
    matches!(
        error.0,
        E::CUDA_ERROR_ILLEGAL_ADDRESS
            | E::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | E::CUDA_ERROR_MISALIGNED_ADDRESS
            | E::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | E::CUDA_ERROR_INVALID_PC
            | E::CUDA_ERROR_HARDWARE_STACK_ERROR
            | E::CUDA_ERROR_LAUNCH_FAILED
            | E::CUDA_ERROR_LAUNCH_TIMEOUT
            | E::CUDA_ERROR_ASSERT
            | E::CUDA_ERROR_ECC_UNCORRECTABLE
            | E::CUDA_ERROR_NVLINK_UNCORRECTABLE
            | E::CUDA_ERROR_EXTERNAL_DEVICE
            | E::CUDA_ERROR_CONTEXT_IS_DESTROYED
    )
}

//! The GPU: contexts, streams, memory, modules and launches, on top of the driver API.
//!
//! The driver is loaded when it is first asked for. A machine without it, or without a GPU, gets [`Error::NoCuda`] and
//! never a panic. The caller's contexts and streams are used as they are; nothing here waits for the GPU except copies
//! to the host.

#![allow(unsafe_code)]

mod background;
mod constants;
mod context;
mod launch;
mod memory;
mod module;
mod peek;
mod scratch;
mod stream;

use std::sync::OnceLock;

use cudarc::driver::{DriverError, result, sys};

use crate::Error;

pub(crate) use context::Context;
pub(crate) use launch::{Pointers, Prepared};
pub(crate) use memory::DeviceMemory;
pub use stream::CudaDevice;

/// The oldest driver whose interface is used and that accepts PTX 7.8, as `cuDriverGetVersion` gives it.
const OLDEST_DRIVER: i32 = 11_080;

/// Loads and initialises the driver, once.
pub(crate) fn driver() -> Result<(), Error> {
    static DRIVER: OnceLock<Result<(), Error>> = OnceLock::new();
    DRIVER.get_or_init(load_driver).clone()
}

fn load_driver() -> Result<(), Error> {
    let no_cuda = |reason: String| Error::NoCuda { reason };
    // SAFETY: loads the driver library, whose initialisers have no preconditions.
    if !unsafe { sys::is_culib_present() } {
        return Err(no_cuda("the driver library (libcuda) is not installed".into()));
    }
    result::init().map_err(|e| no_cuda(name(e)))?;
    let mut version = 0;
    // SAFETY: writes one integer.
    unsafe { sys::cuDriverGetVersion(&mut version) }.result().map_err(|e| no_cuda(name(e)))?;
    if version < OLDEST_DRIVER {
        let shown = |v: i32| format!("{}.{}", v / 1000, v % 1000 / 10);
        return Err(no_cuda(format!(
            "the driver supports CUDA {}; {} or newer is needed",
            shown(version),
            shown(OLDEST_DRIVER)
        )));
    }
    Ok(())
}

/// How many GPUs there are; 0 without a driver.
pub(crate) fn device_count() -> usize {
    driver().ok().and_then(|()| result::device::get_count().ok()).map_or(0, |n| n as usize)
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

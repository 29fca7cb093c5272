//! Finding and initialising the driver, at run time.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::ffi::c_int;
use std::sync::OnceLock;

use cudarc::driver::{DriverError, result, sys};
use libloading::Library;

use super::early::LaunchWith;
use super::name;
use crate::Error;

/// The driver's library.
pub(super) struct Driver {
    /// `cuStreamGetCaptureInfo` as every driver since CUDA 11.3 has it. Bindings for newer ones have only its successors,
    /// which older drivers lack.
    pub(super) capture_info: CaptureInfo,
    /// `cuLaunchKernelEx`, of drivers that also put early launches into graphs.
    pub(super) launch_with: Option<LaunchWith>,
    _library: Library,
}

/// Writes the status of a stream's capture, its number and its graph; null pointers ask for nothing.
pub(super) type CaptureInfo = unsafe extern "C" fn(
    stream: sys::CUstream,
    status: *mut sys::CUstreamCaptureStatus,
    id: *mut u64,
    graph: *mut sys::CUgraph,
    dependencies: *mut *const sys::CUgraphNode,
    count: *mut usize,
) -> sys::CUresult;

/// The oldest driver that puts early launches into graphs (CUDA 12.3).
const EARLY_LAUNCHES: c_int = 12_030;

/// The oldest driver whose interface is used and that accepts PTX 7.8, as `cuDriverGetVersion` gives it.
const OLDEST_DRIVER: c_int = 11_080;

/// The functions that this crate needs. `cudarc` panics where one is missing that is called.
const FUNCTIONS: &[&str] = &[
    "cuInit",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuDeviceGet",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxDestroy_v2",
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
    "cuStreamWaitEvent",
    "cuStreamIsCapturing",
    "cuStreamGetCaptureInfo_v2",
    "cuThreadExchangeStreamCaptureMode",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventRecord",
    "cuEventQuery",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemFreeAsync",
    "cuMemAllocFromPoolAsync",
    "cuMemPoolCreate",
    "cuMemPoolDestroy",
    "cuMemPoolSetAttribute",
    "cuMemPoolTrimTo",
    "cuMemsetD8Async",
    "cuMemsetD32Async",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuModuleGetFunction",
    "cuFuncGetAttribute",
    "cuFuncSetAttribute",
    "cuLaunchKernel",
    "cuLaunchCooperativeKernel",
    "cuUserObjectCreate",
    "cuUserObjectRelease",
    "cuGraphRetainUserObject",
];

/// The driver, loaded and initialised. What has failed is tried again at the next call.
pub(super) fn driver() -> Result<&'static Driver, Error> {
    static DRIVER: OnceLock<Driver> = OnceLock::new();
    match DRIVER.get() {
        Some(driver) => Ok(driver),
        None => load().map(|driver| DRIVER.get_or_init(|| driver)),
    }
}

fn load() -> Result<Driver, Error> {
    let no_cuda = |reason: String| Error::NoCuda { reason, source: None };
    let refused = |e: DriverError| Error::NoCuda { reason: name(e), source: Some(e) };
    // In the order in which `cudarc` looks for it, so that both find the same.
    let names = ["cuda", "nvcuda"].map(|name| format!("{DLL_PREFIX}{name}{DLL_SUFFIX}"));
    let versioned = format!("{}.1", names[0]);
    let [first, last] = names;
    // SAFETY: the initialisers of the driver library have no preconditions.
    let library = [first, versioned, last].iter().find_map(|name| unsafe { Library::new(name) }.ok());
    let Some(library) = library else { return Err(no_cuda("the driver library (libcuda) is not installed".into())) };
    for function in FUNCTIONS {
        // SAFETY: the address is only looked up.
        if unsafe { library.get::<unsafe extern "C" fn()>(*function) }.is_err() {
            return Err(no_cuda(format!("the driver library (libcuda) has no function `{function}`")));
        }
    }
    // SAFETY: this is how the driver declares the function.
    let capture_info =
        *unsafe { library.get::<CaptureInfo>("cuStreamGetCaptureInfo_v2") }.map_err(|e| no_cuda(e.to_string()))?;
    result::init().map_err(refused)?;
    let mut version = 0;
    // SAFETY: writes one integer.
    unsafe { sys::cuDriverGetVersion(&mut version) }.result().map_err(refused)?;
    if version < OLDEST_DRIVER {
        let shown = |v: c_int| format!("{}.{}", v / 1000, v % 1000 / 10);
        let (found, needed) = (shown(version), shown(OLDEST_DRIVER));
        return Err(no_cuda(format!("the driver supports CUDA {found}; {needed} or newer is needed")));
    }
    // SAFETY: this is how the driver declares the function.
    let launch_with = unsafe { library.get::<LaunchWith>("cuLaunchKernelEx") }.ok().map(|function| *function);
    let launch_with = launch_with.filter(|_| version >= EARLY_LAUNCHES);
    Ok(Driver { capture_info, launch_with, _library: library })
}

//! Launches that may begin before the launch ahead of them on the stream has ended (programmatic dependent launch): what it
//! takes to begin them is then done by the time it ends.
//!
//! Only kernels that wait for the launch ahead before they touch memory are launched so, and only behind a launch of the same
//! call. A kernel's end means that all launches ahead of it have ended, for each waits for the one ahead of it.

use std::ffi::{c_int, c_uint, c_void};

use cudarc::driver::sys;

/// `cuLaunchKernelEx`. The declarations of this module are those of the driver's header; bindings for old drivers lack them.
pub(super) type LaunchWith = unsafe extern "C" fn(
    config: *const Config,
    function: sys::CUfunction,
    args: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> sys::CUresult;

/// `CUlaunchConfig`.
#[repr(C)]
pub(super) struct Config {
    pub(super) grid: [c_uint; 3],
    pub(super) block: [c_uint; 3],
    pub(super) shared_bytes: c_uint,
    pub(super) stream: sys::CUstream,
    pub(super) attributes: *const Attribute,
    pub(super) attribute_count: c_uint,
}

/// `CUlaunchAttribute`: its number, and a value of 64 bytes.
#[repr(C)]
pub(super) struct Attribute {
    id: c_int,
    _unused: c_int,
    value: [u64; 8],
}

/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`.
const PROGRAMMATIC_STREAM_SERIALIZATION: c_int = 6;

/// Lets a launch begin early.
pub(super) static EARLY: Attribute =
    Attribute { id: PROGRAMMATIC_STREAM_SERIALIZATION, _unused: 0, value: [1, 0, 0, 0, 0, 0, 0, 0] };

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    #[test]
    fn the_declarations_have_the_sizes_of_the_drivers_header() {
        assert_eq!(
            (size_of::<Config>(), offset_of!(Config, stream), offset_of!(Config, attribute_count)),
            (56, 32, 48)
        );
        assert_eq!((size_of::<Attribute>(), offset_of!(Attribute, value)), (72, 8));
    }
}

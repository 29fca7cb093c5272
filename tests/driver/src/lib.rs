//! A CUDA driver without a GPU. It has the C interface of `libcuda`, runs no kernel, and checks the order of everything
//! that it is asked to do.
//!
//! Memory of the device is memory of the host. Copies and fills move bytes at once; a kernel does nothing, but counts as
//! a use of every allocation that its arguments point to, a write where its PTX stores through the argument. Every stream
//! has a vector clock. An operation must come after the allocation of what it uses, before its free, and after every
//! operation that it conflicts with; what does not is a finding. So is a capture that a call makes invalid, a free of what
//! is already free, and whatever is left when the report is asked for.
//!
//! | variable | meaning |
//! |---|---|
//! | `OPLUS_TEST_DRIVER_FAIL` | the number of the call that fails, from 1 on |
//! | `OPLUS_TEST_DRIVER_ERROR` | its error, as the driver numbers errors; 700 makes the context unusable |
//! | `OPLUS_TEST_DRIVER_POOLS` | 0 for a device without memory pools |
//! | `OPLUS_TEST_NCCL_FAIL` | the function of NCCL that fails |
//! | `OPLUS_TEST_NCCL_VERSION` | NCCL's version, as it numbers versions |
//!
//! The library is an NCCL as well, whose ranks are threads of one process.

#![allow(unsafe_code, reason = "a C interface takes and gives raw pointers")]
#![allow(non_snake_case, reason = "the functions have the names of the driver's")]

mod api;
mod capture;
mod clock;
mod graph;
mod memory;
mod nccl;
mod ptx;
mod state;
mod work;

/// A result of the driver: 0, or the number of an error.
type Code = u32;

/// The driver's numbers of errors.
mod error {
    use super::Code;

    pub(crate) const INVALID_VALUE: Code = 1;
    pub(crate) const OUT_OF_MEMORY: Code = 2;
    pub(crate) const INVALID_DEVICE: Code = 101;
    pub(crate) const INVALID_CONTEXT: Code = 201;
    pub(crate) const NO_BINARY_FOR_GPU: Code = 209;
    pub(crate) const INVALID_PTX: Code = 218;
    pub(crate) const INVALID_HANDLE: Code = 400;
    pub(crate) const NOT_FOUND: Code = 500;
    pub(crate) const ILLEGAL_ADDRESS: Code = 700;
    pub(crate) const CAPTURE_UNSUPPORTED: Code = 900;
    pub(crate) const CAPTURE_INVALIDATED: Code = 901;
    pub(crate) const CAPTURE_MERGE: Code = 902;
    pub(crate) const CAPTURE_UNJOINED: Code = 904;
    pub(crate) const CAPTURE_ISOLATION: Code = 905;
    pub(crate) const UNKNOWN: Code = 999;
}

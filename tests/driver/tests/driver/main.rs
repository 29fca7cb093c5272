//! The runtime on a driver that runs no kernel but checks the order of everything, and fails at any call that it is told
//! to.
//!
//! Every scenario runs in a process of its own, which finds that driver where it looks for the system's: once as it is,
//! and once for every call of the driver that it makes, which then fails. However it ends, nothing may be used or freed
//! out of order, nothing may be lost, and what fails says so by a typed error.

#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "the driver is asked for its report by functions of its own")]

mod absence;
mod allocators;
mod captures;
mod faults;
mod harness;
mod launches;
mod memory;
mod ranks;
mod scenario;
mod streams;

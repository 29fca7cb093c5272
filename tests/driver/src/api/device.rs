//! Devices and contexts.

use std::ffi::{CStr, c_char, c_void};

use super::{driver, put};
use crate::error;
use crate::state::{CURRENT, Context, State};

/// The version of the interface.
const VERSION: i32 = 12_080;
const NAME: &CStr = c"Test GPU";

driver! {
    cuInit(_flags: u32) |state| { let _ = state; }
    cuDriverGetVersion(version: *mut i32) |state| { let _ = state; put(version, VERSION) }
    cuDeviceGetCount(count: *mut i32) |state| { let _ = state; put(count, 1) }
    cuDeviceGet(device: *mut i32, ordinal: i32) |state| {
        let _ = state;
        if ordinal != 0 { return Err(error::INVALID_DEVICE) }
        put(device, 0)
    }
    cuDeviceGetName(name: *mut c_char, len: i32, _device: i32) |state| {
        let _ = state;
        let bytes = NAME.to_bytes_with_nul().iter().take(len as usize);
        bytes.enumerate().for_each(|(k, byte)| put(name.wrapping_add(k), *byte as c_char))
    }
    cuDeviceTotalMem_v2(bytes: *mut usize, _device: i32) |state| { let _ = state; put(bytes, 1 << 30) }
    cuDeviceGetAttribute(value: *mut i32, attribute: i32, _device: i32) |state| {
        let _ = state;
        put(value, device_attribute(attribute))
    }
    cuDevicePrimaryCtxRetain(context: *mut u64, _device: i32) |state| {
        let known = state.contexts.iter().find(|(_, context)| context.primary).map(|(handle, _)| *handle);
        let handle = known.unwrap_or_else(|| state.handle());
        state.contexts.entry(handle).or_insert(Context { primary: true, references: 0 }).references += 1;
        put(context, handle)
    }
    cuDevicePrimaryCtxRelease_v2(_device: i32) |state| {
        let known = state.contexts.iter_mut().find(|(_, context)| context.primary);
        let Some((handle, context)) = known else {
            state.find("the primary context is released once too often".into());
            return Err(error::INVALID_CONTEXT)
        };
        let handle = *handle;
        context.references -= 1;
        if context.references == 0 {
            state.end_context(handle);
        }
    }
    cuCtxCreate_v3(context: *mut u64, _params: *const c_void, _count: i32, _flags: u32, _device: i32) |state| {
        put(context, state.new_context())
    }
    cuCtxCreate_v4(context: *mut u64, _params: *const c_void, _flags: u32, _device: i32) |state| {
        put(context, state.new_context())
    }
    cuCtxDestroy_v2(context: u64) [context] |state| { state.end_context(context) }
    cuCtxGetCurrent(context: *mut u64) |state| { let _ = state; put(context, CURRENT.get()) }
    cuCtxSetCurrent(context: u64) |state| {
        if context != 0 && !state.contexts.contains_key(&context) {
            state.find(format!("there is no context {context:#x}"));
            return Err(error::INVALID_CONTEXT)
        }
        CURRENT.set(context)
    }
    cuCtxSynchronize() |state| {
        state.current()?;
        state.unsafe_call()?;
        let keys: Vec<u64> = state.streams.keys().copied().collect();
        keys.into_iter().for_each(|key| if let Some(stream) = state.streams.get(&key) { state.host.join(&stream.clock) })
    }
}

/// The facts of a GPU of compute capability 8.0, or of 9.0 where the environment says so.
fn device_attribute(attribute: i32) -> i32 {
    const MULTIPROCESSOR_COUNT: i32 = 16;
    const COMPUTE_CAPABILITY_MAJOR: i32 = 75;
    const COMPUTE_CAPABILITY_MINOR: i32 = 76;
    const MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: i32 = 97;
    const MEMORY_POOLS_SUPPORTED: i32 = 115;
    let is_hopper = std::env::var("OPLUS_TEST_DRIVER_CAPABILITY").as_deref() == Ok("9.0");
    let (multiprocessors, major, shared) = if is_hopper { (132, 9, 232_448) } else { (108, 8, 166_912) };
    match attribute {
        MULTIPROCESSOR_COUNT => multiprocessors,
        COMPUTE_CAPABILITY_MAJOR => major,
        COMPUTE_CAPABILITY_MINOR => 0,
        MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => shared,
        MEMORY_POOLS_SUPPORTED => i32::from(std::env::var("OPLUS_TEST_DRIVER_POOLS").as_deref() != Ok("0")),
        _ => 1,
    }
}

impl State {
    fn new_context(&mut self) -> u64 {
        let handle = self.handle();
        self.contexts.insert(handle, Context { primary: false, references: 1 });
        CURRENT.set(handle);
        handle
    }

    /// Everything of a context goes with it.
    fn end_context(&mut self, handle: u64) {
        if self.contexts.remove(&handle).is_none() {
            self.find(format!("context {handle:#x} is destroyed once too often"));
        }
        if CURRENT.get() == handle {
            CURRENT.set(0);
        }
    }
}

//! Memory, copies and fills.

use std::ffi::c_void;

use super::{driver, put};
use crate::memory::Kind;
use crate::state::State;
use crate::work::Work;
use crate::{Code, error};

driver! {
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize) |state| {
        state.current()?;
        let live: usize = state.allocations.values().filter(|a| a.is_live()).map(|a| a.bytes).sum();
        put(free, (1 << 30) - live);
        put(total, 1 << 30)
    }
    cuMemAlloc_v2(address: *mut u64, bytes: usize) |state| {
        state.current()?;
        state.unsafe_call()?;
        put(address, state.allocate(bytes, Kind::Plain, None)?)
    }
    cuMemFree_v2(address: u64) [address] |state| {
        state.current()?;
        state.unsafe_call()?;
        let host = state.host.clone();
        state.free(address, &host)?
    }
    cuMemAllocAsync(address: *mut u64, bytes: usize, stream: u64) |state| {
        put(address, state.allocate_on(stream, bytes)?)
    }
    cuMemAllocFromPoolAsync(address: *mut u64, bytes: usize, pool: u64, stream: u64) |state| {
        if !state.pools.contains_key(&pool) {
            state.find(format!("there is no pool {pool:#x}"));
            return Err(error::INVALID_HANDLE)
        }
        put(address, state.allocate_on(stream, bytes)?)
    }
    cuMemFreeAsync(address: u64, stream: u64) [address] |state| { state.free_on(stream, address)? }
    cuMemPoolCreate(pool: *mut u64, _properties: *const c_void) |state| {
        let handle = state.handle();
        state.pools.insert(handle, 0);
        put(pool, handle)
    }
    cuMemPoolDestroy(pool: u64) [pool] |state| {
        if state.pools.remove(&pool).is_none() {
            state.find(format!("pool {pool:#x} is destroyed once too often"));
        }
    }
    cuMemPoolSetAttribute(_pool: u64, _attribute: i32, _value: *const c_void) |state| { let _ = state; }
    cuMemPoolTrimTo(_pool: u64, _bytes: usize) |state| { let _ = state; }
    cuMemsetD8Async(address: u64, value: u8, count: usize, stream: u64) |state| {
        state.submit(stream, Work::fill(address, &[value], count))?
    }
    cuMemsetD32Async(address: u64, value: u32, count: usize, stream: u64) |state| {
        state.submit(stream, Work::fill(address, &value.to_ne_bytes(), count))?
    }
    cuMemcpyHtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: u64) |state| {
        state.host_copy(stream, "reads", Work::copy((from, to), (false, true), bytes))?
    }
    cuMemcpyDtoHAsync_v2(to: u64, from: u64, bytes: usize, stream: u64) |state| {
        state.host_copy(stream, "writes", Work::copy((from, to), (true, false), bytes))?
    }
    cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: u64) |state| {
        state.submit(stream, Work::copy((from, to), (true, true), bytes))?
    }
}

impl State {
    /// A copy with memory of the host, which a graph would use at every launch, long after the call.
    fn host_copy(&mut self, stream: u64, does: &str, work: Work) -> Result<(), Code> {
        if self.stream(stream)?.capture.is_some() {
            self.find(format!("a graph {does} memory of the host that it does not keep"));
        }
        self.submit(stream, work)
    }
}

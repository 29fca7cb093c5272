//! Constants on a GPU: default values of parameters, each set once per stream.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use cudarc::driver::sys;

use super::allocation::Allocation;
use super::memory::DeviceMemory;
use super::stream::{CudaDevice, Stream};
use crate::Error;

/// Single elements by their bytes.
pub(super) type Constants = HashMap<Box<[u8]>, Arc<Allocation>>;

impl CudaDevice {
    /// Memory with the bytes of one element, at most eight. It is kept for later calls on the stream; while a graph is
    /// being captured it is the graph's own.
    pub(crate) fn constant(&self, bytes: &[u8]) -> Result<DeviceMemory, Error> {
        let stream = &*self.0;
        stream.context.bind()?;
        if stream.is_capturing()? {
            return Ok(self.hold(Arc::new(stream.element(bytes)?), bytes));
        }
        let mut known = stream.constants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(allocation) = known.get(bytes) {
            return Ok(self.hold(allocation.clone(), bytes));
        }
        let allocation = Arc::new(stream.element(bytes)?);
        known.insert(bytes.into(), allocation.clone());
        Ok(self.hold(allocation, bytes))
    }

    fn hold(&self, allocation: Arc<Allocation>, bytes: &[u8]) -> DeviceMemory {
        DeviceMemory::allocated(self, bytes.len(), allocation)
    }
}

impl Stream {
    /// New memory that is set in the order of the stream, without reading the host's memory: a graph would read it again.
    fn element(&self, bytes: &[u8]) -> Result<Allocation, Error> {
        let allocation = self.allocate_own(bytes.len())?;
        let (words, rest) = bytes.as_chunks::<4>();
        let end = allocation.address + 4 * words.len() as u64;
        for (k, word) in (0..).zip(words) {
            let (at, word) = (allocation.address + 4 * k, u32::from_ne_bytes(*word));
            // SAFETY: the word lies in the allocation, which belongs to the stream.
            let set = unsafe { sys::cuMemsetD32Async(at, word, 1, self.raw.cu_stream()) };
            self.context.check("cuMemsetD32Async", set)?;
        }
        for (at, byte) in (end..).zip(rest) {
            // SAFETY: as above.
            let set = unsafe { sys::cuMemsetD8Async(at, *byte, 1, self.raw.cu_stream()) };
            self.context.check("cuMemsetD8Async", set)?;
        }
        Ok(allocation)
    }
}

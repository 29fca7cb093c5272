//! Message and control words of look-back kernels: one region per stream, set up once.
//!
//! A region starts with the control words `{0, 1}` (ticket counter and tag of the launch) and zeroed message words. The
//! last block of a launch resets the counter and raises the tag, so launches that follow each other on a stream share a
//! region without anything being cleared between them. Launches that may run at the same time must not share one: every
//! stream has its own, and so has every captured graph, which keeps it alive: a graph's launches must follow each other.

use std::sync::{Arc, PoisonError, Weak};

use cudarc::driver::{CudaContext, DriverError, result, sys};

use super::allocation::{Allocation, defer, retry};
use super::capture::relaxed;
use super::stream::Stream;
use crate::Error;

/// The scratch of a stream.
#[derive(Default)]
pub(super) struct Scratch {
    region: Option<Arc<Region>>,
    tags: Tags,
    /// The region of the graph that is being captured, and the capture's number.
    captured: Option<(u64, Weak<Region>)>,
}

/// Control words, then message words.
pub(crate) struct Region {
    memory: Allocation,
    words: u64,
}

/// Bytes kept for the control words, so that the message words start at a cache line.
const CONTROL_BYTES: usize = 128;
/// The least number of message words in a region.
const MIN_WORDS: u64 = 1 << 13;
/// A region is replaced before its 32-bit tags can come round to a value that old words still carry. A graph writes the
/// words that it reads at every launch, so that none of its words is old.
const MAX_LAUNCHES: u64 = 1 << 31;

/// The tags that launches have used up of a region's.
#[derive(Default)]
struct Tags(u64);

impl Tags {
    /// Whether that many launches may follow; if so, they count.
    fn take(&mut self, launches: u64) -> bool {
        let enough = launches <= MAX_LAUNCHES - self.0;
        self.0 += if enough { launches } else { 0 };
        enough
    }
}

impl Scratch {
    /// The region, if it has that many message words and that many launches are left to it.
    fn take(&mut self, words: u64, launches: u64) -> Option<Arc<Region>> {
        let region = self.region.clone().filter(|region| region.words >= words)?;
        self.tags.take(launches).then_some(region)
    }
}

impl Region {
    /// Address of the control words.
    pub(super) fn control(&self) -> u64 {
        self.memory.address
    }

    /// Address of the message words.
    pub(super) fn messages(&self) -> u64 {
        self.memory.address + CONTROL_BYTES as u64
    }
}

/// Bytes of a region, and its message words, when `words` are needed: doubling keeps replacements rare.
fn region_size(words: u64) -> (usize, u64) {
    let words = words.max(MIN_WORDS).next_power_of_two();
    (CONTROL_BYTES + 8 * words as usize, words)
}

impl Stream {
    /// A region with at least `words` message words for the launches of one call that exchange messages. The caller keeps
    /// it until they are queued: dropping the last handle frees it in the order of the stream.
    pub(super) fn region(&self, words: u64, launches: u64) -> Result<Arc<Region>, Error> {
        let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_capturing()? {
            return self.captured_region(&mut scratch, words);
        }
        if let Some(region) = scratch.take(words, launches) {
            return Ok(region);
        }
        let (bytes, words) = region_size(words);
        let region = Arc::new(Region { memory: self.allocate_own(bytes)?, words });
        self.initialise(&region, bytes, self.raw.cu_stream())?;
        scratch.region = Some(region.clone());
        scratch.tags = Tags::default();
        scratch.tags.take(launches);
        Ok(region)
    }

    /// Queues the setting up of a region.
    fn initialise(&self, region: &Region, bytes: usize, stream: sys::CUstream) -> Result<(), Error> {
        // SAFETY: the region holds `bytes` bytes, the tag is its second 32-bit word.
        unsafe {
            let clear = sys::cuMemsetD8Async(region.control(), 0, bytes, stream);
            self.context.check("cuMemsetD8Async", clear)?;
            self.context.check("cuMemsetD32Async", sys::cuMemsetD32Async(region.control() + 4, 1, 1, stream))
        }
    }

    /// The region of the graph that is being captured: it must not be set up by the graph, which would do so at every
    /// launch, nor be shared with other launches of the stream, which may run beside the graph's.
    fn captured_region(&self, scratch: &mut Scratch, words: u64) -> Result<Arc<Region>, Error> {
        let capture = self.capture()?;
        let known = scratch.captured.as_ref().filter(|(id, _)| *id == capture.id).and_then(|(_, weak)| weak.upgrade());
        if let Some(region) = known.filter(|r| r.words >= words) {
            return Ok(region);
        }
        let (bytes, words) = region_size(words);
        let region = Arc::new(Region { memory: self.allocate_plain(bytes)?, words });
        relaxed(|| self.initialise_apart(&region, bytes)).map_err(|e| self.mode_failure(e)).flatten()?;
        self.give_to_graph(region.clone(), capture)?;
        scratch.captured = Some((capture.id, Arc::downgrade(&region)));
        Ok(region)
    }

    fn mode_failure(&self, error: DriverError) -> Error {
        self.context.failure("cuThreadExchangeStreamCaptureMode", error)
    }

    /// Sets up a region on a stream of its own and waits for it.
    fn initialise_apart(&self, region: &Arc<Region>, bytes: usize) -> Result<(), Error> {
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking);
        let stream = stream.map_err(|e| self.context.failure("cuStreamCreate", e))?;
        let apart = Apart { stream, context: self.raw.context().clone(), region: region.clone() };
        self.initialise(region, bytes, stream)?;
        apart.wait().map_err(|e| self.context.failure("cuStreamSynchronize", e))
    }
}

/// A stream on which a region is set up. It is destroyed when dropped, and the region let go, after its work has ended.
struct Apart {
    stream: sys::CUstream,
    context: Arc<CudaContext>,
    region: Arc<Region>,
}

// SAFETY: the driver's handle may be used from any thread.
unsafe impl Send for Apart {}

impl Apart {
    fn wait(&self) -> Result<(), DriverError> {
        // SAFETY: the context and the stream are alive.
        unsafe {
            result::ctx::set_current(self.context.cu_ctx()).and_then(|()| result::stream::synchronize(self.stream))
        }
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        if self.stream.is_null() {
            return;
        }
        if retry(self.wait()).is_err() {
            let stream = std::mem::replace(&mut self.stream, std::ptr::null_mut());
            return defer(Box::new(Apart { stream, context: self.context.clone(), region: self.region.clone() }));
        }
        // SAFETY: the stream is used here only, and has no work.
        let _ = unsafe { result::stream::destroy(self.stream) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_lasts_for_a_number_of_launches_and_not_of_calls() {
        let mut tags = Tags::default();
        let launches = 1 << 20;
        let calls = (0..MAX_LAUNCHES).take_while(|_| tags.take(launches)).count() as u64;
        assert_eq!(calls * launches, MAX_LAUNCHES);
        assert!(!tags.take(1) && tags.take(0));
    }
}

//! Message and control words of look-back kernels: one region per stream, set up once.
//!
//! A region starts with the control words `{0, 1}` (ticket counter and tag of the launch) and zeroed message words. The
//! last block of a launch resets the counter and raises the tag, so launches that follow each other on a stream share a
//! region without anything being cleared between them. Launches that may run at the same time must not share one: every
//! stream has its own, and so has every captured graph, which keeps it alive.

use std::ffi::c_void;
use std::sync::{Arc, PoisonError, Weak};

use cudarc::driver::{result, sys};

use super::memory::{Allocation, defer, relaxed};
use super::stream::Stream;
use crate::Error;

/// The scratch of a stream.
#[derive(Default)]
pub(super) struct Scratch {
    region: Option<Arc<Region>>,
    /// How often the region has been handed out.
    uses: u32,
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
/// A region is replaced before its 32-bit tags can come round to a value that old words still carry.
const MAX_USES: u32 = 1 << 26;

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
    /// A region with at least `words` message words for the launches of one call. The caller keeps it until they are
    /// queued: dropping the last handle frees it in the order of the stream.
    pub(super) fn region(&self, words: u64) -> Result<Arc<Region>, Error> {
        let mut scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_capturing()? {
            return self.captured_region(&mut scratch, words);
        }
        if let Some(region) = scratch.region.clone().filter(|r| r.words >= words && scratch.uses < MAX_USES) {
            scratch.uses += 1;
            return Ok(region);
        }
        let (bytes, words) = region_size(words);
        let region = Arc::new(Region { memory: self.allocate(bytes)?, words });
        self.initialise(&region, bytes, self.raw.cu_stream())?;
        scratch.region = Some(region.clone());
        scratch.uses = 1;
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
        let (capture, graph) = self.capture()?;
        let known = scratch.captured.as_ref().filter(|(id, _)| *id == capture).and_then(|(_, weak)| weak.upgrade());
        if let Some(region) = known.filter(|r| r.words >= words) {
            return Ok(region);
        }
        let (bytes, words) = region_size(words);
        let region = Arc::new(Region { memory: self.allocate_plain(bytes)?, words });
        relaxed(|| self.initialise_apart(&region, bytes))?;
        self.give_to_graph(&region, graph)?;
        scratch.captured = Some((capture, Arc::downgrade(&region)));
        Ok(region)
    }

    /// The number and the graph of the capture in progress.
    fn capture(&self) -> Result<(u64, sys::CUgraph), Error> {
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        let (mut id, mut graph) = (0, std::ptr::null_mut());
        let (nodes, count) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the stream is alive; null pointers ask for nothing.
        let info = unsafe {
            sys::cuStreamGetCaptureInfo_v2(self.raw.cu_stream(), &mut status, &mut id, &mut graph, nodes, count)
        };
        self.context.check("cuStreamGetCaptureInfo", info)?;
        if status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE {
            let reason = "the capture of the stream has been invalidated by an earlier error".into();
            return Err(Error::Driver { call: "cuStreamGetCaptureInfo", reason });
        }
        Ok((id, graph))
    }

    /// Sets up a region on a stream of its own and waits for it.
    fn initialise_apart(&self, region: &Region, bytes: usize) -> Result<(), Error> {
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking);
        let stream = stream.map_err(|e| self.context.failure("cuStreamCreate", e))?;
        let set = self.initialise(region, bytes, stream);
        // SAFETY: the stream was made above and is used here only.
        let (done, _) = unsafe { (result::stream::synchronize(stream), result::stream::destroy(stream)) };
        set.and(done.map_err(|e| self.context.failure("cuStreamSynchronize", e)))
    }

    /// Makes a graph, and everything instantiated from it, keep a region alive.
    fn give_to_graph(&self, region: &Arc<Region>, graph: sys::CUgraph) -> Result<(), Error> {
        let handle = Box::into_raw(Box::new(region.clone()));
        let mut object = std::ptr::null_mut();
        let flags = sys::CUuserObject_flags::CU_USER_OBJECT_NO_DESTRUCTOR_SYNC as u32;
        // SAFETY: the driver calls `release` once with the handle, when the last reference has gone.
        let created = unsafe { sys::cuUserObjectCreate(&mut object, handle.cast(), Some(release), 1, flags) };
        if let Err(e) = created.result() {
            // SAFETY: the driver has not taken the handle.
            drop(unsafe { Box::from_raw(handle) });
            return Err(self.context.failure("cuUserObjectCreate", e));
        }
        let flags = sys::CUuserObjectRetain_flags::CU_GRAPH_USER_OBJECT_MOVE as u32;
        // SAFETY: graph and object are alive; our reference moves to the graph.
        let kept = unsafe { sys::cuGraphRetainUserObject(graph, object, 1, flags) };
        if kept.result().is_err() {
            // SAFETY: the reference is still ours.
            let _ = unsafe { sys::cuUserObjectRelease(object, 1) };
        }
        self.context.check("cuGraphRetainUserObject", kept)
    }
}

/// Called by the driver when a graph lets go of a region. It must not call the driver, so the region is freed later.
unsafe extern "C" fn release(handle: *mut c_void) {
    // SAFETY: the handle was made by `give_to_graph`, and this is its only use.
    let region = unsafe { Box::from_raw(handle.cast::<Arc<Region>>()) };
    defer(region);
}

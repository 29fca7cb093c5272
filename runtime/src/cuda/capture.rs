//! Captures: streams whose work is being recorded into a graph, and what the graph keeps.

use std::ffi::c_void;

use cudarc::driver::{CudaStream, DriverError, result, sys};

use super::allocation::defer;
use super::driver::driver;
use super::stream::{CudaDevice, Stream};
use crate::Error;

/// The effect of work that is queued on a stream.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Recording {
    /// It is queued.
    Queued,
    /// It becomes part of a graph.
    Captured(Capture),
    /// It is refused: an error has made the capture useless, which has not been ended yet.
    Invalid,
}

/// A capture: its number and its graph.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Capture {
    pub(super) id: u64,
    pub(super) graph: sys::CUgraph,
}

impl Recording {
    /// The effect of work that is queued on a stream now.
    pub(super) fn of(stream: sys::CUstream) -> Result<Recording, DriverError> {
        use sys::CUstreamCaptureStatus as Status;
        // SAFETY: the stream is alive.
        let mut status = unsafe { result::stream::is_capturing(stream) }?;
        if status == Status::CU_STREAM_CAPTURE_STATUS_NONE {
            return Ok(Recording::Queued);
        }
        let (mut id, mut graph) = (0, std::ptr::null_mut());
        let (dependencies, count) = (std::ptr::null_mut(), std::ptr::null_mut());
        let missing = |_| DriverError(sys::CUresult::CUDA_ERROR_NOT_INITIALIZED);
        let info = driver().map_err(missing)?.capture_info;
        // SAFETY: the stream is alive; null pointers ask for nothing.
        unsafe { info(stream, &mut status, &mut id, &mut graph, dependencies, count) }.result()?;
        Ok(match status {
            Status::CU_STREAM_CAPTURE_STATUS_NONE => Recording::Queued,
            Status::CU_STREAM_CAPTURE_STATUS_ACTIVE => Recording::Captured(Capture { id, graph }),
            Status::CU_STREAM_CAPTURE_STATUS_INVALIDATED => Recording::Invalid,
        })
    }
}

impl Stream {
    /// The effect of work that is queued on the stream now.
    pub(super) fn recording(&self) -> Result<Recording, Error> {
        Recording::of(self.raw.cu_stream()).map_err(|e| self.context.failure("cuStreamGetCaptureInfo", e))
    }

    /// Whether calls are recorded into a graph instead of being queued.
    pub(super) fn is_capturing(&self) -> Result<bool, Error> {
        // SAFETY: the stream is alive.
        let status = unsafe { result::stream::is_capturing(self.raw.cu_stream()) };
        let status = status.map_err(|e| self.context.failure("cuStreamIsCapturing", e))?;
        Ok(status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
    }

    /// The capture in progress.
    pub(super) fn capture(&self) -> Result<Capture, Error> {
        let reason = match self.recording()? {
            Recording::Captured(capture) => return Ok(capture),
            Recording::Queued => "the capture of the stream has ended meanwhile",
            Recording::Invalid => "the capture of the stream has been invalidated by an earlier error",
        };
        Err(Error::Driver { call: "cuStreamGetCaptureInfo", reason: reason.into(), source: None })
    }

    /// Makes the graph of a capture, and everything instantiated from it, keep a value alive.
    pub(super) fn give_to_graph<T: Send + 'static>(&self, value: T, capture: Capture) -> Result<(), Error> {
        let handle = Box::into_raw(Box::new(value));
        let mut object = std::ptr::null_mut();
        let flags = sys::CUuserObject_flags::CU_USER_OBJECT_NO_DESTRUCTOR_SYNC as u32;
        // SAFETY: the driver calls `release` once with the handle, when the last reference has gone.
        let created = unsafe { sys::cuUserObjectCreate(&mut object, handle.cast(), Some(release::<T>), 1, flags) };
        if let Err(e) = created.result() {
            // SAFETY: the driver has not taken the handle.
            drop(unsafe { Box::from_raw(handle) });
            return Err(self.context.failure("cuUserObjectCreate", e));
        }
        let flags = sys::CUuserObjectRetain_flags::CU_GRAPH_USER_OBJECT_MOVE as u32;
        // SAFETY: graph and object are alive; our reference moves to the graph.
        let kept = unsafe { sys::cuGraphRetainUserObject(capture.graph, object, 1, flags) };
        if kept.result().is_err() {
            // SAFETY: the reference is still ours.
            let _ = unsafe { sys::cuUserObjectRelease(object, 1) };
        }
        self.context.check("cuGraphRetainUserObject", kept)
    }
}

impl CudaDevice {
    /// Refuses what has no place in a graph while the stream is being captured, so that the capture can go on.
    pub(crate) fn refuse_in_capture(&self, reason: &str) -> Result<(), Error> {
        self.0.context.bind()?;
        if self.is_capturing()? { Err(self.captured(reason.into())) } else { Ok(()) }
    }

    /// Whether the stream, or that of the caller in whose order it works, is being captured into a graph.
    pub(crate) fn is_capturing(&self) -> Result<bool, Error> {
        let Some(caller) = &self.0.caller else { return self.0.is_capturing() };
        let failure = |e| self.0.context.failure("cuStreamGetCaptureInfo", e);
        let theirs = Recording::of(caller.cu_stream()).map_err(failure)?;
        Ok(theirs != Recording::Queued || self.0.is_capturing()?)
    }

    /// Makes this stream wait for the work queued so far on another one; within a capture only for one of the same.
    pub(super) fn join(&self, other: &CudaDevice) -> Result<(), Error> {
        if self == other {
            return Ok(());
        }
        match (self.0.recording()?, other.0.recording()?) {
            (Recording::Queued, Recording::Queued) => {}
            (Recording::Captured(own), Recording::Captured(its)) if own.id == its.id => {}
            (Recording::Queued, _) => {
                return Err(other.captured(format!("{self} cannot wait for its work until the capture has ended")));
            }
            (_, _) => {
                return Err(self.captured(format!(
                    "it cannot wait for {other}; take the tensor over with `to_device` before the capture begins"
                )));
            }
        }
        self.0.raw.join(&other.0.raw).map_err(|e| self.0.context.failure("cuStreamWaitEvent", e))
    }

    /// Does a call's work in the order of the caller's stream, where it is queued on another.
    pub(crate) fn in_order<T>(&self, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let Some(caller) = &self.0.caller else { return work() };
        let failure = |e| self.0.context.failure("cuStreamWaitEvent", e);
        self.0.context.bind()?;
        let theirs = Recording::of(caller.cu_stream()).map_err(failure)?;
        let own = self.0.recording()?;
        // A capture of the caller's stream takes this one in.
        if own != Recording::Queued && own != theirs {
            return Err(self.captured("another thread captures it".into()));
        }
        self.0.raw.join(caller).map_err(failure)?;
        let result = work();
        let back = come_back(&self.0.raw, caller).map_err(failure);
        result.and_then(|value| back.map(|()| value))
    }

    fn captured(&self, reason: String) -> Error {
        Error::Captured { stream: self.to_string(), reason }
    }
}

/// Makes the caller's stream wait for one of ours. In a capture of the caller's it must, so that a failure is worth a
/// second attempt.
pub(super) fn come_back(own: &CudaStream, caller: &CudaStream) -> Result<(), DriverError> {
    caller.join(own).or_else(|_| caller.join(own))
}

/// Runs calls that a capture elsewhere in the process would otherwise forbid, though they do not touch it.
pub(super) fn relaxed<T>(f: impl FnOnce() -> T) -> Result<T, DriverError> {
    let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: swaps this thread's mode with the variable.
    unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) }.result()?;
    let value = f();
    // SAFETY: as above, back again. The thread must not keep the mode, so that a failure is worth a second attempt.
    let mut back = || unsafe { sys::cuThreadExchangeStreamCaptureMode(&mut mode) }.result();
    if back().is_err() {
        let _ = back();
    }
    Ok(value)
}

/// Called by the driver when a graph lets go of a value. It must not call the driver, so the value is dropped later.
unsafe extern "C" fn release<T: Send + 'static>(handle: *mut c_void) {
    // SAFETY: the handle was made by `give_to_graph`, and this is its only use.
    defer(unsafe { Box::from_raw(handle.cast::<T>()) });
}

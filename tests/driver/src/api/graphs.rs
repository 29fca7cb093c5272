//! Captures, graphs and user objects.

use std::ffi::c_void;

use super::{driver, put};
use crate::graph::Object;
use crate::state::{MODE, State};

driver! {
    cuThreadExchangeStreamCaptureMode(mode: *mut u32) |state| {
        let _ = state;
        put(mode, MODE.replace(super::element(mode, 0)))
    }
    cuStreamBeginCapture_v2(stream: u64, mode: u32) |state| { state.begin_capture(stream, mode)? }
    cuStreamEndCapture(stream: u64, graph: *mut u64) |state| {
        put(graph, 0);
        put(graph, state.end_capture(stream)?)
    }
    cuStreamIsCapturing(stream: u64, status: *mut u32) |state| { put(status, state.capture_status(stream)?.0) }
    cuStreamGetCaptureInfo_v2(
        stream: u64, status: *mut u32, id: *mut u64, graph: *mut u64, _deps: *mut c_void, _count: *mut usize,
    ) |state| {
        let (found, capture) = state.capture_status(stream)?;
        let of = state.captures.get(&capture).map_or(0, |capture| capture.graph);
        put(status, found);
        put(id, capture);
        put(graph, of)
    }
    cuGraphInstantiateWithFlags(exec: *mut u64, graph: u64, flags: u64) |state| {
        put(exec, state.instantiate(graph, flags)?)
    }
    cuGraphLaunch(exec: u64, stream: u64) |state| { state.launch_graph(exec, stream)? }
    cuGraphUpload(_exec: u64, _stream: u64) |state| { let _ = state; }
    cuGraphDestroy(graph: u64) [graph] |state| { state.destroy_graph(graph) }
    cuGraphExecDestroy(exec: u64) [exec] |state| { state.destroy_exec(exec)? }
    cuGraphRetainUserObject(graph: u64, object: u64, count: u32, flags: u32) |state| {
        state.keep(graph, object, u64::from(count), flags & 1 == 1)?
    }
    cuUserObjectCreate(
        object: *mut u64, argument: u64, destroy: extern "C" fn(*mut c_void), references: u32, _flags: u32,
    ) |state| {
        let handle = state.handle();
        state.objects.insert(handle, Object { references: u64::from(references), argument, destroy });
        put(object, handle)
    }
    cuUserObjectRelease(object: u64, count: u32) [object] |state| { state.release(object, u64::from(count)) }
}

impl State {
    /// Whether a stream is being captured (0 no, 1 yes, 2 in vain), and the capture.
    fn capture_status(&mut self, stream: u64) -> Result<(u32, u64), crate::Code> {
        let Some((id, _)) = self.stream(stream)?.capture else { return Ok((0, 0)) };
        let invalid = self.captures.get(&id).is_some_and(|capture| capture.invalid);
        Ok((if invalid { 2 } else { 1 }, id))
    }
}

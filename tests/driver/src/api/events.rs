//! Streams and events.

use super::{driver, put};
use crate::error;
use crate::state::{Event, State, Stream};

driver! {
    cuStreamCreate(stream: *mut u64, _flags: u32) |state| {
        state.current()?;
        let (handle, lane) = (state.handle(), state.lane());
        state.streams.insert(handle, Stream { lane: Some(lane), ..Stream::default() });
        put(stream, handle)
    }
    cuStreamDestroy_v2(stream: u64) [stream] |state| {
        state.must_not_capture(stream)?;
        state.streams.remove(&stream);
    }
    cuStreamSynchronize(stream: u64) |state| {
        state.must_not_capture(stream)?;
        let clock = state.stream(stream)?.clock.clone();
        state.host.join(&clock)
    }
    cuStreamQuery(stream: u64) |state| { state.must_not_capture(stream)? }
    cuStreamWaitEvent(stream: u64, event: u64, _flags: u32) |state| { state.wait(stream, event)? }
    cuEventCreate(event: *mut u64, _flags: u32) |state| {
        state.current()?;
        let handle = state.handle();
        state.events.insert(handle, Event::default());
        put(event, handle)
    }
    cuEventDestroy_v2(event: u64) [event] |state| {
        if state.events.remove(&event).is_none() {
            state.find(format!("event {event:#x} is destroyed once too often"));
            return Err(error::INVALID_HANDLE)
        }
    }
    cuEventRecord(event: u64, stream: u64) |state| { state.record_event(event, stream)? }
    cuEventSynchronize(event: u64) |state| {
        let Some(event) = state.events.get(&event) else { return Err(error::INVALID_HANDLE) };
        if event.capture.is_some() { return Err(error::CAPTURE_UNSUPPORTED) }
        state.host.join(&event.clock)
    }
    cuEventQuery(event: u64) |state| {
        state.unsafe_call()?;
        if !state.events.contains_key(&event) { return Err(error::INVALID_HANDLE) }
    }
}

impl State {
    fn record_event(&mut self, event: u64, stream: u64) -> Result<(), crate::Code> {
        let capture = self.stream(stream)?.capture.clone();
        let (clock, _) = self.tick(stream)?;
        let Some(event) = self.events.get_mut(&event) else { return Err(error::INVALID_HANDLE) };
        *event = Event { clock, capture };
        Ok(())
    }
}

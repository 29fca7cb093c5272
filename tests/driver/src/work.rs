//! Operations that are queued on streams: done at once, or recorded into a graph.

use crate::clock::{Clock, Stamp};
use crate::memory::{Access, Kind};
use crate::state::State;
use crate::{Code, error};

/// An operation.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    pub(crate) uses: Vec<Use>,
    pub(crate) effect: Effect,
}

/// A use of the device's memory, from an address on; `bytes` is 0 where the extent is not known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Use {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) access: Access,
}

/// The effect of an operation besides its use of memory.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    Nothing,
    /// Repeats a pattern.
    Fill {
        address: u64,
        pattern: Vec<u8>,
        count: usize,
    },
    /// Moves bytes; one side may be the host's.
    Copy {
        from: u64,
        to: u64,
        bytes: usize,
    },
    /// Allocates memory of a graph.
    Begin(u64),
    /// Frees memory.
    End(u64),
}

impl Work {
    /// A fill.
    pub(crate) fn fill(address: u64, pattern: &[u8], count: usize) -> Work {
        let bytes = (pattern.len() * count) as u64;
        let uses = if count == 0 { vec![] } else { vec![Use { address, bytes, access: Access::Write }] };
        Work { uses, effect: Effect::Fill { address, pattern: pattern.to_vec(), count } }
    }

    /// A copy between memories, of which `device` says whether they are the device's.
    pub(crate) fn copy((from, to): (u64, u64), device: (bool, bool), bytes: usize) -> Work {
        let read = device.0.then_some(Use { address: from, bytes: bytes as u64, access: Access::Read });
        let write = device.1.then_some(Use { address: to, bytes: bytes as u64, access: Access::Write });
        Work { uses: read.into_iter().chain(write).collect(), effect: Effect::Copy { from, to, bytes } }
    }
}

impl State {
    /// The clock of the next operation of a stream, and its stamp.
    pub(crate) fn tick(&mut self, stream: u64) -> Result<(Clock, Stamp), Code> {
        let host = self.host.clone();
        let fresh = self.lane();
        let stream = self.stream(stream)?;
        stream.clock.join(&host);
        let stamp = stream.clock.advance(stream.lane.unwrap_or(fresh));
        Ok((stream.clock.clone(), stamp))
    }

    /// Queues an operation.
    pub(crate) fn submit(&mut self, stream: u64, work: Work) -> Result<(), Code> {
        if self.stream(stream)?.capture.is_some() {
            return self.record(stream, work);
        }
        let (clock, stamp) = self.tick(stream)?;
        self.perform(&work, &clock, stamp)
    }

    /// Does an operation.
    pub(crate) fn perform(&mut self, work: &Work, clock: &Clock, stamp: Stamp) -> Result<(), Code> {
        let known = self.findings.len();
        for Use { address, bytes, access } in &work.uses {
            self.touch((*address, *bytes), *access, clock, stamp);
        }
        match &work.effect {
            Effect::Begin(address) => return self.begin(*address, stamp),
            Effect::End(address) => return self.free(*address, clock),
            // Memory that must not be used is left as it is.
            _ if self.findings.len() > known => {}
            Effect::Nothing => {}
            Effect::Fill { address, pattern, count } => {
                // SAFETY: the range lies in an allocation, whose bytes are never given back.
                let to = unsafe { std::slice::from_raw_parts_mut(*address as *mut u8, pattern.len() * count) };
                to.chunks_exact_mut(pattern.len().max(1)).for_each(|chunk| chunk.copy_from_slice(pattern));
            }
            Effect::Copy { from, to, bytes } => {
                // SAFETY: the device's range lies in an allocation; the host's is the caller's promise.
                unsafe { std::ptr::copy(*from as *const u8, *to as *mut u8, *bytes) };
            }
        }
        Ok(())
    }

    /// Allocates in the order of a stream, or by the graph that is captured from it.
    pub(crate) fn allocate_on(&mut self, stream: u64, bytes: usize) -> Result<u64, Code> {
        let Some((capture, _)) = self.stream(stream)?.capture else {
            let (_, stamp) = self.tick(stream)?;
            return self.allocate(bytes, Kind::Ordered, Some(stamp));
        };
        let graph = self.captures.get(&capture).map_or(0, |capture| capture.graph);
        let address = self.allocate(bytes, Kind::Graph(graph), None)?;
        self.record(stream, Work { uses: vec![], effect: Effect::Begin(address) })?;
        Ok(address)
    }

    /// Frees in the order of a stream, or by the graph that is captured from it.
    pub(crate) fn free_on(&mut self, stream: u64, address: u64) -> Result<(), Code> {
        let Some((capture, _)) = self.stream(stream)?.capture else {
            let (clock, _) = self.tick(stream)?;
            return self.free(address, &clock);
        };
        let graph = self.captures.get(&capture).map(|capture| Kind::Graph(capture.graph));
        let kind = self.allocations.get(&address).map(|allocation| allocation.kind);
        if kind != graph {
            self.find(format!("the graph frees {address:#x}, which is not its own, at every launch"));
            return Err(error::INVALID_VALUE);
        }
        self.record(stream, Work { uses: vec![], effect: Effect::End(address) })
    }
}

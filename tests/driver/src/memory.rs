//! Memory of the device: who has used it, and whether it may be used.

use std::alloc::{Layout, alloc, handle_alloc_error};
use std::collections::BTreeMap;

use crate::clock::{Clock, Lane, Stamp};
use crate::state::State;
use crate::{Code, error};

/// An allocation. Its bytes are never given back, so that no address is used twice and every late use is seen.
pub(crate) struct Allocation {
    pub(crate) bytes: usize,
    pub(crate) kind: Kind,
    life: Life,
    write: Option<Stamp>,
    reads: BTreeMap<Lane, u64>,
}

/// Whose memory it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// In the order of a stream.
    Ordered,
    /// The host's and all streams'.
    Plain,
    /// Memory of a graph, which allocates it when it is launched.
    Graph(u64),
}

/// Whether memory is there.
#[derive(Clone, Debug)]
enum Life {
    /// It is going to be, when its graph is launched.
    Unborn,
    /// Since an operation; `None` for memory that is there at once.
    Live(Option<Stamp>),
    /// No more, since the call of that number.
    Freed(u64),
}

/// How an operation uses memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// The memory of the device.
const CAPACITY: usize = 1 << 30;
/// The byte that fills memory before it is written.
const UNWRITTEN: u8 = 0xCD;
const ALIGN: usize = 512;

impl Allocation {
    /// Whether it has been allocated and not freed.
    pub(crate) fn is_live(&self) -> bool {
        matches!(self.life, Life::Live(_))
    }

    /// Whether everything that has used it has happened before.
    fn is_done(&self, clock: &Clock) -> bool {
        let born = if let Life::Live(born) = self.life { born } else { None };
        let reads = self.reads.iter().map(|(lane, time)| Stamp { lane: *lane, time: *time });
        born.into_iter().chain(self.write).chain(reads).all(|stamp| clock.covers(stamp))
    }
}

impl State {
    /// New memory, allocated at an operation of a stream, by a graph that is not launched, or at once.
    pub(crate) fn allocate(&mut self, bytes: usize, kind: Kind, born: Option<Stamp>) -> Result<u64, Code> {
        let live: usize = self.allocations.values().filter(|a| a.is_live()).map(|a| a.bytes).sum();
        if bytes == 0 {
            return Err(error::INVALID_VALUE);
        }
        if bytes > CAPACITY - live.min(CAPACITY) {
            return Err(error::OUT_OF_MEMORY);
        }
        let layout = Layout::from_size_align(bytes, ALIGN).map_err(|_| error::OUT_OF_MEMORY)?;
        // SAFETY: the size is not 0. The memory is filled before anything reads it.
        let memory = unsafe { alloc(layout) };
        if memory.is_null() {
            handle_alloc_error(layout);
        }
        // SAFETY: `bytes` bytes have just been allocated.
        unsafe { memory.write_bytes(UNWRITTEN, bytes) };
        let life = if matches!(kind, Kind::Graph(_)) { Life::Unborn } else { Life::Live(born) };
        let address = memory.addr() as u64;
        let (write, reads) = (None, BTreeMap::new());
        self.allocations.insert(address, Allocation { bytes, kind, life, write, reads });
        Ok(address)
    }

    /// The allocation in which an address lies.
    pub(crate) fn allocation_of(&self, address: u64) -> Option<(u64, &Allocation)> {
        let (start, allocation) = self.allocations.range(..=address).next_back()?;
        (address < start + allocation.bytes as u64).then_some((*start, allocation))
    }

    /// Frees memory at a point whose clock is given; `Err` where there is nothing to free.
    pub(crate) fn free(&mut self, address: u64, clock: &Clock) -> Result<(), Code> {
        let calls = self.calls;
        let Some(allocation) = self.allocations.get_mut(&address) else {
            self.find(format!("{address:#x} is no allocation"));
            return Err(error::INVALID_VALUE);
        };
        match allocation.life {
            Life::Unborn => return Err(error::INVALID_VALUE),
            Life::Freed(earlier) => {
                self.find(format!("{address:#x} was freed by call {earlier} already"));
                return Err(error::INVALID_VALUE);
            }
            Life::Live(_) => {}
        }
        let done = allocation.is_done(clock);
        allocation.life = Life::Freed(calls);
        if !done {
            self.find(format!("{address:#x} is freed before a use of it has ended"));
        }
        Ok(())
    }

    /// A graph that is launched allocates its memory.
    pub(crate) fn begin(&mut self, address: u64, stamp: Stamp) -> Result<(), Code> {
        let Some(allocation) = self.allocations.get_mut(&address) else { return Err(error::INVALID_VALUE) };
        if allocation.is_live() {
            return Err(error::INVALID_VALUE);
        }
        allocation.life = Life::Live(Some(stamp));
        allocation.write = None;
        allocation.reads.clear();
        Ok(())
    }

    /// An operation uses memory from an address on; `bytes` is 0 where the extent is not known.
    pub(crate) fn touch(&mut self, (address, bytes): (u64, u64), access: Access, clock: &Clock, stamp: Stamp) {
        let Some((start, _)) = self.allocation_of(address) else {
            return self.find(format!("{address:#x} is no memory of the device"));
        };
        let Some(allocation) = self.allocations.get_mut(&start) else { return };
        let covered = |write: &Option<Stamp>| write.is_none_or(|write| clock.covers(write));
        let mut findings = vec![];
        match &allocation.life {
            Life::Unborn => findings.push("before its graph was launched".to_owned()),
            Life::Freed(call) => findings.push(format!("after call {call} has freed it")),
            Life::Live(born) if !covered(born) => findings.push("without waiting for its allocation".into()),
            Life::Live(_) => {}
        }
        if address + bytes > start + allocation.bytes as u64 {
            findings.push("beyond its end".into());
        }
        if !covered(&allocation.write) {
            findings.push("without waiting for a write of it".into());
        }
        let mut reads = allocation.reads.iter().map(|(lane, time)| Stamp { lane: *lane, time: *time });
        if access == Access::Write && !reads.all(|read| clock.covers(read)) {
            findings.push("without waiting for a read of it".into());
        }
        if access == Access::Write {
            allocation.write = Some(stamp);
            allocation.reads.clear();
        } else {
            allocation.reads.insert(stamp.lane, stamp.time);
        }
        findings.into_iter().for_each(|what| self.find(format!("{address:#x} is used ({access:?}) {what}")));
    }
}

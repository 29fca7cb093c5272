//! The memory that all blocks share: global memory with its history, and everything that is under way.

use std::collections::HashMap;

use super::block::{Array, Block};
use super::clocks::Abroad;
use super::fault::SimError;
use super::lanes::{LANES, Lanes, literal};
use super::memory::Buffer;
use super::pending::Copy;
use super::program::Program;
use super::shadow::Cell;
use super::view::{Names, View};
use super::{Arg, Launch, Memory};
use crate::tile::{ParamId, ParamKind};

/// The device during a launch.
pub(super) struct Device<'a> {
    pub program: &'a Program<'a>,
    pub launch: &'a Launch,
    pub memory: &'a mut Memory,
    /// The value of each scalar parameter.
    pub scalars: Vec<Lanes>,
    /// The histories of the buffers that the kernel may write.
    pub cells: Vec<Option<Vec<Cell>>>,
    /// Copies and messages under way, oldest first.
    pub in_flight: Vec<InFlight>,
    /// The accesses that message words tell of, by buffer and position.
    pub told: HashMap<(usize, usize), Abroad>,
    /// Messages that have arrived, and changes of the control word.
    pub events: u64,
    copies: u32,
}

/// Something that will happen at a time of its own.
pub(super) enum InFlight {
    /// A bulk load that completes in that phase of an mbarrier.
    Load { block: u32, copy: Copy, mbarrier: usize, phase: u32 },
    /// A bulk store, and its index among those of its thread.
    Store { block: u32, copy: Copy, group: usize },
    /// A thread's copies and the arrival that follows them.
    Arrive { block: u32, thread: usize, at: u32, copies: Vec<Copy>, mbarrier: usize },
    /// A message word.
    Word { buffer: usize, position: usize, word: u64 },
}

impl InFlight {
    /// The block whose shared memory it concerns.
    pub(super) fn block(&self) -> Option<u32> {
        match self {
            InFlight::Load { block, .. } | InFlight::Store { block, .. } | InFlight::Arrive { block, .. } => {
                Some(*block)
            }
            InFlight::Word { .. } => None,
        }
    }

    /// Whether it cannot overtake the other one: arrivals of one thread happen in order.
    fn follows(&self, earlier: &InFlight) -> bool {
        match (self, earlier) {
            (InFlight::Arrive { block: a, thread: s, .. }, InFlight::Arrive { block: b, thread: t, .. }) => {
                (a, s) == (b, t)
            }
            _ => false,
        }
    }
}

impl<'a> Device<'a> {
    /// A device about to run a kernel. The arguments suit the parameters.
    pub(super) fn new(program: &'a Program<'a>, launch: &'a Launch, memory: &'a mut Memory) -> Device<'a> {
        let params = program.kernel.params.iter().zip(&launch.args);
        let scalar = |(param, arg): (&crate::tile::Param, &Arg)| match (param.kind, arg) {
            (ParamKind::Scalar(ty), Arg::Scalar(x)) => [literal(ty, *x); LANES],
            _ => [0; LANES],
        };
        let mut cells: Vec<Option<Vec<Cell>>> = memory.buffers.iter().map(|_| None).collect();
        for (param, arg) in params.clone() {
            if let (ParamKind::Write(_), Arg::Buffer { buffer, .. }) = (param.kind, arg) {
                let written = &memory.buffers[buffer.0].written;
                cells[buffer.0] = Some(written.iter().map(|w| Cell::new(*w)).collect());
            }
        }
        let scalars = params.map(scalar).collect();
        Device {
            program,
            launch,
            memory,
            scalars,
            cells,
            in_flight: vec![],
            told: HashMap::new(),
            events: 0,
            copies: 0,
        }
    }

    /// The names by which accesses are reported.
    pub(super) fn names(&self) -> Names<'a> {
        Names { program: self.program, grid: self.launch.grid }
    }

    /// The index of the buffer of a parameter.
    pub(super) fn buffer_of(&self, param: ParamId) -> usize {
        match self.launch.args[param.0 as usize] {
            Arg::Buffer { buffer, .. } => buffer.0,
            Arg::Scalar(_) => 0,
        }
    }

    /// The buffer of a parameter.
    pub(super) fn buffer(&mut self, param: ParamId) -> &mut Buffer {
        let index = self.buffer_of(param);
        &mut self.memory.buffers[index]
    }

    /// The elements behind a pointer parameter.
    pub(super) fn view(&mut self, param: usize) -> View<'_> {
        let (buffer, offset) = match self.launch.args[param] {
            Arg::Buffer { buffer, offset } => (buffer.0, offset),
            Arg::Scalar(_) => (0, 0),
        };
        let names = self.names();
        let Buffer { elem, bytes, written } = &mut self.memory.buffers[buffer];
        View {
            names,
            name: &self.program.kernel.params[param].name,
            elem: *elem,
            bytes,
            written: Some(written),
            cells: self.cells[buffer].as_deref_mut(),
            offset,
        }
    }

    /// A number for a new copy.
    pub(super) fn next_copy(&mut self) -> u32 {
        self.copies += 1;
        self.copies
    }

    /// Lets something under way happen, or what it cannot overtake.
    pub(super) fn land(&mut self, index: usize, block: Option<&mut Block>) -> Result<(), SimError> {
        match (self.in_flight.remove(index), block) {
            (InFlight::Word { buffer, position, word }, _) => {
                self.memory.buffers[buffer].set(position, word);
                self.events += 1;
                Ok(())
            }
            (InFlight::Load { copy, mbarrier, phase, .. }, Some(block)) => {
                self.land_load(block, &copy, mbarrier, phase)
            }
            (InFlight::Store { copy, group, .. }, Some(block)) => {
                self.land_store(block, &copy, group);
                Ok(())
            }
            (InFlight::Arrive { thread, at, copies, mbarrier, .. }, Some(block)) => {
                self.land_arrival(block, thread, at, &copies, mbarrier)
            }
            (_, None) => Ok(()),
        }
    }

    /// The oldest thing under way that must happen before or as this one.
    pub(super) fn first_of(&self, index: usize) -> usize {
        let item = &self.in_flight[index];
        self.in_flight[..index].iter().position(|earlier| item.follows(earlier)).unwrap_or(index)
    }
}

impl<'a> Names<'a> {
    /// A shared array.
    pub(super) fn shared<'m>(self, arrays: &'m mut [Array], index: usize) -> View<'m>
    where
        'a: 'm,
    {
        let name = &self.program.kernel.shared[index].name;
        let Array { elem, bytes, cells } = &mut arrays[index];
        View { names: self, name, elem: *elem, bytes, written: None, cells: Some(cells), offset: 0 }
    }
}

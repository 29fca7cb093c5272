//! The memory that the threads of a block share: arrays, barriers, mbarriers and clocks.

use std::rc::Rc;

use oplus_dsl::Elem;

use super::clocks::{Clocks, Knowledge};
use super::fault::Hazard;
use super::lanes::LANES;
use super::memory::size;
use super::pending::{Copy, Group};
use super::program::Program;
use super::shadow::{Access, Cell};
use crate::tile::SharedKind;

/// A resident block, without its warps.
pub(super) struct Block {
    /// Its number: x + y·columns.
    pub number: u32,
    /// The shared arrays; those of mbarriers are empty here.
    pub arrays: Vec<Array>,
    /// All mbarriers, array after array.
    pub mbarriers: Vec<Mbarrier>,
    /// The first mbarrier of each shared array.
    pub first_mbarrier: Vec<usize>,
    /// The barriers by id.
    pub barriers: [Barrier; 16],
    /// The clocks: which accesses each thread knows of.
    pub clocks: Clocks,
    /// The bulk stores of each thread, oldest first.
    pub groups: Vec<Vec<Group>>,
    /// The per-thread copies of each thread that no arrival covers yet.
    pub copies: Vec<Vec<Copy>>,
    /// The times at which a thread fenced its initialisations of mbarriers.
    pub init_fences: Vec<Option<u32>>,
    /// The registers that warps have given up and no other has taken.
    pub free_registers: u32,
    /// Completed phases, landed stores and registers given up.
    pub events: u64,
}

/// A shared array of elements.
pub(super) struct Array {
    pub elem: Elem,
    pub bytes: Vec<u8>,
    pub cells: Vec<Cell>,
}

/// A barrier of whole warps.
#[derive(Clone, Copy, Default)]
pub(super) struct Barrier {
    /// The warps that wait.
    pub waiting: u32,
    /// The threads they wait for.
    pub threads: u32,
    /// The number of times that it has completed.
    pub completed: u64,
}

/// An mbarrier.
pub(super) struct Mbarrier {
    /// Its initialisation.
    pub init: Option<Access>,
    /// Arrivals per phase.
    pub count: u32,
    /// Arrivals that the present phase still misses.
    pub pending: u32,
    /// Bytes announced and not yet received.
    pub bytes: i64,
    /// Completed phases.
    pub phase: u32,
    /// The knowledge of the threads that have arrived in the present phase.
    pub arrived: Knowledge,
    /// The knowledge of all threads that had arrived when the last phase completed.
    pub completed: Rc<Knowledge>,
}

impl Block {
    /// A block before its first statement.
    pub(super) fn new(program: &Program, number: u32) -> Block {
        let kernel = program.kernel;
        let threads = kernel.threads as usize;
        let (mut first_mbarrier, mut count) = (vec![], 0);
        for array in &kernel.shared {
            first_mbarrier.push(count);
            count += if array.kind == SharedKind::Mbarrier { array.len as usize } else { 0 };
        }
        let clocks = Clocks::new(threads, count);
        let nothing = Rc::new(clocks.ignorance());
        Block {
            number,
            arrays: kernel.shared.iter().map(Array::new).collect(),
            mbarriers: (0..count).map(|_| Mbarrier::new(&nothing)).collect(),
            first_mbarrier,
            barriers: [Barrier::default(); 16],
            clocks,
            groups: vec![vec![]; threads],
            copies: vec![vec![]; threads],
            init_fences: vec![None; threads],
            free_registers: 0,
            events: 0,
        }
    }

    /// A warp reaches a barrier; gives how often the barrier completes before the warp may go on.
    pub(super) fn arrive(&mut self, warp: usize, id: u32, threads: u32) -> Result<u64, Hazard> {
        let barrier = &mut self.barriers[id as usize];
        if barrier.waiting != 0 && barrier.threads != threads {
            return Err(Hazard::BarrierCount { id, threads, others: barrier.threads });
        }
        barrier.threads = threads;
        barrier.waiting |= 1 << warp;
        let target = barrier.completed + 1;
        let waiting = barrier.waiting;
        if waiting.count_ones() as usize * LANES == threads as usize {
            self.clocks.synchronise((0..32).filter(move |w| waiting >> w & 1 == 1));
            self.barriers[id as usize] = Barrier { waiting: 0, threads, completed: target };
        }
        Ok(target)
    }
}

impl Array {
    fn new(shared: &crate::tile::Shared) -> Array {
        let (elem, len) = match shared.kind {
            SharedKind::Elem(elem) => (elem, shared.len as usize),
            SharedKind::Mbarrier => (Elem::U64, 0),
        };
        // A pattern that is no likely value of any type.
        Array { elem, bytes: vec![0xa5; len * size(elem)], cells: vec![Cell::new(false); len] }
    }
}

impl Mbarrier {
    fn new(nothing: &Rc<Knowledge>) -> Mbarrier {
        Mbarrier {
            init: None,
            count: 0,
            pending: 0,
            bytes: 0,
            phase: 0,
            arrived: (**nothing).clone(),
            completed: Rc::clone(nothing),
        }
    }

    /// Counts arrivals; gives whether the phase completes. `None` when there are more than the phase misses.
    pub(super) fn arrive(&mut self, count: u32, agent: usize) -> Option<bool> {
        self.pending = self.pending.checked_sub(count)?;
        Some(self.complete(agent))
    }

    /// Counts bytes of a copy that was started in a phase; gives whether the phase completes. The error is how many were
    /// too many.
    pub(super) fn receive(&mut self, bytes: i64, phase: u32, agent: usize) -> Result<bool, i64> {
        if phase != self.phase {
            return Err(bytes);
        }
        self.bytes -= bytes;
        if self.pending == 0 && self.bytes < 0 { Err(-self.bytes) } else { Ok(self.complete(agent)) }
    }

    fn complete(&mut self, agent: usize) -> bool {
        if self.pending > 0 || self.bytes != 0 {
            return false;
        }
        self.phase += 1;
        self.pending = self.count;
        self.arrived[agent] = self.phase;
        self.completed = Rc::new(self.arrived.clone());
        true
    }
}

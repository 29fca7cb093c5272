//! Which warp runs next, and what lands when: the adversary.

use std::collections::VecDeque;

use super::block::Block;
use super::device::{Device, InFlight};
use super::fault::{SimError, Waiting};
use super::random::Random;
use super::run::Run;
use super::warp::{Status, Warp};
use super::{Options, Order, Stats};
use crate::tile::Stmt;

/// Instructions that a warp executes at most before another one may.
const SLICE: u64 = 4096;

/// The times that all polling warps look again, without any change, before the launch counts as stuck.
const PATIENCE: u32 = 64;

/// A launch in progress.
pub(super) struct Machine<'a> {
    device: Device<'a>,
    options: &'a Options,
    /// Blocks that have not started, next first.
    queue: VecDeque<u32>,
    resident: Vec<Resident>,
    random: Random,
    /// The warp that ran last: its resident block and its number.
    last: (usize, usize),
    stats: Stats,
}

struct Resident {
    block: Block,
    warps: Vec<Warp>,
}

impl Resident {
    fn is_done(&self) -> bool {
        self.warps.iter().all(|w| w.status == Status::Done)
    }
}

impl<'a> Machine<'a> {
    /// A launch of so many blocks before its start.
    pub(super) fn new(device: Device<'a>, options: &'a Options, blocks: u32) -> Machine<'a> {
        let seed = if let Order::Random(seed) = options.order { seed } else { 0 };
        let mut random = Random::new(seed);
        let mut queue: Vec<u32> = (0..blocks).collect();
        match options.order {
            Order::Ascending => {}
            Order::Descending => queue.reverse(),
            Order::Random(_) => random.shuffle(&mut queue),
        }
        let (resident, stats) = (vec![], Stats { blocks, statements: 0 });
        Machine { device, options, queue: queue.into(), resident, random, last: (0, 0), stats }
    }

    /// Runs all blocks to their end.
    pub(super) fn run(mut self) -> Result<Stats, SimError> {
        let mut patience = PATIENCE;
        loop {
            self.admit();
            if self.resident.is_empty() {
                break;
            }
            if self.is_random() && self.random.one_in(4) && self.land_any()? {
                patience = PATIENCE;
            } else if let Some((block, warp)) = self.choose() {
                patience = PATIENCE;
                self.execute(block, warp)?;
            } else if self.land_any()? {
                patience = PATIENCE;
            } else if patience > 0 {
                patience -= 1;
                self.spin()?;
            } else {
                return Err(SimError::Deadlock(self.waiting()));
            }
        }
        while self.land_any()? {}
        Ok(self.stats)
    }

    fn is_random(&self) -> bool {
        matches!(self.options.order, Order::Random(_))
    }

    fn admit(&mut self) {
        while self.resident.len() < self.options.resident.max(1) {
            let Some(number) = self.queue.pop_front() else { return };
            let program = self.device.program;
            let warps = program.kernel.threads as usize / super::lanes::LANES;
            let block = Block::new(program, number);
            self.resident.push(Resident { block, warps: (0..warps).map(|w| Warp::new(program, w)).collect() });
        }
    }

    fn is_ready(&self, block: &Block, warp: &Warp) -> bool {
        match warp.status {
            Status::Ready => true,
            Status::Barrier { id, completed } => block.barriers[id].completed >= completed,
            Status::Block { events } => block.events != events,
            Status::Polling { events } => self.device.events != events,
            Status::Done => false,
        }
    }

    /// The warps of all resident blocks, in order.
    fn warps(&self) -> impl DoubleEndedIterator<Item = (usize, usize)> {
        self.resident.iter().enumerate().flat_map(|(b, r)| (0..r.warps.len()).map(move |w| (b, w)))
    }

    fn choose(&mut self) -> Option<(usize, usize)> {
        let ready = |(b, w): &(usize, usize)| self.is_ready(&self.resident[*b].block, &self.resident[*b].warps[*w]);
        let last = self.last;
        match self.options.order {
            Order::Ascending => {
                self.warps().filter(ready).find(|next| *next > last).or_else(|| self.warps().find(ready))
            }
            Order::Descending => {
                self.warps().rev().filter(ready).find(|next| *next < last).or_else(|| self.warps().rev().find(ready))
            }
            Order::Random(_) => {
                let all: Vec<_> = self.warps().filter(ready).collect();
                self.random.pick(&all)
            }
        }
    }

    fn execute(&mut self, b: usize, w: usize) -> Result<(), SimError> {
        let slice = if self.is_random() { 1 + self.random.below(64) } else { SLICE };
        self.last = (b, w);
        let Resident { block, warps } = &mut self.resident[b];
        let done = Run { device: &mut self.device, block, warp: &mut warps[w] }.slice(slice)?;
        self.stats.statements += done;
        if self.stats.statements > self.options.limit {
            return Err(SimError::Limit(self.options.limit));
        }
        if self.resident[b].is_done() {
            self.retire(b)?;
        }
        Ok(())
    }

    fn retire(&mut self, b: usize) -> Result<(), SimError> {
        let number = self.resident[b].block.number;
        let is_store = |item: &InFlight| item.block() == Some(number) && matches!(item, InFlight::Store { .. });
        if let Some(error) = self.device.abandoned(&self.resident[b].block) {
            return Err(error);
        }
        while let Some(index) = self.device.in_flight.iter().position(is_store) {
            self.device.land(index, Some(&mut self.resident[b].block))?;
        }
        self.resident.remove(b);
        Ok(())
    }

    /// Lets one of the things under way happen; `false` when there is none.
    fn land_any(&mut self) -> Result<bool, SimError> {
        let count = self.device.in_flight.len();
        if count == 0 {
            return Ok(false);
        }
        let index = match self.options.order {
            Order::Ascending => 0,
            Order::Descending => count - 1,
            Order::Random(_) => self.random.below(count as u64) as usize,
        };
        let index = self.device.first_of(index);
        let number = self.device.in_flight[index].block();
        let block = self.resident.iter_mut().map(|r| &mut r.block).find(|block| Some(block.number) == number);
        self.device.land(index, block)?;
        Ok(true)
    }

    /// Every polling warp looks again.
    fn spin(&mut self) -> Result<(), SimError> {
        let polling = |machine: &Self, b: usize, w: usize| {
            let warps = machine.resident.get(b).map(|r| &r.warps);
            warps.and_then(|w2| w2.get(w)).is_some_and(|warp| matches!(warp.status, Status::Polling { .. }))
        };
        for (block, warp) in self.warps().collect::<Vec<_>>() {
            if polling(self, block, warp) {
                self.execute(block, warp)?;
            }
        }
        Ok(())
    }

    fn waiting(&self) -> Vec<Waiting> {
        let all = self.warps().map(|(b, w)| (&self.resident[b].block, &self.resident[b].warps[w]));
        all.filter(|(_, warp)| warp.status != Status::Done).map(|(block, warp)| self.wait_of(block, warp)).collect()
    }

    fn wait_of(&self, block: &Block, warp: &Warp) -> Waiting {
        let program = self.device.program;
        // Statements that park a warp have passed when it waits, those that are repeated have not.
        let parked = matches!(warp.status, Status::Barrier { .. } | Status::Polling { .. });
        let path = program.paths[warp.pc - usize::from(parked)].clone();
        let line = path.statement(program.kernel).map(|s| program.kernel.line(s)).unwrap_or_default();
        let missing = match warp.status {
            Status::Barrier { id, .. } => {
                let barrier = block.barriers[id];
                format!("{} of {} threads are here", 32 * barrier.waiting.count_ones(), barrier.threads)
            }
            Status::Polling { .. } => "a message is missing".into(),
            _ if matches!(path.statement(program.kernel), Some(Stmt::SetMaxRegisters { .. })) => {
                format!("{} registers of the block are free", block.free_registers)
            }
            _ => block.open_mbarriers(program.kernel),
        };
        Waiting { path, line, block: self.device.names().block(block.number), warp: warp.index, missing }
    }
}

impl Block {
    /// The mbarriers whose present phase has begun, and what it misses.
    fn open_mbarriers(&self, kernel: &crate::tile::Kernel) -> String {
        let open = self.mbarriers.iter().enumerate().filter(|(_, m)| m.init.is_some());
        let text = open.map(|(i, m)| {
            let name = self.mbarrier_name(kernel, i);
            format!("{name} in phase {} misses {} arrivals and {} bytes", m.phase, m.pending, m.bytes)
        });
        text.collect::<Vec<_>>().join("; ")
    }
}

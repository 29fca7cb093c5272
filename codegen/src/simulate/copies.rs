//! Asynchronous copies: they are under way until they land, which is before a thread that waited for them goes on.

use super::block::Block;
use super::clocks::bits;
use super::device::{Device, InFlight};
use super::fault::{Hazard, Hit, SimError};
use super::memory::size;
use super::pending::{Copy, Group, Waited};
use super::run::{Flow, Run};
use super::shadow::{Access, By};
use super::warp::Status;
use crate::tile::{Mbarrier, Memory, Operand, ParamId, SharedId, Stmt};

/// The groups that a wait for all but the last `pending` ones concerns, latest first: earlier waits have dealt with
/// those before.
fn awaited(groups: &[Group], pending: usize, wanted: Waited) -> impl Iterator<Item = usize> {
    let count = groups.len().saturating_sub(pending);
    (0..count).rev().take_while(move |group| groups[*group].waited < wanted)
}

/// Adds `f32` to `f32`, as bytes.
fn add(to: &mut [u8], from: &[u8]) {
    let number = |bytes: &[u8]| f32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    for (to, from) in to.chunks_exact_mut(4).zip(from.chunks_exact(4)) {
        let sum = number(to) + number(from);
        to.copy_from_slice(&sum.to_ne_bytes());
    }
}

/// Both ends of a copy as a statement names them, and what may be copied.
struct Ends {
    global: (ParamId, Operand),
    shared: (SharedId, Operand),
    /// Elements.
    count: i64,
    /// The number that both addresses must be multiples of.
    alignment: usize,
    /// Whether it goes from shared to global memory.
    is_store: bool,
    /// Whether the copy engine makes it, so that generic writes must have been fenced.
    is_bulk: bool,
    zeros: bool,
    /// A store that adds.
    adds: bool,
}

impl Copy {
    fn access(&self, block: u32) -> Access {
        let lane = self.thread % super::lanes::LANES;
        Access { block, by: By::InFlight, lanes: 1 << lane, time: self.id, at: self.at }
    }
}

impl Run<'_, '_> {
    pub(super) fn bulk_load(&mut self, stmt: &Stmt) -> Result<Flow, Hit> {
        let Stmt::BulkLoad { to, to_index, from, from_index, count, mbarrier } = *stmt else { return Ok(Flow::Next) };
        for lane in self.lanes() {
            let number = self.fenced_mbarrier(mbarrier, lane)?;
            let count = i64::from(self.i32(count, lane));
            let copy = self.start(
                lane,
                &Ends {
                    global: (from, from_index),
                    shared: (to, to_index),
                    count,
                    alignment: 16,
                    is_store: false,
                    is_bulk: true,
                    zeros: false,
                    adds: false,
                },
            )?;
            let (block, phase) = (self.block.number, self.block.mbarriers[number].phase);
            self.device.in_flight.push(InFlight::Load { block, copy, mbarrier: number, phase });
        }
        Ok(Flow::Next)
    }

    pub(super) fn bulk_store(&mut self, stmt: &Stmt) -> Result<Flow, Hit> {
        let Stmt::BulkStore { to, to_index, from, from_index, count, adds } = *stmt else { return Ok(Flow::Next) };
        for lane in self.lanes() {
            let count = i64::from(self.i32(count, lane));
            let copy = self.start(
                lane,
                &Ends {
                    global: (to, to_index),
                    shared: (from, from_index),
                    count,
                    alignment: 16,
                    is_store: true,
                    is_bulk: true,
                    zeros: false,
                    adds,
                },
            )?;
            let groups = &mut self.block.groups[copy.thread];
            let (block, group) = (self.block.number, groups.len());
            groups.push(Group { copy: copy.clone(), landed: false, waited: Waited::No });
            self.device.in_flight.push(InFlight::Store { block, copy, group });
        }
        Ok(Flow::Next)
    }

    pub(super) fn bulk_wait(&mut self, pending: usize, read: bool) -> Result<Flow, Hit> {
        let wanted = if read { Waited::Read } else { Waited::Complete };
        for lane in self.lanes() {
            let groups = &self.block.groups[self.warp.thread(lane)];
            if !awaited(groups, pending, wanted).all(|group| groups[group].landed) {
                return Ok(Flow::Again(Status::Block { events: self.block.events }));
            }
        }
        for lane in self.lanes() {
            let thread = self.warp.thread(lane);
            let groups: Vec<usize> = awaited(&self.block.groups[thread], pending, wanted).collect();
            groups.into_iter().for_each(|group| self.finish(lane, group, wanted));
        }
        Ok(Flow::Next)
    }

    /// Counts what a waited-for bulk store has read and written as accesses of the waiting thread.
    fn finish(&mut self, lane: usize, group: usize, wanted: Waited) {
        let now = self.accessor(lane).access(self.at());
        let group = &mut self.block.groups[self.warp.thread(lane)][group];
        let before = std::mem::replace(&mut group.waited, wanted);
        let Copy { id, at, global, shared, count, .. } = group.copy;
        let access = Access { at, ..now };
        if before == Waited::No {
            let cells = &mut self.block.arrays[shared.0].cells[shared.1..][..count];
            cells.iter_mut().for_each(|c| c.finish_read(id, access));
        }
        if wanted == Waited::Complete
            && let Some(cells) = &mut self.device.cells[global.0]
        {
            cells[global.1..][..count].iter_mut().for_each(|c| c.finish_write(id, access));
        }
    }

    pub(super) fn copy_async(&mut self, stmt: &Stmt) -> Result<Flow, Hit> {
        let Stmt::CopyAsync { to, to_index, from, from_index, elements, guard } = *stmt else { return Ok(Flow::Next) };
        let guarded = self.guarded(guard);
        let bytes = self.device.program.kernel.elem(Memory::Shared(to)).map_or(1, size) * elements as usize;
        for lane in self.lanes() {
            let copy = self.start(
                lane,
                &Ends {
                    global: (from, from_index),
                    shared: (to, to_index),
                    count: i64::from(elements),
                    alignment: bytes,
                    is_store: false,
                    is_bulk: false,
                    zeros: guarded >> lane & 1 == 0,
                    adds: false,
                },
            )?;
            self.block.copies[copy.thread].push(copy);
        }
        Ok(Flow::Next)
    }

    pub(super) fn copy_async_arrive(&mut self, mbarrier: Mbarrier) -> Result<Flow, Hit> {
        for lane in self.lanes() {
            let mbarrier = self.known_mbarrier(mbarrier, lane)?;
            let thread = self.warp.thread(lane);
            let copies = std::mem::take(&mut self.block.copies[thread]);
            let (block, at) = (self.block.number, self.at());
            self.device.in_flight.push(InFlight::Arrive { block, thread, at, copies, mbarrier });
        }
        Ok(Flow::Next)
    }

    /// Checks both ends of a copy and marks their elements as belonging to it.
    fn start(&mut self, lane: usize, ends: &Ends) -> Result<Copy, Hit> {
        let hit = |hazard| Hit { lane, hazard };
        let at = self.at();
        let (from, to) = (Memory::Global(ends.global.0), Memory::Shared(ends.shared.0));
        let elem = self.device.program.kernel.elem(to).map_or(1, size);
        let bytes = ends.count.saturating_mul(elem as i64);
        if ends.is_bulk && (bytes <= 0 || bytes % 16 != 0) {
            return Err(hit(Hazard::CopyBytes(bytes)));
        }
        let count = ends.count as usize;
        let (global_index, shared_index) = (self.i64(ends.global.1, lane), i64::from(self.i32(ends.shared.1, lane)));
        let shared = self.view(to).0.locate(shared_index, count, ends.alignment).map_err(hit)?;
        let global =
            if ends.zeros { 0 } else { self.view(from).0.locate(global_index, count, ends.alignment).map_err(hit)? };
        let copy = Copy {
            id: self.device.next_copy(),
            at,
            thread: self.warp.thread(lane),
            global: (self.device.buffer_of(ends.global.0), global),
            shared: (ends.shared.0.0 as usize, shared),
            count,
            zeros: ends.zeros,
            adds: ends.adds,
        };
        self.mark(lane, to, shared, &copy, !ends.is_store, ends.is_bulk).map_err(hit)?;
        if !ends.zeros {
            self.mark(lane, from, global, &copy, ends.is_store, ends.is_bulk).map_err(hit)?;
        }
        Ok(copy)
    }

    /// Marks the elements at one end of a copy.
    fn mark(
        &mut self,
        lane: usize,
        memory: Memory,
        from: usize,
        copy: &Copy,
        is_write: bool,
        fenced: bool,
    ) -> Result<(), Hazard> {
        let access = copy.access(self.block.number);
        let (mut view, who) = self.view(memory);
        let who = who.lane(lane);
        for position in from..from + copy.count {
            if is_write && copy.adds {
                view.check_write(position, |cell| cell.start_add(&who, access))?;
            } else if is_write {
                view.check_write(position, |cell| cell.start_write(&who, access, fenced))?;
            } else {
                view.check(position, |cell| cell.start_read(&who, access, fenced))?;
            }
        }
        Ok(())
    }
}

impl Device<'_> {
    /// Performs a copy into shared memory; from now on it counts as done by the mbarrier in its phase.
    fn copy_in(&mut self, block: &mut Block, copy: &Copy, mbarrier: usize) {
        let time = block.mbarriers[mbarrier].phase + 1;
        let access = Access { block: block.number, by: By::Mbarrier(mbarrier as u32), lanes: 1, time, at: copy.at };
        let array = &mut block.arrays[copy.shared.0];
        let bytes = size(array.elem);
        let to = &mut array.bytes[copy.shared.1 * bytes..][..copy.count * bytes];
        if copy.zeros {
            to.fill(0);
        } else {
            to.copy_from_slice(
                &self.memory.buffers[copy.global.0].bytes[copy.global.1 * bytes..][..copy.count * bytes],
            );
            if let Some(cells) = &mut self.cells[copy.global.0] {
                cells[copy.global.1..][..copy.count].iter_mut().for_each(|c| c.finish_read(copy.id, access));
            }
        }
        array.cells[copy.shared.1..][..copy.count].iter_mut().for_each(|c| c.finish_write(copy.id, access));
    }

    /// Lands a bulk load.
    pub(super) fn land_load(
        &mut self,
        block: &mut Block,
        copy: &Copy,
        mbarrier: usize,
        phase: u32,
    ) -> Result<(), SimError> {
        self.copy_in(block, copy, mbarrier);
        let bytes = (copy.count * size(block.arrays[copy.shared.0].elem)) as i64;
        let agent = block.clocks.mbarrier_agent(mbarrier);
        match block.mbarriers[mbarrier].receive(bytes, phase, agent) {
            Ok(completes) => {
                block.events += u64::from(completes);
                Ok(())
            }
            Err(bytes) => {
                let mbarrier = block.mbarrier_name(self.program.kernel, mbarrier);
                Err(self.fault(block.number, copy.at, copy.thread, Hazard::Bytes { mbarrier, bytes }))
            }
        }
    }

    /// Lands a thread's copies, which then arrive on their mbarrier.
    pub(super) fn land_arrival(
        &mut self,
        block: &mut Block,
        thread: usize,
        at: u32,
        copies: &[Copy],
        mbarrier: usize,
    ) -> Result<(), SimError> {
        copies.iter().for_each(|copy| self.copy_in(block, copy, mbarrier));
        let agent = block.clocks.mbarrier_agent(mbarrier);
        match block.mbarriers[mbarrier].arrive(1, agent) {
            Some(completes) => {
                block.events += u64::from(completes);
                Ok(())
            }
            None => {
                let name = block.mbarrier_name(self.program.kernel, mbarrier);
                Err(self.fault(block.number, at, thread, Hazard::Arrivals(name)))
            }
        }
    }

    /// Performs a bulk store: its source is read only now.
    pub(super) fn land_store(&mut self, block: &mut Block, copy: &Copy, group: usize) {
        let array = &block.arrays[copy.shared.0];
        let bytes = size(array.elem);
        let from = &array.bytes[copy.shared.1 * bytes..][..copy.count * bytes];
        let buffer = &mut self.memory.buffers[copy.global.0];
        let to = &mut buffer.bytes[copy.global.1 * bytes..][..copy.count * bytes];
        if copy.adds {
            add(to, from);
        } else {
            to.copy_from_slice(from);
        }
        buffer.written[copy.global.1..][..copy.count].fill(true);
        block.groups[copy.thread][group].landed = true;
        block.events += 1;
    }

    /// A copy that still uses the shared memory of a block that ends.
    pub(super) fn abandoned(&self, block: &Block) -> Option<SimError> {
        let of_block = |item: &InFlight| match item {
            InFlight::Load { block: b, copy, .. } if *b == block.number => Some((copy.at, copy.thread)),
            InFlight::Arrive { block: b, at, thread, .. } if *b == block.number => Some((*at, *thread)),
            _ => None,
        };
        let started = self.in_flight.iter().find_map(of_block);
        let unread = block.groups.iter().flatten().find(|g| g.waited == Waited::No).map(|g| (g.copy.at, g.copy.thread));
        let uncovered = block.copies.iter().flatten().next().map(|c| (c.at, c.thread));
        let (at, thread) = started.or(unread).or(uncovered)?;
        Some(self.fault(block.number, at, thread, Hazard::Abandoned))
    }
}

impl Block {
    /// An mbarrier as messages name it.
    pub(super) fn mbarrier_name(&self, kernel: &crate::tile::Kernel, number: usize) -> String {
        let array = self.first_mbarrier.partition_point(|first| *first <= number) - 1;
        format!("{}[{}]", kernel.shared[array].name, number - self.first_mbarrier[array])
    }

    /// Whether the threads of an mbarrier's initialisation have fenced it.
    pub(super) fn init_is_fenced(&self, init: &Access) -> bool {
        let By::Warp(warp) = init.by else { return false };
        let thread = |lane| warp as usize * super::lanes::LANES + lane;
        bits(init.lanes).all(|lane| self.init_fences[thread(lane)].is_some_and(|fence| fence >= init.time))
    }
}

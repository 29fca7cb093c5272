//! The history of every element that threads may race for: its last write and the reads since.

use super::clocks::{Clocks, Knowledge, bits};
use super::lanes::LANES;

/// Accesses to one element by lanes of one warp at one time, or by copies that complete on one mbarrier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Access {
    /// The block's number.
    pub block: u32,
    /// The one that accessed the element.
    pub by: By,
    /// The lanes of the warp that did.
    pub lanes: u32,
    /// The time of that warp or mbarrier; while a copy is in flight, the number of the copy.
    pub time: u32,
    /// The statement.
    pub at: u32,
}

/// The one that accessed an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// Nobody: the element was never written.
    Nobody,
    /// The host, before the launch.
    Host,
    /// A warp.
    Warp(u32),
    /// Copies that have completed on that mbarrier.
    Mbarrier(u32),
    /// A copy that nobody has waited for.
    InFlight,
}

/// The history of an element.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cell {
    write: Access,
    reads: Reads,
}

#[derive(Clone, Debug, PartialEq)]
enum Reads {
    None,
    One(Access),
    Many(Vec<Access>),
}

/// Why an access is wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Conflict {
    /// Nothing was ever written there.
    Unwritten,
    /// Not ordered with that access.
    Race(Access),
    /// The copy has not been waited for.
    InFlight(Access),
    /// The generic write was not fenced before the asynchronous access.
    Unfenced(Access),
}

/// The thread that accesses an element, and the clocks of its block.
#[derive(Clone, Copy)]
pub(super) struct Accessor<'a> {
    clocks: &'a Clocks,
    /// The knowledge of the thread.
    known: &'a Knowledge,
    block: u32,
    thread: usize,
}

/// The lanes of a warp that access elements.
#[derive(Clone, Copy)]
pub(super) struct Accessors<'a> {
    pub clocks: &'a Clocks,
    pub block: u32,
    pub warp: usize,
}

impl<'a> Accessors<'a> {
    /// One of the lanes.
    pub(super) fn lane(&self, lane: usize) -> Accessor<'a> {
        Accessor::new(self.clocks, self.block, self.warp * LANES + lane)
    }
}

impl Access {
    /// Before the launch.
    pub(super) const HOST: Access = Access { block: 0, by: By::Host, lanes: 0, time: 0, at: 0 };
    const NOBODY: Access = Access { by: By::Nobody, ..Access::HOST };

    fn same_agents(&self, other: &Access) -> bool {
        self.block == other.block && self.by == other.by
    }
}

impl<'a> Accessor<'a> {
    /// A thread of a block.
    pub(super) fn new(clocks: &'a Clocks, block: u32, thread: usize) -> Accessor<'a> {
        Accessor { clocks, known: clocks.known(thread), block, thread }
    }

    /// Whether what an agent of the block did at a time happens before what the thread does now.
    #[inline]
    fn knows(&self, agent: usize, time: u32) -> bool {
        agent == self.thread || self.known[agent] >= time
    }

    /// The event of this thread now, at a statement.
    pub(super) fn access(&self, at: u32) -> Access {
        let (warp, lane) = (self.thread / LANES, self.thread % LANES);
        let time = self.clocks.now(warp);
        Access { block: self.block, by: By::Warp(warp as u32), lanes: 1 << lane, time, at }
    }

    /// Whether an access happened before.
    pub(super) fn after(&self, access: &Access) -> Result<(), Conflict> {
        let same_block = access.block == self.block;
        let known = match access.by {
            By::Nobody | By::Host => true,
            By::InFlight => return Err(Conflict::InFlight(*access)),
            By::Mbarrier(m) => {
                let agent = self.clocks.mbarrier_agent(m as usize);
                same_block && self.knows(agent, access.time)
            }
            By::Warp(warp) if !same_block => {
                let agent = |lane| (access.block, warp as usize * LANES + lane);
                bits(access.lanes).all(|l| self.clocks.knows_abroad(self.thread, agent(l), access.time))
            }
            By::Warp(warp) => {
                let agent = |lane| warp as usize * LANES + lane;
                bits(access.lanes).all(|l| self.knows(agent(l), access.time))
            }
        };
        if known { Ok(()) } else { Err(Conflict::Race(*access)) }
    }

    /// Whether a write happened before and is visible to asynchronous copies that this thread starts.
    fn after_fenced(&self, write: &Access) -> Result<(), Conflict> {
        self.after(write)?;
        match write.by {
            // A write that a message told of was fenced on both sides of the message.
            By::Warp(_) if write.block != self.block => Ok(()),
            By::Warp(warp) => {
                let agent = |lane| warp as usize * LANES + lane;
                let fenced = |lane| self.clocks.knows_fenced(self.thread, agent(lane), write.time);
                if bits(write.lanes).all(fenced) { Ok(()) } else { Err(Conflict::Unfenced(*write)) }
            }
            _ => Ok(()),
        }
    }
}

impl Cell {
    /// An element that was written before the launch, or never.
    pub(super) fn new(written: bool) -> Cell {
        Cell { write: if written { Access::HOST } else { Access::NOBODY }, reads: Reads::None }
    }

    /// A thread reads the element.
    pub(super) fn read(&mut self, who: &Accessor, at: u32) -> Result<(), Conflict> {
        if self.write.by == By::Nobody {
            return Err(Conflict::Unwritten);
        }
        who.after(&self.write)?;
        self.add_read(who.access(at), |earlier| who.after(earlier).is_ok());
        Ok(())
    }

    /// A thread reads the element as asynchronous copies do: generic writes must be fenced.
    pub(super) fn read_fenced(&mut self, who: &Accessor, at: u32) -> Result<(), Conflict> {
        self.read(who, at)?;
        who.after_fenced(&self.write)
    }

    /// A thread writes the element.
    pub(super) fn write(&mut self, who: &Accessor, at: u32) -> Result<(), Conflict> {
        who.after(&self.write)?;
        self.reads().try_for_each(|read| who.after(read))?;
        self.overwrite(who.access(at));
        Ok(())
    }

    /// A thread starts a copy that reads the element; `fenced` where generic writes must be fenced before.
    pub(super) fn start_read(&mut self, who: &Accessor, copy: Access, fenced: bool) -> Result<(), Conflict> {
        if self.write.by == By::Nobody {
            return Err(Conflict::Unwritten);
        }
        if fenced {
            who.after_fenced(&self.write)?
        } else {
            who.after(&self.write)?
        }
        self.add_read(copy, |_| false);
        Ok(())
    }

    /// A thread starts a copy that writes the element; `fenced` where generic writes must be fenced before.
    pub(super) fn start_write(&mut self, who: &Accessor, copy: Access, fenced: bool) -> Result<(), Conflict> {
        if fenced {
            who.after_fenced(&self.write)?
        } else {
            who.after(&self.write)?
        }
        self.reads().try_for_each(|read| who.after(read))?;
        self.overwrite(copy);
        Ok(())
    }

    /// A thread starts a copy that adds to the element.
    pub(super) fn start_add(&mut self, who: &Accessor, copy: Access) -> Result<(), Conflict> {
        if self.write.by == By::Nobody { Err(Conflict::Unwritten) } else { self.start_write(who, copy, true) }
    }

    /// A copy that read the element has been waited for or completed on an mbarrier: `access` is what it counts as.
    pub(super) fn finish_read(&mut self, copy: u32, access: Access) {
        let is_copy = |read: &Access| read.by == By::InFlight && read.time == copy;
        match &mut self.reads {
            Reads::One(read) if is_copy(read) => *read = access,
            Reads::Many(reads) => reads.iter_mut().filter(|r| is_copy(r)).for_each(|r| *r = access),
            _ => {}
        }
    }

    /// A copy that wrote the element has been waited for or completed on an mbarrier: `access` is what it counts as.
    pub(super) fn finish_write(&mut self, copy: u32, access: Access) {
        if self.write.by == By::InFlight && self.write.time == copy {
            self.write = access;
        }
    }

    /// Records a write and forgets the reads before it. A vector of reads keeps its memory for the reads after the write.
    fn overwrite(&mut self, write: Access) {
        self.write = write;
        match &mut self.reads {
            Reads::Many(reads) => reads.clear(),
            reads => *reads = Reads::None,
        }
    }

    fn reads(&self) -> impl Iterator<Item = &Access> {
        match &self.reads {
            Reads::None => [].iter(),
            Reads::One(read) => std::slice::from_ref(read).iter(),
            Reads::Many(reads) => reads.iter(),
        }
    }

    /// Adds a read. Reads that happened before it need no longer be remembered.
    fn add_read(&mut self, read: Access, before: impl Fn(&Access) -> bool) {
        match &mut self.reads {
            Reads::One(one) if one.same_agents(&read) && one.time == read.time => {
                one.lanes |= read.lanes;
                one.at = read.at;
            }
            Reads::One(one) if !before(one) => self.reads = Reads::Many(vec![*one, read]),
            Reads::None | Reads::One(_) => self.reads = Reads::One(read),
            Reads::Many(many) => match many.iter_mut().find(|r| r.same_agents(&read) && r.time == read.time) {
                Some(same) => same.lanes |= read.lanes,
                None => {
                    many.retain(|r| !before(r));
                    many.push(read);
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(clocks: &Clocks, thread: usize) -> Accessor<'_> {
        Accessor::new(clocks, 0, thread)
    }

    #[test]
    fn two_writes_race_until_a_barrier() {
        let mut clocks = Clocks::new(64, 0);
        let mut cell = Cell::new(false);
        assert_eq!(cell.read(&thread(&clocks, 0), 0), Err(Conflict::Unwritten));
        assert_eq!(cell.write(&thread(&clocks, 0), 0), Ok(()));
        assert!(matches!(cell.write(&thread(&clocks, 1), 0), Err(Conflict::Race(_))), "a lane of the same warp");
        clocks.synchronise([0].into_iter());
        assert_eq!(cell.write(&thread(&clocks, 1), 0), Ok(()));
        assert!(matches!(cell.read(&thread(&clocks, 32), 0), Err(Conflict::Race(_))));
        clocks.synchronise([0, 1].into_iter());
        assert_eq!(cell.read(&thread(&clocks, 32), 0), Ok(()));
    }

    #[test]
    fn a_write_races_with_any_earlier_reader() {
        let mut clocks = Clocks::new(96, 0);
        let mut cell = Cell::new(true);
        for reader in [0, 1, 40, 64] {
            assert_eq!(cell.read(&thread(&clocks, reader), 0), Ok(()));
        }
        clocks.synchronise([0, 2].into_iter());
        let Err(Conflict::Race(other)) = cell.write(&thread(&clocks, 0), 0) else { panic!("no race with thread 40") };
        assert_eq!((other.by, other.lanes), (By::Warp(1), 1 << 8));
        clocks.synchronise([0, 1].into_iter());
        assert_eq!(cell.write(&thread(&clocks, 0), 0), Ok(()));
    }

    #[test]
    fn blocks_are_never_ordered() {
        let clocks = Clocks::new(32, 0);
        let mut cell = Cell::new(false);
        assert_eq!(cell.write(&thread(&clocks, 0), 0), Ok(()));
        let other = Accessor::new(&clocks, 1, 0);
        assert!(matches!(cell.read(&other, 0), Err(Conflict::Race(_))));
    }
}

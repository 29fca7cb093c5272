//! Which accesses of a block happen before which: vector clocks over threads and mbarriers.
//!
//! A warp has a clock that advances whenever one of its lanes releases (arrives, synchronises, fences). Each thread
//! *knows*, for every agent (a thread of the block, or an mbarrier on behalf of the copies that complete on it), up to
//! which of its times everything has happened before. An access at time c of agent a happens before what thread t
//! does next exactly when t knows a up to c.

use std::collections::HashMap;
use std::rc::Rc;

use super::lanes::LANES;

/// The knowledge of a thread or an mbarrier, one time per agent.
pub(super) type Knowledge = Vec<u32>;

/// The clocks of a block.
pub(super) struct Clocks {
    threads: usize,
    /// The time of each warp; starts at 1, so that nobody knows anything.
    time: Vec<u32>,
    /// The knowledge of each thread; threads that last synchronised together share it.
    known: Vec<Rc<Knowledge>>,
    /// For each thread, the times at which it ordered its accesses before later asynchronous copies.
    fences: Vec<Vec<u32>>,
    /// For each thread, the last time of threads of other blocks that lies before its next access.
    abroad: HashMap<usize, Abroad>,
    /// For each thread, the times that messages told it since its last fence of the device.
    polled: HashMap<usize, Abroad>,
    /// For each thread, its time at its last fence of the device.
    fenced: HashMap<usize, u32>,
}

/// Times of threads of other blocks, by block and thread.
pub(super) type Abroad = HashMap<(u32, usize), u32>;

impl Clocks {
    /// Clocks of so many threads and mbarriers.
    pub(super) fn new(threads: usize, mbarriers: usize) -> Clocks {
        let nothing = Rc::new(vec![0; threads + mbarriers]);
        Clocks {
            threads,
            time: vec![1; threads / LANES],
            known: vec![nothing; threads],
            fences: vec![vec![]; threads],
            abroad: HashMap::new(),
            polled: HashMap::new(),
            fenced: HashMap::new(),
        }
    }

    /// Whether what a thread of another block did at a time happens before what a thread does now.
    pub(super) fn knows_abroad(&self, thread: usize, agent: (u32, usize), time: u32) -> bool {
        self.abroad.get(&thread).and_then(|abroad| abroad.get(&agent)).is_some_and(|known| *known >= time)
    }

    /// Orders what lanes of a warp have done ahead of their next messages, and what they do next behind those that they have read.
    pub(super) fn fence_device(&mut self, warp: usize, lanes: u32) {
        for thread in bits(lanes).map(|lane| warp * LANES + lane) {
            self.fenced.insert(thread, self.time[warp]);
            let polled = self.polled.remove(&thread).unwrap_or_default();
            join_abroad(self.abroad.entry(thread).or_default(), &polled);
        }
        self.advance(warp);
    }

    /// The accesses that a message of a thread of a block tells of, if it is published now.
    pub(super) fn message(&self, block: u32, thread: usize) -> Abroad {
        let mut told = Abroad::new();
        if let Some(time) = self.fenced.get(&thread) {
            told = self.abroad.get(&thread).cloned().unwrap_or_default();
            told.insert((block, thread), *time);
        }
        told
    }

    /// Records that a thread has read a message.
    pub(super) fn poll(&mut self, thread: usize, message: &Abroad) {
        join_abroad(self.polled.entry(thread).or_default(), message);
    }

    /// The agent of an mbarrier.
    pub(super) fn mbarrier_agent(&self, mbarrier: usize) -> usize {
        self.threads + mbarrier
    }

    /// Knowledge of nothing.
    pub(super) fn ignorance(&self) -> Knowledge {
        vec![0; self.known[0].len()]
    }

    /// The present time of a warp.
    pub(super) fn now(&self, warp: usize) -> u32 {
        self.time[warp]
    }

    /// Ends the present time of a warp, after its lanes have released.
    pub(super) fn advance(&mut self, warp: usize) {
        self.time[warp] += 1;
    }

    /// The knowledge of a thread, without that of its own time.
    pub(super) fn known(&self, thread: usize) -> &Knowledge {
        &self.known[thread]
    }

    /// Whether a thread knows that an agent has fenced what it did at a time before it released it.
    pub(super) fn knows_fenced(&self, thread: usize, agent: usize, time: u32) -> bool {
        let fences = &self.fences[agent];
        let first = fences.partition_point(|fence| *fence < time);
        // A fence ends its time, so a thread that knows of a later time knows of the fence.
        fences.get(first).is_some_and(|fence| agent == thread || self.known[thread][agent] > *fence)
    }

    /// Records that lanes order their accesses so far before later asynchronous copies.
    pub(super) fn fence(&mut self, warp: usize, lanes: u32) {
        for lane in bits(lanes) {
            self.fences[warp * LANES + lane].push(self.time[warp]);
        }
        self.advance(warp);
    }

    /// Adds what lanes of a warp have done and know. The caller advances the warp.
    pub(super) fn release(&self, warp: usize, lanes: u32, to: &mut Knowledge) {
        let mut last: Option<&Rc<Knowledge>> = None;
        for lane in bits(lanes) {
            let thread = warp * LANES + lane;
            let known = &self.known[thread];
            if !last.is_some_and(|l| Rc::ptr_eq(l, known)) {
                join(to, known);
                last = Some(known);
            }
            to[thread] = to[thread].max(self.time[warp]);
        }
    }

    /// Adds what is known elsewhere to what lanes of a warp know.
    pub(super) fn acquire(&mut self, warp: usize, lanes: u32, from: &Knowledge) {
        let mut last: Option<(Rc<Knowledge>, Rc<Knowledge>)> = None;
        for lane in bits(lanes) {
            let known = &mut self.known[warp * LANES + lane];
            if let Some((old, new)) = &last
                && Rc::ptr_eq(old, known)
            {
                *known = Rc::clone(new);
                continue;
            }
            let old = Rc::clone(known);
            let mut joined = (*old).clone();
            join(&mut joined, from);
            *known = Rc::new(joined);
            last = Some((old, Rc::clone(known)));
        }
    }

    /// Orders everything that the threads of these warps have done before everything they do next.
    pub(super) fn synchronise(&mut self, warps: impl Iterator<Item = usize> + Clone) {
        let mut all = self.ignorance();
        for warp in warps.clone() {
            self.release(warp, u32::MAX, &mut all);
        }
        let all = Rc::new(all);
        for warp in warps {
            self.known[warp * LANES..][..LANES].fill(Rc::clone(&all));
            self.advance(warp);
        }
    }
}

fn join_abroad(to: &mut Abroad, from: &Abroad) {
    for (agent, time) in from {
        let known = to.entry(*agent).or_insert(*time);
        *known = (*known).max(*time);
    }
}

fn join(to: &mut Knowledge, from: &Knowledge) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = (*to).max(*from));
}

/// The lanes of a mask.
pub(super) fn bits(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (lane < 32).then_some(lane as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knows(clocks: &Clocks, thread: usize, agent: usize, time: u32) -> bool {
        agent == thread || clocks.known(thread)[agent] >= time
    }

    #[test]
    fn only_the_releasing_lane_is_known_to_the_acquirer() {
        let mut clocks = Clocks::new(64, 1);
        let mut message = clocks.ignorance();
        clocks.release(0, 1 << 3, &mut message);
        clocks.advance(0);
        clocks.acquire(1, 1 << 7, &message);
        assert!(knows(&clocks, 39, 3, 1));
        assert!(!knows(&clocks, 39, 3, 2), "what it did after the release");
        assert!(!knows(&clocks, 39, 4, 1), "another lane");
        assert!(!knows(&clocks, 40, 3, 1), "another acquirer");
    }

    #[test]
    fn knowledge_is_transitive() {
        let mut clocks = Clocks::new(96, 0);
        clocks.synchronise([0, 1].into_iter());
        clocks.synchronise([1, 2].into_iter());
        assert!(knows(&clocks, 64, 0, 1));
        assert!(!knows(&clocks, 0, 64, 1));
    }

    #[test]
    fn a_fence_counts_only_when_released_after_the_write() {
        let mut clocks = Clocks::new(64, 0);
        let written = clocks.now(0);
        clocks.synchronise([0, 1].into_iter());
        assert!(knows(&clocks, 32, 0, written) && !clocks.knows_fenced(32, 0, written));
        clocks.fence(0, u32::MAX);
        assert!(!clocks.knows_fenced(32, 0, written), "fenced, but not released since");
        clocks.synchronise([0, 1].into_iter());
        assert!(clocks.knows_fenced(32, 0, written));
    }
}

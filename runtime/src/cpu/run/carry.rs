//! The states that the chunks of a streamed axis pass on.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::cpu::CpuError;
use crate::cpu::values::Values;
use crate::room::room;

/// The states of some scans or reductions, field by field.
pub(super) type States = Vec<Vec<Values>>;

/// How often to look for a link before letting another thread run: about as long as a worker needs for the totals of a chunk.
const LOOKS: usize = 5000;

/// For every chunk and level, the states after it.
pub(super) struct Chain {
    levels: usize,
    links: Vec<Link>,
    /// Set when a worker has failed, so that nobody waits for it.
    is_broken: AtomicBool,
}

#[derive(Default)]
struct Link {
    is_ready: AtomicBool,
    states: Mutex<Option<States>>,
}

impl Chain {
    /// # Errors
    /// [`CpuError::OutOfMemory`].
    pub(super) fn new(chunks: usize, levels: usize) -> Result<Chain, CpuError> {
        let mut links = room(chunks.saturating_mul(levels))?;
        links.resize_with(chunks * levels, Link::default);
        Ok(Chain { levels, links, is_broken: AtomicBool::new(false) })
    }

    /// Lets nobody wait for states that will not come.
    pub(super) fn break_off(&self) {
        self.is_broken.store(true, Ordering::Relaxed);
    }

    /// Passes on the states after a chunk.
    pub(super) fn publish(&self, chunk: usize, level: usize, states: States) {
        let link = &self.links[chunk * self.levels + level];
        *link.states.lock().unwrap_or_else(PoisonError::into_inner) = Some(states);
        link.is_ready.store(true, Ordering::Release);
    }

    /// Waits for the states after a chunk; `None` if the worker that should give them has failed.
    pub(super) fn wait(&self, chunk: usize, level: usize) -> Option<States> {
        let link = &self.links[chunk * self.levels + level];
        let is_ready = || link.is_ready.load(Ordering::Acquire);
        let is_broken = || self.is_broken.load(Ordering::Relaxed);
        if !look(|| if is_ready() { Some(true) } else { is_broken().then_some(false) }) {
            return None;
        }
        link.states.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The state of one scan of `f32`, in one word with the number of the chunk that it precedes (modulo 2³²: whoever waits
/// is never that far behind).
pub(super) struct Carry(AtomicU64);

impl Carry {
    /// The state before the first chunk.
    pub(super) fn new(state: f32) -> Carry {
        Carry(AtomicU64::new(Carry::word(0, state)))
    }

    fn word(chunk: usize, state: f32) -> u64 {
        (chunk as u64) << 32 | u64::from(state.to_bits())
    }

    /// Waits for the state before a chunk.
    pub(super) fn wait(&self, chunk: usize) -> f32 {
        look(|| {
            let word = self.0.load(Ordering::Acquire);
            ((word >> 32) as u32 == chunk as u32).then_some(f32::from_bits(word as u32))
        })
    }

    /// Passes on the state before a chunk.
    pub(super) fn pass(&self, chunk: usize, state: f32) {
        self.0.store(Carry::word(chunk, state), Ordering::Release);
    }
}

/// Looks until something is there, letting other threads run now and then.
fn look<T>(mut find: impl FnMut() -> Option<T>) -> T {
    let mut looks = 0;
    loop {
        if let Some(found) = find() {
            return found;
        }
        looks += 1;
        if looks < LOOKS {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

/// Breaks chains when its worker panics.
pub(super) struct Guard<'a>(pub(super) &'a [Chain]);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.iter().for_each(Chain::break_off);
        }
    }
}

//! What the chunks of a streamed axis pass on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::cpu::values::Values;

/// The states of some scans or reductions, field by field.
pub(super) type States = Vec<Vec<Values>>;

/// How often to look for a link before letting another thread run.
const LOOKS: usize = 64;

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
    pub(super) fn new(chunks: usize, levels: usize) -> Chain {
        let links = (0..chunks * levels).map(|_| Link::default()).collect();
        Chain { levels, links, is_broken: AtomicBool::new(false) }
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
        let mut looks = 0;
        while !link.is_ready.load(Ordering::Acquire) {
            looks += 1;
            if self.is_broken.load(Ordering::Relaxed) {
                return None;
            } else if looks < LOOKS {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
        link.states.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Breaks chains when its worker panics.
pub(super) struct Guard<'a>(pub(super) &'a [Chain]);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.iter().for_each(|chain| chain.is_broken.store(true, Ordering::Relaxed));
        }
    }
}

//! What the chunks of a streamed axis pass on.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::cpu::values::Values;

/// The states of some scans or reductions, field by field.
pub(super) type States = Vec<Vec<Values>>;

/// How often to look for a link before letting another thread run.
const LOOKS: usize = 64;

/// How often to let another thread run before doing its work.
const YIELDS: usize = 4;

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
        let is_ready = || link.is_ready.load(Ordering::Acquire);
        let is_broken = || self.is_broken.load(Ordering::Relaxed);
        if !look(|| if is_ready() { Some(true) } else { is_broken().then_some(false) }) {
            return None;
        }
        link.states.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// The states of one scan of `f32` before each of its chunks, and behind the last; bit 32 of a word says that it is there.
pub(super) struct Carries(Vec<AtomicU64>);

impl Carries {
    /// Only the state before the first chunk is there.
    pub(super) fn new(chunks: usize, state: f32) -> Carries {
        let carries = Carries((0..=chunks).map(|_| AtomicU64::new(0)).collect());
        carries.pass(0, state);
        carries
    }

    fn get(&self, chunk: usize) -> Option<f32> {
        let word = self.0[chunk].load(Ordering::Acquire);
        (word >> 32 == 1).then_some(f32::from_bits(word as u32))
    }

    /// Passes on the state before a chunk.
    pub(super) fn pass(&self, chunk: usize, state: f32) {
        self.0[chunk].store(1 << 32 | u64::from(state.to_bits()), Ordering::Release);
    }

    /// Waits for the state before a chunk, for a while. A worker that is to pass it on may not be running, as other
    /// programs take its processor; then its chunk is combined here too, with the same result.
    pub(super) fn wait(&self, chunk: usize, total: impl Fn(usize) -> (f32, f32)) -> f32 {
        for looks in 0.. {
            match self.get(chunk) {
                Some(state) => return state,
                None if looks < LOOKS => std::hint::spin_loop(),
                None if looks < LOOKS + YIELDS => std::thread::yield_now(),
                None => break,
            }
        }
        let known = (0..chunk).rev().find_map(|k| Some((k, self.get(k)?)));
        let (first, state) = known.expect("the state before the first chunk is always there");
        (first..chunk).fold(state, |state, k| {
            let (product, sum) = total(k);
            let state = product * state + sum;
            self.pass(k + 1, state);
            state
        })
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
            self.0.iter().for_each(|chain| chain.is_broken.store(true, Ordering::Relaxed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_a_worker_that_does_not_run() {
        let total = |k: usize| (0.5 + k as f32, 1.0 / (1.0 + k as f32));
        let after = |k: usize, state: f32| total(k).0 * state + total(k).1;
        let carries = Carries::new(4, 2.0);
        assert_eq!(carries.wait(0, |_| unreachable!()), 2.0);
        carries.pass(1, after(0, 2.0));
        let expected = (0..4).fold(2.0, |state, k| after(k, state));
        assert_eq!(carries.wait(4, total).to_bits(), expected.to_bits());
        assert_eq!(carries.wait(2, |_| unreachable!()), after(1, after(0, 2.0)));
    }
}

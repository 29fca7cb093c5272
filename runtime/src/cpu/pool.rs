//! The threads of the engine.
//!
//! They run nothing but the engine's tasks, and a caller who waits for them takes up nothing else: a call holds the locks
//! of its tensors, and another call that needs one of them must never run on top of it on the same stack.

use std::panic::resume_unwind;
use std::sync::LazyLock;
use std::thread;

use rayon::{ThreadPool, ThreadPoolBuilder};

/// The engine's threads, as many as rayon takes by default; `None` where no thread can be made.
static POOL: LazyLock<Option<ThreadPool>> =
    LazyLock::new(|| ThreadPoolBuilder::new().thread_name(|k| format!("oplus-{k}")).build().ok());

/// How many threads work together at the most.
pub(super) fn threads() -> usize {
    POOL.as_ref().map_or(1, ThreadPool::current_num_threads)
}

/// Calls `work` on the calling thread and on others, at most `most` together, and returns when all have.
pub(super) fn together(most: usize, work: impl Fn() + Sync) {
    let Some(pool) = POOL.as_ref().filter(|_| most > 1) else { return work() };
    let all = || {
        pool.in_place_scope(|scope| {
            (1..most.min(pool.current_num_threads())).for_each(|_| scope.spawn(|_| work()));
            work();
        });
    };
    // A worker of another pool would pass the time with that pool's tasks; a plain thread waits.
    match rayon::current_thread_index() {
        None => all(),
        Some(_) => thread::scope(|scope| match thread::Builder::new().spawn_scoped(scope, all) {
            Ok(other) => other.join().unwrap_or_else(|panic| resume_unwind(panic)),
            // The system has no thread to give: the caller's does everything.
            Err(_) => work(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rayon::prelude::*;

    use super::*;

    #[test]
    fn everybody_works_and_the_caller_waits() {
        for most in [0, 1, 2, 1000] {
            let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
            together(most, || {
                while next.fetch_add(1, Ordering::Relaxed) < 500 {
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
            assert_eq!(done.into_inner(), 500);
        }
    }

    #[test]
    fn a_panic_reaches_the_caller() {
        let fails = || catch_unwind(AssertUnwindSafe(|| together(2, || panic!("as asked")))).is_err();
        assert!(fails());
        assert!((0..4).into_par_iter().all(|_| fails()));
    }
}

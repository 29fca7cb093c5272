//! Work that no call waits for, one piece after the other on a thread that ends when there is none. LLVM and the driver
//! must not be taken from under it: a process that ends waits for it. The driver compiles one kernel at a time, so that
//! work waits until for a while no call has needed a kernel.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};
use std::{process, thread};

/// A piece of work.
type Work = Box<dyn FnOnce() + Send>;

/// The work to be done.
struct Queue {
    waiting: VecDeque<Work>,
    /// Whether the thread lives.
    runs: bool,
    /// Whether the process is about to end.
    closed: bool,
    /// When a call last needed a kernel that was not loaded.
    needed: Option<Instant>,
}

/// How long no call must have needed a kernel.
const QUIET: Duration = Duration::from_millis(200);

static QUEUE: Mutex<Queue> = Mutex::new(Queue { waiting: VecDeque::new(), runs: false, closed: false, needed: None });
static CHANGED: Condvar = Condvar::new();
/// The process that has the thread: one that is forked from it has none.
static PROCESS: AtomicU32 = AtomicU32::new(0);

// SAFETY: this is how the C library declares it.
unsafe extern "C" {
    /// Registers a function to be called when the process ends.
    safe fn atexit(function: extern "C" fn()) -> c_int;
}

fn queue() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets work that has not begun wait: a call needs a kernel.
pub(super) fn put_off() {
    queue().needed = Some(Instant::now());
}

/// Does the work soon. When the process is ending, or has no thread to spare, it is dropped.
pub(super) fn run(work: Work) {
    static AT_EXIT: Once = Once::new();
    AT_EXIT.call_once(|| {
        PROCESS.store(process::id(), Ordering::Relaxed);
        atexit(close);
    });
    let mut queue = queue();
    if queue.closed {
        return;
    }
    queue.waiting.push_back(work);
    if !queue.runs {
        queue.runs = thread::Builder::new().name("oplus".into()).spawn(work_off).is_ok();
    }
    let dropped = if queue.runs { VecDeque::new() } else { std::mem::take(&mut queue.waiting) };
    drop(queue);
    drop(dropped);
}

fn work_off() {
    while let Some(work) = next() {
        // A panic is reported where it happens; the other tasks are to be done all the same.
        let _ = catch_unwind(AssertUnwindSafe(work));
    }
}

fn next() -> Option<Work> {
    let mut queue = queue();
    while !queue.waiting.is_empty() {
        let left = queue.needed.map_or(Duration::ZERO, |needed| QUIET.saturating_sub(needed.elapsed()));
        if left.is_zero() || queue.closed {
            return queue.waiting.pop_front();
        }
        queue = CHANGED.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
    }
    queue.runs = false;
    CHANGED.notify_all();
    None
}

/// Waits for all work, and takes no more.
extern "C" fn close() {
    if PROCESS.load(Ordering::Relaxed) != process::id() {
        return;
    }
    let mut queue = queue();
    queue.closed = true;
    CHANGED.notify_all();
    while queue.runs {
        queue = CHANGED.wait(queue).unwrap_or_else(PoisonError::into_inner);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn work_is_done_in_order_and_survives_a_panic() {
        let (sender, receiver) = mpsc::channel();
        for i in 0..100 {
            let sender = sender.clone();
            run(Box::new(move || {
                assert_ne!(i, 50, "one piece of work panics");
                sender.send(i).unwrap();
            }));
        }
        drop(sender);
        let done: Vec<i32> = receiver.iter().collect();
        assert_eq!(done, (0..100).filter(|i| *i != 50).collect::<Vec<_>>());
    }
}

//! The allocator that refuses.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Smaller requests are never refused: lists of axes, the plan of a call, what the threads of the engine keep.
const SMALL: usize = 4 << 10;
/// No request is counted.
const IDLE: usize = usize::MAX;

/// How many requests are granted before one is refused.
static GRANTED: AtomicUsize = AtomicUsize::new(IDLE);

thread_local! {
    /// The thread's last request.
    static LAST: Cell<*mut u8> = const { Cell::new(std::ptr::null_mut()) };
    /// The size of that request, once it has been given back with no other one between.
    static TRIED: Cell<usize> = const { Cell::new(0) };
}

struct Refusing;

#[global_allocator]
static ALLOCATOR: Refusing = Refusing;

/// The result of a call whose request `n` for memory is refused, counted from 0, and whether there was such a request.
pub(crate) fn refusing<R>(n: usize, call: impl FnOnce() -> R) -> (R, bool) {
    GRANTED.store(n, Ordering::SeqCst);
    let found = call();
    (found, GRANTED.swap(IDLE, Ordering::SeqCst) == IDLE)
}

/// Counts a request, and says whether it is granted. A library that ends the process when it gets no memory is called after its memory
/// has been asked for and given back: what is asked for next, and is no larger, is granted, as by any allocator.
fn is_granted(size: usize) -> bool {
    if size >= SMALL && size <= TRIED.replace(0) {
        return true;
    }
    // From 0 the count wraps to `IDLE`: one request alone is refused.
    let next = |left: usize| (left != IDLE && size >= SMALL).then(|| left.wrapping_sub(1));
    GRANTED.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next) != Ok(0)
}

// SAFETY: every call is passed on to the system's allocator as it is, or gives no memory, which any call may.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract, which is the same.
        let memory = if is_granted(layout.size()) { unsafe { System.alloc(layout) } } else { std::ptr::null_mut() };
        if layout.size() >= SMALL {
            LAST.set(memory);
        }
        memory
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract, which is the same.
        if is_granted(layout.size()) { unsafe { System.alloc_zeroed(layout) } } else { std::ptr::null_mut() }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller keeps the contract, which is the same.
        if is_granted(size) { unsafe { System.realloc(memory, layout, size) } } else { std::ptr::null_mut() }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if layout.size() >= SMALL {
            TRIED.set(if LAST.get() == memory { layout.size() } else { 0 });
        }
        // SAFETY: the memory is the system allocator's.
        unsafe { System.dealloc(memory, layout) }
    }
}

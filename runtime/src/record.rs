//! Recording: calls that save states for their gradients.

use std::cell::Cell;

use crate::guard::Guard;

thread_local! {
    /// How many recordings are alive on this thread.
    static RECORDINGS: Cell<usize> = const { Cell::new(0) };
}

/// A guard of [`record`]: while it is alive, calls that this thread makes on a GPU save some of their states for their
/// gradients, where a schedule can: a scan whose states are summed away saves the state before every eighth step, N/8
/// numbers for each of its rows and steps. The gradient then leaves out the pass that would compute them again. They are
/// freed with the call's output.
///
/// The gradient of a recorded call must be taken before its inputs are overwritten.
#[must_use = "recording ends when this is dropped"]
#[derive(Debug)]
pub struct Recording(#[expect(dead_code, reason = "it is dropped")] Guard);

/// Starts recording on this thread.
pub fn record() -> Recording {
    Recording(Guard::new(&RECORDINGS))
}

/// Whether calls of this thread save states.
pub(crate) fn is_recording() -> bool {
    RECORDINGS.get() > 0
}

//! Questions of tests: how many calls there were, and what was wrong.

use super::put;
use crate::state::{State, look};

/// The number of calls so far.
#[unsafe(no_mangle)]
extern "C" fn oplus_test_driver_calls() -> u64 {
    look(|state| state.calls)
}

/// The number of calls so far whose failure was asked for: 0 or 1.
#[unsafe(no_mangle)]
extern "C" fn oplus_test_driver_failures() -> u64 {
    look(|state| u64::from(state.failed.is_some()))
}

/// The number of launches so far that may begin before the one ahead of them on their stream has ended.
#[unsafe(no_mangle)]
extern "C" fn oplus_test_driver_early_launches() -> u64 {
    look(|state| state.early_launches)
}

/// From now on calls are not counted and do not fail, or again.
#[unsafe(no_mangle)]
extern "C" fn oplus_test_driver_pause(yes: i32) {
    look(|state| state.paused = yes != 0);
}

/// Writes what was wrong, a line each, into `room` bytes; gives the number of bytes that there are. `leaks` is 0 where
/// things may still be in use.
#[unsafe(no_mangle)]
extern "C" fn oplus_test_driver_report(target: *mut u8, room: usize, leaks: i32) -> usize {
    let text = look(|state| report(state, leaks != 0));
    text.bytes().take(room).enumerate().for_each(|(k, byte)| put(target.wrapping_add(k), byte));
    text.len()
}

fn report(state: &State, leaks: bool) -> String {
    let mut lines = state.findings.clone();
    if leaks && state.dead.is_none() {
        lines.extend(state.leaks());
    }
    if let (false, Some(call)) = (lines.is_empty(), state.failed) {
        lines.push(format!("the call that failed was {call}"));
    }
    lines.join("\n")
}

//! Every scenario, as it is and with every single call of the driver failing.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::harness::run;

/// The number of a fault that makes the context unusable.
const ILLEGAL_ADDRESS: u32 = 700;
/// Processes of a scenario that run at the same time.
const PROCESSES: usize = 2;

/// Runs a scenario as it is, and then once for every call, which fails.
fn every_fault(scenario: &str, variables: &[(&str, String)]) {
    let clean = run(scenario, variables).unwrap();
    assert!(clean.succeeded, "{scenario} {variables:?}: {}", clean.said);
    let (next, wrong) = (AtomicU64::new(1), Mutex::new(vec![]));
    std::thread::scope(|scope| {
        for _ in 0..PROCESSES {
            scope.spawn(|| {
                loop {
                    let call = next.fetch_add(1, Ordering::Relaxed);
                    let fault = [variables, &[("OPLUS_TEST_DRIVER_FAIL", call.to_string())]].concat();
                    match run(scenario, &fault) {
                        Ok(ending) if !ending.failed => break,
                        Ok(_) => {}
                        Err(how) => wrong.lock().unwrap().push(how),
                    }
                }
            });
        }
    });
    let (tried, wrong) = (next.into_inner(), wrong.into_inner().unwrap());
    assert!(wrong.is_empty(), "{} of {tried} faults end badly:\n{}", wrong.len(), wrong.join("\n"));
    // Threads make a few calls more or less.
    assert!(tried > clean.calls * 3 / 4, "{scenario}: {tried} of {} calls were made to fail", clean.calls);
}

macro_rules! scenarios {
    ($($name:ident: $scenario:literal,)*) => {$(
        #[test]
        fn $name() {
            every_fault($scenario, &[]);
        }
    )*};
}

scenarios! {
    allocators_give_what_calls_need: "allocators::give_what_calls_need",
    allocators_refuse: "allocators::refuse",
    allocators_in_captures: "allocators::in_captures",
    memory_comes_and_goes: "memory::comes_and_goes",
    memory_of_slices: "memory::of_slices",
    memory_runs_out: "memory::runs_out",
    memory_in_a_context_of_the_users: "memory::in_a_context_of_the_users",
    memory_of_calls: "memory::of_calls",
    memory_of_saved_states: "memory::of_saved_states",
    memory_of_lenders: "memory::of_lenders",
    streams_share: "streams::share",
    streams_write_and_read: "streams::write_and_read",
    streams_of_threads: "streams::of_threads",
    streams_of_the_thread: "streams::of_the_thread",
    launches_that_begin_early: "launches::early",
    captures_of_calls: "captures::of_calls",
    captures_that_allocate: "captures::that_allocate",
    captures_while_tensors_go: "captures::while_tensors_go",
    captures_while_shared_tensors_go: "captures::while_shared_tensors_go",
    captures_while_slices_go: "captures::while_slices_go",
    captures_refuse_uploads: "captures::refuse_uploads",
    captures_refuse_other_streams: "captures::refuse_other_streams",
    captures_across_streams: "captures::across_streams",
    captures_launched_twice: "captures::launched_twice",
    ranks_exchange: "ranks::exchange",
}

#[test]
fn a_device_without_pools() {
    let without = [("OPLUS_TEST_DRIVER_POOLS", "0".to_owned())];
    for scenario in ["memory::of_calls", "streams::write_and_read", "captures::while_shared_tensors_go"] {
        every_fault(scenario, &without);
    }
}

#[test]
fn a_fault_that_makes_the_context_unusable() {
    let sticky = [("OPLUS_TEST_DRIVER_ERROR", ILLEGAL_ADDRESS.to_string())];
    for scenario in ["memory::of_calls", "streams::share"] {
        every_fault(scenario, &sticky);
    }
}

//! Scenarios: what a program does with the runtime, run in a process of its own.

use std::error::Error;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream, sys};
use oplus::{Device, Tensor};

use crate::harness::{REFUSED, REPORTED, SCENARIO};

/// How a scenario ends: an error must be one of the runtime's or of cudarc's.
pub(crate) type Done = Result<(), Box<dyn Error>>;

type Scenario = fn() -> Done;

/// Scenarios by their names.
const ALL: &[(&str, Scenario)] = &[
    ("memory::comes_and_goes", crate::memory::comes_and_goes),
    ("memory::of_slices", crate::memory::of_slices),
    ("memory::runs_out", crate::memory::runs_out),
    ("memory::in_a_context_of_the_users", crate::memory::in_a_context_of_the_users),
    ("memory::of_calls", crate::memory::of_calls),
    ("memory::of_saved_states", crate::memory::of_saved_states),
    ("memory::of_lenders", crate::memory::of_lenders),
    ("streams::share", crate::streams::share),
    ("streams::write_and_read", crate::streams::write_and_read),
    ("streams::of_threads", crate::streams::of_threads),
    ("streams::of_the_thread", crate::streams::of_the_thread),
    ("captures::of_calls", crate::captures::of_calls),
    ("captures::that_allocate", crate::captures::that_allocate),
    ("captures::while_tensors_go", crate::captures::while_tensors_go),
    ("captures::while_shared_tensors_go", crate::captures::while_shared_tensors_go),
    ("captures::while_slices_go", crate::captures::while_slices_go),
    ("captures::refuse_uploads", crate::captures::refuse_uploads),
    ("captures::refuse_other_streams", crate::captures::refuse_other_streams),
    ("captures::across_streams", crate::captures::across_streams),
    ("captures::launched_twice", crate::captures::launched_twice),
    ("captures::launched_at_once", crate::captures::launched_at_once),
    ("allocators::give_what_calls_need", crate::allocators::give_what_calls_need),
    ("launches::early", crate::launches::early),
    ("allocators::refuse", crate::allocators::refuse),
    ("allocators::in_captures", crate::allocators::in_captures),
    ("ranks::exchange", crate::ranks::exchange),
    ("ranks::disagree", crate::ranks::disagree),
    ("ranks::silence", crate::ranks::silence),
    ("ranks::alone", crate::ranks::alone),
    ("ranks::refusal", crate::ranks::refusal),
    ("ranks::through_a_file", crate::ranks::through_a_file),
    ("ranks::without_nccl", crate::ranks::without_nccl),
    ("absence::of_a_driver", crate::absence::of_a_driver),
    ("absence::for_a_while", crate::absence::for_a_while),
];

/// Functions of the test driver besides those of a driver.
struct Driver {
    calls: extern "C" fn() -> u64,
    failures: extern "C" fn() -> u64,
    early_launches: extern "C" fn() -> u64,
    pause: extern "C" fn(i32),
    report: extern "C" fn(*mut u8, usize, i32) -> usize,
}

impl Driver {
    fn new() -> Driver {
        // SAFETY: the library is the test driver, which has these functions.
        unsafe {
            let library = sys::culib();
            Driver {
                calls: *library.get(b"oplus_test_driver_calls").unwrap(),
                failures: *library.get(b"oplus_test_driver_failures").unwrap(),
                early_launches: *library.get(b"oplus_test_driver_early_launches").unwrap(),
                pause: *library.get(b"oplus_test_driver_pause").unwrap(),
                report: *library.get(b"oplus_test_driver_report").unwrap(),
            }
        }
    }

    fn report(&self) -> String {
        let mut bytes = vec![0; 1 << 16];
        let len = (self.report)(bytes.as_mut_ptr(), bytes.len(), 1);
        bytes.truncate(len);
        String::from_utf8(bytes).unwrap()
    }
}

/// How many calls of the driver there have been.
pub(crate) fn calls_of_the_driver() -> u64 {
    (Driver::new().calls)()
}

/// How many launches could begin early.
pub(crate) fn early_launches() -> u64 {
    (Driver::new().early_launches)()
}

#[test]
fn the_one_that_the_environment_names() {
    let Ok(name) = std::env::var(SCENARIO) else { return };
    let (_, scenario) = ALL.iter().find(|(known, _)| *known == name).unwrap();
    let result = scenario();
    if name.starts_with("absence::") {
        return result.unwrap();
    }
    let driver = Driver::new();
    (driver.pause)(1);
    settle();
    println!("calls: {} failures: {}", (driver.calls)(), (driver.failures)());
    let report = driver.report();
    if let Err(error) = &result {
        let ours = error.downcast_ref::<oplus::Error>();
        let of_the_driver = matches!(ours, Some(oplus::Error::Driver { .. } | oplus::Error::Poisoned { .. }));
        assert!(!of_the_driver || error.source().is_some(), "{error:?} has no cause");
        println!("it gave an error: {error} ({error:?})");
    }
    println!("{report}");
    std::process::exit(match (report.is_empty(), &result) {
        (true, Ok(())) => 0,
        (true, Err(_)) => REFUSED,
        (false, _) => REPORTED,
    });
}

/// Frees what has been put off: the next allocation does.
fn settle() {
    for _ in 0..2 {
        // `cudarc` reports here an error that it could not report where it happened.
        let _ = CudaContext::new(0).and_then(|context| context.bind_to_thread());
        if let Ok((_, device)) = new_stream() {
            let _ = Tensor::zeros(oplus::Elem::F32, &[1], &device);
            let _ = device.synchronize();
        }
    }
}

/// Does what is not under test: its calls are not counted and do not fail.
pub(crate) fn beside<T>(f: impl FnOnce() -> T) -> T {
    let driver = Driver::new();
    (driver.pause)(1);
    let value = f();
    (driver.pause)(0);
    value
}

/// A new stream of the primary context.
pub(crate) fn new_stream() -> Result<(Arc<CudaStream>, Device), Box<dyn Error>> {
    let stream = CudaContext::new(0)?.new_stream()?;
    Ok((stream.clone(), Device::from_stream(stream)?))
}

/// Elements 0, 1, 2, … of a shape, on the CPU.
pub(crate) fn ramp(shape: &[usize]) -> Tensor {
    let len: usize = shape.iter().product();
    Tensor::from_vec((0..len).map(|k| k as f32).collect(), shape).unwrap()
}

/// Whether a tensor has the elements of a [`ramp`].
pub(crate) fn is_ramp(tensor: &Tensor) -> Result<bool, oplus::Error> {
    Ok(tensor.to_vec::<f32>()?.iter().enumerate().all(|(k, x)| *x == k as f32))
}

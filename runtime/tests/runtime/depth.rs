//! Calls of programs of a hundred thousand operations, on a thread with a small stack: they run, or are refused in words.

use std::thread;

use oplus::{Error, Kernel, Tensor};
use oplus_dsl::testing::Deep;

/// Runs a test on a thread whose stack would not hold a recursion over the program.
fn on_small_stack(test: impl FnOnce() + Send + 'static) {
    let thread = thread::Builder::new().stack_size(1 << 20).spawn(test).expect("a thread");
    thread.join().expect("no panic");
}

/// The outputs and the gradient of a call.
fn called(deep: Deep, n: usize) -> Result<Vec<f32>, Error> {
    let text: &'static str = deep.program(n).to_string().leak();
    let kernel = Kernel::new("deep", text);
    let x = Tensor::from_vec(vec![0.5_f32, -0.25, 0.125], &[3])?;
    let (outputs, call) = kernel.call(&[Some(&x)])?;
    let y = outputs.last().expect("an output");
    let cotangents: Vec<Option<&Tensor>> = outputs.iter().map(|_| Some(y)).collect();
    let gradients = kernel.backward(&call, &cotangents)?;
    gradients[0].as_ref().expect("a gradient").to_vec::<f32>()
}

#[test]
fn a_hundred_thousand_maps_run_forward_and_backward() {
    for deep in [Deep::Chain, Deep::Maps, Deep::Wide] {
        on_small_stack(move || assert_eq!(called(deep, 100_000).expect("runs").len(), 3));
    }
}

#[test]
fn every_kind_of_large_program_runs_on_a_small_stack() {
    for deep in Deep::ALL {
        on_small_stack(move || {
            let gradient = called(deep, 3_000).unwrap_or_else(|error| panic!("{deep:?}: {error}"));
            assert_eq!(gradient.len(), 3, "{deep:?}");
        });
    }
}

#[test]
fn scans_by_the_ten_thousand_are_refused_in_words() {
    for deep in [Deep::Scans, Deep::Totals] {
        on_small_stack(move || {
            let error = called(deep, 100_000).expect_err("too much to plan");
            assert!(error.to_string().contains("split it into several kernels"), "{deep:?}: {error}");
        });
    }
}

//! Kernels of the library that go through memory once: one stage, nothing in between.

use oplus_dsl::Elem;
use oplus_dsl::specialize::for_call;

use crate::Kernel;
use crate::cpu::plan::{Layout, Plan, Request};
use crate::kernels::{affine, cumsum, cumsum_exclusive, ema, log_decay};

/// The plan of a call without optional parameters on one dense row of every tensor.
fn plan(kernel: &Kernel, len: usize) -> (Plan, String) {
    let program = kernel.program().unwrap();
    let names: Vec<&str> = program.outputs.iter().map(|output| output.name.as_str()).collect();
    let optional = program.params.iter().filter(|param| param.default.is_some());
    let absent: Vec<&str> = optional.map(|param| param.name.as_str()).collect();
    let program = for_call(program, Elem::F32, &names, &absent);
    let sizes: Vec<usize> = program.axes.iter().map(|name| if name == "T" { len } else { 1 }).collect();
    let dense = |rank: usize| Layout { offset: 0, strides: vec![1; rank] };
    let request = Request {
        sizes,
        inputs: program.params.iter().map(|param| Some(dense(param.axes.len()))).collect(),
        outputs: program.outputs.iter().map(|output| dense(output.axes.len())).collect(),
    };
    (Plan::new(&program, &request).unwrap(), program.to_string())
}

#[test]
fn scans_of_the_library_are_one_stage() {
    let kernels = [cumsum::kernel(), cumsum_exclusive::kernel(), affine::kernel(), ema::kernel(), log_decay::kernel()];
    for kernel in kernels {
        for len in [1, 1000, 1 << 20, 1 << 25] {
            let (plan, program) = plan(kernel, len);
            assert!(plan.temporaries.is_empty(), "{:?} of\n{program}", plan.temporaries);
            assert_eq!(plan.stages.len(), 1, "{program}");
        }
    }
}

//! Kernels of the library that go through memory once: one stage, nothing in between.

use oplus_dsl::Elem;
use oplus_dsl::parse::parse;
use oplus_dsl::specialize::for_call;
use oplus_dsl::testing::inputs;

use crate::Kernel;
use crate::cpu::linear;
use crate::cpu::plan::{Layout, Plan, Request};
use crate::cpu::tests::harness::{Strides, check};
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
    (Plan::new(&program, &request, false).unwrap(), program.to_string())
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

#[test]
fn long_rows_go_from_memory_to_memory() {
    let is_row = |kernel, len| plan(kernel, len).0.stages[0].row().is_some();
    for kernel in [cumsum::kernel(), affine::kernel()] {
        assert!(!is_row(kernel, 1000));
        assert_eq!(is_row(kernel, 1 << 25), linear::is_available(), "{:?}", plan(kernel, 1 << 25).0);
    }
    assert!(!is_row(cumsum_exclusive::kernel(), 1 << 25));
}

#[test]
fn long_rows_agree_with_the_interpreter() {
    for kernel in [cumsum::kernel(), affine::kernel()] {
        for len in [32_768, 32_769, 70_001] {
            let (_, program) = plan(kernel, len);
            let program = parse(&program).unwrap();
            let sizes: Vec<usize> = program.axes.iter().map(|name| if name == "T" { len } else { 1 }).collect();
            let inputs = inputs(&program, &sizes, 3);
            for strides in [Strides::Dense, Strides::Scattered] {
                check(&program, &sizes, &inputs, strides);
            }
        }
    }
}

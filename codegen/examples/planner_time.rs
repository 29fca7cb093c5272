//! The time on the host before a kernel is loaded: prints for some models and their gradients how long it takes to derive the
//! gradient, to cut the program, to plan a call for the first time and again, and to lower the plan's kernels to tile IR.

use std::time::Instant;

use oplus_codegen::plan::{Call, Planner, cuts};
use oplus_codegen::schedules::lower;
use oplus_codegen::target::Target;
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::Program;

/// How often each time is taken; the least is printed.
const TIMES: usize = 25;

fn main() {
    let programs = oplus_front::model_programs();
    for name in ["selective_scan", "mamba", "ssd", "attention_causal"] {
        let Some(program) = programs.iter().find(|program| program.name == name) else { continue };
        report(name, &program.instantiate(Elem::F32));
        if let Ok(gradient) = adjoint(program) {
            println!("{name}'s gradient: derived in {:.2} ms", least(|| drop(adjoint(program))));
            report(&format!("{name}'s gradient"), &gradient.instantiate(Elem::F32));
        }
    }
}

fn report(name: &str, program: &Program) {
    let sizes: Vec<i64> = program.axes.iter().map(|axis| if axis == "T" { 2048 } else { 64 }).collect();
    let call = Call::contiguous(program, &sizes);
    let cut = least(|| drop(cuts(program).expect("cuts")));
    let made = least(|| drop(Planner::new(program, &Target::H200).expect("cuts")));
    let first = least(|| drop(Planner::new(program, &Target::H200).expect("cuts").plan(&call).expect("plans")));
    let planner = Planner::new(program, &Target::H200).expect("cuts");
    let again = least(|| drop(planner.plan(&call).expect("plans")));
    let plan = planner.plan(&call).expect("plans");
    let isa = Target::H200.isa;
    let lowered = least(|| plan.steps.iter().for_each(|step| drop(lower(&step.stage, &step.schedule, isa))));
    println!(
        "{name}: cuts {cut:.2} ms, planner {made:.2} ms, with the first plan {first:.2} ms, another plan {again:.2} ms, tile IR {lowered:.2} ms"
    );
}

/// Milliseconds, the least of several times.
fn least(work: impl Fn()) -> f64 {
    let time = || {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64() * 1e3
    };
    (0..TIMES).map(|_| time()).fold(f64::INFINITY, f64::min)
}

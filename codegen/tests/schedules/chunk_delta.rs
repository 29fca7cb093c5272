//! Delta rules in chunks: fla's rule of errors against the interpreter.

use oplus_codegen::plan::{Plan, Planner};
use oplus_codegen::schedules::Schedule;
use oplus_codegen::simulate::Order;
use oplus_codegen::target::{Isa, Target};
use oplus_dsl::Elem;
use oplus_dsl::interpret::{Array, Data, Mode, interpret_sized};
use oplus_dsl::ir::{Axis, Param, Program};
use oplus_dsl::rng::Rng;

use crate::device::{Placement, Work, call, run};
use crate::oracle::rounded;

/// The root mean square of an error may be so much of that of what is exact.
const RULE: f64 = 0.005;

fn model(name: &str) -> Program {
    let all = oplus_front::model_programs();
    all.into_iter().find(|program| program.name == name).expect("a model").instantiate(Elem::Bf16)
}

fn sizes(program: &Program, [b, h, t, k, v]: [usize; 5]) -> Vec<usize> {
    let size = |axis: &String| match axis.as_str() {
        "B" => b,
        "H" => h,
        "T" => t,
        "K" => k,
        _ => v,
    };
    program.axes.iter().map(size).collect()
}

/// Inputs as models have them: keys of length 1, steps of 0 to 1, decays near 1.
fn inputs(program: &Program, sizes: &[usize]) -> Vec<Array> {
    let mut rng = Rng::new(11);
    let mut input = |param: &Param| {
        let own: Vec<usize> = param.axes.iter().map(|a| sizes[a.0 as usize]).collect();
        let (low, high) = match param.name.as_str() {
            "beta" => (0.0, 1.0),
            "g" => (-0.5, 0.0),
            _ => (-1.0, 1.0),
        };
        let mut data: Vec<f64> = (0..own.iter().product()).map(|_| rng.between(low, high)).collect();
        if param.name == "k" {
            for key in data.chunks_mut(own[own.len() - 1].max(1)) {
                let length = key.iter().map(|x| x * x).sum::<f64>().sqrt().max(1e-9);
                key.iter_mut().for_each(|x| *x /= length);
            }
        }
        data.iter_mut().for_each(|x| *x = rounded(*x, param.elem));
        Array { sizes: own, data: Data::Float(data) }
    };
    program.params.iter().map(&mut input).collect()
}

/// The fastest plan in chunks.
fn chunked(program: &Program, sizes: &[usize], placement: Placement, target: &Target) -> Plan {
    let planner = Planner::new(program, target).expect("cuts");
    let call = call(program, sizes, placement);
    let chunks = |plan: &Plan| plan.steps.iter().any(|step| matches!(step.schedule, Schedule::ChunkDelta(_)));
    (0..8).filter_map(|rank| planner.plan_ranked(&call, rank).ok()).find(chunks).expect("takes chunks")
}

fn relative_error(wanted: &Array, found: &Array) -> f64 {
    let (wanted, found) = (wanted.as_floats().unwrap(), found.as_floats().unwrap());
    let squares = |all: &mut dyn Iterator<Item = f64>| all.map(|x| x * x).sum::<f64>();
    let error = squares(&mut wanted.iter().zip(found).map(|(a, b)| a - b));
    (error / squares(&mut wanted.iter().copied()).max(1e-300)).sqrt()
}

fn check(name: &str, lengths: [usize; 5], (placement, order): (Placement, Order)) {
    let program = model(name);
    let sizes = sizes(&program, lengths);
    let given = inputs(&program, &sizes);
    let Plan { steps: launches, buffers, message_words, .. } = chunked(&program, &sizes, placement, &Target::H200);
    let work = Work { launches, buffers, message_words };
    let found = run(&program, &work, &given, &sizes, (placement, order, Isa::Sm90a));
    let optional: Vec<Option<Array>> = given.iter().cloned().map(Some).collect();
    let named: Vec<(Axis, usize)> = (0..).map(Axis).zip(sizes).collect();
    let wanted = interpret_sized(&program, &optional, &named, Mode::default()).expect("runs");
    for ((wanted, found), output) in wanted.iter().zip(&found).zip(&program.outputs) {
        let error = relative_error(wanted, found);
        assert!(error < RULE, "{name} {lengths:?} {placement:?}: `{}` is off by {error}", output.name);
    }
}

#[test]
fn chunks_give_what_the_rule_means() {
    for name in ["delta_rule", "gated_delta_rule"] {
        check(name, [1, 1, 64, 64, 64], (Placement::Contiguous, Order::Ascending));
        check(name, [1, 2, 200, 64, 128], (Placement::Contiguous, Order::Random(1)));
        check(name, [2, 1, 65, 128, 64], (Placement::Contiguous, Order::Descending));
        check(name, [1, 1, 1, 32, 64], (Placement::Contiguous, Order::Random(2)));
        check(name, [1, 2, 130, 24, 40], (Placement::Padded, Order::Random(3)));
        check(name, [1, 1, 67, 21, 3], (Placement::Strided, Order::Random(4)));
        check(name, [1, 1, 63, 33, 17], (Placement::Misaligned, Order::Random(5)));
    }
}

//! Plans of attention and of its gradient: sums over pairs, whatever hides keys from queries.

use oplus_codegen::plan::Planner;
use oplus_codegen::schedules::Schedule;
use oplus_codegen::simulate::Order;
use oplus_codegen::stage::{CutKind, Kind};
use oplus_codegen::target::Target;
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::{Operator, Program};
use oplus_dsl::specialize::for_call;

use crate::device::{Placement, call};
use crate::oracle::Case;

/// A standard model.
fn model(name: &str, elem: Elem) -> Program {
    let models = oplus_front::model_programs();
    models.into_iter().find(|program| program.name == name).expect("a model").instantiate(elem)
}

/// The sizes of a program's axes: M and N given, E and F one.
fn sizes(program: &Program, m: usize, n: usize, e: usize) -> Vec<usize> {
    let size = |axis: &String| match axis.as_str() {
        "M" => m,
        "N" => n,
        "E" | "F" => e,
        "S" => 3,
        _ => 2,
    };
    program.axes.iter().map(size).collect()
}

/// Plans for both targets give what the program means, by sums over pairs.
fn check(program: &Program, [m, n, e]: [usize; 3], placement: Placement) {
    let sizes = sizes(program, m, n, e);
    for target in [Target::H200, Target::A100] {
        let plan = Planner::new(program, &target).expect("cuts").plan(&call(program, &sizes, placement)).expect("runs");
        assert!(plan.steps.iter().any(|step| matches!(step.schedule, Schedule::Flash(_))), "{}", program.name);
        Case { program, sizes: &sizes, placement, order: Order::Random(m as u64) }.check_plan(&target);
    }
}

#[test]
fn attention_of_all_kinds() {
    for name in ["attention", "attention_causal", "attention_window", "attention_softcap"] {
        let program = model(name, Elem::Bf16);
        check(&program, [37, 41, 32], Placement::Contiguous);
        check(&program, [70, 19, 24], Placement::Padded);
    }
    check(&model("attention_bias", Elem::F16), [20, 35, 16], Placement::Strided);
    check(&model("attention_packed", Elem::F16), [20, 35, 16], Placement::Misaligned);
}

#[test]
fn gradients_of_attention() {
    // The logarithms are any numbers here, so that weights are large: few of them, and 11 bits.
    for name in ["attention", "attention_causal"] {
        let gradient = adjoint(&model(name, Elem::F16)).expect("a gradient");
        check(&gradient, [7, 9, 32], Placement::Contiguous);
        check(&gradient, [21, 6, 20], Placement::Padded);
    }
}

/// The program of a gradient as calls run it: derived once for all element types, and given the cotangent of o alone.
pub(crate) fn gradient_of_calls(name: &str, elem: Elem) -> Program {
    let models = oplus_front::model_programs();
    let forward = models.into_iter().find(|program| program.name == name).expect("a model");
    let bar = adjoint(&forward).expect("a gradient");
    let wanted: Vec<&str> = bar.outputs.iter().map(|o| o.name.as_str()).collect();
    for_call(&bar, elem, &wanted, &["lse.bar"])
}

#[test]
fn gradients_of_calls_do_not_attend_again() {
    let names = ["attention", "attention_causal", "attention_window", "attention_bias", "attention_softcap"];
    for name in names.into_iter().chain(["attention_packed", "attention_packed_causal"]) {
        for elem in [Elem::Bf16, Elem::F16, Elem::F32] {
            let program = gradient_of_calls(name, elem);
            let sizes = sizes(&program, 300, 200, 64);
            let planner = Planner::new(&program, &Target::H200).expect("cuts");
            let plan = planner.plan(&call(&program, &sizes, Placement::Contiguous)).expect("plans");
            let merges = |op: &Operator| op.gauge.is_some();
            let again = plan.steps.iter().any(|step| step.stage.program.operators.iter().any(merges));
            assert!(!again, "{name} in {elem}");
            let pairs = plan.steps.iter().filter(|step| matches!(step.schedule, Schedule::Flash(_))).count();
            assert!(pairs == 2 || name == "attention_bias", "{name} in {elem}: {pairs} sums over pairs");
        }
    }
}

#[test]
fn single_precision_too() {
    check(&model("attention_causal", Elem::F32), [20, 35, 16], Placement::Contiguous);
    check(&adjoint(&model("attention", Elem::F32)).expect("a gradient"), [7, 9, 32], Placement::Contiguous);
}

#[test]
fn double_precision_has_no_sums_over_pairs() {
    let planner = Planner::new(&model("attention", Elem::F64), &Target::H200).expect("cuts");
    assert_eq!(planner.cut(CutKind::Pairwise), None);
}

#[test]
fn keys_in_parts() {
    let mut parts = vec![];
    for (name, elem, e) in [
        ("attention", Elem::Bf16, 32),
        ("attention_causal", Elem::F16, 24),
        ("attention_window", Elem::Bf16, 15),
        ("attention_bias", Elem::F32, 16),
        ("attention_packed_causal", Elem::Bf16, 16),
    ] {
        let program = model(name, elem);
        for (m, n, placement) in
            [(1, 700, Placement::Contiguous), (3, 290, Placement::Padded), (2, 40, Placement::Strided)]
        {
            let sizes = sizes(&program, m, n, e);
            for target in [Target::H200, Target::A100] {
                let case = Case { program: &program, sizes: &sizes, placement, order: Order::Random(n as u64) };
                parts.push(case.check_split(&target));
            }
        }
    }
    assert!(parts.iter().filter(|n| **n > 2).count() > 8 && parts.contains(&1), "{parts:?}");
}

/// Of one value for each key the output has as many numbers as the log-sum-exp.
#[test]
fn joined_sums_of_all_widths_and_schedules() {
    let program = model("attention", Elem::F16);
    for (width, rank) in [(1, 0), (2, 1), (15, 0), (33, 1), (64, 0)] {
        let own: Vec<usize> = sizes(&program, 3, 170, 16);
        let sizes: Vec<usize> = own.iter().zip(&program.axes).map(|(n, a)| if a == "F" { width } else { *n }).collect();
        for placement in [Placement::Contiguous, Placement::Misaligned] {
            let case = Case { program: &program, sizes: &sizes, placement, order: Order::Random(width as u64) };
            let work = case.check_cut(CutKind::SplitK, &Target::H200, rank).expect("partial sums");
            let [_, join] = &work.launches[..] else { panic!("{} launches", work.launches.len()) };
            assert!(*join.stage.kind() == Kind::UnevenReduce && matches!(join.schedule, Schedule::Columns(_)));
        }
    }
}

#[test]
fn few_queries_of_many_keys_take_parts() {
    let program = model("attention", Elem::Bf16);
    let parts = |m: usize, n: usize, heads: usize| {
        let size = |axis: &String| match axis.as_str() {
            "M" => m,
            "N" => n,
            "E" | "F" => 128,
            "G" => heads,
            _ => 1,
        };
        let sizes: Vec<usize> = program.axes.iter().map(size).collect();
        let planner = Planner::new(&program, &Target::H200).expect("cuts");
        let plan = planner.plan(&call(&program, &sizes, Placement::Contiguous)).expect("plans");
        let blocks = plan.steps[0].grid[0];
        (plan.steps.iter().any(|step| step.stage.partial_axis.is_some()), blocks)
    };
    for (m, n, heads) in [(1, 8192, 8), (1, 131_072, 1), (4, 65_536, 32), (64, 16_384, 2)] {
        let (split, blocks) = parts(m, n, heads);
        assert!(split && blocks >= 132, "{m} queries, {n} keys, {heads} heads: {blocks} blocks");
    }
    for (m, n, heads) in [(1, 64, 8), (8192, 8192, 16), (1, 4096, 512)] {
        assert!(!parts(m, n, heads).0, "{m} queries, {n} keys, {heads} heads");
    }
}

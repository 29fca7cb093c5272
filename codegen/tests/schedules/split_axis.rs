//! Recurrences of matrices that are deeper than a block: a split axis, and a sum over its outer one.

use oplus_codegen::plan::{Plan, Planner};
use oplus_codegen::simulate::Order;
use oplus_codegen::stage::CutKind;
use oplus_codegen::target::Target;
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::Program;

use crate::device::{Placement, call, goes_by_chunks};
use crate::oracle::Case;

fn model(name: &str, elem: Elem) -> Program {
    let mut all = oplus_front::model_programs().into_iter();
    all.find(|program| program.name == name).expect("a model").instantiate(elem)
}

/// A model, an element type, and sizes of the axes of its states.
type Deep<'a> = (&'a str, Elem, &'a [(&'a str, i64)]);

/// A model, sizes of its axes, and parts of the axis that is summed.
type Divided<'a> = (&'a str, &'a [(&'a str, usize)], i64);

fn sizes(program: &Program, own: &[(&str, usize)]) -> Vec<usize> {
    let size = |axis: &String| own.iter().find(|(name, _)| name == axis).map_or(1, |(_, n)| *n);
    program.axes.iter().map(size).collect()
}

/// Whether the plan has a split axis.
fn has_split_axis(plan: &Plan) -> bool {
    plan.steps.iter().any(|launch| launch.stage.program.axes.iter().any(|axis| axis.ends_with(".outer")))
}

#[test]
fn deep_recurrences_go_by_chunks() {
    let cases: [Deep<'_>; 4] = [
        ("ssd", Elem::Bf16, &[("N", 256), ("P", 64)]),
        ("retention", Elem::Bf16, &[("K", 256), ("V", 512)]),
        ("gated_linear_attention", Elem::Bf16, &[("K", 192), ("V", 128)]),
        ("gated_linear_attention", Elem::F32, &[("K", 192), ("V", 128)]),
    ];
    for (name, elem, own) in cases {
        let forward = model(name, elem);
        for program in [adjoint(&forward).expect("a gradient"), forward] {
            let size = |axis: &String| own.iter().find(|(name, _)| name == axis).map_or(8, |(_, n)| *n as usize);
            let sizes: Vec<usize> =
                program.axes.iter().map(|axis| if axis == "T" { 2048 } else { size(axis) }).collect();
            let planner = Planner::new(&program, &Target::H200).expect("cuts");
            let plan = planner.plan(&call(&program, &sizes, Placement::Contiguous)).expect("plans");
            assert!(has_split_axis(&plan), "{} {own:?}", program.name);
            assert!(plan.steps.iter().any(|launch| goes_by_chunks(&launch.schedule)));
        }
    }
}

/// A block of all keys would have a multiprocessor to itself.
#[test]
fn values_with_numbers_go_in_parts_in_f32() {
    let head = "q: [B, H, T, K], k: [B, H, T, K], v: [B, H, T, V], g: [B, H, T, K], beta: [B, H, T]";
    let scan = "scan(T, LogDecay(g, k * (beta * v))).x";
    let text = format!("fn gained({head}) -> (o: [B, H, T, V]) {{ o = sum(K, q * {scan}); }}");
    let programs = oplus_front::programs(text.parse().expect("tokens")).expect("a program");
    let program = adjoint(&programs[0].instantiate(Elem::F32)).expect("differentiable");
    let sizes = sizes(&program, &[("B", 8), ("H", 8), ("T", 2048), ("K", 128), ("V", 128)]);
    let planner = Planner::new(&program, &Target::H200).expect("cuts");
    let plan = planner.plan(&call(&program, &sizes, Placement::Contiguous)).expect("plans");
    assert!(has_split_axis(&plan));
    assert!(plan.steps.iter().any(|launch| goes_by_chunks(&launch.schedule)));
}

#[test]
fn split_axes_give_what_the_whole_gives() {
    let cases: [Divided<'_>; 5] = [
        ("ssd", &[("N", 64), ("T", 130), ("P", 64), ("H", 2)], 2),
        ("ssd", &[("N", 48), ("T", 65), ("P", 17), ("G", 2)], 3),
        ("retention", &[("K", 64), ("T", 70), ("V", 65), ("H", 2)], 2),
        ("linear_attention", &[("K", 34), ("T", 129), ("V", 33)], 2),
        ("gated_linear_attention", &[("K", 128), ("T", 67), ("V", 64)], 2),
    ];
    for (name, own, parts) in cases {
        let forward = model(name, Elem::F32);
        let gradient = adjoint(&forward).expect("a gradient");
        for (program, how) in [(gradient, CutKind::MatrixBackward), (forward, CutKind::Contracted)] {
            let (sizes, axis) =
                (sizes(&program, own), program.axis(if name == "ssd" { "N" } else { "K" }).expect("one"));
            for placement in [Placement::Contiguous, Placement::Padded] {
                let case = Case { program: &program, sizes: &sizes, placement, order: Order::Random(3) };
                let schedules = case.check_split_axis(how, &Target::H200, axis, parts);
                let by_chunks = schedules.iter().any(goes_by_chunks);
                assert!(by_chunks || how == CutKind::Contracted, "{schedules:?}");
            }
        }
    }
}

#[test]
fn axes_that_cannot_be_split_are_whole() {
    // A prime number of keys has no equal parts; selective scans sum few states.
    let no_parts = "K: its 131 indices have no equal parts of 2 to 128";
    let cases = [
        ("retention", [("K", 131), ("T", 128)], Some(no_parts)),
        ("retention", [("K", 128), ("T", 128)], None),
        ("mamba", [("N", 16), ("T", 128)], None),
    ];
    for (name, own, why) in cases {
        let program = model(name, Elem::Bf16);
        let sizes = sizes(&program, &own);
        let planner = Planner::new(&program, &Target::H200).expect("cuts");
        let call = call(&program, &sizes, Placement::Contiguous);
        let plan = planner.plan(&call).expect("plans");
        assert!(!has_split_axis(&plan), "{name}");
        let told: Vec<String> =
            plan.other_splits.iter().map(|other| format!("{}: {}", other.axis, other.why)).collect();
        assert_eq!(told, why.map(str::to_owned).into_iter().collect::<Vec<_>>(), "{name}");
    }
    let program = model("ssd", Elem::Bf16);
    let committed = Planner::of_committed(&program, &Target::H200).expect("cuts");
    let call = call(&program, &sizes(&program, &[("N", 256), ("T", 128)]), Placement::Contiguous);
    assert!(!has_split_axis(&committed.plan(&call).expect("plans")));
}

//! Recurrences of matrices of which nothing but the final state is kept, in both directions: the totals of a shard.

use oplus_codegen::schedules::{Chunkwise, Unit};
use oplus_codegen::simulate::Order;
use oplus_codegen::stage::{Kind, Stage, cut};
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::Program;
use oplus_dsl::parse::parse;
use oplus_dsl::shard::shard;

use crate::harness::{CHUNKS, Case, model};

/// The stages of the totals of a program's shards that are recurrences of matrices.
fn totals(program: &Program) -> Vec<Stage> {
    let divided = shard(program, "T").expect("is divided");
    let first = divided.phases.into_iter().next().and_then(|phase| phase.program).expect("computes totals");
    let stages = cut(&first).expect("cuts").stages;
    stages.into_iter().filter(|stage| matches!(stage.kind(), Kind::MatrixReduce(_))).collect()
}

/// The stages of the totals of a model and of its gradient.
fn totals_of(name: &str, elem: Elem) -> Vec<Stage> {
    let program = model(name, elem, &[]);
    let gradient = adjoint(&program).expect("differentiable");
    [program, gradient].iter().flat_map(totals).collect()
}

fn is_reverse(stage: &Stage) -> bool {
    stage.kind().matrices().expect("has the form").reverse
}

#[test]
fn a_gradient_has_totals_in_both_directions() {
    for name in ["ssd", "monoid_attention", "gated_linear_attention"] {
        let found: Vec<bool> = totals_of(name, Elem::F32).iter().map(is_reverse).collect();
        assert_eq!(found, [false, false, true], "{name}");
    }
}

#[test]
fn lengths_around_chunks_and_segments() {
    for elem in [Elem::F32, Elem::Bf16, Elem::F16] {
        for stage in totals_of("ssd", elem) {
            for t in [1, 2, 31, 32, 33, 64, 101, 130] {
                let sizes = [("B", 1), ("T", t), ("G", 1), ("H", 2), ("P", 32), ("N", 16)];
                let case = Case::new(&stage, &sizes);
                let most = t.div_ceil(32);
                case.check(&CHUNKS, Order::Random(t as u64));
                case.check_segments(&CHUNKS, 2.min(most), Order::Descending);
                case.check_segments(&CHUNKS, most, Order::Random(3));
            }
        }
    }
}

#[test]
fn shapes_by_warps_and_warpgroups() {
    for stage in totals_of("ssd", Elem::Bf16) {
        for (unit, depth) in [(Unit::Warp, 64), (Unit::Warpgroup, 64), (Unit::Warpgroup, 128)] {
            let schedule = Chunkwise { warps: 4, unit, depth, padded: false, vector: 8, ..CHUNKS };
            let sizes = [("B", 1), ("T", 200), ("G", 1), ("H", 1), ("P", 64), ("N", depth as usize)];
            Case::new(&stage, &sizes).check_segments(&schedule, 4, Order::Random(5));
            let wide = [("B", 1), ("T", 130), ("G", 1), ("H", 1), ("P", 128), ("N", depth as usize)];
            let schedule = Chunkwise { wide: true, ..schedule };
            Case::new(&stage, &wide).check_segments(&schedule, 2, Order::Ascending);
        }
    }
}

#[test]
fn decays_of_channels() {
    for stage in totals_of("gated_linear_attention", Elem::F32) {
        let sizes = [("B", 1), ("T", 70), ("H", 2), ("K", 16), ("V", 32)];
        Case::new(&stage, &sizes).check_segments(&CHUNKS, 2, Order::Random(9));
    }
}

/// In reverse the kernel keeps decay·state of the first time: the state alone is another number.
#[test]
fn other_final_values_are_no_such_recurrence() {
    let reverse = |stage: &&Stage| is_reverse(stage);
    let stages = totals_of("ssd", Elem::F32);
    let stage = stages.iter().find(reverse).expect("a total in reverse");
    let text = stage.program.to_string();
    let first = text.lines().find(|line| line.contains("= first(")).expect("a final state");
    let product = first.split("first(T, ").nth(1).and_then(|rest| rest.split(',').next()).expect("its value");
    let line = text.lines().find(|line| line.trim_start().starts_with(&format!("{product}:"))).expect("a product");
    let state = line.rsplit(" * ").next().expect("a factor").trim_end_matches(';');
    let changed = text.replace(&format!("first(T, {product},"), &format!("first(T, {state},"));
    let kinds: Vec<Kind> =
        cut(&parse(&changed).expect("a program")).expect("cuts").stages.iter().map(|s| s.kind().clone()).collect();
    assert!(
        kinds.contains(&Kind::Reduce) && !kinds.iter().any(|kind| matches!(kind, Kind::MatrixReduce(_))),
        "{kinds:?}"
    );
}

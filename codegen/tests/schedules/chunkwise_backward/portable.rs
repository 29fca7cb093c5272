//! Gradients on devices before Hopper, and after it: no copy engines, no warpgroups, and often less shared memory.

use oplus_codegen::plan::Planner;
use oplus_codegen::schedules::{ChunkwiseBackward, Schedule};
use oplus_codegen::simulate::Order;
use oplus_codegen::stage::CutKind;
use oplus_codegen::target::Target;
use oplus_dsl::ir::Program;

use super::{check_on, gradient, results_of, sizes_of};
use crate::device::{Placement, SMALL, call};

/// The third sweep of the plan for a target, which gives what the program means.
fn third(target: &Target, program: &Program, sizes: &[(&str, usize)], order: Order) -> ChunkwiseBackward {
    let sweeps = check_on(target, (program, sizes), (Placement::Contiguous, 0), order, |_, _, own| own);
    *sweeps.last().expect("sweeps")
}

#[test]
fn heads_whose_tiles_have_room_alone_and_with_the_next_ones() {
    let program = gradient("ssd", &["skip", "dt_bias", "h0"], &["y"]);
    for (target, n, stages) in [(Target::A100, 64, 3), (Target::A100, 128, 2), (SMALL, 64, 2)] {
        let sizes = [("B", 1), ("T", 70), ("G", 2), ("H", 3), ("P", 64), ("N", n)];
        let sweep = third(&target, &program, &sizes, Order::Random(n as u64));
        assert_eq!((sweep.stages, sweep.vector), (stages, 8), "{n}");
    }
}

#[test]
fn scores_that_have_no_room() {
    let program = gradient("ssd", &["skip", "dt_bias", "h0"], &["y"]);
    for (p, n, wide) in [(29, 101, false), (128, 128, true)] {
        let sizes = [("B", 1), ("T", 70), ("G", 1), ("H", 2), ("P", p), ("N", n)];
        let sweep = third(&Target::A100, &program, &sizes, Order::Random(n as u64));
        assert_eq!((sweep.stages, sweep.wide, sweep.depth), (2, wide, 128));
    }
    let program = gradient("retention", &["s0"], &["o"]);
    let sizes = [("B", 1), ("H", 2), ("T", 100), ("K", 101), ("V", 29)];
    assert_eq!(third(&Target::A100, &program, &sizes, Order::Descending).vector, 1);
}

/// The schedule of the last sweep of the fastest plan, if it takes chunks.
fn planned(target: &Target, name: &str, sizes: &[(&str, usize)]) -> Option<ChunkwiseBackward> {
    let program = gradient(name, &[], &[if name.starts_with("ssd") || name == "mamba2" { "y" } else { "o" }]);
    let size = |name: &String| sizes.iter().find(|(known, _)| known == name).map_or(1, |(_, n)| *n);
    let sizes: Vec<usize> = program.axes.iter().map(size).collect();
    let plan = Planner::new(&program, target).expect("cuts").plan(&call(&program, &sizes, Placement::Contiguous));
    let sweep = |schedule| match schedule {
        Schedule::ChunkwiseBackward(s) => Some(s),
        _ => None,
    };
    plan.expect("a plan").steps.iter().filter_map(|step| sweep(step.schedule)).next_back()
}

#[test]
fn plans_take_chunks_where_there_is_room() {
    let heads = |k, v| [("B", 8), ("H", 32), ("T", 2048), ("K", k), ("V", v)];
    for name in ["retention", "linear_attention", "monoid_attention"] {
        for (k, v) in [(64, 64), (128, 64), (64, 128), (128, 128), (128, 256)] {
            assert!(planned(&Target::A100, name, &heads(k, v)).is_some(), "{name} {k} {v}");
        }
        assert!(planned(&SMALL, name, &heads(64, 64)).is_some(), "{name}");
        // Of 128 keys there is room for one half after the other.
        assert_eq!(planned(&SMALL, name, &heads(128, 64)).map(|sweep| sweep.depth), Some(64), "{name}");
    }
    let states = |n| [("B", 8), ("T", 2048), ("G", 1), ("H", 80), ("P", 64), ("N", n), ("S", 9)];
    for name in ["ssd", "ssd_softplus", "mamba2", "ssd_packed"] {
        assert!(planned(&Target::A100, name, &states(128)).is_some(), "{name}");
        assert!(planned(&SMALL, name, &states(64)).is_some(), "{name}");
        assert_eq!(planned(&SMALL, name, &states(128)).map(|sweep| sweep.depth), Some(64), "{name}");
    }
}

#[test]
fn halves_of_states_that_have_no_room_as_a_whole() {
    for (name, p, n) in [("ssd", 64, 128), ("ssd_softplus", 29, 72)] {
        let program = gradient(name, &["skip", "dt_bias", "h0"], &["y"]);
        let sizes = sizes_of(&program, &[("B", 1), ("T", 130), ("G", 1), ("H", 3), ("P", p), ("N", n)]);
        let call = call(&program, &sizes, Placement::Contiguous);
        let axis = program.axis("N").expect("states");
        let plan = Planner::new(&program, &SMALL).expect("cuts").plan_split(CutKind::MatrixBackward, &call, axis, 2);
        let plan = plan.expect("plans").expect("halves");
        let how = (Placement::Contiguous, Order::Random(n as u64));
        let sweeps = results_of(plan, &SMALL, (&program, &sizes), how, |_, _, own| own).check(&program, name);
        assert!(sweeps.iter().all(|sweep| sweep.depth == 64), "{name}: {sweeps:?}");
    }
}

//! Final states of which a lane holds several: the totals of shards of the selective scan and of its gradient.

use oplus_codegen::plan::Planner;
use oplus_codegen::schedules::{Schedule, StateSpace};
use oplus_codegen::simulate::Order;
use oplus_codegen::stage::{CutKind, Stage};
use oplus_codegen::target::Target;
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::Program;
use oplus_dsl::shard::shard;

use crate::device::{Placement, call};
use crate::oracle::{Case, program};
use crate::state_space::SMALL;

/// The programs of the totals of a model and of its gradient.
fn totals(name: &str, elem: Elem) -> [Program; 2] {
    let mut models = oplus_front::model_programs().into_iter();
    let model = models.find(|model| model.name == name).expect("a model").instantiate(elem);
    let gradient = adjoint(&model).expect("differentiable");
    [model, gradient].map(|program| {
        let divided = shard(&program, "T").expect("is divided");
        divided.phases.into_iter().next().and_then(|phase| phase.program).expect("computes totals")
    })
}

fn sizes(program: &Program, time: usize, states: usize) -> Vec<usize> {
    let size = |axis: &String| match axis.as_str() {
        "T" => time,
        "N" => states,
        "D" => 5,
        _ => 2,
    };
    program.axes.iter().map(size).collect()
}

fn check(program: &Program, (time, states): (usize, usize), schedule: StateSpace) {
    let (sizes, order) = (sizes(program, time, states), Order::Random(time as u64));
    let case = Case { program, sizes: &sizes, placement: Placement::Contiguous, order };
    case.check_states(Schedule::StateSpace(schedule));
}

/// Every stage of the cut has a state axis, and only the cut for final states has such stages.
#[test]
fn totals_have_states_in_both_directions() {
    for (program, directions) in totals("selective_scan", Elem::F32).iter().zip([vec![false], vec![false, true]]) {
        let planner = Planner::new(program, &Target::H200).expect("cuts");
        let cut = planner.cut(CutKind::FinalStates).expect("has final states");
        let of_states = |stage: &&Stage| stage.scan().is_some_and(|scan| scan.elements.len() == 2);
        assert!(cut.stages.iter().filter(of_states).all(|s| s.has_final_states() && s.kind().walk().is_ok()));
        let scans = cut.stages.iter().filter(of_states);
        let mut found: Vec<bool> = scans.filter_map(|stage| Some(stage.scan()?.reverse)).collect();
        found.sort_unstable();
        assert_eq!(found, directions);
        let plain = planner.cut(CutKind::Plain).expect("a plain cut");
        assert!(plain.stages.iter().all(|stage| stage.state_axis().is_none()));
    }
}

#[test]
fn lengths_around_tiles() {
    for elem in [Elem::F32, Elem::Bf16] {
        for program in totals("selective_scan", elem) {
            for time in [1, 2, 15, 16, 17, 33, 50] {
                check(&program, (time, 4), SMALL);
            }
            check(&program, (48, 4), StateSpace { vector: 4, ..SMALL });
            check(&program, (37, 3), StateSpace { padded: true, ..SMALL });
        }
    }
}

#[test]
fn segments_of_time() {
    for program in totals("selective_scan", Elem::F32) {
        let sizes = sizes(&program, 85, 4);
        let case = Case { program: &program, sizes: &sizes, placement: Placement::Contiguous, order: Order::Random(3) };
        [1, 2, 5].into_iter().for_each(|tiles| case.check_segments(SMALL, tiles));
    }
}

/// Another number than 1 before the first decay is a factor of the product that is kept: such a program is not written with its own decays.
#[test]
fn what_stands_before_the_first_decay_counts() {
    for (fill, has_cut) in [("1.0", true), ("0.5", false)] {
        let text = format!(
            "program filled {{ axes D, N, L; param a: f32[D, L]; param b: f32[N, L]; {}
            %0: f32[D, L] = param a; %1: f32[N, L] = param b; %2: f32 = const {fill}; %3: f32[D, L] = shift(L, -1, %0, %2);
            %4: tuple[D, N, L] = scan(L, Affine, (%3, %1), reverse); %5: f32[D, N, L] = %4.b; %6: f32[D, N, L] = %0 * %5;
            %7: f32 = const 0.0; %8: f32[D, N] = first(L, %6, %7); output last: f32[D, N] = %8; }}",
            operators!()
        );
        let program = program(&text);
        let planner = Planner::new(&program, &Target::H200).expect("cuts");
        assert_eq!(planner.cut(CutKind::FinalStates).is_some(), has_cut, "{fill}");
        let (sizes, order) = ([3, 4, 20], Order::Random(7));
        Case { program: &program, sizes: &sizes, placement: Placement::Contiguous, order }
            .check_ranked(&Target::H200, 0);
    }
}

/// Long totals of many rows are taken by lanes that hold several states.
#[test]
fn the_planner_takes_them() {
    for program in totals("selective_scan", Elem::Bf16) {
        let size = |axis: &String| match axis.as_str() {
            "T" => 4096,
            "N" => 16,
            "D" => 4096,
            _ => 1,
        };
        let sizes: Vec<usize> = program.axes.iter().map(size).collect();
        let call = call(&program, &sizes, Placement::Contiguous);
        let plan = Planner::new(&program, &Target::H200).expect("cuts").plan(&call).expect("plans");
        assert_eq!(plan.cut, CutKind::FinalStates);
        let is_ours = |schedule: &Schedule| matches!(schedule, Schedule::StateSpace(_));
        let of_states = plan.steps.iter().filter(|launch| launch.stage.has_final_states());
        assert!(of_states.clone().count() > 0 && of_states.into_iter().all(|launch| is_ours(&launch.schedule)));
    }
}

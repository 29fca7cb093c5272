//! Gradients of delta rules whose readouts go on through gates and norms: the readouts are stored by a stage of the states alone, and the
//! walk back takes chunks of times as without a gate.

use oplus_codegen::plan::Planner;
use oplus_codegen::schedules::Schedule;
use oplus_codegen::stage::CutKind;
use oplus_codegen::target::Target;
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::Program;

use super::plan::call;
use super::run::check_within;

/// Layers as users write them. A gate alone leaves the cotangent of the readout independent of it; behind a norm it depends on it.
const LAYERS: &str = include_str!("layers.scan");

fn layers(elem: Elem) -> Vec<Program> {
    let items = oplus_front::compile(LAYERS).unwrap_or_else(|e| panic!("{e}"));
    items.iter().filter_map(|item| item.kernel()).map(|kernel| kernel.program.instantiate(elem)).collect()
}

fn sizes(program: &Program, of: impl Fn(&str) -> i64) -> Vec<i64> {
    program.axes.iter().map(|axis| of(axis)).collect()
}

#[test]
fn gradients_behind_gates_and_norms_go_by_chunks() {
    let layers = layers(Elem::Bf16);
    assert_eq!(layers.len(), 4);
    for layer in layers {
        let gradient = adjoint(&layer).expect("differentiable");
        let own = sizes(&gradient, |axis| match axis {
            "B" => 8,
            "H" => 16,
            "T" => 4096,
            _ => 64,
        });
        let planner = Planner::new(&gradient, &Target::H200).expect("cuts");
        let plan = planner.plan(&call(&gradient, &own)).expect("plans");
        assert_eq!(plan.cut, CutKind::MatrixBackward, "{}", layer.name);
        let is_forward = |schedule: &Schedule| matches!(schedule, Schedule::ChunkDelta(_));
        let is_back = |schedule: &Schedule| matches!(schedule, Schedule::ChunkDeltaBackward(_));
        let of = |is: &dyn Fn(&Schedule) -> bool| plan.steps.iter().any(|launch| is(&launch.schedule));
        assert!(of(&is_forward) && of(&is_back), "{}: {:?}", layer.name, plan.steps.len());
        // Nothing of the size of all states is stored: K·V numbers for each time.
        let states: i64 = 8 * 16 * 4096 * 64 * 64 * 4;
        assert!((plan.buffer_bytes() as i64) < states / 4, "{}: {}", layer.name, plan.buffer_bytes());
    }
}

#[test]
fn their_stages_give_what_the_gradient_gives() {
    for layer in layers(Elem::F32) {
        let gradient = adjoint(&layer).expect("differentiable");
        let planner = Planner::new(&gradient, &Target::H200).expect("cuts");
        let cut = planner.cut(CutKind::MatrixBackward).expect("a cut into both directions");
        for time in [0, 1, 2, 7] {
            let own = sizes(&gradient, |axis| match axis {
                "T" => time,
                "K" => 3,
                _ => 2,
            });
            let own: Vec<usize> = own.into_iter().map(|size| size as usize).collect();
            // Readouts and cotangents that are stored are rounded to f32.
            check_within(&gradient, cut, &own, 1e-5);
        }
    }
}

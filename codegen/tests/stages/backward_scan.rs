//! Scans in two directions: the gradient of a recurrence whose states are summed away is one such stage and sums after
//! it, and the stages, run one after another, give what the program gives.

use oplus_codegen::plan::{cuts, variants};
use oplus_codegen::schedules::{Pass, Schedule, lower};
use oplus_codegen::stage::{Cut, CutKind, cut_backward_scan, cut_contracted};
use oplus_codegen::target::Isa;
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::{Op, Program};
use oplus_dsl::specialize::without_param;
use oplus_dsl::testing::recurrence;

use super::run::check_at;

/// The standard models with recurrences that are read out by sums over their states.
const READ_OUT: [&str; 15] = [
    "selective_scan",
    "selective_scan_gated",
    "selective_scan_softplus",
    "mamba",
    "selective_scan_packed",
    "mamba_packed",
    "monoid_attention",
    "monoid_attention_packed",
    "ssd",
    "ssd_softplus",
    "mamba2",
    "ssd_packed",
    "retention",
    "linear_attention",
    "gated_linear_attention",
];

/// The stages give what the program gives, for several lengths.
fn check(program: &Program, cut: &Cut) {
    for time in [0, 1, 2, 7] {
        let size = |axis: &String| match axis.as_str() {
            "T" | "L" => time,
            "B" | "S" => 2,
            _ => 3,
        };
        check_at(program, cut, &program.axes.iter().map(size).collect::<Vec<_>>());
    }
}

/// The standard models, but those with rarer options, for which something holds.
fn models(holds: impl Fn(&Program) -> bool) -> Vec<String> {
    let options = oplus_front::option_models();
    let models = oplus_front::model_programs().into_iter().filter(|model| !options.contains(&model.name));
    models.map(|model| model.instantiate(Elem::F32)).filter(|model| holds(model)).map(|model| model.name).collect()
}

#[test]
fn gradients_of_recurrences_that_are_read_out_are_one_stage_and_sums() {
    let found = models(|model| {
        let Ok(gradient) = adjoint(model) else { return false };
        let Some(cut) = cut_backward_scan(&gradient).expect("cuts") else { return false };
        check(&gradient, &cut);
        let supported = cut
            .stages
            .iter()
            .filter(|stage| stage.opposite_scans().is_some())
            .map(|stage| stage.kind().walk_back().map(|_| ()));
        assert_eq!(supported.collect::<Vec<_>>(), [Ok(())], "{}", model.name);
        true
    });
    assert_eq!(found, READ_OUT);
}

/// Whether lanes may have two rows of so many states.
fn pairs_rows(name: &str, absent: &[&str], states: u32, isa: Isa) -> bool {
    let model = oplus_front::model_programs().into_iter().find(|program| program.name == name).expect("a model");
    let lean = absent.iter().fold(model.instantiate(Elem::F32), |program, name| without_param(&program, name));
    let cut = cut_backward_scan(&adjoint(&lean).expect("a gradient")).expect("cuts").expect("a backward scan");
    let stage = cut.stages.iter().find(|stage| stage.opposite_scans().is_some()).expect("a stage");
    let pairs = |schedule: &Schedule| matches!(schedule, Schedule::StateSpaceBackward(s) if s.pass == Pass::Walk && s.rows == 2 && s.capacity() == states);
    variants(stage, isa).iter().any(|(_, schedule)| pairs(schedule))
}

/// The kernels that `ptxas` makes of them, without spills where this says so.
#[test]
fn lanes_have_two_rows_where_registers_suffice() {
    let (h0, bias) = (&["h0", "delta_bias"][..], &["h0"][..]);
    for (name, absent, states, isa, wanted) in [
        ("selective_scan", h0, 16, Isa::Sm90a, true),
        ("selective_scan", bias, 16, Isa::Sm90a, false),
        ("selective_scan_softplus", h0, 16, Isa::Sm90a, false),
        ("selective_scan", h0, 16, Isa::Sm80, false),
        ("selective_scan", h0, 4, Isa::Sm90a, true),
        ("selective_scan", bias, 4, Isa::Sm90a, true),
    ] {
        assert_eq!(
            pairs_rows(name, absent, states, isa),
            wanted,
            "{name} without {absent:?}, {states} states, {isa:?}"
        );
    }
}

#[test]
fn recurrences_that_are_read_out_keep_the_sums_over_their_states() {
    let found = models(|model| {
        let Some(cut) = cut_contracted(model).expect("cuts") else { return false };
        check(model, &cut);
        true
    });
    assert!(READ_OUT.iter().all(|name| found.iter().any(|own| own == name)), "{found:?}");
}

#[test]
fn random_recurrences_that_are_read_out_and_their_gradients() {
    let (mut contracted, mut backward_scans) = (0, 0);
    for seed in 0..200 {
        let program = recurrence(seed, Elem::F64);
        if let Some(cut) = cut_contracted(&program).expect("cuts") {
            check(&program, &cut);
            contracted += 1;
        }
        let gradient = adjoint(&program).expect("a gradient");
        if let Some(cut) = cut_backward_scan(&gradient).expect("cuts") {
            check(&gradient, &cut);
            backward_scans += 1;
        }
    }
    assert!(contracted > 100 && backward_scans > 20, "{contracted} {backward_scans}");
}

/// Sums over the heads' rows are rounded to bf16 in the stage of all sums of a gradient by channels: a lane of the walk has not
/// got them.
#[test]
fn every_schedule_of_a_stage_with_rounded_sums_can_be_lowered() {
    let mut lowered = 0;
    for model in oplus_front::model_programs() {
        let Ok(gradient) = adjoint(&model) else { continue };
        let gradient = gradient.instantiate(Elem::Bf16);
        let stages = cuts(&gradient).expect("cuts").all().flat_map(|cut| cut.stages);
        for (stage, schedule) in stages.filter(|s| s.opposite_scans().is_some()).flat_map(|s| variants(&s, Isa::Sm90a))
        {
            lower(&stage, &schedule, Isa::Sm90a).unwrap_or_else(|e| panic!("{}, {schedule}: {e}", stage.program.name));
            lowered += 1;
        }
    }
    assert!(lowered > 100, "{lowered}");
}

/// Kernels whose gradients have outputs that are no sums over rows: without rows, and with factors that rows share or have by themselves.
const WITHOUT_ROWS: [&str; 4] = [
    "fn f(a: [T, N], b: [T, N], c: [T, N], x: [T]) -> (y: [T]) { y = sum(N, c * scan(T, Affine(a, b * x)).b); }",
    "fn f(a: [N], b: [T, N], c: [T, N]) -> (y: [T]) { y = sum(N, c * scan(T, Affine(a, b)).b); }",
    "fn f(a: [B, T, N], b: [B, T, N], c: [B, T, N]) -> (y: [B, T]) { y = sum(N, c * scan(T, Affine(a, b)).b); }",
    "fn f(a: [B, N], x: [B, T], c: [B, N], d: [B, T]) -> (y: [B, T]) { y = d * sum(N, c * scan(T, Affine(a, x)).b) + x; }",
];

#[test]
fn the_kernels_of_every_walk_back_can_be_made() {
    let mut made = 0;
    let texts = WITHOUT_ROWS.iter().map(|text| {
        let programs =
            oplus_front::programs(text.parse().expect("tokens")).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        programs[0].instantiate(Elem::F32)
    });
    for program in texts.chain((0..60).map(|seed| recurrence(seed, Elem::F32))) {
        let gradient = adjoint(&program).expect("a gradient");
        let Some(cut) = cut_backward_scan(&gradient).expect("cuts") else { continue };
        for stage in cut.stages.iter().filter(|stage| stage.opposite_scans().is_some()) {
            if stage.kind().walk_back().is_err() {
                continue;
            }
            let all = variants(stage, Isa::Sm90a);
            for (_, schedule) in all.iter().filter(|(_, s)| matches!(s, Schedule::StateSpaceBackward(_))).step_by(7) {
                lower(stage, schedule, Isa::Sm90a).unwrap_or_else(|e| panic!("{schedule}: {e}\n{gradient}"));
                made += 1;
            }
        }
    }
    assert!(made >= 50, "{made}");
}

/// The shift of decays puts a number before the first one, which the initial state of cotangents is multiplied by. Kernels take it
/// to be 1: in a shard of a longer sequence it is another one.
#[test]
fn a_number_before_the_first_decay_other_than_1_meets_no_state() {
    let taken = |program: &Program| {
        let all = cuts(program).expect("cuts");
        [CutKind::BackwardScan, CutKind::MatrixBackward].map(|how| all.get(how).is_some())
    };
    let gives_last_state = |model: &Program| model.outputs.iter().any(|output| output.name.ends_with("last"));
    let mut checked = 0;
    for model in oplus_front::model_programs().iter().filter(|m| READ_OUT.contains(&m.name.as_str())) {
        let gradient = adjoint(&model.instantiate(Elem::F32)).expect("differentiable");
        // Gradients of decays that do not vary in time shift nothing.
        let shifts = gradient.nodes.iter().any(|node| matches!(node.op, Op::Shift { by: -1, .. }));
        if !shifts || !gives_last_state(model) || taken(&gradient) == [false; 2] {
            continue;
        }
        let changed = gradient.to_string().replace("const 1.0;", "const 0.5;");
        let changed = oplus_dsl::parse::parse(&changed).expect("a program");
        assert_eq!(taken(&changed), [false; 2], "{changed}");
        checked += 1;
    }
    assert!(checked > 8, "{checked}");
}

//! Scans in two directions: the gradient of a recurrence whose states are summed away is one such stage and sums after
//! it, and the stages, run one after another, give what the program gives.

use oplus_codegen::lower::states::two_way::supports;
use oplus_codegen::stage::{Cut, cut_contracted, cut_two_way};
use oplus_dsl::Elem;
use oplus_dsl::adjoint::adjoint;
use oplus_dsl::ir::Program;
use oplus_dsl::testing::recurrence;

use super::run::check_at;

/// The standard models with recurrences that are read out by sums over their states.
const READ_OUT: [&str; 13] = [
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

/// The standard models for which something holds.
fn models(holds: impl Fn(&Program) -> bool) -> Vec<String> {
    let models = oplus_front::model_programs().into_iter().map(|model| model.instantiate(Elem::F32));
    models.filter(|model| holds(model)).map(|model| model.name).collect()
}

#[test]
fn gradients_of_recurrences_that_are_read_out_are_one_stage_and_sums() {
    let found = models(|model| {
        let Ok(gradient) = adjoint(model) else { return false };
        let Some(cut) = cut_two_way(&gradient).expect("cuts") else { return false };
        check(&gradient, &cut);
        let supported = cut.stages.iter().filter(|stage| stage.two_way().is_some()).map(supports);
        assert_eq!(supported.collect::<Vec<_>>(), [Ok(())], "{}", model.name);
        true
    });
    assert_eq!(found, READ_OUT);
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
    let (mut contracted, mut two_way) = (0, 0);
    for seed in 0..200 {
        let program = recurrence(seed, Elem::F64);
        if let Some(cut) = cut_contracted(&program).expect("cuts") {
            check(&program, &cut);
            contracted += 1;
        }
        let gradient = adjoint(&program).expect("a gradient");
        if let Some(cut) = cut_two_way(&gradient).expect("cuts") {
            check(&gradient, &cut);
            two_way += 1;
        }
    }
    assert!(contracted > 100 && two_way > 20, "{contracted} {two_way}");
}

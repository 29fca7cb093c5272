//! `oplus tune` on the committed measurements: what the planner's choices cost.

use std::path::Path;

use super::{fail, succeed, text};

/// Times of the plans of 81 cases, as `oplus-bench --unchecked --more 9` wrote them: gradients of selective scans and recurrences of matrices on
/// an H200, others on an H100.
fn measured() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tune/committed.jsonl")
}

/// Where this fails for a plan that was not measured, the planner takes another one than before: the case is to be measured again.
#[test]
fn the_planner_takes_plans_that_are_near_the_fastest_measured() {
    let said = succeed(&["tune", text(&measured()), "--committed", "--most", "1.1", "--most-of-all", "1.03"]);
    assert!(said.contains("the geometric mean of 99 cases"), "{said}");
    assert!(said.contains("time by estimate, of plans of one launch") && said.contains("\nrows "), "{said}");
}

/// Attention's forward pass on an H200, by kernels that are compiled: times of the plans that were estimated to be the fastest six.
#[test]
fn so_does_attention() {
    let attention = Path::new(env!("CARGO_MANIFEST_DIR")).join("tune/h200-attention.jsonl");
    let said = succeed(&["tune", text(&attention), "--most", "1.05", "--most-of-all", "1.01"]);
    assert!(said.contains("the geometric mean of 30 cases"), "{said}");
}

#[test]
fn bounds_that_do_not_hold_are_named() {
    let message = fail(&["tune", text(&measured()), "--committed", "--most", "1.0"]);
    assert!(message.starts_with("error: the regret is above 1 for "), "{message}");
    let message = fail(&["tune", text(&measured()), "--committed", "--most-of-all", "1.0"]);
    assert!(message.contains("the geometric mean of the regrets is 1.0"), "{message}");
    assert!(fail(&["tune", "no.jsonl"]).contains("cannot read no.jsonl"));
}

//! The gradients of softmax attention: sums without a gauge, along queries and along keys.

use oplus_codegen::schedules::{Flash, Unit};
use oplus_codegen::simulate::Order;
use oplus_codegen::stage::Stage;
use oplus_dsl::interpret::Data;

use crate::attention::SMALL;
use crate::harness::Case;
use crate::programs::{SEEN, backward_keys, backward_queries, backward_shared_keys, backward_values, causal};

/// A run whose logarithms are large enough for weights below 1.
fn check(stage: &Stage, sizes: [usize; 7], schedule: &Flash) {
    let mut case = Case::new(stage, &sizes);
    if let Data::Float(lse) = &mut case.inputs[3].data {
        lse.iter_mut().for_each(|x| *x += 3.0);
    }
    case.check(schedule, Order::Random(sizes[3] as u64));
}

#[test]
fn gradients_of_queries() {
    for stage in SEEN.map(|seen| backward_queries("bf16", seen)) {
        for (m, n) in [(1, 1), (1, 37), (31, 16), (33, 33), (37, 61), (65, 20)] {
            check(&stage, [1, 1, 2, m, n, 16, 32], &Flash { width: 32, ..SMALL });
        }
    }
}

/// Where sums leave few registers, copies are loops and rows are stored together.
#[test]
fn gradients_of_256_places() {
    for stage in SEEN.map(|seen| backward_queries("bf16", seen)) {
        let alone = Flash { depth: 256, width: 256, ..SMALL };
        let together = Flash { warps: 4, unit: Unit::Warpgroup, columns: 32, padded: false, ..alone };
        for schedule in [alone, Flash { vector: 1, ..alone }, together] {
            check(&stage, [1, 1, 1, 17, 37, 256, 256], &schedule);
        }
    }
}

/// In `f16` ranges of rows leave fewer registers: lanes are found for every tile, and rows again before they are stored.
#[test]
fn gradients_of_256_places_in_f16() {
    let seen = SEEN[1];
    let alone = Flash { depth: 256, width: 256, ..SMALL };
    check(&backward_queries("f16", seen), [1, 1, 1, 17, 37, 256, 256], &alone);
    let together = Flash { warps: 4, unit: Unit::Warpgroup, columns: 32, padded: false, ..alone };
    for schedule in [alone, together] {
        let stage = backward_values("f16", seen);
        assert_eq!(stage.kind().pairwise().expect("pairs").contractions.len(), 1);
        check(&stage, [1, 1, 1, 37, 17, 256, 256], &schedule);
    }
}

#[test]
fn gradients_of_keys_and_values() {
    for stage in SEEN.map(|seen| backward_keys("f16", seen)) {
        for (m, n) in [(1, 1), (1, 37), (31, 16), (33, 33), (37, 61), (65, 20)] {
            check(&stage, [1, 2, 1, m, n, 24, 16], &Flash { depth: 32, ..SMALL });
        }
    }
}

#[test]
fn heads_that_share_keys_are_rounds() {
    let together = Flash { warps: 4, unit: Unit::Warpgroup, columns: 32, depth: 32, ..SMALL };
    for stage in SEEN.map(|seen| backward_shared_keys("f16", seen)) {
        let over = stage.kind().pairwise().unwrap().grouped.map(|axis| stage.program.axis_name(axis).to_owned());
        assert_eq!(over.as_deref(), Some("R"));
        for (r, m, n) in [(1, 1, 1), (2, 1, 37), (3, 31, 16), (1, 33, 33), (5, 37, 61), (2, 65, 20), (4, 20, 70)] {
            check(&stage, [1, 2, r, m, n, 24, 16], &Flash { depth: 32, ..SMALL });
            check(&stage, [2, 1, r, m, n, 24, 16], &Flash { stages: 3, ..together });
        }
    }
}

#[test]
fn non_finite_elements_of_every_iteration() {
    let stage = backward_shared_keys("bf16", SEEN[1]);
    let sizes = [1, 1, 3, 40, 60, 16, 16];
    let mut case = Case::new(&stage, &sizes);
    if let Data::Float(lse) = &mut case.inputs[3].data {
        lse.iter_mut().for_each(|x| *x += 3.0);
    }
    // Of the second head, a query that sees half of the keys.
    case.set_non_finite(4, &[(40 * 16 + 16 * 12 + 7, f64::NAN), (2 * 40 * 16 + 3, f64::NAN)]);
    case.check(&SMALL, Order::Random(1));
}

#[test]
fn masks_are_ranges_of_columns_in_both_directions() {
    let limits = |stage: &Stage| stage.kind().pairwise().unwrap().limits.iter().map(|l| l.above).collect::<Vec<_>>();
    assert_eq!(limits(&causal("bf16")), [true]);
    assert_eq!(limits(&backward_queries("bf16", SEEN[1])), [true]);
    assert_eq!(limits(&backward_keys("bf16", SEEN[1])), [false]);
}

#[test]
fn cotangents_of_rows_that_do_not_see_a_key_may_be_anything() {
    let stage = backward_keys("bf16", SEEN[1]);
    for (m, n) in [(33, 33), (40, 60)] {
        let sizes = [1, 1, 1, m, n, 16, 16];
        let mut case = Case::new(&stage, &sizes);
        if let Data::Float(lse) = &mut case.inputs[3].data {
            lse.iter_mut().for_each(|x| *x += 3.0);
        }
        // The first queries see few keys; a later one sees most of them.
        case.set_non_finite(4, &[(1, f64::NAN), (16 * 3 + 2, f64::NAN), (16 * 20 + 7, f64::NAN)]);
        case.check(&SMALL, Order::Random(1));
        case.check(&Flash { warps: 4, unit: Unit::Warpgroup, columns: 32, ..SMALL }, Order::Ascending);
    }
}

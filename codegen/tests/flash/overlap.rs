//! Blocks in which some warps only copy, and the others overlap products with weights.

use oplus_codegen::schedules::{Flash, Unit};
use oplus_codegen::simulate::Order;
use oplus_codegen::stage::Stage;
use oplus_dsl::interpret::Data;

use crate::attention::{SMALL, check_non_finite};
use crate::harness::Case;
use crate::programs::{biased, causal, plain, softcapped, weighted, window};

/// One warpgroup that walks, and one that copies.
const OVERLAPPED: Flash = Flash { warps: 4, unit: Unit::Warpgroup, columns: 32, copiers: 4, ..SMALL };

/// Two warpgroups that walk.
const TWO: Flash = Flash { warps: 8, stages: 3, ..OVERLAPPED };

/// In every order of events: in turn and not, by persistent blocks and others.
fn check(stage: &Stage, sizes: [usize; 7], schedule: &Flash) {
    let orders = [Order::Ascending, Order::Descending, Order::Random(sizes[3] as u64)];
    for ((turns, persistent), order) in [(false, false), (true, false), (true, true)].into_iter().zip(orders) {
        Case::new(stage, &sizes).check(&Flash { turns, persistent, ..*schedule }, order);
    }
}

#[test]
fn every_number_of_rows_and_columns() {
    for (m, n) in [(1, 1), (1, 37), (64, 31), (65, 32), (63, 33), (70, 64), (37, 160), (5, 0), (130, 97)] {
        check(&plain("bf16"), [1, 1, 2, m, n, 16, 16], &OVERLAPPED);
        check(&causal("f16"), [1, 1, 1, m, n, 16, 16], &TWO);
    }
}

#[test]
fn whatever_the_depth_and_width() {
    for (e, f) in [(16, 16), (32, 64), (128, 96), (48, 128)] {
        let schedule = Flash { depth: e as u32, width: f as u32, ..TWO };
        check(&causal("bf16"), [1, 1, 2, 130, 200, e, f], &schedule);
        check(&plain("f16"), [1, 2, 1, 70, 131, e, f], &Flash { warps: 12, columns: 16, stages: 2, ..schedule });
    }
}

/// Outputs whose rows fill whole accesses, and some whose rows do not. Some go through the shared memory of the block's rows.
#[test]
fn whole_rows_of_outputs() {
    for (e, f) in [(32, 32), (64, 96), (16, 48), (64, 64), (96, 64), (128, 128)] {
        let schedule = Flash { depth: e as u32, width: f as u32, padded: false, slack: e as u32 / 16, ..TWO };
        check(&causal("bf16"), [1, 1, 2, 130, 97, e, f], &schedule);
        check(&plain("f16"), [1, 2, 1, 70, 131, e, f], &schedule);
    }
}

/// Rows of outputs are staged while the rows of the block that come next are copied beside them, of which a warp has 16 or more.
#[test]
fn rows_are_staged_between_rows() {
    for (m, n) in [(300, 33), (257, 64), (129, 5)] {
        for (repeat, order) in [(1, Order::Ascending), (2, Order::Descending), (1, Order::Random(5))] {
            let schedule =
                Flash { depth: 64, width: 64, padded: false, persistent: true, slack: 8, repeat, ..OVERLAPPED };
            Case::new(&causal("bf16"), &[1, 1, 2, m, n, 64, 64]).check(&schedule, order);
        }
    }
}

/// Some warpgroups have no rows at the end, or see none of the first tiles, while the last products of the rows before run.
#[test]
fn warpgroups_leave_out_tiles_between_rows() {
    for (m, n) in [(300, 65), (257, 257), (130, 400)] {
        for order in [Order::Ascending, Order::Descending, Order::Random(3)] {
            let schedule = Flash { persistent: true, turns: m == 257, warps: 12, stages: 2, ..OVERLAPPED };
            Case::new(&plain("bf16"), &[1, 1, 1, m, n, 16, 16]).check(&schedule, order);
            Case::new(&causal("bf16"), &[1, 1, 1, m, n, 16, 16]).check(&schedule, order);
        }
    }
}

/// A persistent block begins to copy for its next rows while its last tiles are multiplied.
#[test]
fn persistent_blocks_go_from_rows_to_rows() {
    for (m, n) in [(300, 33), (129, 70), (64, 0), (260, 260)] {
        for order in [Order::Ascending, Order::Descending, Order::Random(1), Order::Random(2)] {
            for schedule in [Flash { turns: true, stages: 2, ..TWO }, OVERLAPPED] {
                let schedule = Flash { persistent: true, ..schedule };
                Case::new(&plain("bf16"), &[1, 2, 1, m, n, 16, 16]).check(&schedule, order);
                Case::new(&causal("bf16"), &[1, 1, 2, m, n, 16, 16]).check(&schedule, order);
            }
        }
    }
}

/// Scores that grow by little and by much, and rows that see nothing.
#[test]
fn the_maximum_may_stay_behind() {
    for (stage, slack) in [(causal("f16"), 8), (window(), 2), (softcapped(), 1), (plain("bf16"), 12)] {
        for (size, persistent) in [(0.25, false), (4.0, true), (40.0, false)] {
            let sizes = [1, 1, 2, 70, 170, 16, 16];
            let mut case = Case::new(&stage, &sizes);
            if let Data::Float(queries) = &mut case.inputs[0].data {
                queries.iter_mut().for_each(|x| *x *= size);
            }
            case.check(&Flash { slack, persistent, turns: true, ..TWO }, Order::Random(slack.into()));
        }
    }
}

#[test]
fn windows_and_caps() {
    for (m, n) in [(1, 5), (40, 40), (17, 170), (170, 17), (150, 150)] {
        check(&window(), [1, 1, 1, m, n, 16, 16], &TWO);
        check(&softcapped(), [1, 1, 1, m, n, 16, 16], &OVERLAPPED);
    }
}

#[test]
fn what_a_row_does_not_see_may_be_anything() {
    for (m, n) in [(40, 40), (33, 70), (140, 150)] {
        for stage in [causal("bf16"), window(), softcapped()] {
            let usual = Flash { turns: true, ..TWO };
            for schedule in [TWO, usual, Flash { persistent: true, slack: 8, ..usual }] {
                check_non_finite(&stage, [1, 1, 1, m, n, 16, 16], &schedule, 2e-2);
            }
        }
    }
    // The warps that look through these tiles have as many pieces each.
    let whole = Flash { columns: 64, depth: 64, width: 64, padded: false, persistent: true, slack: 8, ..TWO };
    for elem in ["bf16", "f16"] {
        check_non_finite(&causal(elem), [1, 1, 1, 70, 130, 64, 64], &whole, 2e-2);
    }
}

/// A block whose warps all copy takes the stage.
fn check_alone(stage: &Stage) {
    Case::new(stage, &[1, 1, 2, 33, 40, 16, 16]).check(&SMALL, Order::Random(1));
}

/// A bias is a condition on pairs, numbers of keys come with no tile, and copies of single elements are not asynchronous.
#[test]
fn others_are_refused() {
    let refused =
        |stage: &Stage, schedule: &Flash| oplus_codegen::schedules::flash::lower(stage, schedule, "k").is_err();
    assert!(!refused(&plain("bf16"), &TWO));
    assert!(refused(&biased(), &TWO));
    check_alone(&weighted());
    assert!(refused(&weighted(), &TWO));
    for other in [
        Flash { vector: 1, ..TWO },
        Flash { unit: Unit::Warp, ..TWO },
        Flash { copiers: 2, ..TWO },
        Flash { warps: 6, ..TWO },
        Flash { warps: 32, ..TWO },
        Flash { copiers: 0, turns: true, ..TWO },
        Flash { copiers: 0, persistent: true, ..TWO },
        Flash { copiers: 0, slack: 8, ..TWO },
        Flash { slack: 13, ..TWO },
    ] {
        assert!(refused(&plain("bf16"), &other), "{other}");
    }
}

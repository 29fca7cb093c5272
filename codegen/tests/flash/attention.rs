//! Softmax attention: what hides keys, and awkward sizes.

use oplus_codegen::schedules::flash::SumsOver;
use oplus_codegen::schedules::{Flash, Unit};
use oplus_codegen::simulate::Order;
use oplus_codegen::stage::Stage;
use oplus_dsl::Elem;
use oplus_dsl::interpret::Data;
use oplus_dsl::scalar::round;

use crate::harness::Case;
use crate::programs::{biased, causal, plain, softcapped, window};

/// A small schedule: 2 warps of 16 rows, tiles of 16 columns.
pub(crate) const SMALL: Flash = Flash {
    warps: 2,
    repeat: 1,
    unit: Unit::Warp,
    columns: 16,
    depth: 16,
    width: 16,
    padded: true,
    stages: 2,
    vector: 8,
    blocks: 1,
    copiers: 0,
    persistent: false,
    turns: false,
    slack: 0,
    sums: SumsOver::Columns,
};

fn check(stage: &Stage, sizes: [usize; 7], schedule: &Flash) {
    Case::new(stage, &sizes).check(schedule, Order::Random(sizes[3] as u64));
}

#[test]
fn every_number_of_rows_and_columns() {
    let stage = plain("bf16");
    for (m, n) in [(1, 1), (1, 37), (2, 15), (31, 16), (32, 17), (33, 32), (37, 61), (5, 0), (65, 2)] {
        check(&stage, [1, 1, 2, m, n, 16, 16], &SMALL);
        check(&stage, [1, 1, 1, m, n, 16, 16], &Flash { repeat: 2, warps: 1, columns: 32, stages: 3, ..SMALL });
    }
}

#[test]
fn every_depth_and_width() {
    let stage = plain("f16");
    for (e, f, vector) in [(8, 16, 8), (16, 24, 8), (12, 20, 4), (6, 2, 2), (5, 7, 1), (33, 17, 1), (32, 48, 8)] {
        let (depth, width) = (e as u32, f as u32);
        let [depth, width] = [depth, width].map(|n| n.next_multiple_of(16));
        check(&stage, [1, 1, 1, 20, 19, e, f], &Flash { depth, width, vector, ..SMALL });
    }
    for (depth, width) in [(64, 64), (96, 32), (128, 80)] {
        let schedule = Flash { depth, width, padded: false, columns: 32, ..SMALL };
        check(&stage, [1, 1, 1, 33, 40, depth as usize, width as usize], &schedule);
    }
}

/// Where sums leave few registers, copies are loops and rows are stored together.
#[test]
fn axes_of_256_places() {
    for (stage, vector) in [plain("bf16"), causal("bf16"), biased()].iter().flat_map(|stage| [(stage, 8), (stage, 1)]) {
        let schedule = Flash { depth: 256, width: 256, vector, ..SMALL };
        check(stage, [1, 1, 1, 33, 20, 232, 240], &schedule);
        check(stage, [1, 1, 1, 17, 33, 256, 256], &Flash { padded: false, columns: 32, ..schedule });
    }
}

#[test]
fn rows_of_tensors_may_be_longer() {
    let stage = causal("bf16");
    let sizes = [2, 2, 2, 19, 23, 16, 8];
    let case = Case { pad: 8, ..Case::new(&stage, &sizes) };
    case.check(&SMALL, Order::Descending);
}

#[test]
fn a_query_sees_the_keys_up_to_its_own() {
    let stage = causal("bf16");
    for (m, n) in [(1, 1), (1, 40), (40, 40), (17, 64), (64, 17), (33, 31), (3, 0), (50, 49)] {
        check(&stage, [1, 2, 1, m, n, 16, 16], &SMALL);
        check(&stage, [1, 1, 1, m, n, 16, 16], &Flash { columns: 32, repeat: 2, stages: 3, ..SMALL });
    }
}

#[test]
fn windows_biases_and_caps() {
    for (m, n) in [(1, 5), (40, 40), (17, 70), (70, 17)] {
        check(&window(), [1, 1, 1, m, n, 16, 16], &SMALL);
        check(&softcapped(), [1, 1, 1, m, n, 16, 16], &SMALL);
    }
    let (stage, sizes) = (biased(), [1, 1, 2, 37, 41, 16, 16]);
    let mut case = Case::new(&stage, &sizes);
    if let Data::Float(bias) = &mut case.inputs[3].data {
        (0..bias.len()).filter(|i| i % 3 == 0 || *i < 41).for_each(|i| bias[i] = f64::NEG_INFINITY);
    }
    case.check(&SMALL, Order::Ascending);
}

#[test]
fn warpgroups_multiply_the_same() {
    let together = Flash { warps: 4, unit: Unit::Warpgroup, ..SMALL };
    for (m, n, e, f) in [(1, 1, 16, 16), (70, 37, 16, 16), (130, 65, 32, 64), (64, 80, 128, 96), (63, 15, 48, 128)] {
        let schedule = Flash { depth: e as u32, width: f as u32, columns: 32, ..together };
        check(&causal("bf16"), [1, 1, 2, m, n, e, f], &schedule);
        check(&plain("f16"), [1, 2, 1, m, n, e, f], &Flash { warps: 8, columns: 16, repeat: 2, stages: 3, ..schedule });
    }
    check(&plain("bf16"), [1, 1, 1, 40, 33, 15, 9], &Flash { vector: 1, ..together });
}

#[test]
fn single_precision_keeps_its_accuracy() {
    for (m, n, e, f) in [(1, 1, 16, 16), (20, 37, 8, 20), (33, 40, 32, 48), (17, 9, 64, 16)] {
        let [depth, width] = [e, f].map(|n: usize| n.next_multiple_of(16) as u32);
        let schedule = Flash { depth, width, vector: 4, ..SMALL };
        for stage in [causal("f32"), plain("f32")] {
            let sizes = [1, 1, 2, m, n, e, f];
            Case::new(&stage, &sizes).check_to(&schedule, Order::Random(1), 2e-6);
        }
    }
    let sizes = [1, 1, 1, 19, 21, 5, 3];
    Case::new(&plain("f32"), &sizes).check_to(&Flash { vector: 1, ..SMALL }, Order::Descending, 2e-6);
}

#[test]
fn errors_of_single_precision_do_not_add_up_along_sums() {
    let schedule = Flash { depth: 128, vector: 4, ..SMALL };
    for stage in [plain("f32"), causal("f32")] {
        let mut case = Case::new(&stage, &[1, 1, 1, 16, 400, 128, 16]);
        // Sums of one sign.
        for array in &mut case.inputs {
            if let Data::Float(numbers) = &mut array.data {
                numbers.iter_mut().for_each(|x| *x = round(Elem::F32, x.abs()));
            }
        }
        case.check_to(&schedule, Order::Random(1), 6e-7);
    }
}

#[test]
fn the_same_bits_in_every_order_of_events() {
    let (stage, sizes) = (causal("f16"), [1, 1, 2, 50, 45, 16, 16]);
    let case = Case::new(&stage, &sizes);
    let first = case.run(&SMALL, Order::Ascending);
    for seed in 0..5 {
        assert_eq!(case.run(&SMALL, Order::Random(seed)), first);
    }
}

/// Runs with elements of the values that are infinite or NaN: the rows that do not see them must not know.
pub(crate) fn check_non_finite(stage: &Stage, sizes: [usize; 7], schedule: &Flash, error: f64) {
    let [.., n, _, f] = sizes;
    let all: Vec<(usize, f64)> = (0..n * f).map(|at| (at, f64::NAN)).collect();
    let (later, late) = (n / 2 * f, (n - 1) * f);
    let some =
        [(later + 1, f64::INFINITY), (later + 3, f64::NEG_INFINITY), (late, f64::NAN), (late - f, f64::INFINITY)];
    for elements in [&some[..], &all[late..], &all[later..], &all] {
        let mut case = Case::new(stage, &sizes);
        case.set_non_finite(2, elements);
        let found = case.wanted()[0].as_floats().expect("floats").to_vec();
        assert!(found.iter().any(|x| !x.is_finite()), "seen by some row");
        case.check_to(schedule, Order::Random(n as u64), error);
    }
}

#[test]
fn what_a_row_does_not_see_may_be_anything() {
    let together = Flash { warps: 4, unit: Unit::Warpgroup, columns: 32, ..SMALL };
    for (m, n) in [(40, 40), (33, 70)] {
        for stage in [causal("bf16"), window(), softcapped()] {
            check_non_finite(&stage, [1, 1, 1, m, n, 16, 16], &SMALL, 2e-2);
            check_non_finite(
                &stage,
                [1, 1, 1, m, n, 16, 16],
                &Flash { columns: 64, warps: 1, repeat: 2, ..SMALL },
                2e-2,
            );
            check_non_finite(&stage, [1, 1, 1, m, n, 16, 32], &Flash { width: 32, ..together }, 2e-2);
        }
        check_non_finite(&causal("f16"), [1, 1, 1, m, n, 9, 11], &Flash { vector: 1, ..SMALL }, 2e-2);
        check_non_finite(&causal("f32"), [1, 1, 1, m, n, 16, 16], &Flash { vector: 4, ..SMALL }, 2e-6);
    }
}

#[test]
fn what_a_bias_hides_may_be_anything() {
    let (stage, sizes) = (biased(), [1, 1, 2, 37, 41, 16, 16]);
    let mut case = Case::new(&stage, &sizes);
    if let Data::Float(bias) = &mut case.inputs[3].data {
        (0..bias.len()).filter(|i| i % 3 == 0 || i % 41 == 5).for_each(|i| bias[i] = f64::NEG_INFINITY);
    }
    case.set_non_finite(
        2,
        &[(5 * 16 + 2, f64::NAN), (7 * 16, f64::INFINITY), (7 * 16 + 9, f64::NAN), (8 * 16 + 9, f64::NAN)],
    );
    case.check(&SMALL, Order::Ascending);
    case.check(&Flash { warps: 4, unit: Unit::Warpgroup, columns: 32, ..SMALL }, Order::Ascending);
}

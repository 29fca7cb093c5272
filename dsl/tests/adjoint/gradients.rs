//! Gradients of hand-written programs.

use oplus_dsl::Ty;
use oplus_dsl::build::Direction;
use oplus_dsl::testing::operators as standard;

use crate::harness::Case;
use crate::operators;
use crate::programs::{self, EXCLUSIVE, FORWARD, REVERSE, REVERSE_EXCLUSIVE};

const DIRECTIONS: [Direction; 4] = [FORWARD, REVERSE, EXCLUSIVE, REVERSE_EXCLUSIVE];

#[test]
fn affine_in_all_directions() {
    for how in DIRECTIONS {
        for n in [0, 1, 2, 5] {
            Case::new(&programs::affine(how), &[("B", 2), ("L", n)], 1).check();
        }
    }
}

#[test]
fn affine_with_all_states() {
    for n in [0, 1, 4] {
        Case::new(&programs::affine_all_states(), &[("B", 2), ("L", n)], 2).check();
    }
}

#[test]
fn exponential_moving_average() {
    for n in [0, 1, 6] {
        Case::new(&programs::ema(), &[("L", n)], 3).check();
    }
}

#[test]
fn selective_scan() {
    let program = programs::selective_scan();
    for n in [0, 1, 3] {
        Case::new(&program, &[("B", 2), ("D", 2), ("L", n), ("N", 3)], 4).check();
    }
}

#[test]
fn log_decay() {
    for how in DIRECTIONS {
        Case::new(&programs::log_decay(how), &[("L", 4), ("K", 2), ("V", 3)], 5).check();
    }
    Case::new(&programs::log_decay_total(), &[("L", 5), ("K", 2)], 6).check();
}

#[test]
fn attention() {
    for n in [1, 2, 5] {
        Case::new(&programs::attention(), &[("Q", 2), ("T", n), ("V", 3)], 7).check();
    }
}

#[test]
fn attention_scan() {
    for n in [0, 1, 2, 5] {
        Case::new(&programs::attention_scan(FORWARD), &[("T", n), ("V", 2)], 8).with("d0", [1.5]).check();
    }
}

#[test]
fn attention_scan_exclusive() {
    for n in [0, 1, 4] {
        Case::new(&programs::attention_scan(EXCLUSIVE), &[("T", n), ("V", 2)], 9).with("d0", [1.5]).check();
    }
}

#[test]
fn operators_of_several_states() {
    let own = [operators::min(), operators::matrix_affine(), operators::heisenberg(), operators::quaternion()];
    let all = standard::differentiable(Ty::F64).into_iter().filter(|op| op.gauge.is_none()).chain(own);
    for (k, operator) in all.enumerate() {
        let infinite = operator.identity.iter().any(|x| x.as_f64().is_infinite());
        for (how, with_init) in DIRECTIONS.into_iter().flat_map(|how| [(how, false), (how, true)]) {
            let program = programs::states(operator.clone(), how, with_init);
            let case = Case::new(&program, &[("B", 2), ("T", 3)], 10 + k as u64).positive(&["n", "n0"]);
            // Differences of the identity's infinity are NaN.
            if infinite && how.exclusive && !with_init { case.check_exact() } else { case.check() }
        }
        for n in [1, 2, 5] {
            Case::new(&programs::totals(operator.clone()), &[("B", 2), ("T", n)], 30 + k as u64)
                .positive(&["n"])
                .check();
        }
    }
}

#[test]
fn fields_that_all_depend_on_each_other() {
    let program = programs::states(operators::mixed_products::<3>(), FORWARD, true);
    Case::new(&program, &[("B", 1), ("T", 3)], 16).check();
    Case::new(&programs::totals(operators::mixed_products::<3>()), &[("B", 2), ("T", 4)], 17).check();
}

#[test]
fn products_with_zeros() {
    let program = programs::totals(standard::product(Ty::F64));
    for x in [[0.0, 2.0, 3.0], [2.0, 0.0, 3.0], [0.0, 2.0, 0.0], [0.0, 0.0, 0.0]] {
        Case::new(&program, &[("B", 1), ("T", 3)], 0).with("p", x).check();
    }
}

#[test]
fn positions_and_uses() {
    for n in [0, 1, 2, 3, 5] {
        Case::new(&programs::positions(), &[("B", 2), ("T", n)], 11).check();
    }
    Case::new(&programs::many_uses(), &[("B", 3), ("D", 2)], 12).check();
}

#[test]
fn running_maximum() {
    Case::new(&programs::running_max(), &[("B", 3), ("T", 6)], 13).check();
}

#[test]
fn argmax() {
    Case::new(&programs::argmax(), &[("B", 3), ("T", 5)], 14).check();
}

#[test]
fn segments() {
    let program = programs::segmented_affine();
    let case = Case::new(&program, &[("T", 7), ("S", 3), ("D", 2)], 15).with_ints("offsets", &[0, 3, 4]);
    case.check();
}
